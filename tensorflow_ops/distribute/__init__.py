"""One machine's devices at work on one batch."""

from tensorflow_ops.distribute.python.make_parallel import make_parallel

__all__ = ["make_parallel"]
