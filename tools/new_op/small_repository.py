"""A repository with what new_op looks at, for its tests."""

import pathlib
import textwrap

import generator
from absl.testing import parameterized

_FILES = {
    ".clang-format": "BasedOnStyle: Google\nStandard: c++17\nDerivePointerAlignment: false\n",
    "pyproject.toml": """
        [tool.ruff]
        line-length = 120
        [tool.ruff.lint]
        select = ["E", "F", "W", "I", "B", "UP", "N", "D", "RUF"]
        ignore = ["D100", "D101", "D102", "D103", "D104", "D105", "D107"]
        [tool.ruff.lint.pydocstyle]
        convention = "google"
        """,
    "tensorflow_ops/BUILD": """
        load("//tools/build_defs:op_family.bzl", "tfo_py_library", "tfo_shared_object")

        tfo_shared_object(
            name = "_tensorflow_ops.so",
            deps = ["//tensorflow_ops/pool:pool_ops"],
        )

        tfo_py_library(
            name = "tensorflow_ops",
            srcs = ["__init__.py"],
            deps = [
                "//tensorflow_ops/core",
                "//tensorflow_ops/pool",
            ],
        )
        """,
    "tensorflow_ops/__init__.py": '''
        """All ops."""

        from tensorflow_ops import pool
        from tensorflow_ops.core.python.versions import show_versions

        __all__ = ["pool", "show_versions", "zero_out"]
        ''',
    "tensorflow_ops/pool/BUILD": """
        load("//tools/build_defs:op_family.bzl", "tfo_op_library", "tfo_py_library")

        tfo_op_library(
            name = "pool_ops",
            ops = ["cc/ops/pool_ops.cc"],
        )

        tfo_op_library(
            name = "swim_ops",
            ops = [],
        )

        tfo_py_library(
            name = "pool",
            srcs = [
                "__init__.py",
                "python/__init__.py",
                "python/ops/__init__.py",
                "python/ops/max_pool.py",
            ],
        )
        """,
    "tensorflow_ops/pool/__init__.py": '''
        """Pooling."""

        from tensorflow_ops.pool.python.ops.max_pool import MaxPool, max_pool

        __all__ = [
            "MaxPool",
            "max_pool",
        ]
        ''',
    "tensorflow_ops/pool/python/__init__.py": "",
    "tensorflow_ops/pool/python/ops/__init__.py": "",
    "tensorflow_ops/pool/python/ops/max_pool.py": "",
    "tensorflow_ops/pool/python/ops/mean_pool_test.py": "",
    "tensorflow_ops/pool/cc/ops/pool_ops.cc": 'REGISTER_OP("TensorflowOps>MaxPool")\n',
    "tensorflow_ops/pool/cc/kernels/pool.h": "namespace tfo {\nstruct BoxPoolArgs {};\n}\n",
    "tensorflow_ops/zero_out/BUILD": """
        tfo_py_library(
            name = "zero_out",
            srcs = [],
        )
        """,
    "tensorflow_ops/core/__init__.py": "",
    "tensorflow_ops/core/python/__init__.py": "",
    "tensorflow_ops/testing/python/op_samples_test.py": """
        import tensorflow as tf

        import tensorflow_ops as tfo


        def _with(fn, **attributes):
            return lambda *args: fn(*args, **attributes)


        def _normal(*shape):
            return tf.zeros(shape)


        def _sample(fn, *args, **options):
            return fn, args, options


        # tfo.pool.

        _POOL = {
            "pool.max_pool": _sample(tfo.pool.max_pool),
        }

        # A family's samples go here.

        _SAMPLES = {**_POOL}

        # Public names that are no functions.
        """,
    "tensorflow_ops/core/python/library_test.py": """
        _SIGNATURES = {
            "show_versions": "()",
            "pool.max_pool": "(x, name=None)",
        }
        _NAMES = {
            "tensorflow_ops": ["pool", "show_versions", "zero_out"],
            "tensorflow_ops.pool": ["MaxPool", "max_pool"],
        }
        _OPS = {
            "TensorflowOps>MaxPool",
        }
        """,
}


class RepositoryTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.create_tempdir().full_path).resolve()
        for path, text in _FILES.items():
            self.write(path, text)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(textwrap.dedent(text).lstrip("\n"))

    def read(self, path):
        return (self.root / path).read_text()

    def snapshot(self):
        return {path: path.read_bytes() if path.is_file() else None for path in self.root.rglob("*")}

    def generate(self, family="pool", op="CropPool", source=None, function=None):
        argument = None
        if source is not None:
            self.write("../given.py", source)
            argument = f"given:{function}"
        return generator.generate(self.root, family, op, argument, self.root.parent)

    def assert_refused(self, message, error, **arguments):
        before = self.snapshot()
        with self.assertRaisesRegex(error, message):
            self.generate(**arguments)
        self.assertEqual(self.snapshot(), before)
