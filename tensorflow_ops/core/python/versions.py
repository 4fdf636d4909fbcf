"""Which TensorFlow this build fits, and what it says where it meets another."""

import platform

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
    """Says what to install so that package and TensorFlow fit."""
    fitting = _minor(build_info.TENSORFLOW_VERSION)
    return (
        f"This tensorflow_ops {build_info.VERSION} was built for TensorFlow {build_info.TENSORFLOW_VERSION}, and "
        f"TensorFlow {tf.__version__} is installed. Either install the TensorFlow it was built for: "
        f'pip install "tensorflow-cpu=={fitting}.*" (with a GPU: "tensorflow[and-cuda]=={fitting}.*"), '
        f"or install a tensorflow_ops that was built for TensorFlow {_minor(tf.__version__)}."
    )


def check_tensorflow() -> None:
    """Raises ImportError unless the TensorFlow at hand is one this build runs on.

    TensorFlow's C++ interface changes with each minor release: an op built for
    another one fails with an undefined symbol, or worse, later.
    """
    if _minor(tf.__version__) != _minor(build_info.TENSORFLOW_VERSION):
        raise ImportError(advice())


def _facts():
    """Returns what C++ alone knows: compiler, the processor's CPU level, the one in use, those of the build."""
    from tensorflow_ops.core.python import library

    with tf.init_scope(), tf.device("CPU:0"):
        return [fact.decode() for fact in library.ops.tensorflow_ops_build_info().numpy()]


def cpu_levels() -> list[str]:
    """Returns what `TENSORFLOW_OPS_CPU` may name here: levels of this build and this processor, narrowest first."""
    _, processor, _, built = _facts()
    levels = ["baseline", "avx2", "avx512"]
    return [level for level in built.split() if levels.index(level) <= levels.index(processor)]


def versions() -> dict[str, str]:
    """Returns what `show_versions` prints, by name."""
    compiler, processor, active, built = _facts()
    build = tf.sysconfig.get_build_info()
    cuda = build_info.CUDA_VERSION
    architectures = ", ".join(f"sm_{a}" for a in build_info.CUDA_ARCHITECTURES)
    return {
        "tensorflow_ops": build_info.VERSION,
        "built for TensorFlow": build_info.TENSORFLOW_VERSION,
        "running TensorFlow": tf.__version__,
        "TensorFlow's own CUDA": build.get("cuda_version", "none"),
        "GPU kernels": f"CUDA {cuda} ({architectures}, newer GPUs from PTX; needs driver 580)" if cuda else "none",
        "GPUs": ", ".join(d.name for d in tf.config.list_physical_devices("GPU")) or "none",
        "CPU instruction set": f"{active} (this processor has {processor}; this build: {built})",
        "compiler": compiler,
        "Python": platform.python_version(),
        "system": platform.platform(),
    }


def show_versions() -> None:
    """Prints what a bug report should say of this installation.

    That is: TensorFlow built against and running, CUDA and the GPU architectures of
    the kernels, the CPU instruction set in use, this processor's, and those that the
    kernels were compiled for (the environment variable `TENSORFLOW_OPS_CPU` =
    baseline, avx2 or avx512 forces a lower one).

    >>> import tensorflow_ops as tfo
    >>> tfo.show_versions()  # doctest: +ELLIPSIS
    tensorflow_ops: ...
    """
    for name, value in versions().items():
        print(f"{name}: {value}")
