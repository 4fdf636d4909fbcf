"""The second stage of a two-stage detector: backbone, feature pyramid, RoIAlign, head; and the exported module."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from data import CLASSES, SIZE, Scene, grid
from PIL import Image

import tensorflow_ops as tfo

STRIDES = (4, 8, 16)
PYRAMID_CHANNELS = 32
DETECT_BATCH = 10
MIN_SCORE = 0.05  # of a detection
MAX_DETECTIONS = 20  # in an image
# Deltas are multiplied by these, so that their magnitude is like that of the logits. The
# values are the standard deviations that Fast R-CNN measured on its data.
DELTA_SCALES = np.float32([0.1, 0.1, 0.2, 0.2])
MAX_LOG_SCALE = float(np.log(1000 / 16))  # Detectron's bound: keeps exp() of bad predictions finite


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


def pyramid(maps, channels=PYRAMID_CHANNELS):
    """Adds deep features to shallow maps ("Feature Pyramid Networks", arXiv:1612.03144)."""
    merged = [keras.layers.Conv2D(channels, 1)(maps[-1])]
    for shallow in reversed(maps[:-1]):
        deep = keras.layers.UpSampling2D()(merged[-1])
        merged.append(keras.layers.Add()([keras.layers.Conv2D(channels, 1)(shallow), deep]))
    return [conv(x, channels) for x in reversed(merged)]


def decode(proposals, deltas):
    """Moves and scales boxes [..., 4], x1 y1 x2 y2, by R-CNN's deltas (dx, dy, log dw, log dh)."""
    size = proposals[..., 2:] - proposals[..., :2]
    center = proposals[..., :2] + size / 2
    deltas = deltas * DELTA_SCALES
    center = center + deltas[..., :2] * size
    size = size * keras.ops.exp(keras.ops.minimum(deltas[..., 2:], MAX_LOG_SCALE))
    return keras.ops.concatenate([center - size / 2, center + size / 2], -1)


def build() -> keras.Model:
    """Builds the network from (image, proposals) to (classes, boxes).

    The inputs are image [N, H, W, 3] in [0, 255] and proposals [N, R, 4], x1 y1 x2 y2 in its
    pixels. The outputs are logits [N, R, 1 + classes], background first, and the refined
    boxes [N, R, 4].
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
    x = keras.layers.Reshape([-1, 7 * 7 * PYRAMID_CHANNELS])(regions)
    for _ in range(2):
        x = keras.layers.Dense(128, activation="relu")(x)
    classes = keras.layers.Dense(1 + len(CLASSES), name="classes")(x)
    # One box for all classes, as in Cascade R-CNN. Initially it equals the proposal.
    deltas = keras.layers.Dense(4, kernel_initializer="zeros", name="deltas")(x)
    boxes = keras.layers.Identity(name="boxes")(decode(rois, deltas))
    return keras.Model({"image": image, "proposals": proposals}, {"classes": classes, "boxes": boxes})


def refine(network: keras.Model, images: tf.Tensor, proposals: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the refined boxes [N, R, 4] and probabilities [N, R, 1 + classes], background first."""
    outputs = network({"image": images, "proposals": proposals}, training=False)
    return tf.clip_by_value(outputs["boxes"], 0.0, SIZE), tf.nn.softmax(outputs["classes"])


class Detector(tf.Module):
    """The exported module: photographs of any size in, detections out."""

    def __init__(self, network: keras.Model):
        super().__init__()
        self.network = network
        self.proposals = grid()
        self.class_names = tf.Variable(CLASSES, trainable=False)  # a variable, so that the loaded module has it, too

    def candidates(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a box [N, R, 4] and its scores [N, R, classes] for each proposal in images [N, SIZE, SIZE, 3].

        Refines the boxes twice, as in "Cascade R-CNN" (arXiv:1712.00726), but with the same
        head.
        """
        boxes = tf.repeat(self.proposals[tf.newaxis], tf.shape(images)[0], axis=0)
        for _ in range(2):
            boxes, probabilities = refine(self.network, images, boxes)
        return boxes, probabilities[..., 1:]

    def find(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the signs in images [N, SIZE, SIZE, 3]: one box for each, by decreasing score."""
        boxes, scores = self.candidates(images)
        found = tfo.detection.multiclass_nms(
            boxes, scores, iou_threshold=0.5, score_threshold=MIN_SCORE, max_outputs=MAX_DETECTIONS
        )
        return {
            "boxes": found.boxes,  # [N, MAX_DETECTIONS, 4], zeros from counts on
            "scores": found.scores,
            "classes": found.class_ids,
            "counts": found.counts,  # [N]
        }

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8, name="images")])
    def detect(self, images):
        """Finds the signs in images [N, H, W, 3] of any size, with boxes in their pixels."""
        # Scales the longer side to SIZE, and pads the other one.
        size = tf.cast(tf.shape(images)[1:3], tf.float32)
        scale = SIZE / tf.reduce_max(size)
        scaled = tf.image.resize(images, tf.cast(tf.round(scale * size), tf.int32), antialias=True)
        found = self.find(tf.image.pad_to_bounding_box(scaled, 0, 0, SIZE, SIZE))
        return {**found, "boxes": found["boxes"] / scale}


class Detections(NamedTuple):
    """The detections in an image, by decreasing score."""

    boxes: np.ndarray  # float32 [M, 4]
    classes: np.ndarray  # int32 [M], indices into CLASSES
    scores: np.ndarray  # float32 [M]

    def first(self, count: int) -> "Detections":
        """Returns the detections with the highest scores."""
        return Detections(*(x[:count] for x in self))

    def at_least(self, score: float) -> "Detections":
        """Returns the detections with this score or a higher one."""
        return self.first(np.count_nonzero(self.scores >= score))


def detect(detector: Detector, images: np.ndarray) -> Iterator[Detections]:
    """Finds the signs in each of the images, a batch at a time."""
    for start in range(0, len(images), DETECT_BATCH):
        found = detector.detect(images[start : start + DETECT_BATCH])
        found = {name: value.numpy() for name, value in found.items()}
        for i, count in enumerate(found["counts"]):
            yield Detections(found["boxes"][i], found["classes"][i], found["scores"][i]).first(count)


def average_precision(scenes: Sequence[Scene], found: Sequence[Detections]) -> dict[str, float]:
    """Returns COCO's numbers, such as "AP", "AP50" and "AP75", of the detections of each image."""
    metric = tfo.metrics.MeanAveragePrecision()
    for scene, detections in zip(scenes, found, strict=True):
        truth = {"boxes": scene.boxes[np.newaxis], "classes": scene.classes[np.newaxis]}
        metric.update_state(truth, {name: x[np.newaxis] for name, x in detections._asdict().items()})
    return {name: float(value) for name, value in metric.result().items()}


def export(detector: Detector, scenes: Sequence[Scene], folder: pathlib.Path) -> list[pathlib.Path]:
    """Saves the detector as a SavedModel, and the scenes' photographs beside it; returns the photographs' paths."""
    tf.saved_model.save(detector, folder, signatures=detector.detect)
    photographs = [folder.parent / f"scene_{i}.png" for i in range(len(scenes))]
    for scene, path in zip(scenes, photographs, strict=True):
        Image.fromarray(scene.image).save(path)
    return photographs
