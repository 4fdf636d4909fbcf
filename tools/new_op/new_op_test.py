"""Tests of new_op on a small repository: names, clashes, what is written, and that errors leave nothing behind."""

import ast
import contextlib
import io
import os
import shutil
import subprocess
import sys
import textwrap
from unittest import mock

import edits
import generator
import names
import new_op
import prototype
import small_repository
import writing
from absl.testing import absltest, parameterized

_MISH = '''
    import numpy as np


    def mish(x, *, beta: float = 1.0):
        """Mish, x tanh(log(1 + e^(beta x)))."""
        softplus = np.log1p(np.exp(beta * x))
        return x * np.tanh(softplus)
    '''
_EVERYTHING = '''
    import numpy as np
    _HALF = 0.5


    def blend(x, weight, *, limit: float, negate: bool = False, order=3):
        """All that a formula may have."""
        a = np.maximum(x, weight) ** order
        b = np.clip(a, -limit, limit)
        c = np.where((x > 0) & ~(weight > _HALF) | np.isnan(x), np.sqrt(np.abs(b) + 1), np.sign(weight) * b)
        d = c / (1 + np.square(x)) if negate else -c + weight**2 - np.sin(x) * 2.5 + np.arctan(weight)
        e = np.minimum(np.expm1(d / 4), np.cosh(x) - np.sinh(weight)) * np.cos(x).astype(x.dtype) + np.reciprocal(x)
        f = e + np.power(np.abs(x) + x.dtype.type(1), weight) - np.log(np.abs(x) + np.pi) + np.negative(x) ** -1
        return f * 2 + f**0.5 if negate else f
    '''


