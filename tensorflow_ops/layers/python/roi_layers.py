"""Keras layers of the region pooling ops."""

import keras
import tensorflow as tf

from tensorflow_ops.detection.python.ops import roi_ops


class _RoILayer(keras.layers.Layer):
    """What the region pooling layers share: arguments, shapes, serialisation."""

    def __init__(self, output_size, *, spatial_scale=1.0, data_format="NHWC", box_format="xyxy", **kwargs):
        # Keras would cast boxes to the compute dtype, too: float16 has no room for
        # image coordinates.
        super().__init__(autocast=False, **kwargs)
        self.output_size = tuple(int(n) for n in roi_ops.check_output_size(output_size))
        roi_ops.check_spatial_scale(spatial_scale)
        roi_ops.check_option("data_format", data_format, ("NHWC", "NCHW"))
        roi_ops.check_option("box_format", box_format, ("xyxy", "yxyx"))
        self.spatial_scale = float(spatial_scale)
        self.data_format = data_format
        self.box_format = box_format
        # The op has no XLA kernel, and Keras turns XLA on for GPU machines.
        self.supports_jit = False

    def _pool(self, features, boxes, box_indices):
        raise NotImplementedError

    def call(self, features, boxes, box_indices=None):
        features = tf.cast(features, self.compute_dtype)
        if box_indices is not None:
            return self._pool(features, boxes, box_indices)
        # Boxes by image: [N, R, 4] -> [N R, 4], and back after pooling.
        by_image = tf.convert_to_tensor(boxes)
        if by_image.shape.rank != 3:
            raise ValueError(f"boxes are {by_image.shape}, expected [N, R, 4], or [K, 4] with box_indices [K]")
        shape = tf.shape(by_image)
        message = "boxes [N, R, 4] must have features' N"
        tf.debugging.assert_equal(shape[0], tf.shape(features)[0], message=message)
        box_indices = tf.repeat(tf.range(shape[0]), shape[1])
        pooled = self._pool(features, tf.reshape(by_image, [-1, 4]), box_indices)
        pooled = tf.reshape(pooled, tf.concat([shape[:2], tf.shape(pooled)[1:]], 0))
        pooled.set_shape(self.compute_output_shape(features.shape, by_image.shape))
        return pooled

    def compute_output_shape(self, features_shape, boxes_shape, box_indices_shape=None):
        del box_indices_shape
        bins = self.output_size
        if self.data_format == "NCHW":
            return (*boxes_shape[:-1], features_shape[1], *bins)
        return (*boxes_shape[:-1], *bins, features_shape[3])

    def get_config(self):
        return {
            **super().get_config(),
            "output_size": self.output_size,
            "spatial_scale": self.spatial_scale,
            "data_format": self.data_format,
            "box_format": self.box_format,
        }


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class RoIPool(_RoILayer):
    """Max pooling of boxes into bins: `tfo.detection.roi_pool` as a layer.

    Boxes come in one of two forms. By image, as a model's batch has them: features
    [N, H, W, C] and boxes [N, R, 4] give [N, R, ph, pw, C]. Or in one list: boxes
    [K, 4] and box_indices [K] give [K, ph, pw, C].

    >>> import keras, tensorflow_ops as tfo
    >>> image = keras.Input([None, None, 3])
    >>> boxes = keras.Input([None, 4])
    >>> features = keras.layers.Conv2D(8, 3, strides=4, padding="same")(image)
    >>> regions = tfo.layers.RoIPool(7, spatial_scale=1 / 4)(features, boxes)
    >>> keras.Model([image, boxes], regions).output_shape
    (None, None, 7, 7, 8)

    Features are cast to the layer's compute dtype; boxes keep theirs. The layer is
    not compiled by XLA: the op has no XLA kernel.

    Args:
      output_size: the number of bins: an int or (height, width).
      spatial_scale: feature pixels per image pixel: 1/16 at stride 16.
      data_format: "NHWC" or "NCHW".
      box_format: "xyxy" = (x1, y1, x2, y2) or "yxyx" = (y1, x1, y2, x2).
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Raises:
      ValueError: an unknown option.
    """

    def _pool(self, features, boxes, box_indices):
        return roi_ops.roi_pool(
            features,
            boxes,
            box_indices,
            self.output_size,
            spatial_scale=self.spatial_scale,
            data_format=self.data_format,
            box_format=self.box_format,
        )
