"""Keras layers of the region pooling ops."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, keras3
from tensorflow_ops.core.python.axes import DataFormat
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.detection.python.ops import ps_roi, roi_align, roi_arguments, roi_pool
from tensorflow_ops.detection.python.ops.box_formats import BoxFormat
from tensorflow_ops.detection.python.ops.roi_arguments import BinValue, ChannelOrder, OutputSize


class _RoILayer(keras3.OpLayer):
    """Base of the region pooling layers: options, both forms of boxes, shapes.

    A subclass sets `_function`, its function of tensors, and its constructor has the
    function's options.
    """

    _function: Callable[..., Any]

    def __init__(self, given):
        options = keras3.options_of(given)
        output_size = options.pop("output_size")
        # A graph cannot iterate over a tensor, although it knows the values of a constant.
        known = tf.get_static_value(output_size)
        sizes = roi_arguments.check_output_size(output_size if known is None else known)
        checked = {"output_size": tuple(int(n) for n in sizes), **roi_arguments.check_options(**options)}
        # Keras would cast boxes to the compute dtype, too: float16 cannot hold image
        # coordinates.
        super().__init__(given | checked, autocast=False)

    def build(self, features_shape=None, boxes_shape=None, box_indices_shape=None):
        """Creates no weights. Keras passes shapes by the names of `call`'s arguments."""
        del features_shape, boxes_shape, box_indices_shape

    def _read_features(self, features):
        """Returns 4-D features in the compute dtype. Raises ValueError."""
        features = arguments.cast_tensor("features", features, self.compute_dtype)
        self._check_map(features.shape)
        return features

    def _check_map(self, shape):
        if tf.TensorShape(shape).rank not in (None, 4):
            dims = "[N, C, H, W]" if self.data_format == "NCHW" else "[N, H, W, C]"
            raise ValueError(f"features are {shape}, expected {dims}")

    def call(self, features, boxes, box_indices=None):
        features = self._read_features(features)
        pooled = self._function(features, boxes, box_indices, **self._option_values())
        if box_indices is None and isinstance(pooled, tf.Tensor):
            features_shape = tf.nest.map_structure(lambda f: f.shape, features)
            pooled.set_shape(self.compute_output_shape(features_shape, pooled.shape[:3]))
        return pooled

    if TYPE_CHECKING:  # Keras's has no types

        def __call__(
            self, features: TensorLike, boxes: TensorLike, box_indices: TensorLike | None = None, **kwargs: Any
        ) -> tf.Tensor: ...

    def _pooled_channels(self, channels):
        """Returns the number of channels of the output, from that of features."""
        return channels

    def compute_output_shape(self, features_shape, boxes_shape, box_indices_shape=None):
        del box_indices_shape
        self._check_map(features_shape)
        bins = self.output_size
        if self.data_format == "NCHW":
            return (*boxes_shape[:-1], self._pooled_channels(features_shape[1]), *bins)
        return (*boxes_shape[:-1], *bins, self._pooled_channels(features_shape[3]))