class GenerateTest(small_repository.RepositoryTest):
    def test_writes_an_op_into_a_family(self):
        message = self.generate()
        for path in (
            "cc/kernels/crop_pool.h",
            "cc/kernels/crop_pool_formula.h",
            "cc/kernels/crop_pool_simd.h",
            "cc/kernels/crop_pool_simd.cc",
            "cc/kernels/crop_pool_cpu.cc",
            "cc/kernels/crop_pool_gpu.cu.cc",
            "cc/kernels/crop_pool_op.cc",
            "cc/kernels/crop_pool_test.cc",
            "cc/ops/crop_pool_ops.cc",
            "python/ops/crop_pool.py",
            "python/ops/crop_pool_grad.py",
            "python/ops/crop_pool_pfor.py",
            "python/ops/crop_pool_prototype.py",
            "python/ops/crop_pool_test.py",
        ):
            self.assertTrue((self.root / "tensorflow_ops/pool" / path).is_file(), path)
            self.assertIn(path, message)
        self.assertTrue((self.root / "benchmarks/pool/crop_pool.py").is_file())
        self.assertIn("bash tools/test.sh //tensorflow_ops/pool/...", message)

    def test_lists_the_op_where_it_is_looked_for(self):
        self.generate()
        self.assertIn('"//tensorflow_ops/pool:crop_pool_ops",', self.read("tensorflow_ops/BUILD"))
        build = self.read("tensorflow_ops/pool/BUILD")
        for target in ("crop_pool", "crop_pool_ops", "crop_pool_cuda", "crop_pool_test", "crop_pool_ops_test"):
            self.assertIn(target, edits.target_names(build))
        srcs = ast.literal_eval(edits.keyword(edits.rule(build, "pool"), "srcs"))
        self.assertEqual(srcs, sorted(srcs))
        self.assertContainsSubset([f"python/ops/crop_pool{e}.py" for e in ("", "_grad", "_pfor", "_prototype")], srcs)
        load = build.split("\n")[0]
        for macro in set(line.split("(")[0] for line in build.splitlines() if line.startswith("tfo_")):
            self.assertIn(f'"{macro}"', load)
        module = self.read("tensorflow_ops/pool/__init__.py")
        self.assertIn("from tensorflow_ops.pool.python.ops.crop_pool import crop_pool\n", module)
        self.assertEqual(ast.literal_eval(edits.assignment(module, "__all__")), ["MaxPool", "crop_pool", "max_pool"])
        test = self.read("tensorflow_ops/core/python/library_test.py")
        signatures = ast.literal_eval(edits.assignment(test, "_SIGNATURES"))
        self.assertEqual(signatures["pool.crop_pool"], "(x, *, scale=1.0, name=None)")
        self.assertIn("crop_pool", ast.literal_eval(edits.assignment(test, "_NAMES"))["tensorflow_ops.pool"])
        self.assertContainsSubset(
            {"TensorflowOps>CropPool", "TensorflowOps>CropPoolGrad"}, ast.literal_eval(edits.assignment(test, "_OPS"))
        )

    def test_adds_a_sample_for_opcheck(self):
        path = "tensorflow_ops/testing/python/op_samples_test.py"
        self.generate()
        self.assertIn(
            '    "pool.crop_pool": _sample(tfo.pool.crop_pool, _normal(2, 3), second_order=False),\n}', self.read(path)
        )
        source = "import numpy as np\n\n\ndef f(x, y, *, k: int):\n    return np.log(x) * y * k\n"
        self.generate("shapes", "LogScale", source, "f")
        self.assertRegex(
            self.read(path),
            r"(?s)_SHAPES = \{\s+.shapes.log_scale.: _sample\(\s*"
            r"_with\(tfo.shapes.log_scale, k=2\), (tf.exp\(_normal\(2, 3\)\), ){2}second_order=False",
        )
        self.assertIn("_SAMPLES = {**_POOL, **_SHAPES}", self.read(path))
        self.generate("samples", "Tube")
        self.assertIn("_SAMPLES = {**_POOL, **_SHAPES, **_SAMPLES_FAMILY}", self.read(path))
        self.generate("samples", "Disc")
        self.generate("shapes", "Ring")
        self.assertIn('"shapes.ring": _sample(', self.read(path))
        self.assertIn("_SAMPLES = {**_POOL, **_SHAPES, **_SAMPLES_FAMILY}", self.read(path))

    def test_compiles_the_loops_once_per_cpu_level(self):
        self.generate(op="Mish", source=_MISH, function="mish")
        rule = edits.rule(self.read("tensorflow_ops/pool/BUILD"), "mish")
        self.assertEqual(ast.literal_eval(edits.keyword(rule, "simd_srcs")), ["cc/kernels/mish_simd.cc"])
        self.assertIn("//tensorflow_ops/core:elementwise", ast.literal_eval(edits.keyword(rule, "deps")))
        self.assertIn("TFO_DISPATCH(MishRange<T>)", self.read("tensorflow_ops/pool/cc/kernels/mish_cpu.cc"))
        self.assertIn("MishValue<V>(args, part.Load(x", self.read("tensorflow_ops/pool/cc/kernels/mish_simd.cc"))
        self.assertIn("scalar::MishValue<V>(", self.read("tensorflow_ops/pool/cc/kernels/mish_gpu.cu.cc"))

    def test_an_op_with_the_name_of_a_vector_function(self):
        self.write("tensorflow_ops/core/cc/elementwise_simd.h", "static V Sinh(V x);\n")
        self.generate(op="Sinh")
        self.write("tensorflow_ops/pool/cc/kernels/pool_simd.h", "void CoshRange(int64_t begin);\n")
        self.assert_refused("C\\+\\+ has a CoshRange already", writing.CannotWriteError, op="Cosh")

    def test_makes_a_family(self):
        self.generate("shapes", "Ring")
        self.assertIn("//tensorflow_ops/shapes:ring_ops", self.read("tensorflow_ops/BUILD"))
        self.assertIn('"//tensorflow_ops/shapes",', self.read("tensorflow_ops/BUILD"))
        package = self.read("tensorflow_ops/__init__.py")
        self.assertIn("from tensorflow_ops import pool, shapes\n", package)
        self.assertIn("shapes", ast.literal_eval(edits.assignment(package, "__all__")))
        self.assertEqual(self.read("tensorflow_ops/shapes/python/ops/__init__.py"), "")
        self.assertIn("import ring\n", self.read("tensorflow_ops/shapes/__init__.py"))
        test = self.read("tensorflow_ops/core/python/library_test.py")
        self.assertEqual(ast.literal_eval(edits.assignment(test, "_NAMES"))["tensorflow_ops.shapes"], ["ring"])
        self.generate("shapes", "Disc")
        self.assertIn("import disc\n", self.read("tensorflow_ops/shapes/__init__.py"))

    def test_an_op_with_its_familys_name(self):
        self.generate("ring", "Ring")
        self.assertContainsSubset(
            {"ring", "ring_algorithm"}, edits.target_names(self.read("tensorflow_ops/ring/BUILD"))
        )

    def test_copies_the_prototype_as_it_is(self):
        self.generate(op="Mish", source=_MISH, function="mish")
        self.assertEqual(
            self.read("tensorflow_ops/pool/python/ops/mish_prototype.py"), textwrap.dedent(_MISH).lstrip("\n")
        )
        formula_h = self.read("tensorflow_ops/pool/cc/kernels/mish_formula.h")
        self.assertIn("const V softplus = Log1p(Exp(beta * x));", formula_h)
        self.assertIn("return x * Tanh(softplus);", formula_h)

    def test_a_copied_python_op_has_a_name_of_its_own(self):
        source = """
            import tensorflow_ops as tfo


            @tfo.python_op("demo::double", out=lambda x: x)
            def double_it(x):
                return 2 * x


            @double_it.register_gradient(vmap="batched")
            def _double_grad(ctx, dy):
                return 2 * dy
            """
        self.generate(op="TwiceIt", source=source, function="double_it")
        copy = self.read("tensorflow_ops/pool/python/ops/twice_it_prototype.py")
        self.assertEqual(copy, textwrap.dedent(source).lstrip("\n").replace("demo::double", "pool::twice_it"))
        test = self.read("tensorflow_ops/pool/python/ops/twice_it_test.py")
        self.assertIn("twice_it_prototype.double_it(", test)
        self.assertIn("def test_gradient_is_the_prototypes", test)

    @parameterized.parameters("clang-format", "ruff", "buildifier")
    def test_what_is_written_is_formatted(self, tool):
        program = writing.tools(self.root).get(tool)
        if program is None:
            self.skipTest(f"there is no {tool}")
        self.write("../blend.py", _EVERYTHING)
        generator.generate(self.root, "a_family_with_a_long_name", "AnOpWithALongName", "blend:blend", self.root.parent)
        self.generate("x", "Y")
        self.generate()
        files = [path for path in self.root.rglob("*") if path.is_file()]
        cc, py, build = (
            [str(path) for path in files if path.name.endswith(endings) and ".new_op" not in path.name]
            for endings in ((".cc", ".h"), (".py",), ("BUILD",))
        )
        for command in {
            "clang-format": [["--dry-run", "--Werror", *(p for p in cc if "/pool/cc/kernels/pool.h" not in p)]],
            "ruff": [["check", "--no-cache", *py], ["format", "--no-cache", "--check", *py]],
            "buildifier": [["-mode=check", *build]],
        }[tool]:
            done = subprocess.run([program, *command], cwd=self.root, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_says_which_formatter_it_misses(self):
        with mock.patch.object(writing, "tools", lambda root: {}):
            message = self.generate()
        self.assertRegex(message, "not formatted, for want of buildifier, clang-format, ruff: run .*lint.sh --fix")


class RefusalTest(small_repository.RepositoryTest):
    @parameterized.parameters(
        ("crop_pool", "expected letters and digits in CamelCase"),
        ("Crop-Pool", "expected letters and digits in CamelCase"),
        ("", "expected letters and digits in CamelCase"),
        ("../Etc", "expected letters and digits in CamelCase"),
        ("CropPoolGrad", "one that ends in Grad is a gradient's"),
        ("Lambda", "'lambda' in Python, a keyword"),
        ("Match", "'match' in Python, a keyword"),
        ("Abs", "hide the builtin"),
        ("Switch", "a keyword of C"),
        ("Tensorflow", "use for something else"),
    )
    def test_op_names(self, op, message):
        self.assert_refused(message, names.BadNameError, op=op)

    @parameterized.parameters(
        ("Pool", "expected small letters"),
        ("my-family", "expected small letters"),
        ("my__family", "expected small letters"),
        ("../pool", "expected small letters"),
        ("class", "a keyword of Python or C"),
        ("namespace", "a keyword of Python or C"),
    )
    def test_family_names(self, family, message):
        self.assert_refused(message, names.BadNameError, family=family)

    @parameterized.parameters(
        ("core", "CropPool", "core is no op family"),
        ("zero_out", "CropPool", "zero_out is not public as a module"),
        ("show_versions", "CropPool", "has 'show_versions' already, and it is no family"),
        ("pool", "MaxPool", "tfo.pool.max_pool exists already"),
        ("shapes", "MaxPool", "the op TensorflowOps>MaxPool exists already: tensorflow_ops/pool/cc/ops/pool_ops.cc"),
        ("pool", "BoxPool", "has a BoxPoolArgs already: tensorflow_ops/pool/cc/kernels/pool.h"),
        ("pool", "Swim", "has a target 'swim_ops' already"),
        ("shapes", "MeanPool", "there is a test of that name already: .*mean_pool_test.py"),
    )
    def test_clashes(self, family, op, message):
        self.assert_refused(message, writing.CannotWriteError, family=family, op=op)

    def test_the_same_op_again(self):
        self.generate()
        self.assert_refused("tfo.pool.crop_pool exists already", writing.CannotWriteError)
        self.assert_refused("TensorflowOps>CropPool exists already", writing.CannotWriteError, family="other")

    def test_a_file_that_is_there(self):
        self.write("benchmarks/pool/crop_pool.py", "mine")
        self.assert_refused("benchmarks/pool/crop_pool.py exists already", writing.CannotWriteError)

    @parameterized.parameters(
        ("tensorflow_ops/BUILD", "# nothing\n", "tensorflow_ops/BUILD: there is no target '_tensorflow_ops.so'"),
        ("tensorflow_ops/core/python/library_test.py", "_OPS = {}\n", "library_test.py: there is no `_NAMES = ...`"),
        ("tensorflow_ops/pool/BUILD", 'tfo_py_library(name = "pool", srcs = ["a.py"])\n', "there is no load of"),
    )
    def test_a_file_that_is_not_as_expected(self, path, text, message):
        self.write(path, text)
        self.assert_refused(f"a file is not as expected: .*{message}", writing.CannotWriteError)

    def test_no_repository(self):
        shutil.rmtree(self.root / "tensorflow_ops")
        self.assert_refused("is no clone of tensorflow_ops", writing.CannotWriteError)

    @parameterized.parameters("pool/cc/kernels", "pool/python/ops", "core/python")
    def test_a_write_that_fails_leaves_nothing(self, folder):
        """The disk is full, or a folder may not be written to: after some files are there."""
        copy, at = shutil.copyfile, f"tensorflow_ops/{folder}/"

        def fail(source, target):
            if at in str(target) and str(target).startswith(str(self.root)):
                raise OSError(28, "No space left on device", str(target))
            return copy(source, target)

        with mock.patch.object(shutil, "copyfile", fail):
            self.assert_refused("cannot write: .*No space left", writing.CannotWriteError)
        self.generate()

    def test_an_interruption_leaves_nothing(self):
        copy, count = shutil.copyfile, [0]

        def interrupt(source, target):
            count[0] += str(target).startswith(str(self.root))
            if count[0] == 9:
                raise KeyboardInterrupt
            return copy(source, target)

        with mock.patch.object(shutil, "copyfile", interrupt):
            self.assert_refused("", KeyboardInterrupt)

    def test_a_file_that_may_not_be_written(self):
        with mock.patch.object(os, "access", lambda path, mode: "library_test" not in str(path)):
            self.assert_refused("library_test.py is not writable", writing.CannotWriteError)


class PrototypeTest(small_repository.RepositoryTest):
    @parameterized.parameters(
        ("def f(x): return x @ x", "line 1, `x @ x`: is not an operation on each element"),
        ("def f(x): return np.sum(x)", "`np.sum\\(x\\)`: is not a function of each element"),
        ("def f(x): return x[0]", "`x\\[0\\]`: is not an operation"),
        ("def f(x):\n  for i in x: pass\n  return x", "line 2, `for i in x:`: only `name = expression`"),
        ("def f(x):\n  y = x\n  y = y + 1\n  return y", "y is assigned twice"),
        ("def f(x): return x + unknown", "`unknown`: is no input"),
        ("def f(x): pass", "only `name = expression`"),
        ("def f(x):\n  double = 2 * x\n  return double", "'double', a keyword of C"),
        ("def f(x, *, mode='a'): return x", "mode is str; attrs are bool, int or float"),
        ("def f(x, *, mode): return x", "mode has neither an annotation nor a default"),
        ("def f(x, *, n: int = 1.5): return x", "'n'|n is int, its default 1.5 is not"),
        ("def f(x, *, scale: float = 1e39): return x", "no finite float32"),
        ("def f(x, *, order: int = 2**63): return x", "no literal"),
        ("def f(x, *more): return x", r"has \*, \*\* or positional-only"),
        ("def f(*, scale=1.0): return scale", "has no inputs"),
        ("def f(template): return template", "'template', a keyword of C"),
        ("def f(name): return name", "'name', which the generated functions"),
        ("def f(x, d_x): return x", "'d_x' is what the generated functions call a gradient"),
        ("def f(X): return X", "expected small letters"),
        ("@jit\ndef f(x): return x", "decorated by jit"),
        ("def g(x): return x", "defines no function 'f'"),
        ("def f(x: return", "given.py:1"),
    )
    def test_refuses(self, source, message):
        self.assert_refused(message, prototype.BadPrototypeError, source=source, function="f")

    @parameterized.parameters("f", "given", "given:f:", ":f", "no_such_module:f", "no/such/file.py:f")
    def test_places_that_are_none(self, argument):
        with self.assertRaisesRegex(prototype.BadPrototypeError, "expected module:function|there is no"):
            generator.generate(self.root, "pool", "CropPool", argument, self.root)

    def test_modules_and_files(self):
        self.write("package/inner.py", "def f(x): return x\n")
        for argument in ("package.inner:f", "package/inner.py:f", f"{self.root}/package/inner.py:f"):
            self.assertEqual(prototype.find(argument, self.root), (self.root / "package/inner.py", "f"))

    def test_reads_signatures(self):
        self.write("given.py", _EVERYTHING)
        read = prototype.read(self.root / "given.py", "blend")
        self.assertEqual(read.inputs, ("x", "weight"))
        self.assertEqual(read.attrs, (("limit", "float", None), ("negate", "bool", False), ("order", "int", 3)))
        self.assertEqual(read.summary, "All that a formula may have")
        self.assertFalse(read.is_python_op)

    def test_reads_a_python_op(self):
        self.write(
            "given.py",
            """
            @tfo.python_op("demo::f", out=lambda x: x)
            def f(x, scale=2.0):
                return x * x.dtype.type(scale)


            @f.register_gradient
            def _(ctx, dy):
                return dy
            """,
        )
        read = prototype.read(self.root / "given.py", "f")
        self.assertTrue(read.is_python_op and read.has_gradient)
        self.assertEqual((read.inputs, read.attrs), (("x",), (("scale", "float", 2.0),)))


class NamesTest(parameterized.TestCase):
    @parameterized.parameters(
        ("CropPool", "crop_pool"),
        ("RoIPool", "ro_i_pool"),
        ("Conv2D", "conv2d"),
        ("NMSWithIndex", "nms_with_index"),
        ("X", "x"),
    )
    def test_snake_case_is_tensorflows(self, op, python):
        self.assertEqual(names.snake_case(op), python)


class CommandLineTest(small_repository.RepositoryTest):
    def run_main(self, *arguments, answers=()):
        answers = iter(answers)

        def answer(question):
            del question
            try:
                return next(answers)
            except StopIteration:
                raise EOFError from None

        printed = io.StringIO()
        environment = {"BUILD_WORKSPACE_DIRECTORY": str(self.root), "BUILD_WORKING_DIRECTORY": str(self.root)}
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch.object(sys, "argv", ["new_op", *arguments]),
            mock.patch("builtins.input", answer),
            contextlib.redirect_stdout(printed),
        ):
            new_op.main()
        return printed.getvalue()

    def test_options(self):
        self.assertIn("tfo.pool.crop_pool", self.run_main("--family", "pool", "--name", "CropPool"))

    def test_asks_until_the_answers_serve(self):
        printed = self.run_main(answers=["Pool", "pool", "MaxPool", "crop", "CropPool", "nonsense", ""])
        self.assertIn("expected small letters", printed)
        self.assertIn("tfo.pool.max_pool exists already", printed)
        self.assertIn("expected letters and digits in CamelCase", printed)
        self.assertIn("expected module:function", printed)
        self.assertIn("tfo.pool.crop_pool.", printed)

    def test_no_answer_writes_nothing(self):
        before = self.snapshot()
        with self.assertRaisesRegex(SystemExit, "no answer; nothing is written"):
            self.run_main(answers=["pool"])
        self.assertEqual(self.snapshot(), before)

    def test_errors_are_one_line(self):
        with self.assertRaisesRegex(SystemExit, "^ERROR: tfo.pool.max_pool exists already\nNothing is written.$"):
            self.run_main("--family", "pool", "--name", "MaxPool")

    def test_help_says_what_a_prototype_is(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stdout(io.StringIO()) as printed:
            with mock.patch.object(sys, "argv", ["new_op", "--help"]):
                new_op.main()
        self.assertIn("PROTOTYPES", printed.getvalue())


if __name__ == "__main__":
    absltest.main()
