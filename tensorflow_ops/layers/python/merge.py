"""A dense layer of tensors that broadcast against each other."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, keras3
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.layers.python.type_aliases import Identifier
from tensorflow_ops.shapes.python import shapes

# The assumed size of an unknown dim, to choose the order of additions.
_UNKNOWN_DIM = 1024


def _broadcast_dim(a, b):
    """Returns the dim that two dims broadcast to; None is unknown. Raises ValueError."""
    if 1 in (a, b):
        return b if a == 1 else a
    if None in (a, b):
        return b if a is None else a
    if a != b:
        raise ValueError(f"{a} and {b} do not broadcast")
    return a


def _broadcast(a, b):
    """Returns the shape that two shapes, tuples, broadcast to. Raises ValueError."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(_broadcast_dim(m, n) for m, n in zip(a, b, strict=True))


def _broadcast_all(input_shapes):
    """Returns the shape that all inputs, without their last dims, broadcast to. Raises ValueError."""
    result = ()
    for shape in input_shapes:
        try:
            result = _broadcast(result, tuple(shape[:-1]))
        except ValueError:
            texts = ", ".join(map(str, input_shapes))
            raise ValueError(f"inputs are {texts}, expected shapes that broadcast but for their last dims") from None
    return result


def _size(shape):
    return math.prod(_UNKNOWN_DIM if n is None else n for n in shape)


def _project(tensor, kernel):
    """Multiplies the tensor with the kernel, as one product of two matrices.

    The gradient of a tf.matmul of more dims computes a kernel-sized matrix for each example.
    """
    rank = tensor.shape.rank
    if rank == 2:
        return tf.matmul(tensor, kernel)
    product = tf.matmul(shapes.reshape(tensor, [list(range(rank - 1)), rank - 1]), kernel)
    return tf.reshape(product, [*shapes.get_shape(tensor)[:-1], kernel.shape[1]])


