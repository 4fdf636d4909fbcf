"""Tests of new_op, on a small repository, and of run_tutorial."""

import contextlib
import io
import os
import pathlib
import shutil
import sys
from unittest import mock

import new_op
import run_tutorial
from absl.testing import absltest, parameterized

_FILES = {
    "tools/lint.sh": "echo of $#; exit 1\n",
    "tensorflow_ops/BUILD": 'OP_FAMILIES = [\n    "pool",\n]\n',
    "tensorflow_ops/__init__.py": 'from tensorflow_ops import (\n    pool,\n)\n\n__all__ = ["pool", "show_versions"]\n',
    "tensorflow_ops/pool/BUILD": 'tfo_op(name = "swim")\ntfo_namespace(\n    name = "pool",\n)\n',
    "tensorflow_ops/pool/__init__.py": '"""Pooling."""\n\nfrom a import b\n\n__all__ = [\n    "max_pool",\n]\n',
    "tensorflow_ops/pool/python/ops/mean_pool_test.py": "",
    "tensorflow_ops/pool/cc/ops/pool_ops.cc": 'REGISTER_OP("TensorflowOps>MaxPool")\n',
    "tensorflow_ops/pool/cc/kernels/pool.h": "struct BoxPoolArgs {};\n",
    "tensorflow_ops/zero_out/BUILD": "tfo_op_family(\n",
    "tensorflow_ops/core/BUILD": "",
    "tensorflow_ops/testing/python/op_samples_test.py": "_OWN_TESTS = []\n",
    "tensorflow_ops/export/python/standard_ops_test.py": '_NO_COMPOSITIONS = {"Version"}\n',
}

_ATTRS = ("size:int=-2", "scale:float=0.1", "ceil:bool=true", "mode:string=soft|hard")


class RepositoryTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.create_tempdir().full_path).resolve()
        for path, text in _FILES.items():
            self.write(path, text)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def read(self, path):
        return (self.root / path).read_text()

    def snapshot(self):
        return {path: path.read_bytes() if path.is_file() else None for path in self.root.rglob("*")}

    def generate(self, family="pool", op="CropPool", kind="map", num_outputs=1, attrs=()):
        return new_op.generate(self.root, family, op, kind, num_outputs, [new_op.parse_attr(text) for text in attrs])

    def assert_refused(self, message, **arguments):
        before = self.snapshot()
        with self.assertRaisesRegex(new_op.CannotWriteError, message):
            self.generate(**arguments)
        self.assertEqual(self.snapshot(), before)


