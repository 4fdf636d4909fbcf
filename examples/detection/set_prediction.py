"""Trains a detector that predicts a set of traffic signs: learned queries, no proposals, no suppression.

    python examples/detection/set_prediction.py

A small DETR ("End-to-End Object Detection with Transformers", arXiv:2005.12872): queries read
the feature pyramid by deformable attention and move their boxes in each layer of the decoder.
In training, `tfo.detection.linear_sum_assignment` gives each sign one query, so that the
others learn to be silent. Exits with status 1 if the quality on held-out backgrounds is too
low. Takes two minutes on two cores.
"""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))  # for training.py

import data
import keras
import model
import numpy as np
import picture
import tensorflow as tf
import training

import tensorflow_ops as tfo

TRAINING_SCENES, HELD_OUT_SCENES = 800, 60
BATCH_SIZE, EPOCHS = 8, 10
STRIDES = (8, 16)  # of the maps that queries read
GRID, CHANNELS, HEADS, LAYERS = 8, 64, 4, 3  # GRID * GRID queries
COSTS = {"classes": 2.0, "l1": 5.0, "giou": 2.0}  # of a pair, and weights of its losses: those of Deformable DETR
NEEDED = 0.8  # AP50 on the held-out scenes

FLAGS = training.define_flags("detection", steps=600, multiple_of=EPOCHS)


@keras.saving.register_keras_serializable("set_prediction")
class Queries(keras.layers.Layer):
    """Learned queries and their first boxes, the same for each image."""

    def build(self, input_shape):
        x, y = np.meshgrid(*[(np.arange(GRID) + 0.5) / GRID] * 2)
        boxes = np.stack([x, y, np.full_like(x, 0.2), np.full_like(x, 0.2)], -1).reshape([-1, 4])
        self.features = self.add_weight(shape=[len(boxes), CHANNELS], name="features")
        first = keras.initializers.Constant(np.log(boxes / (1 - boxes)))
        self.boxes = self.add_weight(shape=boxes.shape, initializer=first, name="boxes")

    def call(self, maps):
        count = tf.shape(maps)[0]
        return [tf.repeat(x[tf.newaxis], count, axis=0) for x in (self.features, self.boxes)]


def add(x, change):
    """Residual connection and layer normalisation."""
    return keras.layers.LayerNormalization()(x + change)


def dense(x, *units, **options):
    """Dense layers with ReLU between them; `options` are those of the last."""
    for count in units[:-1]:
        x = keras.layers.Dense(count, "relu")(x)
    return keras.layers.Dense(units[-1], **options)(x)


