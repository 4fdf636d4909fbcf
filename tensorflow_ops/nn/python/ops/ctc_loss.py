"""The public function ctc_loss."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import sequence_arguments


@autograph.op_function
def ctc_loss(
    labels: TensorLike,
    logits: TensorLike,
    label_lengths: TensorLike | None = None,
    logit_lengths: TensorLike | None = None,
    *,
    blank_index: int = 0,
    zero_infinity: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Connectionist temporal classification: minus the log probability of label sequences without an alignment.

    A path has one class for each frame. Merging its repeated classes and dropping its
    blanks leaves a label sequence; the probability of the labels is the sum over all paths
    that leave them, each the product of its classes' softmax probabilities ("Connectionist
    Temporal Classification", Graves et al. 2006).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = tf.zeros([1, 3, 4])    # 3 frames, 4 classes: 64 equal paths, of which
    >>> loss = tfo.nn.ctc_loss([[1, 2]], logits, [2], [3])    # 5 are 1, 2
    >>> float(tf.exp(-loss[0]) * 64)
    5.0
    >>> tfo.nn.ctc_loss([[1, 1]], logits, [2], [2]).numpy()    # repeats need a blank between
    array([inf], dtype=float32)

    Differences from `tf.nn.ctc_loss`: impossible labels have an infinite loss and gradient
    0; labels out of range are an error; it runs on the GPU and under XLA; it computes in
    numbers with an exponent of their own, so that thousands of frames do not cost accuracy.

    Args:
      labels: [batch, max labels], int32 or int64; within the example's length in
        [0, classes) and not blank_index, beyond it anything. A RaggedTensor [batch,
        (labels)], or a SparseTensor.
      logits: [batch, max frames, classes], or a RaggedTensor [batch, (frames), classes],
        before the softmax: float16, bfloat16, float32 or float64. -inf forbids a class. A
        NaN or +inf makes its example's loss and gradient NaN; beyond the example's length
        it changes nothing.
      label_lengths: [batch], the labels of each example, in [0, max labels]; int32 or
        int64. None: those of ragged labels, or the labels that are not negative, wherever
        they are.
      logit_lengths: [batch], the frames of each example, in [0, max frames]. None: those
        of ragged logits, or all.
      blank_index: the class of blank, in [0, classes), or -1, the last class; labels that
        start from 0 need -1.
      zero_infinity: True: losses that are infinite, because the labels need more frames
        or are forbidden, are 0.
      name: name of the op.

    Returns:
      [batch], in nats: float32, for float64 logits float64. No labels and no frames: 0.
      Differentiable once in logits: d loss / d logits = softmax - posterior, 0 where the
      loss is infinite (or was, with zero_infinity) and beyond the length.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit, a blank_index that is no class.
      InvalidArgumentError: the same errors, found at run time; on the CPU also
        "labels[0, 1] is 9, expected [0, 4)" and lengths out of their ranges (a GPU makes
        that example's loss and gradient NaN).
    """
    inputs, attrs = sequence_arguments.loss_inputs(labels, logits, label_lengths, logit_lengths, blank_index)
    attrs["zero_infinity"] = arguments.static_bool("zero_infinity", zero_infinity)
    return ops.tensorflow_ops_ctc_loss(*inputs, name=name, **attrs).loss
