"""Compositions of the ops of tensorflow_ops/core/. RefuseGradient is of gradients, and BuildInfo of this package."""

from tensorflow_ops.export.python.compositions import composition


@composition("CheckValues", [None, None])
def _check_values(values, valid, *, argument, expected, on_gpu):
    """Returns the values unchecked, as on a GPU without `on_gpu`: converters have no errors at run time."""
    del valid, argument, expected, on_gpu
    return values
