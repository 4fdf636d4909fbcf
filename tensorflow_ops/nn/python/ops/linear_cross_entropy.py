"""The public function of a linear classifier's loss, computed in chunks of rows."""

from typing import Literal, overload

import tensorflow as tf

# TensorFlow has no public API to stop tapes; a wheel fits one TensorFlow release.
from tensorflow.python.eager import record

from tensorflow_ops.core.python import arguments, autograph, ragged
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import nn_arguments

# Size of a chunk's logits: large enough for a fast matmul, small beside the weights of a large vocabulary.
_CHUNK_BYTES = 2**25
# Each chunk reads all weights (backward twice, and adds to their gradient): with fewer rows memory is the limit.
_MIN_CHUNK_ROWS = 256


@overload
def linear_cross_entropy(
    features: TensorLike,
    weight: TensorLike,
    labels: TensorLike,
    *,
    bias: TensorLike | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    class_weights: TensorLike | None = None,
    softcap: float | None = None,
    return_log_sum_exp: Literal[False] = False,
    name: str | None = None,
) -> tf.Tensor: ...
@overload
def linear_cross_entropy(
    features: TensorLike,
    weight: TensorLike,
    labels: TensorLike,
    *,
    bias: TensorLike | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    class_weights: TensorLike | None = None,
    softcap: float | None = None,
    return_log_sum_exp: Literal[True],
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]: ...
@autograph.op_function
@ragged.on_flat_values("features", "labels")
def linear_cross_entropy(
    features: TensorLike,
    weight: TensorLike,
    labels: TensorLike,
    *,
    bias: TensorLike | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    class_weights: TensorLike | None = None,
    softcap: float | None = None,
    return_log_sum_exp: bool = False,
    name: str | None = None,
) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """Loss of a linear classifier that never holds all logits in memory.

    Computes `sparse_softmax_cross_entropy(labels, features @ weight + bias)` in chunks of
    rows. The logits of a chunk take 32 MiB, or have 256 rows if those take more. The
    gradient computes each chunk's logits again ("Cut Your Losses in Large-Vocabulary
    Language Models", arXiv:2411.09009, and Liger Kernel, arXiv:2410.10989, fuse the same).
    For 16384 rows and 128000 classes, all float32 logits would take 8 GiB, and their
    gradient as much again. D features, V classes.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> features, weight = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([[1.0, 0.0], [0.0, 1.0]])
    >>> tfo.nn.linear_cross_entropy(features, weight, [1, 0]).numpy().round(4)
    array([0.3133, 1.3133], dtype=float32)

    The gradient is exact for any upstream gradient, with a number for each row (it is not
    precomputed for a mean). Second-order gradients work, too; they keep the logits of all
    chunks in memory.

    Args:
      features: [..., D], also ragged before D; float16, bfloat16, float32 or float64.
      weight: [D, V], as the kernel of a `keras.layers.Dense`. Another float dtype is cast
        to features'; its gradient has its own dtype.
      labels: [...], ragged as features are: each row's class, in [0, V) or ignore_index;
        int32 or int64. Smaller integers are cast to int32, uint32 to int64.
      bias: [V], or None; cast as weight is.
      ignore_index: the label of rows with loss 0 and gradient 0.
      label_smoothing: see `sparse_softmax_cross_entropy`.
      z_loss: see `sparse_softmax_cross_entropy`.
      class_weights: see `sparse_softmax_cross_entropy`.
      softcap: see `sparse_softmax_cross_entropy`; applied to each chunk's logits.
      return_log_sum_exp: see `sparse_softmax_cross_entropy`.
      name: name scope of the ops.

    Returns:
      Nats, of labels' shape; float32, for float64 features float64. Logits have features'
      dtype, also if it has 16 bits. Differentiable twice in features, weight and bias;
      for 16-bit features, gradients to weight and bias are summed over chunks in float32.
      With return_log_sum_exp a pair of such tensors: losses, and log sum e^x of each row.

    Raises:
      ValueError: a wrong dtype or rank, no class, an option out of its range, shapes that
        do not fit.
      InvalidArgumentError: the same errors, found at run time; on the CPU also
        "labels[3] is 7, expected [0, 5)", counted from the chunk's first row (a GPU makes
        that row's loss NaN, and the gradients).
    """
    attrs = nn_arguments.label_loss_attrs(ignore_index, label_smoothing, z_loss)
    softcap = nn_arguments.softcap_or_none(softcap)
    with tf.name_scope(name or "linear_cross_entropy"):
        features = arguments.float_tensor("features", features)
        parameters = [arguments.float_tensor("weight", weight)]
        if bias is not None:
            parameters.append(arguments.float_tensor("bias", bias))
        labels = nn_arguments.integers("labels", labels)
        _check_shapes(features, labels, *parameters)

        # [..., D] as [N, D]. Not by -1, which is undefined for tensors without elements.
        shape = labels.shape.merge_with(features.shape[:-1])
        sizes = _checked_sizes(features, labels, parameters[0])
        rows = tf.reshape(features, tf.stack([tf.reduce_prod(sizes[:-1]), sizes[-1]]))
        rows.set_shape([shape.num_elements(), parameters[0].shape[0]])
        weights = nn_arguments.class_weights_tensor(
            class_weights, parameters[0], arguments.at_least_float32(features.dtype)
        )
        results = _row_losses(rows, tf.reshape(labels, [-1]), attrs, parameters, softcap, return_log_sum_exp)
        loss, *others = (tf.ensure_shape(tf.reshape(x, tf.shape(labels)), shape) for x in results)
        if weights is not None:
            loss *= nn_arguments.weights_of_labels(weights, labels)
        return (loss, *others) if return_log_sum_exp else loss


