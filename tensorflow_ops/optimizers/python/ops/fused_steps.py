"""Steps of Keras's optimizers in one op, for all variables: for `tfo.layers.use_fused_ops` and LazyAdam."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tensorflow_ops.core.python import library

# A gradient of a table's rows may be tf.IndexedSlices.
Gradient = tf.Tensor | tf.IndexedSlices

_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_STRATEGIES = (tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy)
# What a step replaces or calls.
_METHODS = (
    "_all_reduce_sum_gradients",
    "_apply_weight_decay",
    "_backend_update_step",
    "_clip_gradients",
    "_distributed_tf_update_step",
    "assign",
    "assign_add",
    "assign_sub",
    "update_step",
)


class _Formula(NamedTuple):
    """What the op computes for an optimizer."""

    name: str
    slots: list[Any]  # lists of variables
    # Takes a function that converts to the dtype of the computation, the step from 1 on, and the learning rate; returns
    # scalars, computed as Keras does.
    scalars: Callable[[Callable[[Any], tf.Tensor], tf.Tensor, tf.Tensor], list[Any]]


def _adam(optimizer: Any) -> _Formula:
    def scalars(number, step, rate):
        beta_1_power, beta_2_power = tf.pow(number(optimizer.beta_1), step), tf.pow(number(optimizer.beta_2), step)
        corrected_rate = rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)
        return [corrected_rate, 1 - optimizer.beta_1, 1 - optimizer.beta_2, optimizer.epsilon]

    slots = [optimizer._momentums, optimizer._velocities]
    if optimizer.amsgrad:
        return _Formula("amsgrad", [*slots, optimizer._velocity_hats], scalars)
    return _Formula("adam", slots, scalars)


def _sgd(optimizer: Any) -> _Formula:
    if not optimizer.momentum:
        return _Formula("sgd", [], lambda *_: [])
    name = "nesterov" if optimizer.nesterov else "momentum"
    return _Formula(name, [optimizer.momentums], lambda *_: [optimizer.momentum])


def _rmsprop(optimizer: Any) -> _Formula:
    name, slots = "rmsprop", [optimizer._velocities]
    scalars = [optimizer.rho, 1 - optimizer.rho, optimizer.epsilon]
    if optimizer.centered:
        name += "_centered"
    if optimizer.momentum > 0:
        name += "_momentum"
        slots.append(optimizer._momentums)
        scalars.append(optimizer.momentum)
    if optimizer.centered:
        slots.append(optimizer._average_gradients)
    return _Formula(name, slots, lambda *_: scalars)


def _adagrad(optimizer: Any) -> _Formula:
    return _Formula("adagrad", [optimizer._accumulators], lambda *_: [optimizer.epsilon])


def _adamax(optimizer: Any) -> _Formula:
    def scalars(number, step, rate):
        del rate
        correction = 1 - tf.pow(number(optimizer.beta_1), step)
        return [1 - optimizer.beta_1, optimizer.beta_2, optimizer.epsilon, correction]

    return _Formula("adamax", [optimizer._m, optimizer._u], scalars)


def _nadam(optimizer: Any) -> _Formula:
    def scalars(number, step, rate):
        del rate
        beta_1, beta_2, decay = number(optimizer.beta_1), number(optimizer.beta_2), number(0.96)
        now, then = (beta_1 * (1 - 0.5 * tf.pow(decay, at)) for at in (step, step + 1))
        product = number(optimizer._u_product)
        divisors = [then, 1 - product * then, 1 - now, 1 - product, 1 - tf.pow(beta_2, step)]
        return [1 - beta_1, 1 - beta_2, optimizer.epsilon, *divisors]

    return _Formula("nadam", [optimizer._momentums, optimizer._velocities], scalars)


def _lion(optimizer: Any) -> _Formula:
    def scalars(number, step, rate):
        del step, rate
        beta_1, beta_2 = number(optimizer.beta_1), number(optimizer.beta_2)
        return [beta_1, 1 - beta_1, beta_2, 1 - beta_2]

    return _Formula("lion", [optimizer._momentums], scalars)


_FORMULAS: dict[type, Callable[[Any], _Formula]] = {}
_KNOWN_METHODS: dict[type, dict[str, Any]] = {}  # as they were before any patch


def serve(optimizer: type, formula: Callable[[Any], _Formula] = _adam) -> None:
    """Lets the op make the steps of a class, and of its subclasses that change none of _METHODS."""
    _FORMULAS[optimizer] = formula
    # Other backends of Keras lack some.
    _KNOWN_METHODS[optimizer] = {name: getattr(optimizer, name, None) for name in _METHODS}


serve(keras.optimizers.Adam)
serve(keras.optimizers.SGD, _sgd)
serve(keras.optimizers.RMSprop, _rmsprop)
serve(keras.optimizers.Adagrad, _adagrad)
serve(keras.optimizers.Adamax, _adamax)
serve(keras.optimizers.Nadam, _nadam)
serve(keras.optimizers.Lion, _lion)


def _native(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _known_class(optimizer: Any) -> type | None:
    """Returns the class of an optimizer, or of its bases, whose formula is known."""
    return next((kind for kind in type(optimizer).__mro__ if kind in _FORMULAS), None)


def _summed(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Sums the slices of each row."""
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def scaled(gradient: Gradient, scale: tf.Tensor) -> Gradient:
    """Multiplies a gradient; Keras makes those of rows dense."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(scaled(gradient.values, scale), gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(scale, gradient.dtype)


def clipped(optimizer: Any, gradients: list[Gradient]) -> tuple[list[Gradient], tf.Tensor | None]:
    """Sums repeated rows, then clips. For `global_clipnorm`, returns Keras's factor instead, to scale gradients by."""
    limit = optimizer.global_clipnorm
    if not (limit or optimizer.clipnorm or optimizer.clipvalue):
        return gradients, None
    gradients = [_summed(g) if isinstance(g, tf.IndexedSlices) else tf.convert_to_tensor(g) for g in gradients]
    if optimizer.clipnorm or not limit or limit <= 0:
        return keras.optimizers.Optimizer._clip_gradients(optimizer, gradients), None
    values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
    wide = tf.float64 if tf.float64 in [x.dtype for x in values] else tf.float32
    halves = [tf.cast(tf.nn.l2_loss(tf.cast(x, tf.float32) if x.dtype.size == 2 else x), wide) for x in values]
    norm = tf.sqrt(2 * tf.add_n(halves))
    return gradients, limit * tf.minimum(1 / norm, 1 / limit) + (norm - norm)


