"""A Keras layer of a conditional random field."""

from typing import Any

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, keras3, ragged
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.layers.python.type_aliases import Identifier
from tensorflow_ops.nn.python.ops import crf


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class CRF(keras3.OpLayer):
    """Linear-chain conditional random field: transitions between tags, their likelihood, and decoding.

    The last layer of a tagger: its input are scores of tags, such as a Dense layer's
    without an activation. It adds scores of the first and the last tag of a sequence, and
    learns them and the transitions with the loss `tfo.losses.CRF`.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> crf = tfo.layers.CRF(3)
    >>> model = keras.Sequential([keras.layers.Dense(3), crf])
    >>> model.compile("adam", loss=tfo.losses.CRF())
    >>> x, labels = np.zeros([2, 4, 5]), np.array([[0, 1, 2, 1], [2, 1, -1, -1]])
    >>> history = model.fit(x, labels, verbose=0)
    >>> crf.decode(model(x), lengths=[4, 2]).labels.shape
    TensorShape([2, 4])

    `tfo.nn.crf_log_likelihood` has the definition.

    Args:
      num_tags: the number of tags.
      use_boundaries: whether sequences have scores for their first and their last tag.
      transitions_initializer: of transitions and of boundaries.
      transitions_regularizer: of transitions.
      transitions_constraint: of transitions.
      **kwargs: arguments of `keras.layers.Layer`.

    Raises:
      ValueError: num_tags below 1; an input that does not have so many tags.
    """

    def __init__(
        self,
        num_tags: int,
        *,
        use_boundaries: bool = True,
        transitions_initializer: Identifier = "zeros",
        transitions_regularizer: Identifier = None,
        transitions_constraint: Identifier = None,
        **kwargs: Any,
    ) -> None:
        num_tags = arguments.static_int("num_tags", num_tags, 1)
        use_boundaries = arguments.static_bool("use_boundaries", use_boundaries)
        super().__init__(locals())
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: self.num_tags})

    def build(self, input_shape):
        """Creates the variables."""
        self.transitions = self.add_weight(
            shape=[self.num_tags, self.num_tags],
            initializer=self.transitions_initializer,
            regularizer=self.transitions_regularizer,
            constraint=self.transitions_constraint,
            name="transitions",
        )
        if self.use_boundaries:
            # Of the first and of the last tag.
            self.boundaries = self.add_weight(
                shape=[2, self.num_tags], initializer=self.transitions_initializer, name="boundaries"
            )
        self.built = True

    def call(self, inputs):
        """Returns the scores of tags: the loss and `decode` add transitions and boundaries."""
        return tf.identity(arguments.dense_tensor("inputs", inputs))  # the input itself would keep its mask

    def __call__(self, inputs: TensorLike, **kwargs: Any) -> tf.Tensor:
        # Not in call, whose result is another tensor with keras.RematScope.
        outputs = super().__call__(inputs, **kwargs)
        for output in keras.tree.flatten(outputs):  # a list for a list of KerasTensors
            output._tfo_crf = self  # as Keras attaches masks
        return outputs

    def compute_mask(self, inputs, mask=None):
        """Returns no mask: Keras would apply one of frames to losses of sequences."""
        del inputs, mask

    def _scores(self, logits, lengths):
        """Returns the arguments of the functions, with boundaries added to the logits."""
        logits = arguments.dense_tensor("logits", logits)
        if lengths is None:
            lengths = tf.fill(tf.shape(logits)[:1], tf.shape(logits)[1])
        lengths = arguments.dense_tensor("lengths", lengths)
        value_dtype = arguments.at_least_float32(logits.dtype)
        if self.use_boundaries:
            frames = tf.range(tf.shape(logits, tf.int64)[1])[:, tf.newaxis]
            last = tf.cast(lengths, tf.int64)[:, tf.newaxis, tf.newaxis] - 1  # fits: the op takes no uint64
            boundaries = tf.cast(tf.convert_to_tensor(self.boundaries), value_dtype)
            zero = tf.zeros([], value_dtype)
            # Not a product: 0 times -inf is NaN.
            logits = tf.cast(logits, value_dtype) + tf.where(tf.equal(frames, 0), boundaries[0], zero)
            logits += tf.where(tf.equal(frames, last), boundaries[1], zero)
        return logits, tf.cast(tf.convert_to_tensor(self.transitions), value_dtype), lengths

    def log_likelihood(self, labels: TensorLike, logits: TensorLike, lengths: TensorLike | None = None) -> tf.Tensor:
        """Returns the log likelihood of tags: `tfo.nn.crf_log_likelihood`. `tfo.losses.CRF` is minus this.

        Args:
          labels: [batch, frames] tags, or a RaggedTensor or SparseTensor.
          logits: the layer's output, [batch, frames, tags].
          lengths: [batch], or None: those of ragged labels, or up to the last label that is
            not negative.

        Returns:
          [batch], in nats.
        """
        logits = arguments.dense_tensor("logits", logits)
        is_padded = not ragged.is_ragged_or_sparse(labels)
        labels, lengths = ragged.padded("labels", labels, "lengths", lengths, padding=-1)
        if not is_padded:
            labels = ragged.with_width(labels, tf.shape(logits)[1])
        logits, transitions, lengths = self._scores(logits, lengths)
        return crf.crf_log_likelihood(labels, logits, transitions, lengths=lengths)

    def decode(self, logits: TensorLike, lengths: TensorLike | None = None) -> crf.CrfDecode:
        """Returns the best tags and their scores: `tfo.nn.crf_decode`.

        Args:
          logits: the layer's output, [batch, frames, tags].
          lengths: [batch], or None: all frames.
        """
        logits, transitions, lengths = self._scores(logits, lengths)
        return crf.crf_decode(logits, transitions, lengths=lengths)

    def marginals(self, logits: TensorLike, lengths: TensorLike | None = None) -> tf.Tensor:
        """Returns the probability of each tag at each frame: `tfo.nn.crf_marginals`; arguments as `decode`."""
        logits, transitions, lengths = self._scores(logits, lengths)
        return crf.crf_marginals(logits, transitions, lengths=lengths)

    def compute_output_shape(self, input_shape):
        return input_shape