def _check_shapes(features, labels, weight, bias=None):
    if features.shape.rank == 0:
        raise ValueError("features are a scalar, expected [..., features]")
    if weight.shape.rank not in (2, None):
        raise ValueError(f"weight is {arguments.shape_text(weight.shape)}, expected [features, classes]")
    if weight.shape.rank == 2:
        arguments.check_shape("features", features, features.shape[:-1] + weight.shape[:1], "weight's first dim last")
        if weight.shape[1] == 0:
            raise ValueError(f"weight is {arguments.shape_text(weight.shape)}, expected at least one class")
    arguments.check_shape("labels", labels, features.shape[:-1], "features' shape without the last dim")
    if bias is not None:
        classes = weight.shape[-1:] if weight.shape.rank else tf.TensorShape([None])
        arguments.check_shape("bias", bias, classes, "weight's number of classes")


def _checked_sizes(features, labels, weight):
    """Returns the shape of features, int64, after the checks of what is not known statically.

    Later ops would accept wrong shapes with a right number of elements.
    """
    sizes = tf.shape(features, out_type=tf.int64)
    if features.shape.is_fully_defined() and labels.shape.is_fully_defined() and weight.shape.is_fully_defined():
        return sizes
    expected = tf.concat([tf.shape(labels, out_type=tf.int64), tf.shape(weight, out_type=tf.int64)[:1]], 0)
    rank = tf.minimum(tf.size(sizes), tf.size(expected))
    fits = tf.equal(tf.size(sizes), tf.size(expected)) & tf.reduce_all(tf.equal(sizes[:rank], expected[:rank]))
    return arguments.checked("the shape of features", sizes, fits, "the shape of labels and the first dim of weight")


def _row_losses(features, labels, attrs, parameters, softcap, with_log_sum_exp):
    """Returns [losses] of [N, D] features, or (losses, log sum e^x).

    `parameters` are the weight and, if there is one, the bias.
    """
    dtype, value_dtype = features.dtype, arguments.at_least_float32(features.dtype)

    def logits_of(rows, weight, bias=None):
        logits = tf.matmul(rows, tf.cast(weight, dtype))
        return logits if bias is None else tf.nn.bias_add(logits, tf.cast(bias, dtype))

    @tf.custom_gradient
    def losses(features, *parameters):
        chunks = _Chunks(features, parameters[0])

        def forward(rows):
            return ops.tensorflow_ops_sparse_softmax_cross_entropy(
                nn_arguments.capped(logits_of(rows(features), *parameters), softcap),
                rows(labels),
                Tvalue=value_dtype,
                **attrs,
            ), ()

        # Else a tape would keep all logits.
        with record.stop_recording():
            (loss, largest, rest), _ = chunks.run(forward, [tf.TensorSpec([None], value_dtype)] * 3)

        def gradient(d_loss, d_log_sum_exp=None):
            def backward(rows):
                x = rows(features)
                uncapped = logits_of(x, *parameters)
                logits = nn_arguments.capped(uncapped, softcap)
                d_logits = ops.tensorflow_ops_sparse_softmax_cross_entropy_grad(
                    logits, rows(labels), rows(d_loss), rows(largest), rows(rest), **attrs
                )
                if with_log_sum_exp:
                    p = tf.cast(ops.tensorflow_ops_softmax(logits), value_dtype)
                    d_logits += tf.cast(rows(d_log_sum_exp)[:, tf.newaxis] * p, dtype)
                d_logits = nn_arguments.capped_grad(d_logits, uncapped, softcap)
                d_x = tf.matmul(d_logits, tf.cast(parameters[0], dtype), transpose_b=True)
                addends = [tf.matmul(x, d_logits, transpose_a=True)]
                if len(parameters) == 2:
                    addends.append(tf.reduce_sum(tf.cast(d_logits, value_dtype), 0))
                return (d_x,), addends

            sums = [tf.zeros_like(parameter, value_dtype) for parameter in parameters]
            (d_features,), sums = chunks.run(backward, [tf.TensorSpec([None, features.shape[1]], dtype)], sums)
            return d_features, *(tf.cast(s, p.dtype) for s, p in zip(sums, parameters, strict=True))

        if with_log_sum_exp:
            return (loss, largest + tf.math.log1p(rest)), gradient
        return loss, gradient

    results = losses(features, *parameters)
    return results if with_log_sum_exp else [results]


