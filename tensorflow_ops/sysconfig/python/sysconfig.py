"""`get_lib` and `get_libs`."""

import os

from tensorflow_ops.core.python import build_info, library


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
    kernels = os.path.join(os.path.dirname(library.PATH), f"libtensorflow_ops_kernels-{build_info.VERSION}.so")
    return [library.PATH, kernels, *([] if library.xla_error else [library.XLA_PATH])]
