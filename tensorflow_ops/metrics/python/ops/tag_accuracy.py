"""Accuracy of tags as a Keras metric."""

from typing import Any

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, keras3, ragged
from tensorflow_ops.metrics.python.ops import metric_arguments, ratio


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class TagAccuracy(ratio.Ratio):
    """Fraction of frames with the right tag: of the best tags of a CRF, without padding.

    Keras's "accuracy" takes the best tag of each frame instead, and counts padding as wrong.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> crf = tfo.layers.CRF(3)
    >>> model = keras.Sequential([keras.Input([4, 3]), crf])
    >>> model.compile("adam", loss=tfo.losses.CRF(), metrics=[tfo.metrics.TagAccuracy()])
    >>> scores, tags = np.eye(3)[[[0, 1, 2, 1], [2, 1, 0, 0]]], np.array([[0, 1, 2, 2], [2, 1, -1, -1]])
    >>> numbers = model.evaluate(scores, tags, verbose=0, return_dict=True)
    >>> round(numbers["tag_accuracy"], 4)    # 5 of 6 tags
    0.8333
    >>> metric = tfo.metrics.TagAccuracy()
    >>> metric.update_state(tags, crf.decode(model(scores), lengths=[4, 2]).labels)
    >>> round(float(metric.result()), 4)
    0.8333

    `update_state(y_true, y_pred)` takes N sequences of up to T frames:

    - y_true: tags [N, T], whole numbers of any dtype, padded with negative ones, at the end
      for the output of a CRF; or a RaggedTensor or SparseTensor.
    - y_pred: the output [N, T, tags] of `tfo.layers.CRF`, as the layer returns it, which is
      decoded as by its `decode`, with the lengths of y_true; or tags [N, T].

    Args:
      name: name of the metric.
      dtype: dtype of the result. None is `keras.config.floatx()`.

    Raises:
      ValueError: shapes that are not as above, such as scores that another layer or function
        returned; weights.
      NotImplementedError: under ParameterServerStrategy.
      tf.errors.InvalidArgumentError: tags that are not whole numbers.
    """

    def __init__(self, name: str = "tag_accuracy", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    @autograph.ordered
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: None = None) -> None:
        """Adds sequences; the class describes the arguments."""
        metric_arguments.check_update(self, sample_weight, needs_values=False)
        crf = getattr(y_pred, "_tfo_crf", None)
        found = arguments.dense_tensor("y_pred", y_pred)
        if crf is None and keras3.infers_shapes():
            return
        if crf is None:
            meaning = "[N, T], tags, or the output of tfo.layers.CRF as the layer returns it"
            found = arguments.with_shape("y_pred", found, [None, None], meaning)
        rows, frames = tf.unstack(tf.shape(found)[:2])
        tags = _tags(y_true, frames)
        tags = arguments.with_shape("y_true", tags, [rows, frames], "[N, T], tags, with y_pred's N and T")
        if crf is not None:
            tags, lengths = ragged.padded("y_true", tags, "lengths", None, padding=-1)
            found = crf.decode(found, lengths).labels
        is_tag = tags >= 0
        is_right = is_tag & tf.equal(tags, metric_arguments.whole_numbers("y_pred", found))
        self._add(*(tf.reduce_sum(tf.cast(counted, tf.float64)) for counted in (is_right, is_tag)))


def _tags(y_true, frames):
    """Returns tags as int64, padded with -1: ragged and sparse ones up to the number of frames."""
    is_padded = not ragged.is_ragged_or_sparse(y_true)
    if isinstance(y_true, tf.SparseTensor):
        y_true = tf.sparse.map_values(metric_arguments.whole_numbers, "y_true", tf.sparse.reorder(y_true))
        y_true = tf.sparse.to_dense(y_true, -1)
    tags = metric_arguments.to_dense("y_true", y_true, tf.int64, -1)
    if is_padded:
        return tags
    return tf.pad(tags, [[0, 0], [0, tf.maximum(frames - tf.shape(tags)[1], 0)]], constant_values=-1)
