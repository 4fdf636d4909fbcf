"""The base of the Keras losses: dtypes, reduction, config, and where XLA cannot compile the ops."""

from typing import Literal, TypeAlias

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, library, ragged
from tensorflow_ops.core.python.type_aliases import DTypeLike, TensorLike

Reduction: TypeAlias = Literal["sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none"] | None
LossDType: TypeAlias = DTypeLike | keras.DTypePolicy | None


class _Reduction(keras.losses.Loss):
    """Reduces losses like Keras: with sample weights, masks and replicas."""

    def call(self, y_true, y_pred):
        del y_true
        return y_pred


class OpLoss(keras.losses.Loss):
    """A loss that calls an op. Its config has `_options`, the names of its own arguments and attributes."""

    _options = ()

    @property
    def _is_reduced(self):
        return self.reduction not in (None, "none")

    def _reduce(self, losses, sample_weight):
        reduction = _Reduction(name=self.name, reduction=self.reduction, dtype=self.dtype)
        return self._reduced(reduction(losses, losses, sample_weight))

    def _reduced(self, loss):
        """Returns Keras's result, as a scalar if it is reduced: of no losses, Keras returns those, of shape [0]."""
        return tf.reduce_sum(loss) if self._is_reduced and tf.is_tensor(loss) and loss.shape.rank else loss

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
        if library.is_compiled_by_xla() and not library.supports_xla():
            name = f"tfo.losses.{type(self).__name__}"
            reason = library.xla_error or "this build of tensorflow_ops has no kernels for the GPU"
            advice = 'Pass jit_compile=False to compile(); its default, "auto", uses XLA on machines with a GPU.'
            raise tf.errors.UnimplementedError(None, None, f"XLA cannot compile {name} here: {reason}. {advice}")

    def get_config(self):
        return {**super().get_config(), **{name: getattr(self, name) for name in (*self._options, "dtype")}}


class RowLoss(OpLoss):
    """A loss of rows: each label or box has its own, and examples may have different numbers of them."""

    @autograph.ordered
    def __call__(self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None) -> tf.Tensor:
        example = next((y for y in (y_true, y_pred) if isinstance(y, tf.RaggedTensor)), None)
        if example is None:
            return self._call_on_rows(y_true, y_pred, sample_weight)
        if getattr(self, "axis", -1) != -1:
            raise ValueError(f"axis is {self.axis}, expected -1: y_true or y_pred is a RaggedTensor")
        names = {"y_true": y_true, "y_pred": y_pred, "sample_weight": sample_weight}
        loss = self._call_on_rows(*(_rows(name, value, example) for name, value in names.items()))
        return loss if self._is_reduced else example.with_values(loss)

    def _call_on_rows(self, y_true, y_pred, sample_weight):
        arguments.check_dense("y_true", y_true)  # before Keras converts them
        arguments.check_dense("y_pred", y_pred)
        return self._reduced(super().__call__(y_true, y_pred, sample_weight))


def _rows(name, value, example):
    """Returns [K, ...] of a RaggedTensor [N, (R), ...], of [N, R, ...] padded, or of [N] for all of an example's."""
    if value is None:
        return None
    if isinstance(value, tf.RaggedTensor):
        rows = ragged.rows(name, value, "[N, (R), ...]")
        return (
            rows if value is example else ragged.with_lengths_of(name, value, "the other RaggedTensor", example).values
        )
    lengths = example.row_lengths()
    images = tf.cast(example.nrows(), tf.int32)
    value = arguments.with_shape(name, arguments.dense_tensor(name, value), [images, ...], "the RaggedTensor's N")
    if value.shape.rank == 1 or (name == "sample_weight" and value.shape[1:] == [1]):
        return tf.repeat(tf.reshape(value, [-1]), lengths)
    fit = lengths <= tf.shape(value, lengths.dtype)[1]
    lengths = arguments.checked("the RaggedTensor's row length", lengths, fit, f"at most dim 1 of {name}")
    return tf.RaggedTensor.from_tensor(value, lengths).values
