"""Checks that the installed TensorFlow is the one that this build fits."""

import tensorflow as tf

try:
    from tensorflow_ops.core.python import build_info
except ImportError as error:
    raise ImportError(
        f"{__file__} belongs to the source of tensorflow_ops, which has no kernels. Run Python in another folder, "
        "where `import tensorflow_ops` finds the installed wheel (bash tools/build_wheel.sh builds one)."
    ) from error


def _minor(version):
    return ".".join(version.split(".")[:2])


def advice() -> str:
    """Returns a text with both versions and the packages to install."""
    fitting = _minor(build_info.TENSORFLOW_VERSION)
    return (
        f"This tensorflow_ops {build_info.VERSION} was built for TensorFlow {build_info.TENSORFLOW_VERSION}, and "
        f"TensorFlow {tf.__version__} is installed. Either install the TensorFlow it was built for: "
        f'pip install "tensorflow-cpu=={fitting}.*" (with a GPU: "tensorflow[and-cuda]=={fitting}.*"), '
        f"or install a tensorflow_ops that was built for TensorFlow {_minor(tf.__version__)}."
    )


def check_tensorflow() -> None:
    """Raises ImportError if TensorFlow is of another minor release than this build.

    TensorFlow's C++ interface changes with each minor release: an op that was built for
    another one fails with an undefined symbol, or crashes later.
    """
    if _minor(tf.__version__) != _minor(build_info.TENSORFLOW_VERSION):
        raise ImportError(advice())
