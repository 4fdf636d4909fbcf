"""Chooses the kernels for the installed TensorFlow.

TensorFlow's C++ interface changes with nearly each minor release: a shared object that was
built for another one fails with an undefined symbol, or crashes later.
"""

import os

import tensorflow as tf

try:
    from tensorflow_ops.core.python import build_info
except ImportError as error:
    raise ImportError(
        f"{__file__} belongs to the source of tensorflow_ops, which has no kernels. Run Python in another folder, "
        "where `import tensorflow_ops` finds the installed wheel (bash tools/build_wheel.sh builds one)."
    ) from error

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Selects kernels although the installed TensorFlow is of another release.
_VARIABLE = "TENSORFLOW_OPS_BUILD"


def _order(version: str) -> tuple[int, ...]:
    """Returns a version's first two numbers."""
    return tuple(int(number) for number in version.split(".")[:2])


def _path(minor: str) -> str:
    return os.path.join(_FOLDER, build_info.KERNELS[minor][0])


def built_minors() -> list[str]:
    """Returns the minor releases for which this installation has kernels, oldest first."""
    return [minor for minor in build_info.KERNELS if os.path.exists(_path(minor))]


def advice() -> str:
    """Returns a text with the versions and the packages to install."""
    minors = built_minors()
    newest = minors[-1]
    newer = _order(tf.__version__) > _order(newest)
    served = newest if len(minors) == 1 else f"{minors[0]} to {newest}"
    text = (
        f"This tensorflow_ops {build_info.VERSION} was built for TensorFlow {served}, and TensorFlow {tf.__version__} "
        f'is installed. Either install a TensorFlow it was built for: pip install "tensorflow-cpu=={newest}.*" (with a '
        f'GPU: "tensorflow[and-cuda]=={newest}.*"), or install a {"newer " if newer else ""}tensorflow-extra-ops '
        f"that was built for TensorFlow {'.'.join(tf.__version__.split('.')[:2])}."
    )
    if newer:
        text += f" {_VARIABLE}={newest} loads the kernels for {newest} all the same; they may not load, or crash."
    return text


def _serving(version: str, minors: list[str]) -> str | None:
    """Returns the one of `minors` whose kernels serve TensorFlow `version`, or None."""
    if _order(version) > _order(list(build_info.KERNELS)[-1]):
        return None
    older = [minor for minor in build_info.KERNELS if _order(minor) <= _order(version)]
    return older[-1] if older and older[-1] in minors else None


def kernels() -> str:
    """Returns the minor release whose kernels serve the installed TensorFlow.

    Raises:
      ImportError: if this installation has none.
    """
    minors = built_minors()
    wanted = os.environ.get(_VARIABLE)
    if wanted:
        if wanted not in minors:
            raise ImportError(f"{_VARIABLE} is {wanted!r}; expected one of {', '.join(minors)}.")
        return wanted
    minor = _serving(tf.__version__, minors) if minors else None
    if minors and minor is None:
        raise ImportError(advice())
    # Without any kernels, loading the newest fails with the file's name.
    return minor or list(build_info.KERNELS)[-1]


def shared_object() -> str:
    """Returns the path of the shared object for the installed TensorFlow."""
    return _path(kernels())
