"""The second stage of a two-stage detector: backbone, feature pyramid, RoIAlign, head."""

from typing import NamedTuple

import boxes as box_ops
import keras
import numpy as np
import tensorflow as tf
from data import CLASSES, SIZE

import tensorflow_ops as tfo

STRIDES = (4, 8, 16)
PREDICT_BATCH = 10


def conv(x, filters, kernel_size=3, strides=1):
    """Convolution, batch normalisation, ReLU."""
    x = keras.layers.Conv2D(filters, kernel_size, strides, padding="same", use_bias=False)(x)
    x = keras.layers.BatchNormalization(momentum=0.9)(x)
    return keras.layers.ReLU()(x)


def backbone(image):
    """Returns maps at STRIDES of the image [N, H, W, 3], with H and W multiples of 16."""
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(image)
    x = conv(x, 16, strides=2)
    maps = []
    for filters in (32, 64, 96):
        x = conv(conv(x, filters, strides=2), filters)
        maps.append(x)
    return maps


def pyramid(maps, channels=32):
    """Adds deep features to shallow maps ("Feature Pyramid Networks", arXiv:1612.03144)."""
    merged = [keras.layers.Conv2D(channels, 1)(maps[-1])]
    for shallow in reversed(maps[:-1]):
        deep = keras.layers.UpSampling2D()(merged[-1])
        merged.append(keras.layers.Add()([keras.layers.Conv2D(channels, 1)(shallow), deep]))
    return [conv(x, channels) for x in reversed(merged)]


def build() -> keras.Model:
    """Builds the network from (image, proposals) to (classes, deltas).

    The inputs are image [N, H, W, 3] in [0, 255] and proposals [N, R, 4], x1 y1 x2 y2 in its
    pixels. The outputs are logits [N, R, 1 + classes], background first, and deltas
    [N, R, 4] (`boxes.decode`).
    """
    image = keras.Input([None, None, 3], name="image")
    proposals = keras.Input([None, 4], name="proposals")
    maps = pyramid(backbone(image))
    # RoIAlign also has a gradient to boxes. Faster and Mask R-CNN stop it: the second stage
    # treats the first stage's boxes as constants.
    rois = keras.ops.stop_gradient(proposals)
    # The papers use 224 pixels at stride 16. The images here are small, so this uses half.
    align = tfo.layers.MultiScaleRoIAlign(7, strides=STRIDES, canonical_box_size=112, canonical_stride=16)
    regions = align(maps, rois)  # [N, R, 7, 7, C]
    x = keras.layers.Reshape([-1, 7 * 7 * regions.shape[-1]])(regions)
    for _ in range(2):
        x = keras.layers.Dense(128, activation="relu")(x)
    classes = keras.layers.Dense(1 + len(CLASSES), name="classes")(x)
    # One box for all classes, as in Cascade R-CNN. Initially it equals the proposal.
    deltas = keras.layers.Dense(4, kernel_initializer="zeros", name="deltas")(x)
    return keras.Model({"image": image, "proposals": proposals}, {"classes": classes, "deltas": deltas})


def refine(network: keras.Model, images: np.ndarray, proposals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the refined boxes [N, R, 4] and probabilities [N, R, 1 + classes], background first."""
    starts = range(PREDICT_BATCH, len(images), PREDICT_BATCH)
    batches = zip(np.split(images, starts), np.split(proposals, starts), strict=True)
    outputs = [network.predict_on_batch({"image": image, "proposals": boxes}) for image, boxes in batches]
    deltas = np.concatenate([output["deltas"] for output in outputs])
    logits = np.concatenate([output["classes"] for output in outputs])
    return box_ops.clip(box_ops.decode(proposals, deltas), SIZE), tf.nn.softmax(logits).numpy()


class Detections(NamedTuple):
    """The detections in an image, by decreasing score."""

    boxes: np.ndarray  # float32 [M, 4]
    classes: np.ndarray  # int32 [M], indices into CLASSES
    scores: np.ndarray  # float32 [M]

    def first(self, count: int) -> "Detections":
        """Returns the detections with the highest scores."""
        return Detections(*(x[:count] for x in self))


def detect(network: keras.Model, images: np.ndarray, proposals: np.ndarray, min_score: float = 0.9) -> list[Detections]:
    """Finds the signs in each image from proposals [R, 4] shared by all images.

    Refines the boxes twice, as in "Cascade R-CNN" (arXiv:1712.00726), but with the same
    head. Keeps the most confident box of each sign.
    """
    proposals = np.broadcast_to(proposals, [len(images), *proposals.shape])
    boxes, _ = refine(network, images, proposals)
    boxes, probabilities = refine(network, images, boxes)
    boxes, scores, classes, counts = tf.image.combined_non_max_suppression(
        boxes[:, :, None],
        probabilities[..., 1:],
        max_output_size_per_class=20,
        max_total_size=20,
        score_threshold=min_score,
        clip_boxes=False,
    )
    classes = tf.cast(classes, tf.int32)
    return [
        Detections(boxes[i].numpy(), classes[i].numpy(), scores[i].numpy()).first(count)
        for i, count in enumerate(counts.numpy())
    ]
