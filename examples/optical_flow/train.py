"""Trains two networks of optical flow, with and without a correlation of the views' features, and compares them.

    python examples/optical_flow/train.py

The flow is known because it made the first view. Exits with status 1 if the network with
the correlation misses the flow by too much, or by more than half of what the other does.
Takes about a minute on two cores.
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
from absl import flags

HELD_OUT_PAIRS, BATCH_SIZE, EVALUATION_BATCH, EPOCHS = 100, 16, 20, 5

FLAGS = training.define_flags("optical_flow", steps=200, multiple_of=EPOCHS)
flags.DEFINE_float("at_most", 2.0, "the largest mean endpoint error, in pixels, of the network with the correlation")


def inputs_and_targets(pair: data.Pair) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Returns pairs as `keras.Model.fit` takes them. Both estimates have the same target."""
    return {"first": pair.first, "second": pair.second}, {"coarse": pair.flow, "fine": pair.flow}


def main(output: pathlib.Path) -> None:
    batches = data.pairs(data.photographs(training=True), 2 * FLAGS.seed, BATCH_SIZE).map(inputs_and_targets)
    held_out = next(iter(data.pairs(data.photographs(training=False), 2 * FLAGS.seed + 1, HELD_OUT_PAIRS)))
    inputs, _ = inputs_and_targets(held_out)
    losses = {"coarse": model.endpoint_error, "fine": model.endpoint_error}
    weights = {"coarse": 0.5, "fine": 1.0}
    estimates = {}
    for name, correlate in (("concatenation", False), ("correlation", True)):
        keras.utils.set_random_seed(FLAGS.seed)  # the same for both
        network = model.build(correlate)
        print(f"\n{name}:")
        training.fit(network, batches, losses, learning_rate=3e-3, epochs=EPOCHS, clipnorm=1.0, loss_weights=weights)
        # Measures and draws with the network loaded from the file.
        network.save(output / f"{name}.keras")
        network = keras.saving.load_model(output / f"{name}.keras", compile=False)
        estimates[name] = network.predict(inputs, EVALUATION_BATCH, verbose=0)["fine"]

    flows = {"no motion": np.zeros(held_out.flow.shape, np.float32), **estimates}
    errors = {name: model.endpoint_error(held_out.flow, flow).numpy() for name, flow in flows.items()}
    print(f"\n{'on held-out photographs':24}{'endpoint error':>16}{'below 1 pixel':>16}")
    for name, error in errors.items():
        print(f"{name:24}{error.mean():16.3f}{np.mean(error < 1):16.3f}")
    shown = data.Pair(*(x[:4] for x in held_out))
    picture.draw(shown, {name: flow[:4] for name, flow in estimates.items()}).save(output / "flow.png")
    print(f"\n{output / 'correlation.keras'}\n{output / 'flow.png'}")

    error, other = errors["correlation"].mean(), errors["concatenation"].mean()
    training.need(error <= FLAGS.at_most, f"NOT LEARNT: the endpoint error is {error:.3f}, expected {FLAGS.at_most}")
    training.need(
        error <= other / 2, f"NO BETTER: the endpoint error is {error:.3f}, without the correlation {other:.3f}"
    )


if __name__ == "__main__":
    training.run(main)
