"""Adam for large tables."""

from typing import Any

import keras
import tensorflow as tf

from tensorflow_ops.core.python import keras3
from tensorflow_ops.optimizers.python.ops import fused_steps


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class LazyAdam(keras.optimizers.Adam):
    """Adam that updates only the rows of a table which a step has looked up, and only their moments.

    A step of Adam moves all rows of an embedding table, since all moments decay. LazyAdam leaves rows
    without a gradient as they are: its cost depends on the batch, not on the table.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> model = keras.Sequential([keras.layers.Embedding(1000, 1, embeddings_initializer="zeros")])
    >>> model.compile(tfo.optimizers.LazyAdam(0.1), "mse", jit_compile=False)
    >>> history = model.fit(np.array([[1, 2, 2]]), np.ones([1, 3, 1]), verbose=0)
    >>> model.get_weights()[0][:4, 0].round(3)
    array([0. , 0.1, 0.1, 0. ], dtype=float32)

    Gradients of rows are tf.IndexedSlices, as of `keras.layers.Embedding` and `tf.gather`. Those of a row
    that was looked up several times are summed first. Dense gradients, as of other variables and of tables
    with a regularizer, make steps of `keras.optimizers.Adam`.

    The bias correction counts all steps, not those of a row. The weight decay, too, changes only rows that
    have gradients. The page `optimizers` compares TensorFlow Addons' LazyAdam and `torch.optim.SparseAdam`.

    One op updates all variables, but XLA has no kernel for it: there, LazyAdam computes the same values by passes
    over the whole table. On machines with a GPU, Keras compiles models by XLA unless `compile` gets
    `jit_compile=False`.

    Args:
      learning_rate: a float, a `keras.optimizers.schedules.LearningRateSchedule`, or a function.
      beta_1: decay of the first moments.
      beta_2: decay of the second moments.
      epsilon: added to the root of the second moments. Keras's, "epsilon hat" in the paper.
      amsgrad: whether to divide by the largest second moments so far.
      weight_decay: fraction of a row with a gradient, or of a variable, to subtract in a step, times the learning
        rate. None: no decay.
      name: name of the optimizer.
      **kwargs: other arguments of `keras.optimizers.Adam`, such as `global_clipnorm`.

    Raises:
      ImportError: the installed Keras is a minor release whose private functions are unknown.
      ValueError: Keras's backend is not TensorFlow; `gradient_accumulation_steps`, since accumulated
        gradients are dense.

    References:
      Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, https://arxiv.org/abs/1412.6980.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        weight_decay: float | None = None,
        *,
        name: str = "lazy_adam",
        **kwargs: Any,
    ) -> None:
        """See the class."""
        keras3.check_keras("tfo.optimizers.LazyAdam")
        if kwargs.get("gradient_accumulation_steps"):
            raise ValueError("gradient_accumulation_steps makes dense gradients: use keras.optimizers.Adam")
        super().__init__(learning_rate, beta_1, beta_2, epsilon, amsgrad, weight_decay, name=name, **kwargs)

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        grads, scale = fused_steps.clipped(self, grads)
        return grads if scale is None else [fused_steps.scaled(gradient, scale) for gradient in grads]

    def _apply_weight_decay(self, variables: list[Any]) -> None:
        """Leaves the decay to update_step, which knows the rows."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates a variable where the op does not fit."""
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
        ids = gradient.indices[:, None]
        counts = tf.scatter_nd(ids, tf.ones_like(gradient.indices), tf.shape(variable, ids.dtype)[:1])
        has_gradient = tf.reshape(counts > 0, [-1] + [1] * (len(variable.shape) - 1))
        for x, old in zip(changed, before, strict=True):
            x.assign(tf.where(has_gradient, x, old))

    def _backend_apply_gradients(self, grads: list[Any], trainable_variables: list[Any]) -> None:
        fits = fused_steps.misfit(self, grads, trainable_variables) is None
        step = fused_steps.FusedSteps(self, lazy=True) if fits else self
        keras.optimizers.Optimizer._backend_apply_gradients(step, grads, trainable_variables)


fused_steps.serve(LazyAdam)
