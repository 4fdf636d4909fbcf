"""Tests of new_op, on a small repository, and of run_tutorial. smoke_test.sh builds copies of the living ops."""

import contextlib
import io
import os
import pathlib
import sys
from unittest import mock

import new_op
import run_tutorial
from absl.testing import absltest, parameterized

_LIVING = "tensorflow_ops/tutorial/"
_FILES = {
    "tools/lint.sh": "echo of $#; exit 1\n",
    "tensorflow_ops/BUILD": 'OP_FAMILIES = [\n    "pool",\n]\n',
    "tensorflow_ops/__init__.py": 'from tensorflow_ops import (\n    pool,\n)\n\n__all__ = ["pool", "show_versions"]\n',
    "tensorflow_ops/pool/BUILD": 'tfo_namespace(\n    name = "pool",\n)\n',
    "tensorflow_ops/pool/cc/kernels/swim/swim.cc": "",
    "tensorflow_ops/pool/__init__.py": '"""Pooling."""\n\nfrom a import b\n\n__all__ = [\n    "max_pool",\n]\n',
    "tensorflow_ops/pool/python/ops/mean_pool_test.py": "",
    "tensorflow_ops/pool/cc/kernels/pool.h": "struct BoxPoolArgs {};\n",
    "tensorflow_ops/core/BUILD": "",
    "tensorflow_ops/export/python/hinge_loss.py": '@composition("HingeLoss")\n',
    f"{_LIVING}cc/kernels/hinge_loss/hinge_loss.h": "#ifndef TENSORFLOW_OPS_TUTORIAL_CC_HINGE_LOSS_H_\n"
    "Error HingeLoss(const Cpu& cpu);\ntemplate <typename T>\nError HingeLoss(const Gpu& gpu,\n    int n);\n",
    f"{_LIVING}cc/kernels/hinge_loss/hinge_loss_gpu.cu.cc": "",
    f"{_LIVING}cc/kernels/hinge_loss/hinge_loss_op.cc": 'TFO_OP_KERNELS("HingeLoss", HingeLossArgs);\n',
    f"{_LIVING}cc/kernels/hinge_loss/hinge_loss_test.cc": "TFO_TEST(HingeLoss, Cpu) {\n  R();\n}\n\n"
    "TFO_CUDA_TEST(HingeLoss, Gpu) {\n  R();\n}\n\n}\n",
    f"{_LIVING}python/ops/hinge_loss.py": ">>> tfo.tutorial.hinge_loss(1)\nops.tensorflow_ops_hinge_loss()\n",
    f"{_LIVING}python/ops/hinge_loss_test.py": "",
}


class RepositoryTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.create_tempdir().full_path).resolve()
        for path, text in _FILES.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)

    def read(self, path):
        return (self.root / "tensorflow_ops" / path).read_text()

    def test_copies_and_renames(self):
        new, _ = new_op.generate(self.root, "pool", "CropPool")
        self.assertLen(new, 7)
        kernels = "pool/cc/kernels/crop_pool/crop_pool"
        self.assertStartsWith(self.read(f"{kernels}.h"), "#ifndef TENSORFLOW_OPS_POOL_CC_CROP_POOL_H_\nError CropPool(")
        self.assertIn('KERNELS("CropPool", CropPoolArgs)', self.read(f"{kernels}_op.cc"))
        self.assertEqual(
            self.read("pool/python/ops/crop_pool.py"), ">>> tfo.pool.crop_pool(1)\nops.tensorflow_ops_crop_pool()\n"
        )
        self.assertEqual(self.read("export/python/crop_pool.py"), '@composition("CropPool")\n')

    def test_for_the_cpu_only(self):
        new, _ = new_op.generate(self.root, "pool", "CropPool", cpu_only=True)
        self.assertLen(new, 6)
        kernels = "pool/cc/kernels/crop_pool/crop_pool"
        self.assertEndsWith(self.read(f"{kernels}.h"), "H_\nError CropPool(const Cpu& cpu);\n")
        self.assertEqual(self.read(f"{kernels}_op.cc"), 'TFO_OP_CPU_KERNELS("CropPool", CropPoolArgs);\n')
        self.assertEqual(self.read(f"{kernels}_test.cc"), "TFO_TEST(CropPool, Cpu) {\n  R();\n}\n\n}\n")

    def test_changes_the_public_names_only(self):
        _, changed = new_op.generate(self.root, "pool", "CropPool")
        self.assertEqual(changed, ["tensorflow_ops/pool/__init__.py"])
        self.assertIn(
            "from tensorflow_ops.pool.python.ops.crop_pool import CropPool, crop_pool\n", self.read("pool/__init__.py")
        )
        self.assertRegex(self.read("pool/__init__.py"), r'__all__ = \["CropPool", "crop_pool", ')

    def test_makes_a_namespace(self):
        new_op.generate(self.root, "rings", "Ring")
        self.assertIn('"rings",', self.read("BUILD"))
        self.assertRegex(self.read("__init__.py"), r"from tensorflow_ops import \(\s+rings, pool,")
        self.assertIn('name = "rings"', self.read("rings/BUILD"))

    @parameterized.parameters(
        ("pool", "crop_pool", "expected CamelCase"),
        ("pool", "CropPoolGrad", "without Grad at its end"),
        ("pool", "Lambda", "'lambda' has another meaning in Python"),
        ("../pool", "CropPool", "expected small letters"),
        ("", "CropPool", "expected small letters"),
        ("core", "CropPool", "has 'core' already, which has no kernels"),
        ("pool", "MaxPool", "tfo.pool.max_pool exists already"),
        ("pool", "Swim", "or a folder of kernels of that name"),
        ("pool", "BoxPool", "C\\+\\+ has BoxPoolArgs already: tensorflow_ops/pool/cc/kernels/pool.h"),
        ("rings", "MeanPool", "mean_pool_test.py exists already"),
        ("rings", "HingeLoss", "C\\+\\+ has HingeLoss already"),
    )
    def test_refuses(self, family, op, message):
        before = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        with self.assertRaisesRegex(new_op.CannotWriteError, message):
            new_op.generate(self.root, family, op)
        self.assertEqual({path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}, before)

    def test_command_line(self):
        printed = io.StringIO()
        with (
            mock.patch.dict(os.environ, {"BUILD_WORKSPACE_DIRECTORY": str(self.root)}),
            mock.patch.object(sys, "argv", ["new_op", "pool.CropPool", "--cpu_only"]),
            contextlib.redirect_stdout(printed),
        ):
            new_op.main()
            with self.assertRaisesRegex(
                SystemExit, "^ERROR: tfo.pool.crop_pool exists already.*\nNothing is written.$"
            ):
                new_op.main()
        self.assertIn("Not all files are formatted: bash tools/lint.sh --fix prints\nof ", printed.getvalue())

    @parameterized.parameters(
        ("CropPool", "crop_pool"), ("RoIPool", "ro_i_pool"), ("Conv2D", "conv2d"), ("NMSWithIndex", "nms_with_index")
    )
    def test_snake_case_is_tensorflows(self, op, python):
        self.assertEqual(new_op.snake_case(op), python)


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
