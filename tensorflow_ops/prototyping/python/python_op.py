"""python_op: NumPy functions as differentiable ops."""

import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, get_args, overload

import tensorflow as tf
from tensorflow.python.framework import ops

from tensorflow_ops.core.python import arguments as core_arguments
from tensorflow_ops.prototyping.python import arguments, calls, plans, stages

_NAME = re.compile(r"[A-Za-z]\w*::[A-Za-z]\w*", re.ASCII)
Vmap: TypeAlias = Literal["sequential", "batched"]
# A tf.TensorSpec, or a nest of them, or a function that returns one.
Declaration: TypeAlias = tf.TensorSpec | Sequence[Any] | Mapping[str, Any] | Callable[..., Any]

_VMAP = get_args(Vmap)
_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])
# Of plans for combinations of dtypes and attributes, per op; the bytes are those of attributes.
_MAX_CACHED_PLANS, _MAX_CACHED_BYTES = 256, 2**26

_ops = {}  # by name
_ops_lock = threading.Lock()


def _check_vmap(name, vmap):
    if vmap not in _VMAP:
        raise ValueError(f"{name}: vmap is {vmap!r}, expected one of {_VMAP}")
    return vmap


def _location(function):
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else repr(function)


def _copy_signature(wrapper, function):
    """Sets an object's name, docstring and signature to the function's."""
    functools.update_wrapper(wrapper, function)
    wrapper.__signature__ = inspect.signature(function)
    del wrapper.__wrapped__  # tf.function would unwrap an object that is one of its arguments


class Gradient:
    """The result of `register_gradient`: the gradient, with a `register_gradient` for its own gradient."""

    def __init__(self, stage):
        self._stage = stage
        _copy_signature(self, stage.function)

    def __call__(self, ctx: stages.Context, *output_gradients: Any) -> Any:
        """Calls the NumPy function."""
        return self._stage.function(ctx, *output_gradients)

    def __repr__(self):
        return f"<{self._stage.name}>"

    @overload
    def register_gradient(self, function: Callable[..., Any], *, vmap: Vmap | None = None) -> "Gradient": ...
    @overload
    def register_gradient(
        self, function: None = None, *, vmap: Vmap | None = None
    ) -> Callable[[Callable[..., Any]], "Gradient"]: ...
    def register_gradient(self, function=None, *, vmap=None):
        """Registers the gradient of this gradient: see `PythonOp.register_gradient`."""
        return _register_gradient(self._stage, function, vmap)


def _register_gradient(stage, function, vmap):
    if function is None:
        return functools.partial(_register_gradient, stage, vmap=vmap)
    if not callable(function):
        raise TypeError(f"{stage.name}: register_gradient got a {type(function).__name__}, expected a function")
    if stage.gradient is not None:
        raise ValueError(f"{stage.name} already has a gradient: {_location(stage.gradient.function)}")
    vmap = stage.vmap if vmap is None else _check_vmap(stage.name, vmap)
    stage.gradient = stages.Stage(stage.op_name, stage.python_name, function, vmap, stage.check_finite, stage.order + 1)
    return Gradient(stage.gradient)


def _declaration(name, declare, what, taken):
    """Returns `out` or `saved` as a function of (input specs, attributes)."""
    if not callable(declare):
        return lambda specs, attributes: declare
    keywords = arguments.keywords_of(declare, taken.attributes)
    parameters = inspect.signature(declare).parameters.values()
    positional = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY and p.name not in keywords]
    fixed = [p for p in positional if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    num_required = sum(p.default is p.empty for p in fixed)
    rest = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in positional)
    if (num_required > len(taken.inputs) and not taken.rest) or (len(fixed) < len(taken.inputs) and not rest):
        raise TypeError(f"{name}: {what} takes {len(fixed)} inputs, expected {len(taken.inputs)}: {taken.inputs}")
    return lambda specs, attributes: declare(*specs, **{k: attributes[k] for k in keywords})