def misfit(optimizer: Any, gradients: Sequence[Gradient], variables: Sequence[Any]) -> str | None:
    """Returns why the op cannot run this step, or None."""
    if library.is_compiled_by_xla():
        return "XLA"
    known = _known_class(optimizer)
    if known is None:
        return "another optimizer"
    # An instance may have a method of its own, such as a mock.
    of_instance = {name: getattr(getattr(optimizer, name), "__func__", None) for name in _METHODS}
    if of_instance != _KNOWN_METHODS[known]:
        return "a subclass"
    strategy = optimizer._distribution_strategy
    if strategy is not tf.distribute.get_strategy():
        return "outside of the optimizer's strategy"
    if tf.distribute.has_strategy() and not isinstance(strategy, _STRATEGIES):
        return type(strategy).__name__
    variables = [_native(variable) for variable in variables]
    if len({optimizer._var_key(variable) for variable in variables}) < len(variables):
        return "a variable twice"
    slots = _FORMULAS[known](optimizer).slots
    for gradient, variable in zip(gradients, variables, strict=True):
        if variable.dtype not in _DTYPES:
            return f"{tf.as_dtype(variable.dtype).name} variables"
        shape = None if isinstance(gradient, tf.IndexedSlices) else getattr(gradient, "shape", ())
        if not tf.TensorShape(shape).is_compatible_with(variable.shape):
            return "a gradient of another shape"
        index = optimizer._get_variable_index(variable)
        everything = [variable, *(_native(slot[index]) for slot in slots)]
        for locals_of in zip(*map(strategy.experimental_local_results, everything), strict=True):
            if any(getattr(local, "handle", None) is None for local in locals_of):
                return "variables without handles"
            if len({(local.dtype, local.device) for local in locals_of}) > 1:
                return "optimizer variables of another dtype or device"
            if "GPU" in locals_of[0].device and library.gpu_error():
                return "a GPU without kernels"
    return None


