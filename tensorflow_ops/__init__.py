"""TensorFlow ops that TensorFlow does not ship, with kernels for CPU and CUDA.

https://www.tensorflow.org/guide/create_op explains custom ops; docs/writing_an_op.md of
this project explains how to add one here.
"""

try:
    import tensorflow  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise ImportError("tensorflow_ops needs TensorFlow: pip install 'tensorflow-extra-ops[cpu]', or [gpu]") from error

from tensorflow_ops import (
    detection,
    distribute,
    export,
    image,
    layers,
    losses,
    metrics,
    nn,
    onnx,
    optimizers,
    seq2seq,
    shapes,
    summary,
    sysconfig,
    testing,
    tutorial,  # noqa: F401  (what tools/new_op copies; not public)
)
from tensorflow_ops.core.python import build_info
from tensorflow_ops.core.python.versions import show_versions
from tensorflow_ops.prototyping import python_op
from tensorflow_ops.zero_out.python.ops.zero_out_ops import zero_out, zero_out_with_index

__version__: str = build_info.VERSION

__all__ = [
    "__version__",
    "detection",
    "distribute",
    "export",
    "image",
    "layers",
    "losses",
    "metrics",
    "nn",
    "onnx",
    "optimizers",
    "python_op",
    "seq2seq",
    "shapes",
    "show_versions",
    "summary",
    "sysconfig",
    "testing",
    "zero_out",
    "zero_out_with_index",
]

# Shells complete no internal modules.
for _namespace in map(globals().get, __all__):
    if hasattr(_namespace, "__all__"):
        _namespace.__dir__ = _namespace.__all__.copy


def __dir__():
    return __all__
