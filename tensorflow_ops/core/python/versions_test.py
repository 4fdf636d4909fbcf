"""Tests of the version check and of show_versions."""

import contextlib
import importlib.util
import io
import os
import platform
import re

import keras
import ml_dtypes
import numpy as np
import process_testing
import tensorflow as tf

import tensorflow_ops as tfo
from tensorflow_ops.core.python import compatibility, library, versions


def _shown():
    """Returns the lines that show_versions prints, as a dictionary."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        tfo.show_versions()
    return dict(line.split(": ", 1) for line in printed.getvalue().splitlines())


class CheckTest(tf.test.TestCase):
    def test_other_minor_releases_raise_import_error_with_advice(self):
        others = ("2.17.0", "2.22.0-rc1", "3.21.0", "2.2.1")
        patched = ".".join([*tf.__version__.split(".")[:2], "99"])
        done = process_testing.run(
            self.get_temp_dir(),
            f"""
            import tensorflow as tf

            for version in {others}:
                tf.__version__ = version
                try:
                    import tensorflow_ops
                except ImportError as error:
                    print(error)
            import os
            os.environ["TENSORFLOW_OPS_BUILD"] = "2.1"
            try:
                import tensorflow_ops
            except ImportError as error:
                print(error)
            del os.environ["TENSORFLOW_OPS_BUILD"]
            # Another patch release is accepted.
            tf.__version__ = {patched!r}
            import tensorflow_ops as tfo
            tfo.show_versions()
            """,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        for error, other in zip(lines, others, strict=False):
            self.assertRegex(error, f"^This tensorflow_ops {tfo.__version__} was built for TensorFlow (2.18 to )?2.21,")
            self.assertIn(f"TensorFlow {other} is installed", error)
            self.assertIn('pip install "tensorflow-cpu==2.21.*"', error)
            minor = ".".join(other.split(".")[:2])
            self.assertRegex(
                error, f"or install a (newer )?tensorflow-extra-ops that was built for TensorFlow {minor}."
            )
            newer = tuple(map(int, minor.split("."))) > (2, 21)
            self.assertEqual("TENSORFLOW_OPS_BUILD=2.21 loads" in error, newer, error)
        self.assertRegex(lines[len(others)], "^TENSORFLOW_OPS_BUILD is '2.1'; expected one of .*2.21.$")
        self.assertEqual(lines[len(others) + 1], f"tensorflow_ops: {tfo.__version__}")
        self.assertIn(f"running TensorFlow: {patched}", lines)

    def test_without_tensorflow_the_import_names_the_extras(self):
        done = process_testing.run(
            self.get_temp_dir(), "import sys; sys.modules['tensorflow'] = None; import tensorflow_ops"
        )
        message = "ImportError: tensorflow_ops needs TensorFlow: pip install 'tensorflow-extra-ops[cpu]', or [gpu]"
        self.assertEqual(done.stderr.splitlines()[-1:], [message])

    def test_a_variable_selects_kernels_for_an_unknown_release(self):
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import tensorflow as tf
            tf.__version__ = "9.0.0"
            import tensorflow_ops as tfo
            print(tfo.zero_out([7, 8]).numpy())
            """,
            TENSORFLOW_OPS_BUILD=compatibility.kernels(),
        )
        self.assertIn("[7 0]", printed)


