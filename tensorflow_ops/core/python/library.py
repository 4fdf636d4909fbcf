"""Loads the shared objects: the ops of this package, and what lets XLA compile them."""

import functools
import inspect
import os
import re
import types
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# TensorFlow has no public API to look up an op or its kernels.
from tensorflow.python.framework import kernels, op_def_registry

# Nor one that tells whether XLA will compile a graph.
from tensorflow.python.ops import control_flow_util

from tensorflow_ops.core.python import autograph, build_info, compatibility

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATH = compatibility.shared_object()
XLA_PATH = os.path.join(_FOLDER, "_tensorflow_ops_xla.so")
# An attribute of the module tensorflow, which remains when ours are deleted from sys.modules: where
# it was imported from. A second import would abort the process, or raise KeyError for the first gradient.
_MARK = "_tensorflow_ops_folder"
# The payload of a shape function's errors (core/cc/glue/shape_check.cc).
_SHAPE_ERROR = b"tensorflow_ops/shape_error"


def _mapped_path() -> str | None:
    """Returns the path of the shared object of ops that this process has mapped, or None."""
    names = {kernels[0] for kernels in build_info.KERNELS.values()}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        paths = (line.rstrip("\n").partition("/") for line in lines)
        return next(("/" + path for _, _, path in paths if os.path.basename(path) in names), None)


def _loaded_from() -> str | None:
    """Returns where this process has ops from that must not be loaded again, or None."""
    if hasattr(tf, _MARK) or op_def_registry.get("TensorflowOps>BuildInfo") is None:
        return getattr(tf, _MARK, None)
    path = _mapped_path()
    # After tf.load_op_library(PATH), TensorFlow loads the same file once more without harm.
    return None if path == os.path.realpath(PATH) else path or "another library"


def _load() -> types.ModuleType:
    """Returns the module of generated op functions. Raises ImportError."""
    loaded_from = _loaded_from()
    if loaded_from is None:
        try:
            module = tf.load_op_library(PATH)
        except tf.errors.OpError as error:
            problem = f"The kernels of tensorflow_ops could not be loaded: {error.message}."
            raise ImportError(f"{problem} {compatibility.advice()}") from error
        if hasattr(module, "tensorflow_ops_build_info"):
            return module
        # TensorFlow lists no ops if it has loaded the file by another name, such as a link.
        loaded_from = _mapped_path()
    way_out = "again" if loaded_from == _FOLDER else f"from {_FOLDER}"
    raise ImportError(f"tensorflow_ops is already loaded from {loaded_from}; restart Python to load it {way_out}")


def shape_text(shape: tf.TensorShape) -> str:
    """Formats a static shape as the kernels do: [2,?]."""
    if shape.rank is None:
        return "of unknown rank"
    return f"[{','.join('?' if n is None else str(n) for n in shape)}]"


def _got(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> str:
    """Returns ", got SHAPE" of the input that a message begins with, as kernels do (core/cc/glue/shape_check.cc)."""
    value = inspect.signature(op).bind(*args, **kwargs).arguments.get(message.partition(" ")[0])
    shapes = [tf.TensorShape(x.shape) for x in tf.nest.flatten(value) if hasattr(x, "shape")]
    texts = [shape_text(shape) for shape in shapes if shape.rank is not None]
    return f", got {', '.join(texts)}" if texts else ""


def _with_value_errors(op: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a generated function: eager calls raise ValueError for wrong shapes, as TensorFlow does in a graph.

    The message is the shape function's, with the shape of the input that it begins with. TensorFlow adds node and op
    names, and in a graph the shapes of all inputs, of which most are optional ones that nobody passed.
    """

    @functools.wraps(op)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if not autograph.traced_calls:
                return op(*args, **kwargs)
            # Arguments that are no inputs of the op have been checked before it checks its inputs.
            with tf.control_dependencies(autograph.last_check()):
                return op(*args, **kwargs)
        except ValueError as error:
            message, of_node, _ = str(error).partition(" for '{{node ")
            if not of_node:
                raise
            message = message.removesuffix(".")
            raise ValueError(message + _got(op, args, kwargs, message)) from None
        except tf.errors.InvalidArgumentError as error:
            if _SHAPE_ERROR not in error.experimental_payloads:
                raise
            message = re.sub(r"^\{\{function_node [^}]*\}\} | \[Op:[^]]*\].*$", "", error.message, flags=re.DOTALL)
            raise ValueError(message) from None

    # Without the mark AutoGraph would warn that generated functions have no source file.
    return autograph.marked(call)


def _op_functions(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    """Returns the generated functions of ops, by name."""
    generated = {name: value for name, value in vars(module).items() if name.startswith("tensorflow_ops_")}
    return {name: _with_value_errors(op) for name, op in generated.items() if callable(op)}


def _load_xla() -> str | None:
    """Registers the ops with XLA. Returns None, or the reason why XLA cannot compile them."""
    newest = compatibility.built_minors()[-1]
    if compatibility.kernels() != newest:
        return f"XLA compiles the ops in TensorFlow {newest} only"
    try:
        tf.load_library(XLA_PATH)
    except (OSError, tf.errors.OpError) as error:  # such as a TensorFlow that was built without XLA
        return str(error)
    return None


def gpu_error() -> str | None:
    """Returns why GPUs run no kernels of this package, or None."""
    if not build_info.CUDA_VERSION:
        return "this wheel has no GPU kernels"
    # See GpuDeviceType() in op_util.h. Does not initialize TensorFlow's devices, which users configure after import.
    if "GPU" in {
        kernel.device_type for kernel in kernels.get_registered_kernels_for_op("TensorflowOps>ZeroOut").kernel
    }:
        return None
    driver = {"12": 525, "13": 580}[build_info.CUDA_VERSION.partition(".")[0]]
    return f"the NVIDIA driver is too old: kernels of CUDA {build_info.CUDA_VERSION} need {driver} or newer"


def supports_xla() -> bool:
    """Returns whether XLA can compile the ops for this machine's devices."""
    return xla_error is None and (gpu_error() is None or not tf.config.list_physical_devices("GPU"))


def is_compiled_by_xla() -> bool:
    """Returns whether the current graph is traced for XLA; False outside of graphs."""
    if tf.executing_eagerly():
        return False
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


# The generated op functions. Loaded with the package, so that a SavedModel finds
# its ops after `import tensorflow_ops`, and before XLA looks for kernels.
ops = types.SimpleNamespace(**_op_functions(_load()))
xla_error = _load_xla()
setattr(tf, _MARK, _FOLDER)
if build_info.CUDA_VERSION and gpu_error():
    warnings.warn(f"tensorflow_ops runs on the CPU only: {gpu_error()}.", RuntimeWarning, stacklevel=2)