def _sum(terms):
    """Adds tensors that broadcast, in the order that keeps intermediate sums small."""
    terms = list(terms)
    while len(terms) > 1:
        dims = [tuple(term.shape) for term in terms]
        pairs = [(i, j) for j in range(len(terms)) for i in range(j)]
        i, j = min(pairs, key=lambda pair: _size(_broadcast(dims[pair[0]], dims[pair[1]])))
        last = terms.pop(j)
        terms[i] = terms[i] + last
    return terms[0]


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class Merge(keras3.OpLayer):
    """A dense layer over tensors that broadcast against each other.

    Combines, for example, each frame of a sound with the features of its speaker, each
    word of a sentence with those of its topic, or each query with each key. The usual way
    is to tile the tensors to a common shape, concatenate them, and call
    `keras.layers.Dense`. This layer returns the same result, with the same gradients, but
    without that large tensor: it projects each input in its own shape, and adds the
    projections.

        activation(concat(tile(inputs)) @ kernel + bias)
          = activation(sum over i of inputs[i] @ kernel[rows of i] + bias)

    >>> import keras, tensorflow_ops as tfo
    >>> frames = keras.Input([None, 80])    # [batch, time, 80]
    >>> speaker = keras.Input([1, 256])     # the same for all frames
    >>> hidden = tfo.layers.Merge(64, "relu")([frames, speaker])
    >>> keras.Model([frames, speaker], hidden).output_shape
    (None, None, 64)

    Inputs are cast to the layer's compute dtype. Their shapes without the last dim
    broadcast as NumPy's do; the last dims may differ, and must be known to build the
    layer. Kernel and bias are those of the Dense layer, in the order of the inputs:
    `merge.set_weights(dense.get_weights())`. In a 16-bit dtype each projection is
    rounded before the addition.

    The mask of the result is the logical and of the inputs' masks.

    The layer generalizes the recipe `merge` of "Effective TensorFlow".

    Args:
      units: the size of the result's last dim.
      activation: a function of the sum or its name in keras.activations; None: linear.
      use_bias: whether to add a bias [units].
      kernel_initializer: of the kernel [sum of inputs' last dims, units].
      bias_initializer: of the bias.
      kernel_regularizer: a loss of the kernel.
      bias_regularizer: a loss of the bias.
      activity_regularizer: a loss of the result.
      kernel_constraint: a projection of the kernel after each update.
      bias_constraint: a projection of the bias after each update.
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Raises:
      ValueError: units is not a positive int; inputs are not a non-empty list of tensors, do
        not broadcast, or have another number or other last dims than those that the layer
        was built for.
    """

    def __init__(
        self,
        units: int,
        activation: Identifier = None,
        *,
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        **kwargs: Any,
    ) -> None:
        units = arguments.static_int("units", units, 1)
        super().__init__(locals())
        self.supports_jit = True  # it calls TensorFlow's own ops
        self.supports_masking = True

    def build(self, input_shape):
        input_shapes = self._input_shapes(input_shape)
        self._widths = [shape[-1] for shape in input_shapes]
        if None in self._widths:
            raise ValueError(f"inputs are {', '.join(map(str, input_shapes))}, expected known last dims")
        _broadcast_all(input_shapes)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(sum(self._widths), self.units),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(self.units,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def _input_shapes(self, input_shape):
        """Returns the shapes of a list of inputs as tuples. Raises ValueError."""
        is_list = isinstance(input_shape, list | tuple) and len(input_shape) > 0
        if not is_list or not all(isinstance(shape, list | tuple | tf.TensorShape) for shape in input_shape):
            raise ValueError(f"inputs are of shape {input_shape}, expected a list of at least one tensor")
        input_shapes = [tuple(shape) for shape in input_shape]
        if () in input_shapes:
            raise ValueError(f"inputs are {', '.join(map(str, input_shapes))}, expected at least one dim each")
        return input_shapes

    def call(self, inputs):
        inputs = [arguments.cast_tensor(f"inputs[{i}]", x, self.compute_dtype) for i, x in enumerate(inputs)]
        input_shapes = self._input_shapes([tensor.shape for tensor in inputs])
        if [shape[-1] for shape in input_shapes] != self._widths:
            texts = ", ".join(map(str, input_shapes))
            raise ValueError(f"inputs are {texts}, expected {len(self._widths)} with the last dims {self._widths}")
        _broadcast_all(input_shapes)
        kernel = tf.cast(tf.convert_to_tensor(self.kernel), self.compute_dtype)
        terms = [_project(*pair) for pair in zip(inputs, tf.split(kernel, self._widths), strict=True)]
        if self.bias is not None:
            bias = tf.cast(tf.convert_to_tensor(self.bias), self.compute_dtype)
            smallest = min(range(len(terms)), key=lambda i: _size(tuple(terms[i].shape)))
            # TensorFlow fuses bias_add with the product, but bias_add does not accept vectors.
            add = tf.add if terms[smallest].shape.rank == 1 else tf.nn.bias_add
            terms[smallest] = add(terms[smallest], bias)
        return self.activation(_sum(terms))

    if TYPE_CHECKING:  # Keras's has no types

        def __call__(self, inputs: Sequence[TensorLike], **kwargs: Any) -> tf.Tensor: ...

    def compute_output_shape(self, input_shape):
        return (*_broadcast_all(self._input_shapes(input_shape)), self.units)

    def compute_mask(self, inputs, mask=None):
        if mask is None or all(m is None for m in mask):
            return None
        result = True
        for tensor, m in zip(inputs, mask, strict=True):
            # True for an input without a mask, of its shape: the result's mask has the result's shape.
            full = keras.ops.all(keras.ops.ones_like(tensor[..., :1], dtype="bool"), axis=-1)
            if m is not None:
                while len(m.shape) < len(full.shape):
                    m = keras.ops.expand_dims(m, -1)
                full = keras.ops.logical_and(full, m)
            result = keras.ops.logical_and(result, full)
        return result