class PythonOp:
    """An op with a NumPy function as its kernel; made by `tfo.python_op`.

    Attributes:
      name: the op's name, such as "demo::relu".
      reference: the op with its NumPy function, even if `register_kernel` replaced the
        function; called like the op.
    """

    # AutoGraph does not convert objects with this attribute.
    autograph_info__ = True

    def __init__(self, name, function, out, saved, vmap, non_differentiable, check_finite):
        self.name: str = name
        self._arguments = taken = arguments.Arguments(name, function)
        if isinstance(non_differentiable, str):
            raise TypeError(
                f"{name}: non_differentiable is the string {non_differentiable!r}, expected a list of names"
            )
        self._non_differentiable = frozenset(non_differentiable)
        unknown = sorted(self._non_differentiable - {*taken.inputs, taken.rest})
        if unknown:
            raise ValueError(f"{name}: non_differentiable has {unknown}, expected names in {taken.inputs}")
        self._out = _declaration(name, out, "out", taken)
        self._saved = None if saved is None else _declaration(name, saved, "saved", taken)
        _copy_signature(self, function)
        self._stage = stages.Stage(name, self.__name__, function, _check_vmap(name, vmap), check_finite)
        self._plans, self._plans_bytes = {}, 0
        self._kernel = None

    def __repr__(self):
        return f"<python_op {self.name}{' with a kernel' if self._kernel else ''}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the op: its compiled kernel if one is registered, else its NumPy function."""
        if self._kernel is None:
            return self.reference(*args, **kwargs)
        inputs, attributes, name = self._arguments.bind(args, kwargs)
        tensors = [tf.convert_to_tensor(core_arguments.native(value)) for value in inputs]
        named = {} if name is None else {"name": name}
        result = self._kernel(*tensors, **attributes, **named)
        plan = self._plan(tensors, attributes)
        self._check_kernel(plan, tensors, result)
        return result

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the op's NumPy function, even if `register_kernel` replaced it by a compiled op."""
        inputs, attributes, name = self._arguments.bind(args, kwargs)
        tensors = [
            value if type(value) is ops.EagerTensor else tf.convert_to_tensor(core_arguments.native(value), name=None)
            for value in inputs
        ]
        plan = self._plan(tensors, attributes)
        outputs = calls.call(plan, tensors, name)
        return plan.out.pack(outputs[: plan.num_outputs])

    @overload
    def register_gradient(self, function: Callable[..., Any], *, vmap: Vmap | None = None) -> Gradient: ...
    @overload
    def register_gradient(
        self, function: None = None, *, vmap: Vmap | None = None
    ) -> Callable[[Callable[..., Any]], Gradient]: ...
    def register_gradient(self, function=None, *, vmap=None):
        """Registers the op's gradient; a decorator.

        The function takes (ctx, *output_gradients): read-only NumPy arrays, one gradient for
        each output in the order of tf.nest (None for an output without gradient, by its
        dtype). It returns one array for each input, with the input's shape and dtype; None
        for an input without gradient, by its dtype (integers, bools, strings) or by
        `non_differentiable`. With one input it may return the array itself. ctx has inputs,
        outputs, saved and attributes. Gradients to complex inputs follow TensorFlow's
        convention, the conjugate of the derivative.

        The result has a `register_gradient`, too: for second-order gradients and for forward
        mode. That function differentiates the gradient, a function of the inputs and of the
        output gradients, and returns one array for each of these; outputs and saved values
        are functions of the inputs. Its ctx.inputs is the inputs and then the output
        gradients; ctx.forward is the ctx of the gradient.

        Args:
          function: the NumPy function.
          vmap: for the gradient, see `tfo.python_op`; None: the op's.

        Returns:
          The function, with `register_gradient`.

        Raises:
          ValueError: a gradient is already registered.
        """
        return _register_gradient(self._stage, function, vmap)

    def register_kernel(self, function: _Kernel) -> _Kernel:
        """Replaces the NumPy function by a compiled op; a decorator, too.

        From now on eager calls and new traces call `function(*tensors, **attributes)`, with
        its own gradient; existing graphs do not change. Its results are checked against
        `out`. `reference` calls the NumPy function as before.

        Args:
          function: takes tensors by position and all attributes by keyword, and returns the
            nest that `out` declares.

        Returns:
          The function.

        Raises:
          ValueError: a kernel is already registered.
        """
        if not callable(function):
            raise TypeError(f"{self.name}: register_kernel got a {type(function).__name__}, expected a function")
        if self._kernel is not None:
            raise ValueError(f"{self.name} already has a kernel: {_location(self._kernel)}")
        self._kernel = function
        return function

    def _plan(self, tensors, attributes):
        """Returns the plan for the tensors' dtypes and the attributes."""
        attributes_key, attributes = arguments.freeze_all(self.name, attributes)
        key = (tuple([tensor.dtype for tensor in tensors]), attributes_key)
        plan = self._plans.get(key) if attributes_key is not None else None
        if plan is None:
            plan = plans.ForwardPlan(
                self._stage,
                None if attributes_key is None else (self, *key),
                attributes,
                self._out,
                self._saved,
                key[0],
                [plans.shape_of(tensor) for tensor in tensors],
                tuple(self._arguments.input_name(i) for i in range(len(tensors))),
                self._non_differentiable,
            )
            size = arguments.num_bytes(attributes)
            if attributes_key is not None and size <= _MAX_CACHED_BYTES:
                if len(self._plans) >= _MAX_CACHED_PLANS or self._plans_bytes + size > _MAX_CACHED_BYTES:
                    self._plans.clear()
                    self._plans_bytes = 0
                self._plans[key] = plan
                self._plans_bytes += size
        return plan

    def _check_kernel(self, plan, tensors, result):
        declared = plan.declared(tuple(plans.shape_of(tensor) for tensor in tensors))
        kernel = f"{self.name}: its kernel"
        leaves = plan.out.flatten(result, kernel)
        for leaf, expected in zip(leaves, declared[: plan.num_outputs], strict=True):
            tensor = tf.convert_to_tensor(leaf)
            if tensor.dtype != expected.dtype or not tensor.shape.is_compatible_with(tf.TensorShape(expected.shape)):
                raise tf.errors.InvalidArgumentError(
                    None,
                    None,
                    f"{kernel}: {expected.name} has dtype {tensor.dtype.name} and shape {tensor.shape}, declared "
                    f"{expected.dtype.name} and {tf.TensorShape(expected.shape)}",
                )


