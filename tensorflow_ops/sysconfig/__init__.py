"""Where this installation's shared objects are, for programs that are not Python."""

from tensorflow_ops.sysconfig.python.sysconfig import get_lib, get_libs

__all__ = ["get_lib", "get_libs"]
