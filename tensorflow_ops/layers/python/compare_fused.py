"""Compares a model with the switch of `use_fused_ops` off and on: times, results, the calls that it serves."""

import contextlib
import dataclasses
import statistics
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import autograph
from tensorflow_ops.layers.python import fused_ops as switch

_ROUNDS = 3, 100  # timed calls of each way: at least, at most
_NOTHING = """\
The switch served no call. The table of the page `keras` has the functions that it serves, and which calls of them go
to the original. Layers that hold a traced tf.function keep what it was traced with."""


class FusedRun(NamedTuple):
    """A prediction or a training step, with the switch off and on."""

    off: float
    on: float
    difference: float
    differs_at: str
    calls: dict[str, switch.FusedCalls]


@dataclasses.dataclass(frozen=True)
class FusedComparison:
    """The result of `compare_fused`, which `print` shows as tables."""

    predict: FusedRun
    train: FusedRun | None

    def __str__(self) -> str:
        times = [["", "off", "on", "times as fast", "greatest difference"]]
        calls = [["function", "in", "fused", "original", ""]]
        for name, run, of in (("predict", self.predict, "outputs"), ("train", self.train, "gradients")):
            if run is not None:
                differs = "unknown" if np.isnan(run.difference) else f"{run.difference:.1e}" if run.difference else "0"
                at = run.differs_at and f", {run.differs_at}"
                milliseconds = [f"{1e3 * seconds:.1f} ms" for seconds in (run.off, run.on)]
                times.append([name, *milliseconds, f"{run.off / run.on:.1f}", f"{differs} ({of}{at})"])
                for function, counts in run.calls.items():
                    reasons = ", ".join(f"{number} x {why}" for why, number in counts.get("reasons", {}).items())
                    calls.append([function, name, str(counts["fused"]), str(counts["original"]), reasons])
        parts = [_table(times, "<>>><")]
        if len(calls) > 1:
            parts.append(_table(calls, "<<>><"))
        if not any(int(fused) for _, _, fused, *_ in calls[1:]):
            parts.append(_NOTHING)
        return "\n\n".join(parts)

    __repr__ = __str__


def _table(rows, sides):
    """Returns rows of texts as lines of columns, which `sides` aligns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[f"{text:{side}{width}}" for text, side, width in zip(row, sides, widths, strict=True)] for row in rows]
    return "\n".join("  ".join(row).rstrip() for row in cells)


def progress(text: str) -> None:
    """Shows a text in place of the last one, on terminals."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _batch(name, value):
    """Returns a user's batch as tensors; raises ValueError for what is no nest of arrays."""

    def tensor(leaf):
        is_array = tf.is_tensor(leaf) or hasattr(leaf, "__array__")
        if leaf is not None and not (is_array and len(leaf.shape)):
            hint = ", such as next(iter(dataset))" if isinstance(leaf, tf.data.Dataset) else ""
            raise ValueError(
                f"{name} holds {leaf!r:.60}, expected arrays or tensors [batch, ...], or lists, tuples or dicts of "
                f"them: one batch{hint}"
            )
        if leaf is None or tf.is_tensor(leaf):
            return leaf
        converted = tf.convert_to_tensor(leaf)
        # As `fit` does.
        return tf.cast(converted, keras.config.floatx()) if converted.dtype == tf.float64 else converted

    return keras.tree.map_structure(tensor, value)


class _State:
    """The values of all variables that a step can change."""

    def __init__(self, model):
        compiled = getattr(model, "_compile_metrics", None)
        # Not among `model.metrics` before the first step.
        given = [compiled._user_metrics, compiled._user_weighted_metrics] if compiled else []
        metrics = keras.tree.flatten([model.metrics, given])
        self._metrics = [metric for metric in metrics if isinstance(metric, keras.metrics.Metric)]
        owners = [model, *_optimizers(model).values(), *self._metrics]
        variables = [variable.value for owner in owners for variable in owner.variables]
        # Variables of TensorFlow that layers hold.
        variables += [v for v in tf.train.TrackableView(model).descendants() if isinstance(v, tf.Variable)]
        seeds = _global_seeds()
        variables += [seeds.state.value] if seeds else []
        # Those of tf.distribute may differ between replicas.
        parts = [part for variable in variables for part in getattr(variable, "values", (variable,))]
        self._values = {id(part): (part, part.numpy()) for part in parts}
        self._known = {id(variable) for variable in variables}

    def restore(self):
        for variable, value in self._values.values():
            variable.assign(value)
        for metric in self._metrics:  # some create variables in their first update
            if any(id(variable.value) not in self._known for variable in metric.variables):
                metric.reset_state()