class GenerateTest(RepositoryTest):
    @parameterized.parameters(
        ("map", 3), ("reduction", 3), ("gather", 1), ("map", 6, 2), ("reduction", 9, 3), ("gather", 1, 1, _ATTRS)
    )
    def test_marks_what_is_to_be_written(self, kind, definitions, num_outputs=1, attrs=()):
        new, _ = self.generate(kind=kind, num_outputs=num_outputs, attrs=attrs)
        self.assertLen(new, 9)
        holes = {path: self.read(path).count("FILL IN") for path in new}
        family = "tensorflow_ops/pool"
        expected = {f"{family}/cc/kernels/crop_pool/crop_pool.h": definitions, "benchmarks/pool/crop_pool.py": 1}
        expected |= {f"{family}/python/ops/crop_pool.py": 1 + len(attrs), f"{family}/python/ops/crop_pool_test.py": 1}
        self.assertEqual({path: count for path, count in holes.items() if count}, expected)
        for path in new:
            self.assertNotRegex(self.read(path), r"@@|\$")

    def test_attrs(self):
        self.generate(attrs=_ATTRS)
        family = "tensorflow_ops/pool"
        definition = self.read(f"{family}/cc/ops/crop_pool_ops.cc")
        for attr in ("size: int = -2", "scale: float = 0.1", "ceil: bool = true", "mode: {'soft', 'hard'} = 'soft'"):
            self.assertEqual(definition.count(f'.Attr("{attr}")'), 2, attr)  # of the op and its gradient
        header = self.read(f"{family}/cc/kernels/crop_pool/crop_pool.h")
        self.assertIn("enum class CropPoolMode { kSoft, kHard };", header)
        self.assertIn("int64_t size;\n  float scale;\n  bool ceil;\n  CropPoolMode mode;\n", header)
        function = self.read(f"{family}/python/ops/crop_pool.py")
        self.assertIn('*, size: int = -2, scale: float = 0.1, ceil: bool = True, mode: Mode = "soft", name:', function)
        test = self.read(f"{family}/python/ops/crop_pool_test.py")
        self.assertIn('(x, size=-2, scale=0.10000000149011612, ceil=True, mode="soft")', test)
        self.assertIn('[{}, {"size": -1, "scale": 0.5, "ceil": False, "mode": "hard"}]', test)

    def test_outputs(self):
        self.generate(kind="reduction", num_outputs=2)
        family = "tensorflow_ops/pool"
        self.assertIn("import CropPool, crop_pool\n", self.read(f"{family}/__init__.py"))
        self.assertRegex(self.read(f"{family}/__init__.py"), r'__all__ = \["CropPool", "crop_pool"')
        definition = self.read(f"{family}/cc/ops/crop_pool_ops.cc")
        self.assertIn('.Output("output_0: T")\n    .Output("output_1: T")\n', definition)
        self.assertIn('.Input("d_output_0: T")\n    .Input("d_output_1: T")\n.Input("x: T")', definition)
        self.assertIn("-> CropPool:", self.read(f"{family}/python/ops/crop_pool.py"))

    def test_adds_to_the_lists_of_a_family(self):
        self.generate()
        self.generate(op="Dive")
        self.assertRegex(
            self.read("tensorflow_ops/pool/BUILD"),
            r'tfo_op\(name = "crop_pool"\)\n\ntfo_op\(name = "dive"\)\n\ntfo_namespace\(',
        )
        module = self.read("tensorflow_ops/pool/__init__.py")
        self.assertIn("from tensorflow_ops.pool.python.ops.crop_pool import crop_pool\n", module)
        self.assertRegex(module, r'__all__ = \[[^]]*"crop_pool"')
        self.assertIn('"pool.crop_pool"', self.read("tensorflow_ops/testing/python/op_samples_test.py"))
        self.assertIn('"pool.dive"', self.read("tensorflow_ops/testing/python/op_samples_test.py"))
        self.assertIn('{"Dive", "CropPool", ', self.read("tensorflow_ops/export/python/standard_ops_test.py"))

    def test_makes_a_family(self):
        self.generate("shapes", "Ring")
        self.assertIn('"shapes",', self.read("tensorflow_ops/BUILD"))
        self.assertRegex(self.read("tensorflow_ops/__init__.py"), r"from tensorflow_ops import \(\s+shapes, pool,")
        self.assertIn('"shapes"', self.read("tensorflow_ops/__init__.py"))
        self.assertIn('tfo_op(name = "ring")', self.read("tensorflow_ops/shapes/BUILD"))
        self.assertIn("import ring\n", self.read("tensorflow_ops/shapes/__init__.py"))
        self.assertEqual(self.read("tensorflow_ops/shapes/python/ops/__init__.py"), "")


class RefusalTest(RepositoryTest):
    @parameterized.parameters(
        ("pool", "crop_pool", "expected CamelCase"),
        ("pool", "", "expected CamelCase"),
        ("pool", "../Etc", "expected CamelCase"),
        ("pool", "CropPoolGrad", "without Grad at its end"),
        ("pool", "Lambda", "'lambda' has another meaning in Python"),
        ("pool", "Match", "'match' has another meaning in Python"),
        ("pool", "Abs", "'abs' has another meaning in Python"),
        ("pool", "Tensorflow", "or in the generated files"),
        ("../pool", "CropPool", "expected small letters"),
        ("class", "CropPool", "'class' has another meaning in Python"),
        ("core", "CropPool", "has 'core' already, and it is no family"),
        ("zero_out", "CropPool", "has 'zero_out' already, and it is no family"),
        ("show_versions", "CropPool", "has 'show_versions' already, and it is no family"),
        ("pool", "MaxPool", "tfo.pool.max_pool exists already"),
        ("pool", "Swim", "or a target of that name"),
        ("shapes", "MaxPool", "C\\+\\+ has TensorflowOps>MaxPool already: tensorflow_ops/pool/cc/ops/pool_ops.cc"),
        ("pool", "BoxPool", "C\\+\\+ has BoxPoolArgs already: tensorflow_ops/pool/cc/kernels/pool.h"),
        ("shapes", "MeanPool", "there is a test of that name already: .*mean_pool_test.py"),
    )
    def test_names(self, family, op, message):
        self.assert_refused(message, family=family, op=op)

    @parameterized.parameters(
        ("scale", "expected NAME:TYPE=DEFAULT"),
        ("scale:float", "expected NAME:TYPE=DEFAULT"),
        ("Scale:float=1", "'Scale', expected small letters"),
        ("template:int=1", "'template', expected small letters"),
        ("lambda:float=1", "'lambda', expected"),
        ("curvature:bool=true", "'curvature', expected"),
        ("output_1:int=1", "'output_1', expected"),
        ("dtype:type=float", "dtype's type is 'type', expected one of int, float, bool, string"),
        ("size:int=1.5", "size's default is '1.5', expected an int below 2"),
        ("size:int=2147483648", "expected an int below 2"),
        ("scale:float=nan", "scale's default is 'nan', expected a finite float32"),
        ("scale:float=1e39", "expected a finite float32"),
        ("ceil:bool=1", "expected true or false"),
        ("mode:string=soft", "mode's default is 'soft', expected its values, the default first"),
        ("mode:string=soft|soft", "expected its values"),
        ("mode:string=soft|Hard", "expected its values"),
    )
    def test_attr(self, text, message):
        self.assert_refused(message, attrs=[text])

    @parameterized.parameters(
        ({"kind": "gather", "num_outputs": 2}, "a gather has one output: several rows for an index are one gather"),
        ({"num_outputs": 0}, "--outputs is 0, expected a number from 1 to 9"),
        ({"attrs": ["size:int=1", "size:float=1"]}, "there are 2 attrs 'size'"),
    )
    def test_combinations(self, arguments, message):
        self.assert_refused(message, **arguments)

    def test_the_same_op_again(self):
        self.generate()
        self.assert_refused("tfo.pool.crop_pool exists already")
        self.assert_refused("CropPoolGrad already", family="other")

    @parameterized.parameters(
        ("benchmarks/pool/crop_pool.py", "mine", "benchmarks/pool/crop_pool.py exists already"),
        ("tensorflow_ops/testing/python/op_samples_test.py", "", "not as expected: .*op_samples_test.py has no match"),
    )
    def test_files(self, path, text, message):
        self.write(path, text)
        self.assert_refused(message)

    def test_no_repository(self):
        shutil.rmtree(self.root / "tensorflow_ops")
        self.assert_refused("is no clone of tensorflow_ops")