class FusedSteps:
    """Stands for an optimizer in Keras's `_backend_apply_gradients`, whose update is one op."""

    def __init__(self, optimizer: Any, lazy: bool = False) -> None:
        """`lazy`: rows without gradients, and their slots, stay."""
        self._optimizer = optimizer
        self._lazy = lazy
        self._scale = 1.0  # of the gradients

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def _clip_gradients(self, gradients: list[Gradient]) -> list[Gradient]:
        gradients, scale = clipped(self._optimizer, gradients)
        if scale is None:
            return gradients
        if tf.distribute.has_strategy():  # each replica has a scale of its own
            return [scaled(gradient, scale) for gradient in gradients]
        self._scale = scale
        return gradients

    def _apply_weight_decay(self, variables: list[Any]) -> None:
        """Leaves the decay to the op."""

    def _backend_update_step(self, gradients: list[Gradient], variables: list[Any], learning_rate: Any) -> None:
        optimizer = self._optimizer
        if isinstance(optimizer, keras.optimizers.Nadam):
            dtype = optimizer._u_product.dtype
            power = tf.pow(tf.constant(0.96, dtype), tf.cast(optimizer.iterations + 1, dtype))
            optimizer.assign(optimizer._u_product, optimizer._u_product * optimizer.beta_1 * (1 - 0.5 * power))
        pairs = list(zip(gradients, map(_native, variables), strict=True))
        tf.__internal__.distribute.interim.maybe_merge_call(
            self._update,
            optimizer._distribution_strategy,
            optimizer._all_reduce_sum_gradients(pairs),
            learning_rate,
        )

    def _update(self, strategy: tf.distribute.Strategy, pairs: list[tuple[Any, Any]], learning_rate: Any) -> None:
        """Updates the variables of each replica."""
        locals_of = strategy.experimental_local_results
        groups: dict[Any, list[tuple[Any, ...]]] = {}  # by dtype and device
        for gradient, variable in pairs:
            for replica, (g, v) in enumerate(zip(locals_of(gradient), locals_of(variable), strict=True)):
                groups.setdefault((v.dtype, v.device), []).append((replica, g, v, variable))
        for (dtype, _), members in groups.items():
            # Those of rows first.
            members.sort(key=lambda member: not isinstance(member[1], tf.IndexedSlices))
            self._update_together(dtype, members, locals_of, locals_of(learning_rate)[0])

    def _update_together(
        self, dtype: tf.DType, members: list[tuple[Any, ...]], locals_of: Callable[[Any], Any], learning_rate: Any
    ) -> None:
        """Updates variables of a dtype, on a device."""
        optimizer = self._optimizer
        wide = tf.float32 if dtype.size == 2 else dtype

        def number(value: Any) -> tf.Tensor:
            # tf.cast of a Python number would round it to float32.
            return tf.constant(value, wide) if isinstance(value, int | float) else tf.cast(_native(value), wide)

        rate, step = number(learning_rate), tf.cast(optimizer.iterations + 1, wide)
        formula = _FORMULAS[_known_class(optimizer)](optimizer)
        scalars = formula.scalars(number, step, rate)
        decay = optimizer.weight_decay
        has_decay = decay is not None
        index = optimizer._get_variable_index
        gradients, ids = [], []
        for _, gradient, _, _ in members:
            if isinstance(gradient, tf.IndexedSlices):
                ids.append(tf.cast(gradient.indices, tf.int64))  # fits: they are int32 or int64
                gradient = gradient.values
            gradients.append(tf.cast(gradient, dtype))
        library.ops.tensorflow_ops_apply_gradients(
            variables=[variable.handle for _, _, variable, _ in members],
            slots=[
                locals_of(_native(slot[index(whole)]))[replica].handle
                for slot in formula.slots
                for replica, _, _, whole in members
            ],
            gradients=gradients,
            ids=ids,
            scalars=tf.stack([number(x) for x in (rate, decay if has_decay else 0, self._scale, *scalars)]),
            optimizer=formula.name,
            decays=[has_decay and optimizer._use_weight_decay(whole) for _, _, _, whole in members],
            lazy=self._lazy,
        )
