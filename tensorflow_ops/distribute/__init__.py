"""Data parallelism over the devices of one machine."""

from tensorflow_ops.distribute.python.make_parallel import make_parallel

__all__ = ["make_parallel"]
