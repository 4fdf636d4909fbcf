"""Runs each program in this folder and checks its output.

python examples/basics/basics_test.py
"""

import contextlib
import io
import os
import pathlib
import re
import runpy
import subprocess
import sys

from absl.testing import absltest, parameterized

_FOLDER = pathlib.Path(__file__).resolve().parent

# Regular expressions of the output, in order.
_SHOWN = {
    "fit_a_curve": [r"^loss 1\d\.", r"step 300: loss 0\.00", r"weights \[ 1. +-2. +0.5\]", r"difference \de-0[4-9]"],
    "shapes": [
        r"eager: \(2, 10, 32\) \[2, 10, 32\]",
        r"traced: x.shape is \(None, 10, 32\)",
        r"get_shape\(x\) is \[<tf.Tensor .*, 10, 32\]",
        r"by tf.shape \(None, None\) by tfo.shapes.reshape \(None, 320\)",
        r"checked: .*\[7,4\] is not compatible",
        r"signature: \[TensorShape\(\[2\]\), TensorShape\(\[3\]\), TensorShape\(\[4\]\)\]",
    ],
    "broadcasting": [
        r"\[\[11.0, 12.0\], \[23.0, 24.0\]\]",
        r"differs from Dense over the tiles by \de-0[67]",
        r"inputs: 6656 in the tiles: 19200",
        r"the loss is 1.333: \(3, 3\)",
        r"with equal shapes: 0.0",
        r"must have rank 2",
        r"12.0 along axis 0: \[5. 7.\]",
    ],
    "feeding_data": [
        r"constant: 135.0",
        r"graphs for 3 Python numbers: 3 and for 3 tensors: 1",
        r"tensor slices: \[\(4, 3\), \(4, 3\), \(2, 3\)\] 135.0",
        r"generator: \[\(4, 3\), \(4, 3\), \(2, 3\)\] 135.0",
        r"python_op: \(None, 3\) \[3. 2. 1.\]",
        r"pipeline: \[\(4, 3\), \(4, 3\), \(4, 3\), \(4, 3\)\] \(4, 3\)",
    ],
    "slicing": [r"^slices .* 2\d\d\d$", r"^reduction .* \d$", r"slices / reduction: \d+ eagerly", r"in one op: True"],
    "order_of_execution": [
        r"Python ran 1 time, the graph 3 times",
        r"in the order of the lines: \[1, 11\]",
        r"not tied: the check does not run, \[ ?0. +nan\]",
        r"tied: the check runs first, and fails",
        r"read before, and in the block: \[5, 100\]",
        r"still runs: Condition x > 0|still runs: .*Condition x > 0",
    ],
    "control_flow": [
        r"cond: \[6, 3\]",
        r"if:   \[6, 3\]",
        r"gradient \[nan +1.\] mended \[0. 1.\]",
        r"while_loop: 1.4142 after \d passes",
        r"at 2: 0.3536, by hand 0.3536",
        r"growing tensor: \[ 1  2  4  8 16 32\]",
        r"TensorArray: \[ 1  1  2  3  5  8 13 21 34 55\]",
        r"for over range: 1\d\d ops",
        r"for over tf.range: \d\d ops",
    ],
    "debugging": [
        r"normalised: \[\[0.25 0.75\]\]",
        r"assertion: .*rows must have a positive sum",
        r"check_numerics: log of x : Tensor had NaN values",
        r"values: 0.878281 and 0.878281",
        r"trained: 0.878 and 1.386, best 1.386",
        r"gradient error of wrong_entropy: \de-0[12]",
        r"gradient error of entropy: \de-(0[89]|1\d)",
        r"gradient error of softmax_entropy: \de-(0[89]|1\d)",
        r"assert_gradients: wrong gradients of 1 of 1 inputs",
    ],
    "numerical_stability": [
        r"x \* y / y: nan",
        r"formula: \[\[nan, 0.0\], \[0.5, 0.5\]\]",
        r"tensor's maximum: \[\[1.0, 0.0\], \[nan, nan\]\]",
        r"tfo.nn.softmax: \[\[1.0, 0.0\], \[0.5, 0.5\]\]",
        r"log\(softmax\): \[inf\] gradient \[\[nan, nan\]\]",
        r"from logits: \[200.\] gradient \[\[1.0, -1.0\]\]",
        r"masked class: \[nan\] and \[0.58\d*\]",
        r"its gradient: \[\[nan, nan, nan\]\] \[\[0.19\d*, -0.19\d*, 0.0\]\]",
        r"KL: by its formula .*, tfo.nn.gaussian_kl 2.50e-09, exact 2.50e-09",
        r"in float16: 2048.0 in float32: 4096.0",
    ],
    "data_parallelism": [
        r"devices: .*CPU:0.*CPU:1|devices: .*GPU",
        r"gradients differ by at most \de-0[6-9]",
        r"epoch 4: loss 0\.[0-4]",
        r"accuracy (0.9|1.0)",
    ],
}


class BasicsTest(parameterized.TestCase):
    def test_every_program_has_a_case(self):
        programs = {path.stem for path in _FOLDER.glob("*.py")} - {"basics_test"}
        self.assertCountEqual(programs, _SHOWN)
        readme = (_FOLDER / "README.md").read_text(encoding="utf-8")
        self.assertCountEqual(re.findall(r"\[(\w+)\.py\]", readme), _SHOWN)

    @parameterized.parameters(*_SHOWN)
    def test_output(self, name):
        path = _FOLDER / f"{name}.py"
        if name == "data_parallelism":  # configures devices, which only works in a new process
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[1:])}
            command = [sys.executable, str(path)]
            done = subprocess.run(
                command, env=environment, cwd="/", capture_output=True, text=True, timeout=240, check=False
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            printed = done.stdout
        else:
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                runpy.run_path(str(path), run_name="__main__")
            printed = output.getvalue()
        rest = printed
        for expression in _SHOWN[name]:
            match = re.search(expression, rest, re.MULTILINE)
            self.assertIsNotNone(match, f"{expression!r} is not in what is left of\n{printed}\nwhich is\n{rest}")
            rest = rest[match.end() :]


if __name__ == "__main__":
    absltest.main()