class _Chunks:
    """Splits the rows of a matrix into chunks of about equal size."""

    def __init__(self, features, weight):
        self._rows, classes, maximum = features.shape[0], weight.shape[1], max
        if self._rows is None or classes is None:
            self._rows, maximum = tf.shape(features, tf.int64)[0], tf.maximum
            classes = tf.maximum(tf.shape(weight, tf.int64)[1], 1)  # the op raises an error for 0
        max_rows = maximum(_CHUNK_BYTES // (classes * features.dtype.size), _MIN_CHUNK_ROWS)
        count = maximum(-(-self._rows // max_rows), 1)
        self._size = -(-self._rows // count)
        # The loop's chunks have one size, which XLA needs. The last chunk, after the loop, has the remaining rows.
        self._loops = maximum(-(-self._rows // maximum(self._size, 1)) - 1, 0)

    def run(self, function, specs, sums=()):
        """Calls function(rows) -> (results, addends) for each chunk.

        Args:
          function: takes a function that returns a chunk's rows of a tensor.
          specs: a tf.TensorSpec for each result.
          sums: the first value of each sum of addends.

        Returns:
          The results, concatenated along rows, and the sums of addends.
        """
        if isinstance(self._loops, int) and self._loops == 0:
            results, addends = function(lambda tensor: tensor)
            return results, [tf.cast(a, s.dtype) for a, s in zip(addends, sums, strict=True)]

        loops = tf.cast(self._loops, tf.int32)  # fits: a number of blocks
        # Results are written flat: an empty TensorArray does not know the other dims of its elements.
        arrays = [tf.TensorArray(s.dtype, loops, element_shape=[None], infer_shape=False, name="chunks") for s in specs]

        def call(begin, size, sums):
            results, addends = function(lambda tensor: _slice(tensor, begin, size))
            return results, [s + tf.cast(a, s.dtype) for a, s in zip(addends, sums, strict=True)]

        def step(i, arrays, sums):
            results, sums = call(tf.cast(i, tf.int64) * self._size, self._size, sums)  # fits: int32
            arrays = [array.write(i, tf.reshape(r, [-1])) for array, r in zip(arrays, results, strict=True)]
            return i + 1, arrays, sums

        # One at a time: parallel iterations would hold their logits at the same time.
        _, arrays, sums = tf.while_loop(lambda i, *_: i < loops, step, (0, arrays, list(sums)), parallel_iterations=1)
        begin = self._loops * self._size
        # After the loop: a graph would otherwise hold the logits of both at the same time.
        with tf.control_dependencies([array.flow for array in arrays]):
            last, sums = call(begin, self._rows - begin, sums)
        results = []
        for array, end, spec in zip(arrays, last, specs, strict=True):
            shape = tf.concat([[begin], tf.shape(end, tf.int64)[1:]], 0)
            results.append(tf.ensure_shape(tf.concat([tf.reshape(array.concat(), shape), end], 0), spec.shape))
        return results, sums


def _slice(tensor, begin, size):
    """Returns `size` rows of a tensor. A constant size stays one, for XLA, whatever `begin` is."""
    rest = tf.shape(tensor, tf.int64)[1:]
    return tf.slice(tensor, tf.concat([[begin], tf.zeros_like(rest)], 0), tf.concat([[size], rest], 0))
