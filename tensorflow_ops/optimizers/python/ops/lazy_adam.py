"""Adam for large tables."""

from typing import Any

import keras
import tensorflow as tf

from tensorflow_ops.optimizers.python.ops import fused_steps


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class LazyAdam(keras.optimizers.Adam):
    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        grads, scale = fused_steps.clipped(self, grads)
        return grads if scale is None else [fused_steps.scaled(gradient, scale) for gradient in grads]

    def _apply_weight_decay(self, variables: list[Any]) -> None:
        """Leaves the decay to update_step, which knows the rows."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        slots = [self._momentums, self._velocities] + ([self._velocity_hats] if self.amsgrad else [])
        changed = [variable, *(slot[index] for slot in slots)]
        before = [tf.identity(x) for x in changed]
        if self.weight_decay is not None and self._use_weight_decay(variable):
            decay, rate = (tf.cast(x, variable.dtype) for x in (self.weight_decay, learning_rate))
            variable.assign_sub(variable * decay * rate)
        super().update_step(tf.convert_to_tensor(gradient), variable, learning_rate)
        if not isinstance(gradient, tf.IndexedSlices):
            return
        ids = gradient.indices
        rows = tf.scatter_nd(ids[:, None], tf.ones_like(ids), tf.shape(variable, ids.dtype)[:1])
        has_gradient = tf.reshape(rows > 0, [-1] + [1] * (len(variable.shape) - 1))
        for x, old in zip(changed, before, strict=True):
            x.assign(tf.where(has_gradient, x, old))

    def _backend_apply_gradients(self, grads: list[Any], trainable_variables: list[Any]) -> None:
        is_fused = fused_steps.misfit(self, trainable_variables) is None
        optimizer = fused_steps.FusedSteps(self, lazy=True) if is_fused else self
        keras.optimizers.Optimizer._backend_apply_gradients(optimizer, grads, trainable_variables)


fused_steps.FORMULAS[LazyAdam.update_step] = fused_steps.FORMULAS[keras.optimizers.Adam.update_step]
