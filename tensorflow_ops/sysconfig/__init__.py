"""Where this installation's shared objects and C++ headers are, for programs that are not Python."""

from tensorflow_ops.sysconfig.python.paths import (
    get_compile_flags,
    get_include,
    get_lib,
    get_libs,
    get_link_flags,
)

__all__ = ["get_compile_flags", "get_include", "get_lib", "get_libs", "get_link_flags"]