class ShowVersionsTest(tf.test.TestCase):
    def test_shows_the_package_version(self):
        self.assertRegex(tfo.__version__, r"^\d+\.\d+\.\d+")
        self.assertEqual(_shown()["tensorflow_ops"], tfo.__version__)

    def test_shows_all_fields_of_a_bug_report(self):
        shown = _shown()
        self.assertRegex(shown["built for TensorFlow"], r"2\.21\.\d+$")
        self.assertStartsWith(shown["kernels in use"], f"for TensorFlow {compatibility.kernels()}.")
        self.assertEqual(shown["running TensorFlow"], tf.__version__)
        self.assertEqual(shown["TensorFlow's own CUDA"], tf.sysconfig.get_build_info().get("cuda_version", "none"))
        self.assertRegex(shown["GPU kernels"], r"^none$|^CUDA \d+\.\d+ \(sm_\d+")
        if not library.xla_error:
            self.assertEqual(shown["XLA"], "CPU" if shown["GPU kernels"] == "none" else "CPU, GPU")
        gpus = tf.config.list_physical_devices("GPU")
        self.assertEqual(shown["GPUs"], ", ".join(gpu.name for gpu in gpus) or "none")
        self.assertRegex(
            shown["CPU instruction set"],
            r"^(baseline|avx2|avx512|avx512_vnni|avx512_bf16|amx) \(this processor has \w+; this build: [\w ]+\)$",
        )
        self.assertRegex(shown["compiler"], r"^g\+\+ \d+\.")
        self.assertEqual(shown["Keras"], keras.__version__)
        self.assertEqual(shown["NumPy"], np.__version__)
        self.assertEqual(shown["ml-dtypes"], ml_dtypes.__version__)
        self.assertRegex(shown["keras-hub"], r"^\d+\.\d+\." if importlib.util.find_spec("keras_hub") else "^none$")
        self.assertEqual(shown["Python"], platform.python_version())
        self.assertEqual(shown["system"], platform.platform())

    def test_prints_inside_a_tf_function(self):
        printed = []
        tf.function(lambda: printed.append(_shown()))()
        self.assertEqual(printed[0]["running TensorFlow"], tf.__version__)

    def test_shows_the_processors_widest_instruction_set(self):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            cpuinfo = file.read()
        flags = set(re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE).group(1).split())
        avx2 = {"avx2", "fma", "f16c"} <= flags
        avx512 = avx2 and {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags
        avx512_vnni = avx512 and "avx512_vnni" in flags
        avx512_bf16 = avx512_vnni and "avx512_bf16" in flags
        amx = avx512_bf16 and {"amx_tile", "amx_bf16", "amx_int8"} <= flags
        names = ["baseline", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx"]
        widest = names[[True, avx2, avx512, avx512_vnni, avx512_bf16, amx].count(True) - 1]
        shown = _shown()["CPU instruction set"]
        self.assertIn(f"(this processor has {widest};", shown)
        if not os.environ.get("TENSORFLOW_OPS_CPU"):
            # Intel's products of bfloat16 are slower than those of float32.
            unused = "avx512_bf16" if "GenuineIntel" in cpuinfo else None
            self.assertStartsWith(shown, f"{[n for n in versions.cpu_levels() if n != unused][-1]} ")

    def test_shows_the_instruction_set_from_the_environment(self):
        narrowest = versions.cpu_levels()[0]
        printed = process_testing.output(
            self.get_temp_dir(), "import tensorflow_ops as tfo; tfo.show_versions()", TENSORFLOW_OPS_CPU=narrowest
        )
        self.assertIn(f"CPU instruction set: {narrowest} (this processor has ", printed)

    def test_cpu_levels_are_those_of_build_and_processor(self):
        names = ["baseline", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx"]
        built = re.search(r"this build: ([\w ]+)\)", _shown()["CPU instruction set"])[1].split()
        self.assertEqual(built, [name for name in names if name in built])
        processor = re.search(r"this processor has (\w+)", _shown()["CPU instruction set"])[1]
        self.assertEqual(versions.cpu_levels(), [n for n in names[: names.index(processor) + 1] if n in built])

    def test_unknown_instruction_set_is_an_error(self):
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import tensorflow as tf, tensorflow_ops as tfo
            try:
                tfo.detection.roi_pool(tf.zeros([1, 4, 4, 1]), [[0, 0, 1, 1]], [0], 1)
            except tf.errors.InvalidArgumentError as error:
                print(error)
            """,
            TENSORFLOW_OPS_CPU="nonsense",
        )
        self.assertIn("TENSORFLOW_OPS_CPU is 'nonsense', expected one of", printed)
        self.assertIn(", ".join(versions.cpu_levels()), printed)


if __name__ == "__main__":
    tf.test.main()