def python_op(
    name: str,
    *,
    out: Declaration,
    saved: Declaration | None = None,
    vmap: Vmap = "sequential",
    non_differentiable: Iterable[str] = (),
    check_finite: bool = False,
    replace: bool = False,
) -> Callable[[Callable[..., Any]], PythonOp]:
    """Prototypes a differentiable op in NumPy, for eager code, tf.function and tf.data.

    A decorator: the function and its gradient are NumPy; a compiled op can replace them
    later under the same name (`register_kernel`).

    >>> import numpy as np, tensorflow as tf, tensorflow_ops as tfo
    >>> @tfo.python_op("docs::scaled_relu", out=lambda x: tf.TensorSpec(x.shape, x.dtype), vmap="batched")
    ... def scaled_relu(x, *, scale=1.0):
    ...     return np.maximum(x, 0) * x.dtype.type(scale)
    >>> @scaled_relu.register_gradient
    ... def scaled_relu_gradient(ctx, dy):
    ...     return dy * (ctx.inputs[0] > 0) * dy.dtype.type(ctx.attributes["scale"])
    >>> x = tf.constant([-1.0, 2.0])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = scaled_relu(x, scale=3.0)
    >>> y.numpy(), tape.gradient(y, x).numpy()
    (array([0., 6.], dtype=float32), array([0., 3.], dtype=float32))

    The decorated function's positional parameters without a default are tensors; it takes
    them as read-only arrays, strings as arrays of bytes objects. Its keyword-only
    parameters and those with a default are attributes: any Python values except tensors.
    It returns the values that `out` declares, of exactly that dtype and shape, in eager
    code and in graphs. The op also takes `name=`, the name of its node.

    The function must be pure: the same result for the same arguments. A graph may skip an
    unused call, merge equal ones, and compute a constant one once. The function runs on the
    CPU, holding Python's global lock, in the process that defined it.

    Args:
      name: "namespace::op", of ASCII letters, digits and underscores; unique.
      out: the results' shapes and dtypes: a tf.TensorSpec, or a nest (tuple, list, dict) of
        them, or a function that returns these. The function takes the inputs' specs, a
        tf.TensorSpec each, by position, and attributes by keyword, those that it has
        parameters for. In a graph, sizes of inputs may be None. A None size of a result
        stands for any size.
      saved: like out, for values other than results that the gradient needs. The
        function then returns (results, saved values), and the gradient reads ctx.saved.
        Saved values are not differentiated.
      vmap: the rule of tf.vectorized_map, GradientTape.jacobian and batch_jacobian.
        "batched": the function accepts any number of axes before those of its inputs, the
        same for all inputs, and maps over them: one call for all iterations.
        "sequential": one call for each iteration.
      non_differentiable: names of inputs of a differentiable dtype that have no gradient.
      check_finite: whether NaN and infinity in floating results, and in gradients, are
        errors.
      replace: whether to replace an op of this name, for use in notebooks. Graphs that call
        the old op keep it.

    Returns:
      A decorator that returns the op, a `PythonOp`, with `register_gradient`,
      `register_kernel` and `reference`.

    Raises:
      ValueError: a bad name, or the name of another op; an unknown option. When SavedModel
        exports a graph with the op in it.
      TypeError: a function without the required parameters; a declaration that is not a nest
        of tf.TensorSpec; a tensor as an attribute.
      InvalidArgumentError: when called, the function returned another dtype, shape or nest,
        or raised ValueError or TypeError. Its other errors become UnimplementedError
        (NotImplementedError), ResourceExhaustedError (MemoryError) or UnknownError, with
        type, message and line in the text.
      LookupError: when differentiated, the required gradient is not registered: the first,
        the second, or for forward mode both.
      UnimplementedError: when traced for XLA (jit_compile=True).

    Declared results, explicit mapping rules and errors for unregistered gradients follow
    torch.library.custom_op and jax.pure_callback.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"python_op: name is {name!r}, expected 'namespace::op' of letters, digits and underscores")

    def decorate(function):
        op = PythonOp(name, function, out, saved, vmap, non_differentiable, check_finite)
        with _ops_lock:
            if name in _ops and not replace:
                raise ValueError(
                    f"{name} is already an op, made from {_ops[name].__name__} "
                    f"({_location(_ops[name]._stage.function)}). Choose another name, or pass replace=True"
                )
            _ops[name] = op
        return op

    _check_vmap(name, vmap)
    return decorate
