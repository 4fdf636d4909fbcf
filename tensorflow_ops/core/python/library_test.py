"""Tests of the shared objects and of their import."""

import os
import re
import shutil
import tempfile
from unittest import mock

import process_testing
import tensorflow as tf
from absl.testing import parameterized
from elftools.elf.elffile import ELFFile
from tensorflow.python.framework import kernels

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_VERSION = tfo.__version__.split("+")[0]
# Mangled names in namespace tfo.
_OURS = re.compile("_Z(N|NK|TIN|TSN|TVN|ZN)3tfo")
_KERNELS = os.path.join(os.path.dirname(library.PATH), f"libtensorflow_ops_kernels-{_VERSION}.so")


class SharedObjectTest(parameterized.TestCase, tf.test.TestCase):
    def _symbols(self, path):
        """Returns a shared object's dynamic symbols."""
        with open(path, "rb") as file:
            return list(ELFFile(file).get_section_by_name(".dynsym").iter_symbols())[1:]  # the first entry is reserved

    @parameterized.parameters(library.PATH, library.XLA_PATH)
    def test_exports_no_symbols(self, path):
        symbols = self._symbols(path)
        self.assertNotEmpty(symbols)
        visible = [symbol for symbol in symbols if symbol["st_info"]["bind"] != "STB_LOCAL"]
        self.assertEmpty([symbol.name for symbol in visible if symbol["st_shndx"] != "SHN_UNDEF"])

    def test_exports_only_functions_of_this_project(self):
        names = [symbol.name for symbol in self._symbols(_KERNELS) if symbol["st_shndx"] != "SHN_UNDEF"]
        self.assertNotEmpty(names)
        self.assertEmpty([name for name in names if not _OURS.match(name)])

    @parameterized.parameters(library.PATH, library.XLA_PATH, _KERNELS)
    def test_imports_no_weak_symbol_of_tensorflow(self, path):
        """A weak symbol, such as an Eigen template, would bind to TensorFlow's copy."""
        weak = {symbol.name for symbol in self._symbols(path) if symbol["st_info"]["bind"] == "STB_WEAK"}
        in_every_shared_object = {
            "_ITM_deregisterTMCloneTable",
            "_ITM_registerTMCloneTable",
            "__cxa_finalize",
            "__cxa_pure_virtual",
            "__gmon_start__",
        }
        self.assertEmpty({name for name in weak - in_every_shared_object if not _OURS.match(name)})

    @parameterized.parameters(
        (library.PATH, {"libtensorflow_framework.so.2", f"libtensorflow_ops_kernels-{_VERSION}.so"}),
        (_KERNELS, set()),
        (library.XLA_PATH, {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"}),
    )
    def test_depends_only_on_tensorflow_and_system_libraries(self, path, tensorflow):
        with open(path, "rb") as file:
            needed = {tag.needed for tag in ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
        self.assertContainsSubset(tensorflow, needed)
        system = {
            "ld-linux-x86-64.so.2",
            "libc.so.6",
            "libdl.so.2",
            "libgcc_s.so.1",
            "libm.so.6",
            "libpthread.so.0",
            "librt.so.1",
            "libstdc++.so.6",
        }
        self.assertEmpty(needed - system - tensorflow)

    def test_out_of_memory_for_scratch_is_an_error(self):
        """In the kernel's calling thread and in the thread pool: an uncaught exception would end the process."""
        script = """
            import resource
            import tensorflow as tf
            import tensorflow_ops as tfo

            # Working buffers of 64 MB an example, more than malloc keeps; labels of 4 MB.
            batches = [tf.zeros([examples, 2**20, 8]) for examples in (1, 2)]
            transitions = tf.zeros([8, 8])
            for logits in batches:
                print(tfo.nn.crf_decode(logits, transitions).labels.shape)
            with open("/proc/self/status") as status:
                used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
            limit = used + 32 * 2**20
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            for logits in batches:
                try:
                    tfo.nn.crf_decode(logits, transitions)
                except tf.errors.ResourceExhaustedError as error:
                    print(error.message.rpartition("}} ")[2])
            """
        one, two, *errors = process_testing.output(self.get_temp_dir(), script).splitlines()
        self.assertEqual([one, two], ["(1, 1048576)", "(2, 1048576)"])
        self.assertLen(errors, 2)
        for error in errors:
            self.assertStartsWith(error, "TensorflowOps>CrfDecode ran out of memory for working buffers")

    def test_unloadable_file_raises_import_error_with_advice(self):
        path = os.path.join(self.get_temp_dir(), "_tensorflow_ops.so")
        with mock.patch.multiple(library, PATH=path, _loaded_from=lambda: None):
            with self.assertRaisesRegex(ImportError, r"could not be loaded: .*No such file.*pip install"):
                library._load()
            with open(path, "w", encoding="utf-8") as file:
                file.write("no shared object")
            with self.assertRaisesRegex(ImportError, r"could not be loaded: .*pip install"):
                library._load()


class ImportTest(tf.test.TestCase):
    def test_leaves_tensorflow_configurable(self):
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import tensorflow as tf
            from tensorflow.python.client import pywrap_tf_session as session
            from tensorflow.core.framework import op_def_pb2

            def registered():
                ops = op_def_pb2.OpList.FromString(session.TF_GetBuffer(session.TF_GetAllOpList()))
                return {op.name for op in ops.op}

            before = registered()
            import tensorflow_ops as tfo
            print(*sorted(registered() - before))
            # Both raise once the eager context exists.
            tf.config.threading.set_intra_op_parallelism_threads(3)
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
            )
            with tf.device("CPU:1"):
                print(tfo.zero_out([7, 8]).device)
            """,
        )
        names, device = printed.splitlines()
        self.assertIn("TensorflowOps>ZeroOut", names.split())
        for name in names.split():
            self.assertStartsWith(name, "TensorflowOps>")
            devices = {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(name).kernel}
            self.assertIn("CPU", devices, name)
        self.assertEndsWith(device, "CPU:1")

    def test_a_second_import_is_an_import_error(self):
        folder = os.path.dirname(os.path.dirname(os.path.dirname(library.__file__)))
        copy = self._copy()
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import sys
            import tensorflow_ops

            def import_again():
                for name in [name for name in sys.modules if name.partition(".")[0] == "tensorflow_ops"]:
                    del sys.modules[name]
                try:
                    import tensorflow_ops
                except ImportError as error:
                    print(error)

            import_again()
            sys.path.insert(0, sys.argv[1])
            import_again()
            """,
            copy,
        )
        again, second = printed.splitlines()
        self.assertEqual(again, f"tensorflow_ops is already loaded from {folder}; restart Python to load it again")
        other = os.path.join(copy, "tensorflow_ops")
        self.assertEqual(
            second, f"tensorflow_ops is already loaded from {folder}; restart Python to load it from {other}"
        )

    def test_after_load_op_library(self):
        """Of the same file it works; of a copy or a link it is an ImportError."""
        script = """
            import sys
            import tensorflow as tf

            tf.load_op_library(sys.argv[1])
            try:
                import tensorflow_ops as tfo
            except ImportError as error:
                print(error)
            else:
                x = tf.constant([3.0, 4.0])
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = tfo.zero_out(x)
                print(tape.gradient(y, x).numpy())
            """
        copy = os.path.join(self._copy(), "tensorflow_ops", os.path.basename(library.PATH))
        link = os.path.join(os.path.dirname(copy), "link.so")  # beside the library of kernels that it needs
        os.symlink(library.PATH, link)
        same, of_copy, of_link = (
            process_testing.output(self.get_temp_dir(), script, path).strip() for path in (library.PATH, copy, link)
        )
        self.assertEqual(same, "[1. 0.]")
        self.assertStartsWith(of_copy, f"tensorflow_ops is already loaded from {os.path.realpath(copy)}; restart")
        path = os.path.realpath(library.PATH)
        self.assertStartsWith(of_link, f"tensorflow_ops is already loaded from {path}; restart")

    def _copy(self):
        """Copies the package. Returns the folder that contains the copy."""
        copy = tempfile.mkdtemp(dir=self.get_temp_dir())
        package = os.path.dirname(os.path.abspath(tfo.__file__))
        shutil.copytree(package, os.path.join(copy, "tensorflow_ops"), ignore=shutil.ignore_patterns("*_test*"))
        return copy

    def test_saved_model_finds_its_ops(self):
        class Model(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec(None, tf.int32)])
            def forward(self, x):
                return tfo.zero_out(x)

        path = os.path.join(self.get_temp_dir(), "model")
        tf.saved_model.save(Model(), path)
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import sys
            import tensorflow as tf

            try:
                tf.saved_model.load(sys.argv[1])
            except RuntimeError as error:
                print(error)
            import tensorflow_ops
            print(tf.saved_model.load(sys.argv[1]).forward([3, 4]).numpy().tolist())
            """,
            path,
        )
        without, with_ops = printed.splitlines()
        self.assertStartsWith(without, "Op type not registered 'TensorflowOps>ZeroOut'")
        self.assertEqual(with_ops, "[3, 0]")


if __name__ == "__main__":
    tf.test.main()
