"""Marks the public functions: AutoGraph calls them as they are, Keras's functional models as operations.

A graph's checks of one call come in order: see `ordered`.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import keras
import tensorflow as tf

# The mark that do_not_convert puts on a function. Its wrapper, left out here, would slow down eager calls.
_MARK = vars(tf.autograph.experimental.do_not_convert(lambda: None)).copy()
_MARK.pop("__wrapped__", None)
_executing_eagerly = tf.executing_eagerly  # looking it up takes half as long as the call


class _Thread(threading.local):
    # Of the public call that a graph is traced for: for each graph, the last check's `passed`.
    last_checks: dict[Any, list[tf.Tensor]] | None = None


_thread = _Thread()
# One item for each public call, of all threads, that a graph is traced for: a list is read faster than `_thread`.
traced_calls = []

# Marked functions by their public names, such as "tensorflow_ops.nn.softmax": what a saved model may call.
_FUNCTIONS = {}


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class FunctionOperation(keras.Operation):
    """A call of a public function in a functional model. `function` is its public name."""

    def __init__(self, function: str, name: str | None = None) -> None:
        super().__init__(name=name)
        if function not in _FUNCTIONS:
            raise ValueError(f"function is {function!r}, expected a public function of ops, such as tfo.nn.softmax")
        self.function = function

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return _FUNCTIONS[self.function](*args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return {"function": self.function, "name": self.name}


def is_among(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns whether a value of a type is among a call's arguments, or in a list or tuple among them."""
    kinds = (kind, list, tuple)
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, kinds) and (isinstance(value, kind) or kind in map(type, value)):
            return True
    return False


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _in_order(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _thread.last_checks is not None:
        return function(*args, **kwargs)
    traced_calls.append(function)
    _thread.last_checks = {}
    try:
        return function(*args, **kwargs)
    finally:
        _thread.last_checks = None
        traced_calls.pop()


def ordered(function: _Function) -> _Function:
    """Marks a function whose checks come in their order in graphs, too, as those of `op_function`; a decorator.

    Otherwise the scheduler decides which of several checks that fail raises its error.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if _executing_eagerly() else _in_order(function, args, kwargs)

    return cast(_Function, marked(call))


def after_last_check(check: Callable[[list[tf.Tensor]], tuple[tf.Tensor, list[tf.Tensor]]]) -> tf.Tensor:
    """Returns the result of check(after) -> (result, passed): in a graph, it waits for the public call's last check."""
    if _thread.last_checks is None or _executing_eagerly():
        return check([])[0]
    graph, context = _graph()
    if (graph, context) not in _thread.last_checks:
        with tf.device("CPU:0"):  # kernels read it in host memory
            _thread.last_checks[graph, context] = [tf.constant(True)]
    result, _thread.last_checks[graph, context] = check(_thread.last_checks[graph, context])
    return result


def last_check() -> list[tf.Operation]:
    """Returns a list of the op that the ops of a public call wait for: none in eager calls, and before a check."""
    if not _thread.last_checks or _executing_eagerly():
        return []
    return [passed.op for passed in _thread.last_checks.get(_graph(), [])]


def _graph() -> tuple[tf.Graph, Any]:
    graph = tf.compat.v1.get_default_graph()
    # In graphs of TensorFlow 1, branches and the bodies of loops are no graphs of their own.
    return graph, graph._get_control_flow_context()


def takes_keras_tensors(function: _Function) -> _Function:
    """Lets a public function take KerasTensors, which become a `FunctionOperation` of the model; a decorator."""
    public_name = f"{function.__module__.partition('.python.')[0]}.{function.__name__}"

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_among(keras.KerasTensor, args, kwargs):
            return FunctionOperation(public_name, kwargs.pop("name", None))(*args, **kwargs)
        return function(*args, **kwargs) if _executing_eagerly() else _in_order(function, args, kwargs)

    _FUNCTIONS[public_name] = call
    return cast(_Function, call)


def marked(function: _Function) -> _Function:
    """Marks a function that AutoGraph calls as it is; a decorator. `op_function` is for functions of ops."""
    vars(function).update(_MARK)
    return function


def op_function(function: _Function) -> _Function:
    """Marks a function that AutoGraph calls as it is, and that takes KerasTensors; a decorator.

    For functions that need no conversion, being written without Python control flow on
    tensors: it makes their first trace faster. Not for functions that take a callable of
    the user's: AutoGraph would not convert that callable either.
    """
    return takes_keras_tensors(marked(function))