class _PSRoILayer(_RoILayer):
    """Base of the position-sensitive layers: each bin has its own channels."""

    def _pooled_channels(self, channels):
        height, width = self.output_size
        if channels is None:
            return None
        if channels % (height * width) != 0:
            raise ValueError(f"features have {channels} channels, expected a multiple of {height} x {width}")
        return channels // (height * width)


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class RoIPool(_RoILayer):
    """Max pooling of boxes into bins: `tfo.detection.roi_pool` as a layer.

    Boxes have one of two forms. By image, as in a model's batch: features [N, H, W, C]
    and boxes [N, R, 4] give [N, R, ph, pw, C]. Or in one list: boxes [K, 4] and
    box_indices [K] give [K, ph, pw, C]. A RaggedTensor [N, (R), 4] gives a RaggedTensor.

    >>> import keras, tensorflow_ops as tfo
    >>> image = keras.Input([None, None, 3])
    >>> boxes = keras.Input([None, 4])
    >>> features = keras.layers.Conv2D(8, 3, strides=4, padding="same")(image)
    >>> regions = tfo.layers.RoIPool(7, spatial_scale=1 / 4)(features, boxes)
    >>> keras.Model([image, boxes], regions).output_shape
    (None, None, 7, 7, 8)

    Features are cast to the layer's compute dtype; boxes keep theirs. Options are the
    function's.

    Args:
      output_size: an int or (height, width).
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Raises:
      ValueError: an unknown option.
    """

    _function = staticmethod(roi_pool.roi_pool)

    def __init__(
        self,
        output_size: OutputSize,
        *,
        spatial_scale: float = 1.0,
        data_format: DataFormat = "NHWC",
        box_format: BoxFormat = "xyxy",
        normalized: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(locals())


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class RoIAlign(_RoILayer):
    """Pooling of boxes by bilinear samples: `tfo.detection.roi_align` as a layer.

    Takes features and boxes as `tfo.layers.RoIPool` does, [N, R, 4], or [K, 4] with
    box_indices [K], and the function's options. Boxes have a gradient.

    >>> import keras, tensorflow_ops as tfo
    >>> image = keras.Input([None, None, 3])
    >>> boxes = keras.Input([None, 4])
    >>> features = keras.layers.Conv2D(8, 3, strides=4, padding="same")(image)
    >>> regions = tfo.layers.RoIAlign(7, spatial_scale=1 / 4, sampling_ratio=2)(features, boxes)
    >>> keras.Model([image, boxes], regions).output_shape
    (None, None, 7, 7, 8)

    Args:
      output_size: an int or (height, width).
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Raises:
      ValueError: an unknown option.
    """

    _function = staticmethod(roi_align.roi_align)

    def __init__(
        self,
        output_size: OutputSize,
        *,
        spatial_scale: float = 1.0,
        sampling_ratio: int = 0,
        aligned: bool = True,
        mode: BinValue = "avg",
        data_format: DataFormat = "NHWC",
        box_format: BoxFormat = "xyxy",
        normalized: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(locals())


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class PSRoIPool(_PSRoILayer):
    """Position-sensitive pooling of boxes: `tfo.detection.ps_roi_pool` as a layer.

    Features have ph * pw channels for each channel of the output, one for each bin.
    Takes features and boxes as `tfo.layers.RoIPool` does, [N, R, 4], or [K, 4] with
    box_indices [K], and the function's options.

    >>> import keras, tensorflow_ops as tfo
    >>> image = keras.Input([None, None, 3])
    >>> boxes = keras.Input([None, 4])
    >>> features = keras.layers.Conv2D(7 * 7 * 21, 3, strides=4, padding="same")(image)
    >>> scores = tfo.layers.PSRoIPool(7, spatial_scale=1 / 4)(features, boxes)
    >>> keras.Model([image, boxes], scores).output_shape
    (None, None, 7, 7, 21)

    Args:
      output_size: an int or (height, width).
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Raises:
      ValueError: an unknown option, or channels that are not a multiple of ph * pw.
    """

    _function = staticmethod(ps_roi.ps_roi_pool)

    def __init__(
        self,
        output_size: OutputSize,
        *,
        spatial_scale: float = 1.0,
        channel_order: ChannelOrder = "channel_major",
        data_format: DataFormat = "NHWC",
        box_format: BoxFormat = "xyxy",
        normalized: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(locals())


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class PSRoIAlign(_PSRoILayer):
    """Position-sensitive pooling by bilinear samples: `tfo.detection.ps_roi_align` as a layer.

    Features have ph * pw channels for each channel of the output, one for each bin.
    Takes features and boxes as `tfo.layers.RoIPool` does, [N, R, 4], or [K, 4] with
    box_indices [K], and the function's options. Boxes have a gradient.

    >>> import keras, tensorflow_ops as tfo
    >>> image = keras.Input([None, None, 3])
    >>> boxes = keras.Input([None, 4])
    >>> features = keras.layers.Conv2D(7 * 7 * 10, 3, strides=4, padding="same")(image)
    >>> regions = tfo.layers.PSRoIAlign(7, spatial_scale=1 / 4)(features, boxes)
    >>> keras.Model([image, boxes], regions).output_shape
    (None, None, 7, 7, 10)

    Args:
      output_size: an int or (height, width).
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Raises:
      ValueError: an unknown option, or channels that are not a multiple of ph * pw.
    """

    _function = staticmethod(ps_roi.ps_roi_align)

    def __init__(
        self,
        output_size: OutputSize,
        *,
        spatial_scale: float = 1.0,
        sampling_ratio: int = 0,
        channel_order: ChannelOrder = "channel_major",
        data_format: DataFormat = "NHWC",
        box_format: BoxFormat = "xyxy",
        normalized: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(locals())


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class MultiScaleRoIAlign(_RoILayer):
    """RoIAlign on a feature pyramid: `tfo.detection.multiscale_roi_align` as a layer.

    Takes a list of feature maps, the finest first, boxes as `tfo.layers.RoIPool` does,
    [N, R, 4], or [K, 4] with box_indices [K], and the function's options. Boxes have a gradient.

    >>> import keras, tensorflow_ops as tfo
    >>> image = keras.Input([None, None, 3])
    >>> boxes = keras.Input([None, 4])
    >>> fine = keras.layers.Conv2D(8, 3, strides=4, padding="same")(image)
    >>> coarse = keras.layers.Conv2D(8, 3, strides=2, padding="same")(fine)
    >>> regions = tfo.layers.MultiScaleRoIAlign(7, strides=(4, 8))([fine, coarse], boxes)
    >>> keras.Model([image, boxes], regions).output_shape
    (None, None, 7, 7, 8)

    Args:
      output_size: an int or (height, width).
      strides: image pixels per feature pixel, for each map, in increasing order.
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Raises:
      ValueError: an unknown option, or not one feature map for each stride.
    """

    _function = staticmethod(roi_align.multiscale_roi_align)

    def __init__(
        self,
        output_size: OutputSize,
        *,
        strides: Sequence[float],
        sampling_ratio: int = 2,
        aligned: bool = True,
        canonical_box_size: float = 224.0,
        canonical_stride: float = 16,
        data_format: DataFormat = "NHWC",
        box_format: BoxFormat = "xyxy",
        normalized: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(locals())

    def _read_features(self, features):
        roi_arguments.check_levels(features, self.strides)
        return [super(MultiScaleRoIAlign, self)._read_features(f) for f in features]

    def compute_output_shape(self, features_shape, boxes_shape, box_indices_shape=None):
        if not all(isinstance(shape, list | tuple | tf.TensorShape) for shape in features_shape):
            raise ValueError(f"features are one map {features_shape}, expected a list of {len(self.strides)} maps")
        roi_arguments.check_levels(features_shape, self.strides)
        return super().compute_output_shape(features_shape[0], boxes_shape, box_indices_shape)
