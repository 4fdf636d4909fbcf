"""Tests of GPU kernels' registration beside drivers of other ages, which a library in the driver's place imitates."""

import subprocess
import tempfile

import process_testing
import tensorflow as tf
from absl.testing import absltest

from tensorflow_ops.core.python import build_info

_SCRIPT = """
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        import tensorflow_ops as tfo
    print(*{str(w.message) for w in caught if "tensorflow_ops" in str(w.message)}, sep="; ")
    print(tfo.zero_out([3.0, 4.0]).numpy())
    tfo.show_versions()
    from tensorflow.python.framework import kernels
    types = {k.device_type for k in kernels.get_registered_kernels_for_op("TensorflowOps>RoiAlign").kernel}
    print(sorted(t for t in types if "XLA" not in t))
"""


@absltest.skipUnless(build_info.CUDA_VERSION, "a build without GPU kernels")
class GpuDriverTest(absltest.TestCase):
    def _import_beside(self, cuda):
        folder = self.enter_context(tempfile.TemporaryDirectory())
        driver = f"int cuDriverGetVersion(int* version) {{ *version = {cuda}; return 0; }}"
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/libcuda.so.1"]
        subprocess.run(command, input=driver, text=True, check=True)
        return process_testing.output(folder, _SCRIPT, LD_LIBRARY_PATH=folder, CUDA_VISIBLE_DEVICES="-1")

    def test_an_old_driver_is_named_and_has_no_kernels(self):
        shown = self._import_beside(11040)
        major = build_info.CUDA_VERSION.partition(".")[0]
        self.assertRegex(
            shown, r"runs on the CPU only: the NVIDIA driver is too old: kernels of CUDA 1\d\.\d need 5[28]\d"
        )
        self.assertIn("[3. 0.]", shown)
        self.assertIn("NVIDIA driver: for CUDA 11.4", shown)
        self.assertIn(f"['CPU', 'GPU with a driver for CUDA {major}']", shown)

    def test_a_driver_of_the_same_major_version_has_kernels(self):
        shown = self._import_beside(f"{build_info.CUDA_VERSION.partition('.')[0]}000")
        self.assertNotIn("CPU only", shown)
        self.assertIn("['CPU', 'GPU']", shown)


if __name__ == "__main__":
    tf.test.main()
