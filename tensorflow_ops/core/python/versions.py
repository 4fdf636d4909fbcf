"""Versions of this installation, for bug reports: `show_versions`."""

import importlib.metadata
import platform

import keras
import ml_dtypes
import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import build_info, compatibility, library


def _native_build_info() -> list[str]:
    """Returns the facts of the op BuildInfo, in its order."""
    with tf.init_scope(), tf.device("CPU:0"):
        return [fact.decode() for fact in library.ops.tensorflow_ops_build_info().numpy()]


def cpu_levels() -> list[str]:
    """Returns the valid values of `TENSORFLOW_OPS_CPU`: levels of this build and this processor, narrowest first."""
    _, processor, _, built, _ = _native_build_info()
    levels = ["baseline", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx"]
    return [level for level in built.split() if levels.index(level) <= levels.index(processor)]


def _keras_hub() -> str:
    try:
        return importlib.metadata.version("keras-hub")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def versions() -> dict[str, str]:
    """Returns the lines of `show_versions`, by name."""
    compiler, processor, active, built, driver = _native_build_info()
    build = tf.sysconfig.get_build_info()
    cuda = build_info.CUDA_VERSION
    architectures = ", ".join(f"sm_{a}" for a in build_info.CUDA_ARCHITECTURES)
    return {
        "tensorflow_ops": build_info.VERSION,
        "built for TensorFlow": ", ".join(build_info.KERNELS[minor][1] for minor in compatibility.built_minors()),
        "running TensorFlow": tf.__version__,
        "kernels in use": f"for TensorFlow {build_info.KERNELS[compatibility.kernels()][1]}",
        "TensorFlow's own CUDA": build.get("cuda_version", "none"),
        "GPU kernels": f"CUDA {cuda} ({architectures}, newer GPUs from PTX)" if cuda else "none",
        "NVIDIA driver": f"for CUDA {int(driver) // 1000}.{int(driver) % 1000 // 10}" if int(driver) else "none",
        "GPUs": ", ".join(d.name for d in tf.config.list_physical_devices("GPU")) or "none",
        "XLA": f"no: {library.xla_error}" if library.xla_error else "CPU" if library.gpu_error() else "CPU, GPU",
        "CPU instruction set": f"{active} (this processor has {processor}; this build: {built})",
        "compiler": compiler,
        "Keras": keras.__version__,
        "keras-hub": _keras_hub(),
        "NumPy": np.__version__,
        "ml-dtypes": ml_dtypes.__version__,
        "Python": platform.python_version(),
        "system": platform.platform(),
    }


def show_versions() -> None:
    """Prints the versions to put into a bug report.

    They are: the releases of TensorFlow built against, the one running, and the one whose
    kernels are in use; CUDA and the GPU architectures of the
    kernels; the newest CUDA that the driver runs; the devices for which XLA compiles the ops, or why it cannot; the CPU
    instruction set in use, the processor's, and those that the kernels were compiled for
    (the environment variable `TENSORFLOW_OPS_CPU` = baseline, avx2, avx512, avx512_vnni, avx512_bf16
    or amx selects another one); the releases of Keras, keras-hub, NumPy and ml-dtypes.

    >>> import tensorflow_ops as tfo
    >>> tfo.show_versions()  # doctest: +ELLIPSIS
    tensorflow_ops: ...
    """
    for name, value in versions().items():
        print(f"{name}: {value}")
