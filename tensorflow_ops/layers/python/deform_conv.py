"""The Keras layer of deformable convolution."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, keras3
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.layers.python.type_aliases import Identifier
from tensorflow_ops.nn.python.ops import deform_conv
from tensorflow_ops.nn.python.ops.deform_conv import PaddingName, PaddingSizes
from tensorflow_ops.shapes.python import shapes


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class DeformConv2D(keras3.OpLayer):
    """Deformable convolution that learns its own offsets: `tfo.nn.deform_conv2d` as a layer.

    A second convolution of the same kernel size, strides, padding and dilations computes the
    offsets, and with modulated=True the mask, a sigmoid. It starts at zero: the layer starts
    as a `keras.layers.Conv2D`, with modulated=True as half of one.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> layer = tfo.layers.DeformConv2D(8, 3, padding="same", modulated=True)
    >>> layer(tf.ones([2, 16, 16, 3])).shape
    TensorShape([2, 16, 16, 8])
    >>> [(weight.name, tuple(weight.shape)) for weight in layer.weights]
    [('kernel', (3, 3, 3, 8)), ('bias', (8,)), ('offset_kernel', (3, 3, 3, 27)), ('offset_bias', (27,))]

    The weights are those of mmcv's DeformConv2dPack and ModulatedDeformConv2dPack, whose
    [Co, C, kh, kw] kernels are transposed to [kh, kw, C, Co]. Offsets are computed in
    float32, also in a mixed_float16 policy.

    Args:
      filters: the number of output channels.
      kernel_size: an int or (height, width).
      strides: an int or (vertical, horizontal).
      padding: "valid", "same", an int, (vertical, horizontal), or
        ((top, bottom), (left, right)).
      dilation_rate: an int or (vertical, horizontal).
      groups: the groups of input channels, and of output channels.
      offset_groups: the groups of input channels that have offsets of their own.
      modulated: whether to learn the mask of v2, too.
      activation: as `keras.layers.Conv2D`.
      use_bias: whether to add a bias.
      kernel_initializer: of the kernel; the offsets' is zeros.
      bias_initializer: of the bias.
      kernel_regularizer: of the kernel.
      bias_regularizer: of the bias.
      **kwargs: of `keras.layers.Layer`, such as name and dtype.

    Call arguments:
      features: [N, H, W, C].

    Returns:
      [N, Ho, Wo, filters], in the layer's compute dtype.

    Raises:
      ValueError: an option out of its range, channels that groups do not divide.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: Literal["valid", "same"] | PaddingName | PaddingSizes = "valid",
        dilation_rate: int | Sequence[int] = 1,
        groups: int = 1,
        offset_groups: int = 1,
        modulated: bool = False,
        activation: Identifier = None,
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        **kwargs: Any,
    ) -> None:
        filters = arguments.static_int("filters", filters, 1)
        kernel_size = deform_conv.pair("kernel_size", kernel_size, 1)
        strides = deform_conv.pair("strides", strides, 1)
        padding = padding.lower() if isinstance(padding, str) else padding
        dilation_rate = deform_conv.pair("dilation_rate", dilation_rate, 1)
        groups = arguments.static_int("groups", groups, 1)
        offset_groups = arguments.static_int("offset_groups", offset_groups, 1)
        modulated = arguments.static_bool("modulated", modulated)
        use_bias = arguments.static_bool("use_bias", use_bias)
        super().__init__(locals())
        self._op_padding, self._paddings = deform_conv.check_padding(self._deform_padding())
        if filters % groups:
            raise ValueError(f"filters is {filters}, expected a multiple of groups, {groups}")

    def build(self, features_shape):
        """Creates the weights."""
        self._check(features_shape)
        channels = features_shape[-1]
        for name, groups in (("groups", self.groups), ("offset_groups", self.offset_groups)):
            if channels % groups:
                raise ValueError(f"features have {channels} channels, expected a multiple of {name}, {groups}")
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.kernel_size, channels // self.groups, self.filters),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(self.filters,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
            )
        numbers = self._offset_channels() + self._mask_channels()
        self.offset_kernel = self.add_weight(
            name="offset_kernel", shape=(*self.kernel_size, channels, numbers), initializer="zeros", autocast=False
        )
        self.offset_bias = self.add_weight(name="offset_bias", shape=(numbers,), initializer="zeros", autocast=False)

    def _check(self, shape):
        if shape is None or len(shape) != 4 or not shape[-1]:
            raise ValueError(f"features are {shape and tuple(shape)}, expected [N, H, W, C] with a known C")

    def _offset_channels(self):
        return 2 * self.offset_groups * self.kernel_size[0] * self.kernel_size[1]

    def _mask_channels(self):
        return self._offset_channels() // 2 if self.modulated else 0

    def _offsets(self, features):
        """Returns offsets, and the mask or None."""
        dtype = arguments.at_least_float32(features.dtype)
        numbers = self._convolve(tf.cast(features, dtype), tf.cast(self.offset_kernel, dtype))
        numbers += tf.cast(self.offset_bias, dtype)
        offsets = numbers[..., : self._offset_channels()]
        return offsets, tf.sigmoid(numbers[..., self._offset_channels() :]) if self.modulated else None

    def _convolve(self, features, kernel):
        """Returns the convolution that computes offsets."""
        has_rank = features.shape.rank is not None
        batch, height, width, _ = shapes.get_shape(features) if has_rank else tf.unstack(tf.shape(features), 4)
        sizes = [batch, self._output_size(0, height), self._output_size(1, width)]
        if self.dilation_rate != (1, 1):
            # On the CPU, gradients of tf.nn.conv2d with dilations exist in oneDNN's float32 only.
            taps = self.kernel_size[0] * self.kernel_size[1]
            return deform_conv.deform_conv2d(
                features,
                tf.zeros([*sizes, 2 * taps], features.dtype),
                kernel,
                strides=self.strides,
                padding=self._deform_padding(),
                dilations=self.dilation_rate,
            )
        # oneDNN gives an empty result the shape of the input, so it gets more elements, and is cut. For other results,
        # TensorFlow's pad and slice do not copy. Grappler would merge a pad of zeros into a convolution with VALID, and
        # leave out the batch.
        is_known = all(isinstance(size, int) for size in sizes)
        more = int(0 in sizes) if is_known else tf.cast(tf.reduce_any(tf.equal(tf.stack(sizes), 0)), tf.int32)
        is_padded = not is_known or more
        if is_padded:
            height, width = self.kernel_size
            features = tf.pad(features, [[0, more], [0, more * height], [0, more * width], [0, 0]], constant_values=1)
        padding, (top, bottom, left, right) = self._op_padding, self._paddings
        if padding == "EXPLICIT":
            padding = [[0, 0], [top, bottom], [left, right], [0, 0]]
        result = tf.nn.conv2d(features, kernel, [1, *self.strides, 1], padding)
        return tf.slice(result, [0] * 4, [*sizes, kernel.shape[-1]]) if is_padded else result

    def _deform_padding(self):
        return self.padding.upper() if isinstance(self.padding, str) else self.padding

    def _output_size(self, axis, size):
        """Returns the height (axis 0) or width of the output for an int or a scalar tensor."""
        stride = self.strides[axis]
        if self._op_padding == "SAME":
            return (size + stride - 1) // stride
        reach = (self.kernel_size[axis] - 1) * self.dilation_rate[axis] + 1
        room = size + self._paddings[2 * axis] + self._paddings[2 * axis + 1] - reach
        length = room // stride + 1
        return tf.maximum(length, 0) if tf.is_tensor(length) else max(length, 0)

    def call(self, features):
        features = arguments.dense_tensor("features", features)
        offsets, mask = self._offsets(features)
        output = deform_conv.deform_conv2d(
            features,
            offsets,
            self.kernel,
            mask=mask,
            bias=self.bias,
            strides=self.strides,
            padding=self._deform_padding(),
            dilations=self.dilation_rate,
        )
        return self.activation(output)

    if TYPE_CHECKING:  # Keras's has no types

        def __call__(self, features: TensorLike, **kwargs: Any) -> tf.Tensor: ...

    def compute_output_shape(self, features_shape):
        self._check(features_shape)
        sizes = [None if size is None else self._output_size(i, size) for i, size in enumerate(features_shape[1:3])]
        return (features_shape[0], *sizes, self.filters)
