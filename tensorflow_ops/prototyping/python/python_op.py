"""python_op: NumPy functions as differentiable ops."""

import functools
import inspect
import re
import threading

import tensorflow as tf
from tensorflow.python.framework import ops

from tensorflow_ops.prototyping.python import arguments, calls, plans, stages

_NAME = re.compile(r"[A-Za-z]\w*::[A-Za-z]\w*", re.ASCII)
_VMAP = ("sequential", "batched")
_MOST_PLANS = 256  # an op remembers: dtypes and attributes of its inputs

_ops = {}  # by name
_ops_lock = threading.Lock()


def _check_vmap(name, vmap):
    if vmap not in _VMAP:
        raise ValueError(f"{name}: vmap is {vmap!r}, expected one of {_VMAP}")
    return vmap


def _place(function):
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else repr(function)


def _look_like(wrapper, function):
    """Gives an object the function's name, docstring and signature."""
    functools.update_wrapper(wrapper, function)
    wrapper.__signature__ = inspect.signature(function)
    del wrapper.__wrapped__  # tf.function would pass that on where the object is one of its arguments


class Gradient:
    """What `register_gradient` gives back: the gradient, on which its own gradient can be registered."""

    def __init__(self, stage):
        self._stage = stage
        _look_like(self, stage.function)

    def __call__(self, ctx, *output_gradients):
        """The NumPy function itself."""
        return self._stage.function(ctx, *output_gradients)

    def __repr__(self):
        return f"<{self._stage.name}>"

    def register_gradient(self, function=None, *, vmap=None):
        """Registers the gradient of this gradient: see `PythonOp.register_gradient`."""
        return _register_gradient(self._stage, function, vmap)


def _register_gradient(stage, function, vmap):
    if function is None:
        return functools.partial(_register_gradient, stage, vmap=vmap)
    if not callable(function):
        raise TypeError(f"{stage.name}: register_gradient got a {type(function).__name__}, expected a function")
    if stage.gradient is not None:
        raise ValueError(f"{stage.name} has a gradient already: {_place(stage.gradient.function)}")
    vmap = stage.vmap if vmap is None else _check_vmap(stage.name, vmap)
    stage.gradient = stages.Stage(stage.op_name, stage.python_name, function, vmap, stage.check_finite, stage.order + 1)
    return Gradient(stage.gradient)


def _declaration(name, declare, what, taken):
    """`out` or `saved` as a function of (input specs, attributes)."""
    if not callable(declare):
        return lambda specs, attributes: declare
    keywords = arguments.keywords_of(declare, taken.attributes)
    parameters = inspect.signature(declare).parameters.values()
    positional = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY and p.name not in keywords]
    fixed = [p for p in positional if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in fixed)
    rest = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in positional)
    if (least > len(taken.inputs) and not taken.rest) or (len(fixed) < len(taken.inputs) and not rest):
        raise TypeError(f"{name}: {what} takes {len(fixed)} inputs, expected {len(taken.inputs)}: {taken.inputs}")
    return lambda specs, attributes: declare(*specs, **{k: attributes[k] for k in keywords})


class PythonOp:
    """An op whose kernel is a NumPy function; made by `tfo.python_op`.

    Attributes:
      name: the op's name, as "demo::relu".
      reference: the op with its NumPy function, whatever `register_kernel` put in its
        place; called as the op itself.
    """

    # TensorFlow's AutoGraph takes what has this attribute as it is.
    autograph_info__ = True

    def __init__(self, name, function, out, saved, vmap, non_differentiable, check_finite):
        self.name = name
        self._arguments = taken = arguments.Arguments(name, function)
        if isinstance(non_differentiable, str):
            raise TypeError(
                f"{name}: non_differentiable is the string {non_differentiable!r}, expected a list of names"
            )
        self._non_differentiable = frozenset(non_differentiable)
        unknown = sorted(self._non_differentiable - {*taken.inputs, taken.rest})
        if unknown:
            raise ValueError(f"{name}: non_differentiable names {unknown}, expected some of {taken.inputs}")
        self._out = _declaration(name, out, "out", taken)
        self._saved = None if saved is None else _declaration(name, saved, "saved", taken)
        _look_like(self, function)
        self._stage = stages.Stage(name, self.__name__, function, _check_vmap(name, vmap), check_finite)
        self._plans = {}
        self._kernel = None

    def __repr__(self):
        return f"<python_op {self.name}{' with a kernel' if self._kernel else ''}>"

    def __call__(self, *args, **kwargs):
        """Calls the op: its compiled kernel where one is registered, else its NumPy function."""
        if self._kernel is None:
            return self.reference(*args, **kwargs)
        inputs, attributes, name = self._arguments.bind(args, kwargs)
        tensors = [tf.convert_to_tensor(value) for value in inputs]
        named = {} if name is None else {"name": name}
        result = self._kernel(*tensors, **attributes, **named)
        plan = self._plan(tensors, attributes)
        self._check_kernel(plan, tensors, result)
        return result

    def reference(self, *args, **kwargs):
        """Calls the op's NumPy function, also where `register_kernel` swapped a compiled op in."""
        inputs, attributes, name = self._arguments.bind(args, kwargs)
        tensors = [
            value if type(value) is ops.EagerTensor else tf.convert_to_tensor(value, name=None) for value in inputs
        ]
        plan = self._plan(tensors, attributes)
        outputs = calls.call(plan, tensors, name)
        return plan.out.pack(outputs[: plan.num_outputs])

    def register_gradient(self, function=None, *, vmap=None):
        """Registers the op's gradient; a decorator.

        The function takes (ctx, *output_gradients): NumPy arrays that may not be written
        to, one gradient for each output in the order of tf.nest (None for an output whose
        dtype has no gradient). It gives back one array for each input, with the input's
        shape and dtype; None for an input that has no gradient, by its dtype (integers,
        bools, strings) or by `non_differentiable`. With one input the array itself will do.
        ctx has inputs, outputs, saved and attributes. Gradients to complex inputs follow
        TensorFlow's convention, the conjugate of the derivative.

        The result has a `register_gradient` of its own: for second-order gradients and for
        forward mode. For it the gradient is a function of the inputs and of the output
        gradients, so it gives back one array for each of these; outputs and saved values
        count as functions of the inputs. Its ctx.inputs is the inputs and then the output
        gradients; ctx.forward is the ctx of the gradient.

        Args:
          function: the NumPy function.
          vmap: as `tfo.python_op` has it, for the gradient; None: as the op.

        Returns:
          The function, with `register_gradient`.

        Raises:
          ValueError: there is a gradient already.
        """
        return _register_gradient(self._stage, function, vmap)

    def register_kernel(self, function):
        """Puts a compiled op in the place of the NumPy function; a decorator, too.

        From now on eager calls and new traces call `function(*tensors, **attributes)`, with
        its own gradient; graphs that exist keep what they have. What it gives back is
        compared with what `out` declares. `reference` calls the NumPy function as before.

        Args:
          function: takes tensors by position and all attributes by keyword, and gives back
            the nest that `out` declares.

        Returns:
          The function.

        Raises:
          ValueError: there is a kernel already.
        """
        if not callable(function):
            raise TypeError(f"{self.name}: register_kernel got a {type(function).__name__}, expected a function")
        if self._kernel is not None:
            raise ValueError(f"{self.name} has a kernel already: {_place(self._kernel)}")
        self._kernel = function
        return function

    def _plan(self, tensors, attributes):
        """The plan for these dtypes and attributes."""
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
            if attributes_key is not None:
                if len(self._plans) >= _MOST_PLANS:
                    self._plans.clear()
                self._plans[key] = plan
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
                    f"{kernel} gave {expected.name} dtype {tensor.dtype.name} and shape {tensor.shape}, declared "
                    f"{expected.dtype.name} and {tf.TensorShape(expected.shape)}",
                )