def _global_seeds():
    from keras.src.backend.common import global_state  # private: after check_keras

    return global_state.get_global_attribute("global_seed_generator")


def _twin(model, **attributes):
    """Returns a model of the same layers and variables that traces its own functions."""
    from keras.src.utils import tracking  # private: after check_keras

    # What the twin adds to lists, such as its functions to TensorFlow's list of dependencies, is its own.
    plain = {list: list, dict: dict, tracking.TrackedList: list, tracking.TrackedDict: dict}
    own = {name: plain.get(type(value), lambda same: same)(value) for name, value in vars(model).items()}
    own |= {"train_function": None, "test_function": None, "predict_function": None, **attributes}
    twin = object.__new__(type(model))
    vars(twin).update(own)
    return twin


def _optimizers(model):
    return {name: value for name, value in vars(model).items() if isinstance(value, keras.optimizers.Optimizer)}


def _copies(model):
    """Returns copies of what gets variables in the first training step, by their attributes."""
    found = {}
    users = {"_compile_loss": ("loss", "loss_weights"), "_compile_metrics": ("metrics", "weighted_metrics")}
    for name, arguments in users.items():
        part = getattr(model, name, None)
        if part is not None and not part.built:
            given = [getattr(part, f"_user_{argument}") for argument in arguments]
            found[name] = type(part)(*given, output_names=part.output_names)
    for name, optimizer in _optimizers(model).items():
        if not optimizer.built:
            try:
                found[name] = type(optimizer).from_config(optimizer.get_config())
            except (NotImplementedError, TypeError, ValueError) as error:
                raise ValueError(
                    f"model.{name} has no variables yet, and its config does not make a copy: call "
                    f"model.{name}.build(model.trainable_variables) first"
                ) from error
    return found


class _Way:
    """A model with the switch off, or on: `only` is the names of functions that it serves, None for all."""

    def __init__(self, model, x, y, only, is_on):
        self.model = _twin(model)
        self._x, self._y, self._only, self.is_on = x, y, only, is_on

    def predict(self):
        return self.model.predict_on_batch(self._x)

    def train(self):
        return self.model.train_on_batch(self._x, self._y)

    def gradients(self):
        """Returns what a training step passes to optimizers, by the paths of variables."""
        here = threading.local()  # replicas trace their steps in threads

        def apply(gradients, variables=None):
            for gradient, variable in zip(gradients, variables or twin.trainable_variables, strict=True):
                if gradient is not None:
                    key = f"{len(here.found):09} {variable.path}"  # Keras sorts by it
                    here.found[key] = tf.convert_to_tensor(gradient)  # sums slices of the same row

        def train_step(data):
            here.found = {}
            type(twin).train_step(twin, data)
            return here.found

        def recorder(optimizer):
            # The first scale of a LossScaleOptimizer often overflows.
            scale = 1024.0 if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else 1.0
            result = object.__new__(type(optimizer))
            vars(result).update(vars(optimizer), apply=apply, scale_loss=lambda loss: loss * scale)
            return result

        recorders = {name: recorder(optimizer) for name, optimizer in _optimizers(self.model).items()}
        twin = _twin(self.model, train_step=train_step, **recorders)
        values = twin.train_on_batch(self._x, self._y, return_dict=True)
        return {key.partition(" ")[2]: value for key, value in values.items()}

    def run(self, name):
        """Returns the result of a method; raises RuntimeError that says which way fails."""
        with switch.only_in_this_thread(self._only):
            try:
                return getattr(self, name)()
            except Exception as error:
                step = "predict_on_batch" if name == "predict" else "train_on_batch"
                reason = f"{type(error).__name__}: {error}"
                if not self.is_on:
                    raise RuntimeError(f"the model's {step} fails without the switch, too: {reason}") from error
                names = list(switch.fused_ops())
                raise RuntimeError(
                    f"the model's {step} works without the switch and fails with it, after calls of {names}. To find "
                    f"the function, pass one name at a time, such as only={names[:1]}: {reason}"
                ) from error


