"""Trains a classifier of distorted digits without and with a spatial transformer, and measures what the latter learns.

    python examples/spatial_transformer/train.py

The labels are all that the networks see: nothing says how far a digit is turned. Exits
with status 1 if the transformer does not learn to straighten the digits, or does not help.
Takes about a minute on two cores.
"""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))  # for training.py

import affine
import data
import keras
import model
import numpy as np
import picture
import tensorflow as tf
import training
from absl import flags

import tensorflow_ops as tfo

BATCH_SIZE, EVALUATION_BATCH, EPOCHS = 64, 300, 5
COPIES = 4  # of each held-out digit, with distortions of their own
# How much higher the accuracy with the transformer has to be, and the largest angle left, in degrees.
NEEDED_GAIN, LARGEST_ANGLE_LEFT = 0.1, 15.0

FLAGS = training.define_flags("spatial_transformer", steps=1000, multiple_of=EPOCHS)
flags.DEFINE_float("at_least", 0.95, "the accuracy that the network with the transformer has to reach")


def train(transformer: bool, digits: data.Digits) -> keras.Model:
    """Returns a network trained with the labels alone."""
    keras.utils.set_random_seed(FLAGS.seed)  # the same for both
    network = model.build(transformer)
    batches = data.training_batches(digits, FLAGS.seed, BATCH_SIZE)
    loss = tfo.losses.SparseSoftmaxCrossEntropy()
    print(f"\n{'with' if transformer else 'without'} a spatial transformer:")
    training.fit(network, batches, loss, learning_rate=3e-3, epochs=EPOCHS, clipnorm=1.0)
    return network


def accuracy(network: keras.Model, held_out: data.Distorted) -> float:
    """Returns the fraction of digits that the network recognises."""
    logits = network.predict(held_out.images, EVALUATION_BATCH, verbose=0)
    return np.mean(logits.argmax(-1) == held_out.labels)


def spread(transforms: tf.Tensor) -> dict[str, float]:
    """Measures how much the digits differ in angle (degrees), size (a factor) and place (pixels), after transforms."""
    digit = affine.invert(transforms)  # from the digit to its place on the canvas
    sizes = tf.math.log(tf.abs(tf.linalg.det(digit[..., :2]))) / 2
    offsets = digit[..., 2] * data.SIZE / 2
    return {
        "angle, degrees": np.abs(np.rad2deg(affine.angle_of(transforms))).mean(),
        "size, factor": np.exp(np.std(sizes)),
        "place, pixels": np.linalg.norm(offsets - np.mean(offsets, 0), axis=-1).mean(),
    }


def main(output: pathlib.Path) -> None:
    digits = data.load(training=True)
    held_out = data.evaluation_set(data.load(training=False), FLAGS.seed + 1, COPIES)
    without, network = (train(transformer, digits) for transformer in (False, True))

    # Measures and draws with the network loaded from the file.
    network.save(output / "classifier.keras")
    network = keras.saving.load_model(output / "classifier.keras")
    plain, transformed = (accuracy(each, held_out) for each in (without, network))
    found = model.parts(network).predict(held_out.images, EVALUATION_BATCH, verbose=0)
    before = spread(held_out.transforms)
    after = spread(affine.compose(held_out.transforms, found["transform"]))

    print(f"\n{'on held-out digits':22}{'without':>12}{'with the transformer':>24}")
    print(f"{'accuracy':22}{plain:12.3f}{transformed:24.3f}")
    print(f"\n{'differences of digits':22}{'on canvases':>12}{'straightened':>24}")
    for name, value in before.items():
        print(f"{name:22}{value:12.2f}{after[name]:24.2f}")
    picture.draw(held_out, found["straightened"]).save(output / "straightened.png")
    print(f"\n{output / 'classifier.keras'}\n{output / 'straightened.png'}")

    angle, at_least = after["angle, degrees"], FLAGS.at_least
    training.need(transformed >= at_least, f"NOT LEARNT: the accuracy is {transformed:.3f}, expected {at_least}")
    training.need(
        transformed >= plain + NEEDED_GAIN,
        f"NO BETTER: the accuracy is {transformed:.3f}, without the transformer {plain:.3f}",
    )
    training.need(angle <= LARGEST_ANGLE_LEFT, f"NOT STRAIGHT: an angle of {angle:.1f} degrees is left")


if __name__ == "__main__":
    training.run(main)