def python_op(name, *, out, saved=None, vmap="sequential", non_differentiable=(), check_finite=False, replace=False):
    """Makes a NumPy function an op: in eager code, tf.function, tf.data, with a gradient.

    A decorator for prototypes: the function and its gradient are NumPy, and a compiled
    op may take their place later under the same name (`register_kernel`).

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

    The decorated function's positional parameters without a default are tensors, and it
    gets them as arrays that may not be written to; strings as arrays of bytes objects. Its
    keyword-only parameters and those with a default are attributes: any Python values that
    are no tensors. It gives back what `out` declares, of exactly that dtype and shape, in
    eager code and in graphs. Of the op one can ask, besides, `name=`, the name of its node.

    The function is to be pure: the same result for the same arguments. A graph may leave a
    call out whose result nobody reads, merge equal ones, and compute a constant one once.
    It runs on the CPU, holding Python's lock, in the process that made it.

    Args:
      name: "namespace::op", of ASCII letters, digits and underscores; one op for each.
      out: the results' shapes and dtypes: a tf.TensorSpec, or a nest (tuple, list, dict) of
        them, or a function that gives these for the inputs' specs, tf.TensorSpec each,
        given by position, and for those attributes it has parameters for. In a graph
        sizes may be None. A size None of the result is any size.
      saved: like out, for values that the gradient needs and that are no results. The
        function then gives back (results, saved values), and the gradient finds them in
        ctx.saved. Their gradients are not taken.
      vmap: what tf.vectorized_map, GradientTape.jacobian and batch_jacobian do. "batched":
        the function takes any number of axes before those of its inputs, all inputs have
        the same ones, and it maps over them: one call for all iterations. "sequential":
        one call for each.
      non_differentiable: names of inputs that have no gradient, though their dtype has.
      check_finite: whether NaN and infinity in floating results, and in gradients, are
        errors.
      replace: whether to take the place of an op of this name, as one wants in a notebook.
        Graphs that call the other one keep it.

    Returns:
      A decorator; what it gives back is the op, a `PythonOp`, with `register_gradient`,
      `register_kernel` and `reference`.

    Raises:
      ValueError: a bad name, or one that is taken; an unknown option. When SavedModel
        exports a graph with the op in it.
      TypeError: a function without the parameters it should have; a declaration that is no
        nest of tf.TensorSpec; a tensor as an attribute.
      InvalidArgumentError: when called, the function gave back another dtype, shape or
        nest, or raised ValueError or TypeError. What else it raises becomes
        UnimplementedError (NotImplementedError), ResourceExhaustedError (MemoryError) or
        UnknownError, with its type, message and place in the text.
      LookupError: when differentiated, the gradient asked for is not registered: the first,
        the second, or forward mode, which takes both.
      UnimplementedError: when traced for XLA (jit_compile=True).

    Declared results, a mapping rule to state and an error for what is not registered are
    those of torch.library.custom_op and jax.pure_callback.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"python_op: name is {name!r}, expected 'namespace::op' of letters, digits and underscores")

    def decorate(function):
        op = PythonOp(name, function, out, saved, vmap, non_differentiable, check_finite)
        with _ops_lock:
            if name in _ops and not replace:
                raise ValueError(
                    f"{name} is an op already, made from {_ops[name].__name__} ({_place(_ops[name]._stage.function)}). "
                    "Give this one another name, or say replace=True"
                )
            _ops[name] = op
        return op

    _check_vmap(name, vmap)
    return decorate
