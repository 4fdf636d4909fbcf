"""For tests of the region pooling layers: one setting for each layer, features, boxes."""

import keras
import numpy as np

from tensorflow_ops import detection, layers

# For each layer: (function, options other than the defaults, features' channels per output channel).
BINS = (2, 3)
_ALIGN = {"sampling_ratio": 3, "aligned": False}
_PS = {"channel_order": "bin_major"}
STRIDES = (2.0, 4.0)
LAYERS = {
    "RoIPool": (detection.roi_pool, {"spatial_scale": 0.5}, 1),
    "RoIAlign": (detection.roi_align, {"spatial_scale": 0.5, **_ALIGN, "mode": "max"}, 1),
    "PSRoIPool": (detection.ps_roi_pool, {"spatial_scale": 0.5, **_PS}, 6),
    "PSRoIAlign": (detection.ps_roi_align, {"spatial_scale": 0.5, **_PS, "sampling_ratio": 3}, 6),
    "MultiScaleRoIAlign": (
        detection.multiscale_roi_align,
        {"strides": STRIDES, **_ALIGN, "canonical_box_size": 8.0, "canonical_stride": 4.0},
        1,
    ),
}
INDICES = np.array([0, 0, 0, 1, 1, 1], np.int32)


def make_layer(kind, **options):
    return getattr(layers, kind)(BINS, **{**LAYERS[kind][1], **options})


def layer_features(name, data_format="NHWC", images=2):
    """Returns features of images of 16 x 16 pixels: a map of stride 2, for a pyramid also one of stride 4."""
    channels = 5 * LAYERS[name][2]
    fine, coarse = random_features([images, 8, 8, channels]), random_features([images, 4, 4, channels], seed=3)
    if data_format == "NCHW":
        fine, coarse = np.moveaxis(fine, 3, 1), np.moveaxis(coarse, 3, 1)
    return [fine, coarse] if name == "MultiScaleRoIAlign" else fine


def fractional_boxes(images=2, count=3):
    """Returns boxes [images, count, 4] in images of 16 x 16 pixels that float16 and bfloat16 cannot represent."""
    corners = np.random.default_rng(4).uniform(0, 16, [images, count, 2, 2])
    return np.concatenate([corners.min(axis=2), corners.max(axis=2)], -1).astype(np.float32)


def random_features(shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def whole_boxes(count, images=2, size=8, seed=2):
    """Returns boxes [images, count, 4] with integer coordinates inside the image."""
    corners = np.random.default_rng(seed).integers(0, size, [images, count, 2, 2])
    return np.concatenate([corners.min(axis=2), corners.max(axis=2)], -1).astype(np.float32)


def pooled_maxima(features, boxes, box_indices, output_size, spatial_scale=1.0):
    """Returns each bin's maximum. Boxes are xyxy, inside the image, with integer coordinates."""
    output = np.zeros([len(boxes), *output_size, features.shape[3]])
    for k, (box, image) in enumerate(zip(boxes, box_indices, strict=True)):
        x1, y1, x2, y2 = (int(v * spatial_scale) for v in box)
        for p, q in np.ndindex(*output_size):
            height, width = y2 - y1 + 1, x2 - x1 + 1
            rows = slice(y1 + p * height // output_size[0], y1 - (-(p + 1) * height // output_size[0]))
            columns = slice(x1 + q * width // output_size[1], x1 - (-(q + 1) * width // output_size[1]))
            output[k, p, q] = features[image, rows, columns].max(axis=(0, 1))
    return output


def model_of_every_layer():
    """Returns a model that pools maps of strides 2 and 4 of images of 16 x 16 pixels with every layer."""
    image, boxes = keras.Input([16, 16, 3]), keras.Input([None, 4])
    fine = keras.layers.Conv2D(30, 3, strides=2, padding="same")(image)
    coarse = keras.layers.Conv2D(30, 3, strides=2, padding="same")(fine)
    outputs = [
        make_layer(name, name=name)([fine, coarse] if name == "MultiScaleRoIAlign" else fine, boxes) for name in LAYERS
    ]
    return keras.Model([image, boxes], outputs)
