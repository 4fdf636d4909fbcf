"""Steps of Keras's optimizers in one op, for all variables: for `tfo.layers.use_fused_ops` and LazyAdam."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tensorflow_ops.core.python import library

# A gradient of a table's rows may be tf.IndexedSlices.
Gradient = tf.Tensor | tf.IndexedSlices
# An op's formula, the lists of slots, and the formula's scalars.
Formula = tuple[str, list[Any], list[Any]]

_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_STRATEGIES = (tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy)
# What a step replaces or calls.
_METHODS = (
    "_all_reduce_sum_gradients",
    "_apply_weight_decay",
    "_backend_apply_gradients",
    "_backend_update_step",
    "_clip_gradients",
    "_distributed_tf_update_step",
    "assign",
    "assign_add",
    "assign_sub",
    "update_step",
)


# Scalars are computed as Keras does: `number` converts to the dtype of the computation, and `step` counts from 1.
def _adam(optimizer: Any, number: Callable[[Any], tf.Tensor], step: tf.Tensor, rate: tf.Tensor) -> Formula:
    beta_1_power, beta_2_power = tf.pow(number(optimizer.beta_1), step), tf.pow(number(optimizer.beta_2), step)
    corrected_rate = rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)
    slots = [optimizer._momentums, optimizer._velocities]
    scalars = [corrected_rate, 1 - optimizer.beta_1, 1 - optimizer.beta_2, optimizer.epsilon]
    if optimizer.amsgrad:
        return "amsgrad", [*slots, optimizer._velocity_hats], scalars
    return "adam", slots, scalars


def _sgd(optimizer: Any, number: Callable[[Any], tf.Tensor], step: tf.Tensor, rate: tf.Tensor) -> Formula:
    del number, step, rate
    if not optimizer.momentum:
        return "sgd", [], []
    return "nesterov" if optimizer.nesterov else "momentum", [optimizer.momentums], [optimizer.momentum]


def _rmsprop(optimizer: Any, number: Callable[[Any], tf.Tensor], step: tf.Tensor, rate: tf.Tensor) -> Formula:
    del number, step, rate
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
    return name, slots, scalars


def _adagrad(optimizer: Any, number: Callable[[Any], tf.Tensor], step: tf.Tensor, rate: tf.Tensor) -> Formula:
    del number, step, rate
    return "adagrad", [optimizer._accumulators], [optimizer.epsilon]


def _adamax(optimizer: Any, number: Callable[[Any], tf.Tensor], step: tf.Tensor, rate: tf.Tensor) -> Formula:
    del rate
    correction = 1 - tf.pow(number(optimizer.beta_1), step)
    scalars = [1 - optimizer.beta_1, optimizer.beta_2, optimizer.epsilon, correction]
    return "adamax", [optimizer._m, optimizer._u], scalars


def _nadam(optimizer: Any, number: Callable[[Any], tf.Tensor], step: tf.Tensor, rate: tf.Tensor) -> Formula:
    del rate
    beta_1, beta_2, decay = number(optimizer.beta_1), number(optimizer.beta_2), number(0.96)
    now, then = (beta_1 * (1 - 0.5 * tf.pow(decay, at)) for at in (step, step + 1))
    product = number(optimizer._u_product)
    scalars = [1 - beta_1, 1 - beta_2, optimizer.epsilon, then, 1 - product * then, 1 - now, 1 - product]
    return "nadam", [optimizer._momentums, optimizer._velocities], [*scalars, 1 - tf.pow(beta_2, step)]


def _lion(optimizer: Any, number: Callable[[Any], tf.Tensor], step: tf.Tensor, rate: tf.Tensor) -> Formula:
    del step, rate
    beta_1, beta_2 = number(optimizer.beta_1), number(optimizer.beta_2)
    return "lion", [optimizer._momentums], [beta_1, 1 - beta_1, beta_2, 1 - beta_2]


FORMULAS: dict[type, Callable[..., Formula]] = {
    keras.optimizers.Adam: _adam,
    keras.optimizers.SGD: _sgd,
    keras.optimizers.RMSprop: _rmsprop,
    keras.optimizers.Adagrad: _adagrad,
    keras.optimizers.Adamax: _adamax,
    keras.optimizers.Nadam: _nadam,
    keras.optimizers.Lion: _lion,
}


def _native(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _known_class(optimizer: Any) -> type | None:
    """Returns the class of an optimizer, or of its bases, whose formula is known."""
    return next((kind for kind in type(optimizer).__mro__ if kind in FORMULAS), None)


def _summed(gradient: Gradient) -> Gradient:
    """Sums the slices of each row."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def scaled(gradient: Gradient, scale: tf.Tensor) -> Gradient:
    """Multiplies a gradient; Keras makes those of rows dense."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(scaled(gradient.values, scale), gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(scale, gradient.dtype)


def clipped(optimizer: Any, gradients: list[Gradient]) -> tuple[list[Gradient], Any]:
    """Clips gradients, sums of rows, but by their global norm, for which it returns Keras's factor; None without."""
    limit = optimizer.global_clipnorm
    if limit or optimizer.clipnorm or optimizer.clipvalue:
        gradients = [_summed(gradient) for gradient in gradients]
    if optimizer.clipnorm or not limit or limit <= 0:
        return keras.optimizers.Optimizer._clip_gradients(optimizer, gradients), None
    values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
    wide = [tf.cast(x, tf.float32) if x.dtype.size == 2 else x for x in values]
    norm = tf.sqrt(2 * tf.add_n([tf.cast(tf.nn.l2_loss(x), wide[0].dtype) for x in wide]))
    return gradients, limit * tf.minimum(1 / norm, 1 / limit) + (norm - norm)


def misfit(optimizer: Any, variables: Sequence[Any]) -> str | None:
    """Returns why the op cannot make the step of an optimizer; None if it can."""
    if library.is_compiled_by_xla():
        return "XLA"
    known = _known_class(optimizer)
    if known is None:
        return "another optimizer"
    # An instance may have a method of its own, such as a mock.
    if any(getattr(getattr(optimizer, name), "__func__", None) is not getattr(known, name) for name in _METHODS):
        return "a subclass"
    strategy = optimizer._distribution_strategy
    if tf.distribute.has_strategy() and not isinstance(strategy, _STRATEGIES):
        return type(strategy).__name__
    variables = [_native(variable) for variable in variables]
    if len({optimizer._var_key(variable) for variable in variables}) < len(variables):
        return "a variable twice"
    for variable in variables:
        if variable.dtype not in _DTYPES:
            return f"{tf.as_dtype(variable.dtype).name} variables"
        for local in strategy.experimental_local_results(variable):
            if getattr(local, "handle", None) is None:
                return "variables without handles"
            if "GPU" in local.device and library.gpu_error():
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
            power = tf.pow(tf.cast(0.96, dtype), tf.cast(optimizer.iterations + 1, dtype))
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
            for place, (g, v) in enumerate(zip(locals_of(gradient), locals_of(variable), strict=True)):
                groups.setdefault((v.dtype, v.device), []).append((place, g, v, variable))
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
        name, slots, scalars = FORMULAS[_known_class(optimizer)](optimizer, number, step, rate)
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
                locals_of(_native(slot[index(whole)]))[place].handle for slot in slots for place, _, _, whole in members
            ],
            gradients=gradients,
            ids=ids,
            scalars=tf.stack([number(x) for x in (rate, decay if has_decay else 0, self._scale, *scalars)]),
            optimizer=name,
            decays=[has_decay and optimizer._use_weight_decay(whole) for _, _, _, whole in members],
            lazy=self._lazy,
        )
