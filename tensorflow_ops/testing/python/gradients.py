"""Analytic gradients against numeric ones."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python.type_aliases import DTypeLike
from tensorflow_ops.testing.python import compare
from tensorflow_ops.testing.python.inputs import InputNames, Inputs, is_differentiable

# For an analytic gradient in a dtype against a numeric one in float64.
TOLERANCES = {
    tf.float16: 1e-2,
    tf.bfloat16: 6e-2,
    tf.float32: 1e-3,
    tf.float64: 1e-6,
    tf.complex64: 1e-3,
    tf.complex128: 1e-6,
}
# Steps of central differences: the error is of order step^2 from nonlinearity, epsilon / step from rounding.
_STEPS = {tf.float16: 0.1, tf.bfloat16: 0.2, tf.float32: 5e-3, tf.float64: 6e-6}
# A full Jacobian costs two calls for each input element and one gradient for each output element.
_FULL = 160
_SAMPLED, _DIRECTIONS, _UPSTREAMS = 64, 4, 2


@dataclasses.dataclass(frozen=True)
class InputGradientError:
    """The largest difference between one input's gradient and the numeric one.

    Attributes:
      input: the input's name: "args[0]", "bias".
      dtype: its dtype, in which the analytic gradient was computed.
      error: |analytic - numeric|; 0 if nothing was compared.
      tolerance: the allowed error, relative to 1 + |numeric|.
      analytic, numeric: the two values; complex for a complex input's derivative.
      input_index: the element of the input; None for a random direction of all elements.
      output: the output, "output" or "output[1]"; None for a random combination of all outputs.
      output_index: the element of the output; None for a combination.
      missing: the gradient is None; it is compared as 0.
      skipped: the reason if nothing was compared, else None.
    """

    input: str
    dtype: tf.DType
    error: float = 0.0
    tolerance: float = 0.0
    analytic: float = 0.0
    numeric: float = 0.0
    input_index: tuple[int, ...] | None = None
    output: str | None = None
    output_index: tuple[int, ...] | None = None
    missing: bool = False
    skipped: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance; NaN is not."""
        return self.skipped is not None or self.error <= self.tolerance * (1 + abs(self.numeric))

    def __str__(self):
        if self.skipped:
            return f"{self.input} ({self.dtype.name}): skipped, {self.skipped}"
        of = "a random combination of outputs"
        if self.output is not None:
            of = f"{self.output}{compare.place(self.output_index)}"
        by = f"{self.input} along a random direction"
        if self.input_index is not None:
            by = f"{self.input}{compare.place(self.input_index)}"
        missing = " (the gradient is None)" if self.missing else ""
        return (
            f"{self.input} ({self.dtype.name}): d {of} / d {by}: analytic {self.analytic:.9g}{missing}, "
            f"numeric {self.numeric:.9g}, difference {self.error:.3g}, "
            f"tolerance {self.tolerance:g} * (1 + |numeric|)"
        )


@dataclasses.dataclass(frozen=True)
class GradientError:
    """The result of `gradient_error`: the largest error for each input of a differentiable dtype.

    Attributes:
      inputs: a tuple of `InputGradientError`, in the order of inputs.
    """

    inputs: tuple[InputGradientError, ...]

    @property
    def error(self) -> float:
        """The largest error of all inputs; NaN if one is NaN."""
        return float(np.max([0.0, *(i.error for i in self.inputs)]))

    @property
    def ok(self) -> bool:
        """Whether all errors are within their tolerances."""
        return all(i.ok for i in self.inputs)

    def __getitem__(self, name: str) -> InputGradientError:
        return next(i for i in self.inputs if i.input == name)

    def __str__(self):
        return "\n".join(str(i) for i in self.inputs)


def _reals(x):
    """Returns a tensor as a flat array of float64, complex numbers as pairs."""
    array = np.ascontiguousarray(compare.wide(x)).reshape(-1)
    return array.view(np.float64) if array.dtype.kind == "c" else array


def _same_bits(tensors, others):
    return all(
        x.dtype == y.dtype and np.array_equal(_reals(x), _reals(y), equal_nan=True)
        for x, y in zip(tensors, others, strict=True)
    )


def _traced(function, tensors):
    """Returns the function as a graph, which is faster, if that gives the same bits; and its outputs."""
    outputs = function(*tensors)
    graph = tf.function(function, autograph=False)
    try:
        # Copies, since the graph may write to its inputs.
        copies = [tf.constant(x.numpy()) for x in tensors]
        same = _same_bits(graph(*copies), outputs) and _same_bits(copies, tensors)
    except Exception:  # Other tests report errors in graphs.
        same = False
    return (graph if same else function), outputs


