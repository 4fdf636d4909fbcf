"""The public function rnnt_loss."""

import tensorflow as tf

from tensorflow_ops.core.python import autograph, ragged
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import sequence_arguments


@autograph.op_function
def rnnt_loss(
    labels: TensorLike,
    logits: TensorLike,
    label_lengths: TensorLike | None = None,
    logit_lengths: TensorLike | None = None,
    *,
    blank_index: int = 0,
    name: str | None = None,
) -> tf.Tensor:
    """Loss of a transducer (RNN-T): minus the log probability of label sequences without an alignment.

    logits[b, t, u] are the classes' scores at frame t after u labels. With log
    probabilities b(t, u) of blank and y(t, u) of label u,

        alpha(t, u) = log(exp(alpha(t-1, u) + b(t-1, u)) + exp(alpha(t, u-1) + y(t, u-1)))

    and alpha(0, 0) = 0, the loss is -alpha(T-1, U) - b(T-1, U) for T frames and U labels
    ("Sequence Transduction with Recurrent Neural Networks", arXiv:1211.3711).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = tf.zeros([1, 2, 2, 4])    # 2 frames, 1 label: 2 ways of 3 steps
    >>> loss = tfo.nn.rnnt_loss([[3]], logits, [1], [2])
    >>> round(float(tf.exp(-loss[0]) * 64), 4)
    2.0

    Args:
      labels: [batch, max labels], int32 or int64; within the example's length in
        [0, classes) and not blank_index, beyond it anything. A RaggedTensor [batch,
        (labels)], or a SparseTensor.
      logits: [batch, max frames, max labels + 1, classes], frames may be ragged, before
        the softmax: float16, bfloat16, float32 or float64. -inf forbids a class. A NaN or
        +inf makes its example's loss and gradient NaN; beyond the example's lengths it
        changes nothing.
      label_lengths: [batch], the labels of each example, in [0, max labels]; int32 or
        int64. None: those of ragged labels, or the labels that are not negative, wherever
        they are.
      logit_lengths: [batch], the frames of each example, in [1, max frames]. None: those
        of ragged logits, or all.
      blank_index: the class of blank, in [0, classes), or -1: the last class, which is
        torchaudio's default.
      name: name of the op.

    Returns:
      [batch], in nats: float32, for float64 logits float64. Differentiable once in logits:
      the softmax times the posterior of the node (t, u), minus those of its two edges; 0
      where the loss is infinite and beyond the lengths.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit, a blank_index that is no class.
      InvalidArgumentError: the same errors, found at run time; on the CPU also
        "labels[0, 1] is 9, expected [0, 4)" and lengths out of their ranges (a GPU makes
        that example's loss and gradient NaN).
    """
    is_padded = not ragged.is_ragged_or_sparse(labels)
    inputs, attrs = sequence_arguments.loss_inputs(labels, logits, label_lengths, logit_lengths, blank_index)
    labels, logits, *lengths = inputs
    if not is_padded and logits.shape.rank == 4:
        labels = ragged.with_width(labels, tf.shape(logits)[2] - 1)
    return ops.tensorflow_ops_rnnt_loss(labels, logits, *lengths, name=name, **attrs).loss
