"""TensorFlow ops that TensorFlow does not ship, with kernels for CPU and CUDA.

See https://www.tensorflow.org/guide/create_op for what an op is, and
docs/writing_an_op.md of this project for how one is made here.
"""

from tensorflow_ops import detection, layers, losses, nn
from tensorflow_ops.core.python import build_info
from tensorflow_ops.core.python.versions import show_versions
from tensorflow_ops.zero_out.python.ops.zero_out_ops import zero_out, zero_out_with_index

__version__ = build_info.VERSION

__all__ = [
    "__version__",
    "detection",
    "layers",
    "losses",
    "nn",
    "show_versions",
    "zero_out",
    "zero_out_with_index",
]