class NamesTest(parameterized.TestCase):
    @parameterized.parameters(
        ("CropPool", "crop_pool"), ("RoIPool", "ro_i_pool"), ("Conv2D", "conv2d"), ("NMSWithIndex", "nms_with_index")
    )
    def test_snake_case_is_tensorflows(self, op, python):
        self.assertEqual(new_op.snake_case(op), python)


class CommandLineTest(RepositoryTest):
    def run_main(self, *arguments):
        printed = io.StringIO()
        with (
            mock.patch.dict(os.environ, {"BUILD_WORKSPACE_DIRECTORY": str(self.root)}),
            mock.patch.object(sys, "argv", ["new_op", *arguments]),
            contextlib.redirect_stdout(printed),
        ):
            new_op.main()
        return printed.getvalue()

    def test_options(self):
        options = (
            "--family",
            "pool",
            "--name",
            "CropPool",
            "--kind",
            "gather",
            "--attr",
            "a:int=1",
            "--attr",
            "b:int=2",
        )
        printed = self.run_main(*options)
        self.assertIn("tfo.pool.crop_pool.", printed)
        self.assertIn("tensorflow_ops/pool/python/ops/crop_pool.py", printed)
        self.assertIn("a: int = 1, b: int = 2, ", self.read("tensorflow_ops/pool/python/ops/crop_pool.py"))
        self.assertIn("Not all files are formatted: bash tools/lint.sh --fix prints\nof 14", printed)

    def test_an_error_is_one_line(self):
        with self.assertRaisesRegex(SystemExit, "^ERROR: tfo.pool.max_pool exists already.*\nNothing is written.$"):
            self.run_main("--family", "pool", "--name", "MaxPool", "--kind", "map")


class RunTutorialTest(parameterized.TestCase):
    def run_page(self, page):
        folder = pathlib.Path(self.create_tempdir().full_path)
        around = "```bash\nexit 1\n```\n"
        tutorial = f"<!-- tutorial: begin -->\n{page}<!-- tutorial: end -->\n"
        (folder / "page.md").write_text(around + tutorial + around)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        with mock.patch.object(sys, "argv", ["run_tutorial", "page.md"]):
            run_tutorial.main()

    def test_files_environment_and_output(self):
        self.run_page(
            "```python\n# a/b.py\nimport os\nprint(os.environ['WHO'])\n```\n```bash\nexport WHO=me\n```\n"
            f"```bash\n{sys.executable} a/b.py\necho //a PASSED in 93.4s\n```\n"
            "```text\n//a   PASSED in 1.5s\nm...\n```\n"
        )

    @parameterized.parameters(
        ("echo me\n```\n```text\nyou\n", "not printed, or not in its place:\nyou\n.*but:\nme"),
        ("echo a; echo b\n```\n```text\nb\na\n", "not in its place:\na\n"),
        ("echo partly\nexit 3\n", "partly.*exit status 3 of:\necho partly"),
    )
    def test_errors(self, blocks, message):
        with self.assertRaisesRegex(SystemExit, f"(?s){message}"):
            self.run_page(f"```bash\n{blocks}```\n")


if __name__ == "__main__":
    absltest.main()