def _apart(off, on):
    """Returns the greatest difference and the greatest finite value; inf if only one of two is finite."""
    off, on = np.asarray(off), np.asarray(on)
    if off.shape != on.shape or off.dtype.kind in "OSU":
        return 0.0 if np.array_equal(off, on) else np.inf, 1.0
    if off.dtype.kind != "c":
        off, on = off.astype(np.float64), on.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where(np.equal(off, on) | (np.isnan(off) & np.isnan(on)), 0, np.abs(off - on))
    apart = np.where(np.isnan(apart), np.inf, apart)
    magnitudes = np.abs(off[np.isfinite(off)])
    return float(apart.max(initial=0)), float(magnitudes.max(initial=0))


def _difference(off, on, is_of_all=False):
    """Returns the greatest relative difference of arrays by name, and its name.

    It is relative to the greatest value of the array, or `is_of_all` arrays.
    """
    if not off:
        return np.nan, ""
    pairs = {name: _apart(off[name], on[name]) for name in off}
    greatest = max(magnitude for _, magnitude in pairs.values())
    found = {}
    for name, (apart, magnitude) in pairs.items():
        scale = greatest if is_of_all else magnitude
        found[name] = apart / scale if scale else np.inf if apart else 0.0
    name = max(found, key=found.get)
    return found[name], name if found[name] else ""


def _by_path(outputs):
    """Returns the arrays of a nest by their paths."""
    found = {}
    for path, leaf in keras.tree.flatten_with_path(outputs):
        for i, part in enumerate(tf.nest.flatten(leaf, expand_composites=True)):  # a RaggedTensor has several
            found["/".join(map(str, path)) + (f"[{i}]" if i else "")] = part
    return found


def _seconds(ways, name, seconds):
    """Returns the median seconds of a method, called in turns."""
    times = [], []
    end = time.perf_counter() + seconds
    while len(times[0]) < _ROUNDS[0] or (time.perf_counter() < end and len(times[0]) < _ROUNDS[1]):
        for i in (0, 1) if len(times[0]) % 2 else (1, 0):  # the first one takes a few percent longer
            start = time.perf_counter()
            ways[i].run(name)
            times[i].append(time.perf_counter() - start)
    return [statistics.median(found) for found in times]


