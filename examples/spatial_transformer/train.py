"""Trains a classifier of distorted digits without and with a spatial transformer, and measures what the latter learns.

    python examples/spatial_transformer/train.py

The labels are all that the networks see: nothing says how far a digit is turned. Exits
with status 1 if the transformer does not learn to straighten the digits, or does not help.
Takes about a minute on two cores.
"""

import os
import pathlib
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import affine
import data
import keras
import model
import numpy as np
import picture
import tensorflow as tf
from absl import app, flags

import tensorflow_ops as tfo

BATCH_SIZE, EVALUATION_BATCH = 64, 300
LEARNING_RATE = 3e-3
EPOCHS = 5
COPIES = 4  # of each held-out digit, with distortions of their own
# How much higher the accuracy with the transformer has to be, and the largest angle left, in degrees.
NEEDED_GAIN, LARGEST_ANGLE_LEFT = 0.1, 15.0

FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 1000, f"training steps of each network, a multiple of {EPOCHS}", lower_bound=EPOCHS)
flags.register_validator("steps", lambda steps: steps % EPOCHS == 0, f"expected a multiple of {EPOCHS}")
flags.DEFINE_integer("seed", 0, "seed of the distortions, the batches and the weights", lower_bound=0)
flags.DEFINE_float("at_least", 0.95, "the accuracy that the network with the transformer has to reach")
flags.DEFINE_string("output", "build/spatial_transformer", "the folder for the network and the picture")


def train(network: keras.Model, digits: data.Digits, steps: int, seed: int) -> None:
    """Trains with the labels alone."""
    network.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps), global_clipnorm=1.0),
        tfo.losses.SparseSoftmaxCrossEntropy(),
        jit_compile=False,
    )
    batches = data.training_batches(digits, seed, BATCH_SIZE)
    start = time.monotonic()
    network.fit(batches, epochs=EPOCHS, steps_per_epoch=steps // EPOCHS, verbose=2)
    print(f"{network.count_params()} weights, {steps} steps in {time.monotonic() - start:.0f} s", flush=True)


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


def main(argv: list[str]) -> None:
    """Runs the example."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    output = pathlib.Path(FLAGS.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    tf.config.experimental.enable_op_determinism()

    print(f"tensorflow_ops {tfo.__version__} from {pathlib.Path(tfo.__file__).parent}")
    training = data.load(training=True)
    held_out = data.evaluation_set(data.load(training=False), FLAGS.seed + 1, COPIES)
    networks = {}
    for transformer in (False, True):
        keras.utils.set_random_seed(FLAGS.seed)  # for Python, NumPy and TensorFlow
        networks[transformer] = model.build(transformer)
        print(f"\n{'with' if transformer else 'without'} a spatial transformer:")
        train(networks[transformer], training, FLAGS.steps, FLAGS.seed)

    # Measures and draws with the network loaded from the file.
    networks[True].save(output / "classifier.keras")
    networks[True] = keras.saving.load_model(output / "classifier.keras")
    plain, transformed = (accuracy(networks[key], held_out) for key in (False, True))
    found = model.parts(networks[True]).predict(held_out.images, EVALUATION_BATCH, verbose=0)
    before = spread(held_out.transforms)
    after = spread(affine.compose(held_out.transforms, found["transform"]))

    print(f"\n{'on held-out digits':22}{'without':>12}{'with the transformer':>24}")
    print(f"{'accuracy':22}{plain:12.3f}{transformed:24.3f}")
    print(f"\n{'differences of digits':22}{'on canvases':>12}{'straightened':>24}")
    for name, value in before.items():
        print(f"{name:22}{value:12.2f}{after[name]:24.2f}")
    picture.draw(held_out, found["straightened"]).save(output / "straightened.png")
    print(f"\n{output / 'classifier.keras'}\n{output / 'straightened.png'}")

    if FLAGS.steps < FLAGS["steps"].default:
        print(f"{FLAGS.steps} steps: the needed quality is not checked")
        return
    if not transformed >= FLAGS.at_least:
        raise SystemExit(f"NOT LEARNT: the accuracy is {transformed:.3f}, expected {FLAGS.at_least}")
    if not transformed >= plain + NEEDED_GAIN:
        raise SystemExit(f"NO BETTER: the accuracy is {transformed:.3f}, without the transformer {plain:.3f}")
    if not after["angle, degrees"] <= LARGEST_ANGLE_LEFT:
        raise SystemExit(f"NOT STRAIGHT: an angle of {after['angle, degrees']:.1f} degrees is left")


if __name__ == "__main__":
    app.run(main)
