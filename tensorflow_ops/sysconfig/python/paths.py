"""Paths and compiler flags, as `tf.sysconfig` has them of TensorFlow."""

import os

from tensorflow_ops.core.python import build_info, library

_FOLDER = os.path.dirname(library.PATH)
_KERNELS = f"libtensorflow_ops_kernels-{build_info.VERSION}.so"


def get_lib() -> str:
    """Returns the path of the shared object that registers the ops with the installed TensorFlow.

    A program that runs models without Python loads it by `TF_LoadLibrary`, or is started with it in `LD_PRELOAD`;
    Python without this package by `tf.load_op_library`. It loads into the minor release of TensorFlow for which it was
    built, and needs the other files of `get_libs` in its folder.

    >>> import os
    >>> import tensorflow_ops as tfo
    >>> os.path.basename(tfo.sysconfig.get_lib()).startswith("_tensorflow_ops")
    True
    """
    return library.PATH


def get_libs() -> list[str]:
    """Returns the paths of all shared objects that `get_lib` needs: the files to copy into an image, into one folder.

    The first is that of `get_lib`. The last one makes XLA compile the ops (`jit_compile=True`): load it after the
    first. It is missing where `tfo.show_versions` says that XLA cannot compile them.

    >>> import os
    >>> import tensorflow_ops as tfo
    >>> all(os.path.exists(path) for path in tfo.sysconfig.get_libs())
    True
    """
    kernels = os.path.join(_FOLDER, _KERNELS)
    return [library.PATH, kernels, *([] if library.xla_error else [library.XLA_PATH])]


def get_include() -> str:
    """Returns the folder of the headers of the algorithms, for C++ that calls them without TensorFlow.

    A program includes them as `"tensorflow_ops/nn/cc/kernels/rows/softmax.h"`, is compiled by `get_compile_flags`
    and links by `get_link_flags`. The headers say what a function expects: it checks nothing. They, and what they
    declare, may change in any release.

    >>> import os
    >>> import tensorflow_ops as tfo
    >>> os.path.basename(tfo.sysconfig.get_include())
    'include'
    """
    return os.path.join(_FOLDER, "include")


def get_compile_flags() -> list[str]:
    """Returns the compiler's flags for C++ that includes the headers in `get_include`.

    >>> import tensorflow_ops as tfo
    >>> tfo.sysconfig.get_compile_flags()[1:]
    ['--std=c++17']
    """
    return ["-I" + get_include(), "--std=c++17"]


def get_link_flags() -> list[str]:
    """Returns the linker's flags for C++ that calls the algorithms.

    A program also needs the library when it runs: `-Wl,-rpath,FOLDER` names its folder. A shared object that Python
    loads after this package does not need this, because the library is then loaded.

    >>> import tensorflow_ops as tfo
    >>> tfo.sysconfig.get_link_flags()[1].startswith("-l:libtensorflow_ops_kernels")
    True
    """
    return ["-L" + _FOLDER, "-l:" + _KERNELS]