class _Numeric:
    """Derivatives of all differentiable outputs by central differences."""

    def __init__(self, inputs, tensors):
        self._arrays = list(tensors)
        self._real = [_reals(x) if is_differentiable(x.dtype) else None for x in tensors]
        self._call, outputs = _traced(inputs.call, tensors)
        # Outputs in a narrow dtype need the step of that dtype.
        dtypes = [y.dtype.real_dtype for y in outputs if is_differentiable(y.dtype)]
        self._min_step = max((_STEPS[dtype] for dtype in dtypes), default=0)

    def step(self, i):
        step = max(self._min_step, _STEPS[self._arrays[i].dtype.real_dtype])
        # In narrow dtypes the step grows with the values, or it would be lost to rounding.
        return step * max(1.0, float(np.max(np.abs(self._real[i]), initial=0)) if step > _STEPS[tf.float64] else 1.0)

    def _outputs(self, i, moved):
        x = self._arrays[i]
        array = moved.view(np.complex128) if x.dtype.is_complex else moved
        changed = tf.cast(tf.reshape(tf.constant(array), x.shape), x.dtype)
        tensors = [changed if k == i else t for k, t in enumerate(self._arrays)]
        outputs = [y for y in self._call(*tensors) if is_differentiable(y.dtype)]
        return np.concatenate([_reals(y) for y in outputs]), _reals(changed)

    def along(self, i, direction):
        """Returns the derivative of outputs by input i along a direction of its real numbers."""
        step = self.step(i)
        above, x_above = self._outputs(i, self._real[i] + step * direction)
        below, x_below = self._outputs(i, self._real[i] - step * direction)
        # Rounding to a narrow dtype changes the step: divide by the actual one.
        largest = int(np.argmax(np.abs(direction)))
        step = (x_above[largest] - x_below[largest]) / direction[largest]
        with np.errstate(invalid="ignore"):
            return (above - below) / step

    def by_element(self, i, element):
        direction = np.zeros_like(self._real[i])
        direction[element] = 1
        return self.along(i, direction)


class _Analytic:
    """Gradients of the differentiable outputs, for any upstream."""

    def __init__(self, inputs, tensors, indices):
        self._indices = indices
        with tf.GradientTape(persistent=True) as tape:
            self._watched = {i: tf.identity(tensors[i]) for i in indices}
            tape.watch(list(self._watched.values()))
            self._outputs = inputs.call(*(self._watched.get(i, x) for i, x in enumerate(tensors)))
            self.outputs = [y for y in self._outputs if is_differentiable(y.dtype)]
        self._tape = tape
        self.sizes = [_reals(y).size for y in self.outputs]
        self._rows = {}

    def of_row(self, row, rng):
        """Returns (weight, gradients) for an upstream gradient with one weight, at one real number of the outputs.

        Weights have random signs and sizes, to find gradients that ignore the upstream gradient. They are powers of
        two, which cause no rounding. The result is cached: it serves all inputs.
        """
        if row not in self._rows:
            upstream = np.zeros(sum(self.sizes))
            upstream[row] = rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0])
            self._rows[row] = upstream[row], self(upstream)
        return self._rows[row]

    def __call__(self, upstream):
        """Returns {input: its gradient's real numbers, or None}.

        `upstream` has the real numbers of all outputs, in one array.
        """
        parts = np.split(upstream, np.cumsum(self.sizes)[:-1])
        tensors = []
        for part, y in zip(parts, self.outputs, strict=True):
            array = np.ascontiguousarray(part)
            array = array.view(np.complex128) if y.dtype.is_complex else array
            tensors.append(tf.cast(tf.reshape(tf.constant(array), y.shape), y.dtype))
        watched = [self._watched[i] for i in self._indices]
        gradients = self._tape.gradient(self.outputs, watched, output_gradients=tensors)
        result = {}
        for i, x, g in zip(self._indices, watched, gradients, strict=True):
            if g is not None:
                g = tf.convert_to_tensor(g)
                if g.shape != x.shape or g.dtype != x.dtype:
                    raise AssertionError(
                        f"input {i} is {x.dtype.name} {x.shape}, its gradient is {g.dtype.name} {g.shape}"
                    )
                g = _reals(g)
            result[i] = g
        return result