@autograph.marked
def compare_fused(
    model: keras.Model, x: Any, y: Any = None, *, only: Iterable[str] | None = None, seconds: float = 3.0
) -> FusedComparison:
    """Runs a model with the switch `use_fused_ops` off and on, and compares times and results.

    Calls `predict_on_batch`, and with `y` also `train_on_batch`, a few times each, in turns, as the
    model is compiled (`jit_compile`, mixed precision, `run_eagerly`). The model stays as it was,
    also after an error: the values of its weights, optimizer, metrics and seeds are restored, and
    its traced functions are not touched. Do not use it in other threads meanwhile. A model that
    is not built yet is built by x.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> model = keras.Sequential([keras.Input([20, 8]), keras.layers.LSTM(16), keras.layers.Dense(3)])
    >>> model.compile("adam", "mse")
    >>> x, y = np.ones([2, 20, 8], np.float32), np.ones([2, 3], np.float32)
    >>> compared = tfo.layers.compare_fused(model, x, y, seconds=0)
    >>> compared.predict.calls
    {'lstm': {'fused': 1, 'original': 0}}
    >>> compared.predict.difference < 1e-4
    True

    `print(compared)` shows tables. A model of random numbers draws the same ones off and on if they
    come from Keras's seeds; otherwise the differences contain theirs.

    Args:
      model: a keras.Model, with y a compiled one.
      x: one batch of inputs: an array or tensor [batch, ...], or a list, tuple or dict of them, as the
        model takes them. Any dtypes; arrays of float64 become `keras.config.floatx()`, as in `fit`.
      y: the batch's targets, likewise. None: prediction only.
      only: as `use_fused_ops`: names of functions to serve. None: all.
      seconds: for timing each of prediction and training step, after the first calls, which trace.
        Each way is called 3 to 100 times.

    Returns:
      `predict`, and `train`, None without y, which have:
      `off` and `on`, the median seconds of a call;
      `difference`, the greatest one: of outputs, relative to the greatest magnitude of the same
      output; of gradients to trainable weights, relative to the greatest magnitude of all
      gradients. inf where one is NaN or infinite, and the other is not; NaN where the model's
      `train_step` passes no gradients to an optimizer of Keras that is an attribute of the model;
      `differs_at`, the path of this output or weight;
      `calls`, as `fused_ops` returns them, of the first call. `fused_ops` itself does not count them.

    Raises:
      RuntimeError: the model fails without the switch, or only with it; the message says which.
      ValueError: x or y is no batch of arrays, such as a tf.data.Dataset; y is given, and the model
        is not compiled; an optimizer is not built and has no config; the model has several
        replicas, and a switch is open; as `use_fused_ops`.
      ImportError: as `use_fused_ops`.
    """
    only = only if only is None or isinstance(only, str) else tuple(only)
    with switch.counted_apart():
        switch.use_fused_ops(only).close()  # checks versions and names
    if not isinstance(model, keras.Model):
        raise ValueError(f"model is {type(model).__name__}, expected keras.Model of Keras 3")
    x = _batch("x", x)
    if y is not None:
        y = _batch("y", y)
        if not model.compiled:
            raise ValueError("y is given for a training step, but the model has no loss: call model.compile first")
    if switch.is_open() and model.distribute_strategy.num_replicas_in_sync > 1:
        raise ValueError("use_fused_ops is on, and serves all replicas of model.distribute_strategy: close it first")
    steps = ("predict",) if y is None else ("predict", "train", "gradients")
    phases = 2 * len(steps) + (1 if y is None else 2)  # first calls off and on, then timing
    places = iter(range(phases))

    def announce(text):
        place = next(places)
        progress(f"{'█' * place}{'░' * (phases - place)} {text} ...")

    with contextlib.ExitStack() as stack:
        stack.callback(progress, "")
        stack.enter_context(switch.counted_apart())
        with switch.only_in_this_thread(()):
            if not all(layer.built for layer in model._flatten_layers()):
                try:
                    model(x)
                except Exception as error:
                    raise RuntimeError(f"the model fails without the switch, too: {error}") from error
        state = _State(model)
        stack.callback(state.restore)
        twin = _twin(model, **({} if y is None else _copies(model)))
        ways = _Way(twin, x, y, (), False), _Way(twin, x, y, only, True)
        results = []
        for way in ways:
            if way.is_on:
                stack.enter_context(switch.use_fused_ops(only))
            found, calls = {}, {}
            for step in steps:
                announce(f"{step}, switch {'on' if way.is_on else 'off'}: first call")
                with switch.counted_apart():
                    found[step] = way.run(step)
                    calls[step] = switch.fused_ops()
                state.restore()
            results.append(found)

        def compared(step, difference):
            announce(f"{step}: timing for {seconds} s")
            return FusedRun(*_seconds(ways, step, seconds), *difference, calls[step])

        predict = compared("predict", _difference(*(_by_path(found["predict"]) for found in results)))
        if y is None:
            return FusedComparison(predict, None)
        gradients = _difference(*(found["gradients"] for found in results), is_of_all=True)
        return FusedComparison(predict, compared("train", gradients))
