"""The base of the Keras losses: dtypes, reduction, config, and where XLA cannot compile the ops."""

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, library, xla


class _Reduction(keras.losses.Loss):
    """Reduces losses like Keras: with sample weights, masks and replicas."""

    def call(self, y_true, y_pred):
        del y_true
        return y_pred


class OpLoss(keras.losses.Loss):
    """A loss that calls an op. Its config has `_options`, the names of its own arguments and attributes."""

    _options = ()

    def _reduce(self, losses, sample_weight):
        reduction = _Reduction(name=self.name, reduction=self.reduction, dtype=self.dtype)
        return reduction(losses, losses, sample_weight)

    def _logits(self, y_pred):
        """Returns logits: 16-bit ones as they are, unless the loss is of float64, others in the loss's dtype."""
        logits = arguments.dense_tensor("y_pred", y_pred)
        keeps = logits.dtype in (tf.float16, tf.bfloat16) and self.dtype != "float64"
        return logits if keeps else tf.cast(logits, self.dtype)

    def _check_jit(self):
        """Raises UnimplementedError if it is traced for XLA, but XLA cannot compile the ops.

        A layer declines with `supports_jit`. Keras does not ask losses, so that jit_compile="auto",
        its default, would end in an error of XLA's for a user who never named XLA.
        """
        if xla.is_compiled() and not library.supports_xla():
            name = f"tfo.losses.{type(self).__name__}"
            reason = library.xla_error or "this build of tensorflow_ops has no kernels for the GPU"
            advice = 'Pass jit_compile=False to compile(); its default, "auto", uses XLA on machines with a GPU.'
            raise tf.errors.UnimplementedError(None, None, f"XLA cannot compile {name} here: {reason}. {advice}")

    def get_config(self):
        return {**super().get_config(), **{name: getattr(self, name) for name in (*self._options, "dtype")}}