def _element_place(x, element):
    """Returns the index of the element that a real number of a tensor belongs to."""
    parts = 2 if x.dtype.is_complex else 1
    return tuple(int(n) for n in np.unravel_index(element // parts, x.shape))


class _LargestError:
    """Keeps the largest error, relative to 1 + |numeric|, and its indices."""

    def __init__(self):
        self.excess, self.found = -1.0, {}

    def add(self, analytic, numeric, **where):
        error = abs(analytic - numeric)
        excess = np.inf if np.isnan(error) else error / (1 + abs(numeric))
        if np.isnan(analytic) and np.isnan(numeric):
            excess = error = 0.0
        if excess > self.excess:
            self.excess = excess
            self.found = {"analytic": float(analytic), "numeric": float(numeric), "error": float(error), **where}


def _full(analytic, numeric, x, i, output_names, rng, limit):
    """Compares every entry of the Jacobian. Returns (_LargestError, whether the gradient is None)."""
    worst, missing = _LargestError(), True
    total = sum(analytic.sizes)
    size = _reals(x).size
    rows = np.zeros([total, size])
    for row in range(total):
        weight, found = analytic.of_row(row, rng)
        if found[i] is not None:
            missing = False
            rows[row] = found[i] / weight
    ends = np.cumsum(analytic.sizes)
    columns = [numeric.by_element(i, element) for element in range(size)]
    for element, column in enumerate(columns):
        with np.errstate(invalid="ignore"):
            error = np.abs(rows[:, element] - column) / (1 + np.abs(column))
        row = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
        k = int(np.searchsorted(ends, row, side="right"))
        y = analytic.outputs[k]
        worst.add(
            rows[row, element],
            column[row],
            input_index=_element_place(x, element),
            output=output_names[k],
            output_index=_element_place(y, row - (ends[k] - analytic.sizes[k])),
        )
    if worst.excess <= limit:
        # A gradient that is not linear in the upstream gradient may be right only for single outputs.
        upstream = rng.normal(size=total)
        gradient = analytic(upstream)[i]
        for element, column in enumerate(columns):
            combined = 0.0 if gradient is None else gradient[element]
            worst.add(combined, upstream @ column, input_index=_element_place(x, element))
    return worst, missing


def _projected(analytic, numeric, x, i, rng):
    """Compares random combinations of outputs by single elements and by random directions.

    Returns (_LargestError, whether the gradient is None).
    """
    worst, missing = _LargestError(), True
    total, size = sum(analytic.sizes), _reals(x).size
    upstreams = rng.normal(size=[_UPSTREAMS, total])
    gradients = []
    for upstream in upstreams:
        gradient = analytic(upstream)[i]
        missing &= gradient is None
        gradients.append(np.zeros(size) if gradient is None else gradient)
    for element in rng.choice(size, min(size, _SAMPLED), replace=False):
        column = numeric.by_element(i, element)
        for upstream, gradient in zip(upstreams, gradients, strict=True):
            worst.add(gradient[element], upstream @ column, input_index=_element_place(x, element))
    if size > _SAMPLED:
        for direction in rng.normal(size=[_DIRECTIONS, size]):
            # Of length 1, as for one element: a larger one would increase the error from nonlinearity.
            direction /= np.linalg.norm(direction)
            column = numeric.along(i, direction)
            for upstream, gradient in zip(upstreams, gradients, strict=True):
                worst.add(gradient @ direction, upstream @ column)
    return worst, missing


def of_inputs(inputs, *, numeric_dtype=tf.float64, full=None, seed=0, tolerance=None):
    """Returns the `GradientError` of an `Inputs`."""
    numeric_dtype = tf.as_dtype(numeric_dtype)
    rng = np.random.default_rng(seed)
    analytic = _Analytic(inputs, inputs.tensors, inputs.differentiable)
    output_names = [
        name
        for name, y in zip(inputs.output_names(*inputs.tensors), analytic._outputs, strict=True)
        if is_differentiable(y.dtype)
    ]
    widest = inputs.cast(numeric_dtype)
    numeric = _Numeric(inputs, widest)
    entries = []
    for i, x in enumerate(inputs.tensors):
        if not is_differentiable(x.dtype):
            continue
        entry = InputGradientError(inputs.names[i], x.dtype)
        if i not in inputs.differentiable:
            entries.append(dataclasses.replace(entry, skipped="declared not differentiable"))
            continue
        if not sum(analytic.sizes) or not _reals(x).size:
            reason = "no output has a gradient" if not analytic.outputs else "empty"
            entries.append(dataclasses.replace(entry, skipped=reason))
            continue
        limit = tolerance
        if limit is None:
            dtypes = [x.dtype, widest[i].dtype, *(y.dtype for y in analytic.outputs)]
            limit = max(TOLERANCES[dtype] for dtype in dtypes)
        small = max(sum(analytic.sizes), _reals(x).size) <= _FULL
        if full or (full is None and small):
            worst, missing = _full(analytic, numeric, x, i, output_names, rng, limit)
        else:
            worst, missing = _projected(analytic, numeric, x, i, rng)
        entries.append(dataclasses.replace(entry, tolerance=float(limit), missing=missing, **worst.found))
    return GradientError(tuple(entries))


def gradient_error(
    fn: Callable[..., Any],
    args: Iterable[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    non_differentiable: InputNames = (),
    fixed_dtype: InputNames = (),
    numeric_dtype: DTypeLike = "float64",
    full: bool | None = None,
    seed: int = 0,
) -> GradientError:
    """Returns the largest difference between the analytic and the numeric Jacobian, for each input.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> result = tfo.testing.gradient_error(tf.math.sin, [tf.constant([0.5, 1.0], tf.float64)])
    >>> result.error < 1e-9
    True

    The analytic Jacobian is computed by `tf.GradientTape` in the inputs' own dtypes, with
    one upstream gradient for each output element; the numeric one by central differences
    in float64, also for 16-bit inputs. If an input or the outputs have more than 160
    numbers, random combinations of outputs are compared at 64 elements of the input and
    along 4 random directions. Complex numbers are pairs of real ones, in TensorFlow's
    convention: the gradient of a real function of x + iy is d/dx + i d/dy.

    Args:
      fn: a function of tensors. At a kink, such as ReLU's at 0, the two Jacobians differ:
        choose args away from it.
      args: its positional arguments. Tensors and arrays anywhere in a nest are inputs;
        Python numbers, strings and None are passed unchanged.
      kwargs: its keyword arguments, the same.
      non_differentiable: inputs to skip: positions in args (1, or (0, 2) for
        args[0][2]), or names in kwargs.
      fixed_dtype: inputs, named the same way, that are not cast for the numeric Jacobian.
      numeric_dtype: the dtype to cast floating inputs to for the numeric Jacobian.
      full: True: the whole Jacobian, of any size; False: projections.
      seed: of the random numbers.

    Returns:
      A `GradientError`: `.error` is the largest; `.inputs` has for each floating or
      complex input the indices, both values, and whether the gradient is None, which is
      compared as 0.

    Raises:
      ValueError: a declaration that names no input.
      AssertionError: a gradient of another shape or dtype than its input.
    """
    inputs = Inputs(fn, args, kwargs, non_differentiable=non_differentiable, fixed_dtype=fixed_dtype)
    return of_inputs(inputs, numeric_dtype=numeric_dtype, full=full, seed=seed)


def assert_gradients(
    fn: Callable[..., Any],
    args: Iterable[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    tolerance: float | Mapping[Any, float] | None = None,
    non_differentiable: InputNames = (),
    fixed_dtype: InputNames = (),
    numeric_dtype: DTypeLike = "float64",
    full: bool | None = None,
    seed: int = 0,
) -> None:
    """Raises AssertionError unless analytic and numeric gradients agree.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> x = tf.constant([0.5, 2.0], tf.float64)
    >>> tfo.testing.assert_gradients(tf.math.log, [x])

    Args:
      fn: see `gradient_error`.
      args: see `gradient_error`.
      kwargs: see `gradient_error`.
      tolerance: the allowed difference, relative to 1 + |numeric|; None is 1e-6 for
        float64, 1e-3 for float32, 1e-2 for float16 and 6e-2 for bfloat16.
      non_differentiable: see `gradient_error`.
      fixed_dtype: see `gradient_error`.
      numeric_dtype: see `gradient_error`.
      full: see `gradient_error`.
      seed: see `gradient_error`.

    Raises:
      AssertionError: a line for each wrong input: indices, analytic and numeric value,
        tolerance.
      ValueError: a declaration that names no input.
    """
    inputs = Inputs(fn, args, kwargs, non_differentiable=non_differentiable, fixed_dtype=fixed_dtype)
    check(of_inputs(inputs, numeric_dtype=numeric_dtype, full=full, seed=seed, tolerance=tolerance))


def check(result, what="wrong gradients"):
    """Raises AssertionError with a line for each bad input."""
    bad = [i for i in result.inputs if not i.ok]
    if bad:
        lines = "\n".join(str(i) for i in bad)
        raise AssertionError(f"{what} of {len(bad)} of {len(result.inputs)} inputs\n{lines}")