def build() -> keras.Model:
    """Builds the network from images [N, SIZE, SIZE, 3] to (classes, boxes) of Q queries after each of L layers.

    The outputs are logits [N, L, Q, classes] and boxes [N, L, Q, 4], x1 y1 x2 y2 as fractions
    of the image.
    """
    image = keras.Input([data.SIZE, data.SIZE, 3], name="image")
    maps = model.pyramid(model.backbone(image)[-len(STRIDES) :], CHANNELS)
    shapes = [[data.SIZE // stride] * 2 for stride in STRIDES]
    values = keras.layers.Concatenate(1)([keras.layers.Reshape([-1, CHANNELS])(x) for x in maps])
    x, logits = Queries()(values)
    rare = keras.initializers.Constant(-np.log(0.99 / 0.01))  # most queries find nothing: a prior of "Focal Loss"
    results = []
    for _ in range(LAYERS):
        boxes = keras.ops.sigmoid(logits)
        place = dense(boxes, CHANNELS, CHANNELS)
        x = add(x, tfo.layers.MultiHeadAttention(HEADS, CHANNELS // HEADS)(x + place, x, x + place))
        reference = keras.ops.repeat(boxes[:, :, None], len(STRIDES), axis=2)
        attend = tfo.layers.MultiScaleDeformableAttention(HEADS, len(STRIDES), 4)
        x = add(x, attend(x + place, reference, values, spatial_shapes=shapes))
        x = add(x, dense(x, 4 * CHANNELS, CHANNELS))
        logits = logits + dense(x, CHANNELS, 4, kernel_initializer="zeros")
        centers, sizes = keras.ops.split(keras.ops.sigmoid(logits), 2, -1)
        corners = keras.ops.concatenate([centers - sizes / 2, centers + sizes / 2], -1)
        results.append((dense(x, len(data.CLASSES), bias_initializer=rare), corners))
        logits = keras.ops.stop_gradient(logits)  # a layer refines what the one before has found, as in Deformable DETR
    classes, boxes = (keras.ops.stack(x, axis=1) for x in zip(*results, strict=True))
    return SetPredictor(image, {"classes": classes, "boxes": boxes})


def focal_loss(targets, logits):
    """Returns the loss of "Focal Loss for Dense Object Detection" (arXiv:1708.02002) of each logit."""
    loss = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)
    p = tf.sigmoid(logits)
    return loss * tf.abs(targets - p) ** 2 * (0.25 * targets + 0.75 * (1 - targets))


@keras.saving.register_keras_serializable("set_prediction")
class SetPredictor(keras.Model):
    """A network whose loss compares sets. Truth: boxes [N, M, 4], and classes [N, M], -1 for padding."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        del x, sample_weight, training
        logits, boxes = y_pred["classes"], y_pred["boxes"]
        truth = tf.repeat(y["boxes"][:, tf.newaxis], LAYERS, axis=1)
        labels = tf.repeat(y["classes"][:, tf.newaxis], LAYERS, axis=1)
        counts = tf.math.count_nonzero(labels >= 0, -1)
        total = tf.cast(tf.reduce_sum(counts), tf.float32) / LAYERS

        # The cost of each query for each sign.
        found, missed = focal_loss(tf.ones_like(logits), logits), focal_loss(tf.zeros_like(logits), logits)
        costs = COSTS["classes"] * tf.gather(found - missed, tf.maximum(labels, 0), axis=-1, batch_dims=2)
        costs += COSTS["l1"] * tf.reduce_sum(tf.abs(boxes[:, :, :, tf.newaxis] - truth[:, :, tf.newaxis]), -1)
        costs -= COSTS["giou"] * tfo.detection.box_iou(boxes, truth, mode="giou")
        columns, rows = tfo.detection.linear_sum_assignment(costs, counts=counts)

        # Of matched queries, the box and the class; of all others, that they are of no class.
        is_sign = tf.cast(rows >= 0, tf.float32)
        matched = tf.gather(boxes, tf.maximum(rows, 0), axis=2, batch_dims=2)
        l1 = tf.reduce_sum(tf.abs(matched - truth), -1)
        giou = tfo.detection.box_iou_loss(matched, truth, mode="giou")
        label = tf.where(columns >= 0, tf.gather(labels, tf.maximum(columns, 0), axis=2, batch_dims=2), -1)
        classes = focal_loss(tf.one_hot(label, logits.shape[-1]), logits)
        loss = COSTS["classes"] * tf.reduce_sum(classes)
        loss += tf.reduce_sum(is_sign * (COSTS["l1"] * l1 + COSTS["giou"] * giou))
        return loss / total


class Detector(model.Detector):
    """The exported module: photographs of any size in, detections out."""

    def find(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the signs in images [N, SIZE, SIZE, 3]: the class of each query, by decreasing score."""
        outputs = self.network(images, training=False)
        scores = tf.sigmoid(outputs["classes"][:, -1])
        best, order = tf.math.top_k(tf.reduce_max(scores, -1), model.MAX_DETECTIONS)
        classes = tf.argmax(scores, -1, tf.int32)
        boxes = tf.clip_by_value(outputs["boxes"][:, -1], 0.0, 1.0) * data.SIZE
        return {
            "boxes": tf.gather(boxes, order, batch_dims=1),
            "scores": best,
            "classes": tf.gather(classes, order, batch_dims=1),
            "counts": tf.fill([tf.shape(images)[0]], model.MAX_DETECTIONS),
        }


def training_batches(scenes: list[data.Scene]) -> tf.data.Dataset:
    """Endless batches of (images, truth)."""
    classes = keras.utils.pad_sequences([x.classes for x in scenes], data.MOST_SIGNS, padding="post", value=-1)
    boxes = keras.utils.pad_sequences([x.boxes for x in scenes], data.MOST_SIGNS, "float32", "post") / data.SIZE
    dataset = tf.data.Dataset.from_tensor_slices((data.images_of(scenes), {"boxes": boxes, "classes": classes}))
    return dataset.shuffle(len(scenes), FLAGS.seed).repeat().batch(BATCH_SIZE)


def main(output: pathlib.Path) -> None:
    scenes = data.draw_scenes(min(TRAINING_SCENES, BATCH_SIZE * FLAGS.steps), training=True, seed=[FLAGS.seed, 0])
    held_out = data.draw_scenes(min(HELD_OUT_SCENES, 2 * FLAGS.steps), training=False, seed=[FLAGS.seed, 1])
    images = data.images_of(held_out)
    shown = [i for i, scene in enumerate(held_out) if len(scene.boxes) >= 3][:4]
    print(f"{len(scenes)} scenes for training, {len(held_out)} held out")

    detector = Detector(build())
    untrained = list(model.detect(detector, images))
    training.fit(detector.network, training_batches(scenes), None, learning_rate=2e-3, epochs=EPOCHS, clipnorm=1.0)

    # Measures, draws and exports with the network loaded from the file.
    detector.network.save(output / "set_prediction.keras")
    detector = Detector(keras.saving.load_model(output / "set_prediction.keras"))
    trained = list(model.detect(detector, images))
    before, after = (model.average_precision(held_out, found) for found in (untrained, trained))

    print(f"\n{'on held-out backgrounds':24}{'untrained':>12}{'trained':>12}")
    for name in ("AP", "AP50", "AP75"):
        print(f"{name:24}{before[name]:12.3f}{after[name]:12.3f}")
    rows = {
        "Untrained: the three queries that are surest": [(i, untrained[i].first(3)) for i in shown],
        "Trained: all with a score of 0.4 or more, without suppression": [(i, trained[i].at_least(0.4)) for i in shown],
    }
    tiles = {
        heading: [picture.draw_detections(held_out[i], found) for i, found in row] for heading, row in rows.items()
    }
    picture.draw_rows(tiles).save(output / "set_prediction.png")
    photographs = model.export(detector, [held_out[i] for i in shown[:2]], output / "set_predictor")
    training.load_in_new_process("serve.py", output / "set_predictor", *photographs)
    print(f"\n{output / 'set_prediction.keras'}\n{output / 'set_prediction.png'}")
    training.need(after["AP50"] >= NEEDED, f"NOT LEARNT: AP50 is {after['AP50']:.3f}, expected {NEEDED}")


if __name__ == "__main__":
    training.run(main)
