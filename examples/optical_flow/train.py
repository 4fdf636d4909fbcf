"""Trains two networks of optical flow, with and without a correlation of the views' features, and compares them.

    python examples/optical_flow/train.py

The flow is known because it made the first view. Exits with status 1 if the network with
the correlation misses the flow by too much, or by more than half of what the other does.
Takes about a minute on two cores.
"""

import os
import pathlib
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import data
import keras
import model
import numpy as np
import picture
import tensorflow as tf
from absl import app, flags

import tensorflow_ops as tfo

HELD_OUT_PAIRS = 100
BATCH_SIZE, EVALUATION_BATCH = 16, 20
LEARNING_RATE = 3e-3
EPOCHS = 5

FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 200, f"training steps of each network, a multiple of {EPOCHS}", lower_bound=EPOCHS)
flags.register_validator("steps", lambda steps: steps % EPOCHS == 0, f"expected a multiple of {EPOCHS}")
flags.DEFINE_integer("seed", 0, "seed of the views, the flows and the weights", lower_bound=0)
flags.DEFINE_float("at_most", 2.0, "the largest mean endpoint error, in pixels, of the network with the correlation")
flags.DEFINE_string("output", "build/optical_flow", "the folder for the network and the picture")


def inputs_and_targets(pair: data.Pair) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Returns pairs as `keras.Model.fit` takes them. Both estimates have the same target."""
    return {"first": pair.first, "second": pair.second}, {"coarse": pair.flow, "fine": pair.flow}


def train(network: keras.Model, batches: tf.data.Dataset, steps: int) -> None:
    """Trains with the endpoint error of both estimates."""
    network.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps), global_clipnorm=1.0),
        {"coarse": model.endpoint_error, "fine": model.endpoint_error},
        loss_weights={"coarse": 0.5, "fine": 1.0},
        jit_compile=False,
    )
    start = time.monotonic()
    network.fit(batches.map(inputs_and_targets), epochs=EPOCHS, steps_per_epoch=steps // EPOCHS, verbose=2)
    print(f"{network.count_params()} weights, {steps} steps in {time.monotonic() - start:.0f} s", flush=True)


def main(argv: list[str]) -> None:
    """Runs the example."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    output = pathlib.Path(FLAGS.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    tf.config.experimental.enable_op_determinism()

    print(f"tensorflow_ops {tfo.__version__} from {pathlib.Path(tfo.__file__).parent}")
    training = data.pairs(data.photographs(training=True), 2 * FLAGS.seed, BATCH_SIZE)
    held_out = next(iter(data.pairs(data.photographs(training=False), 2 * FLAGS.seed + 1, HELD_OUT_PAIRS)))
    inputs, _ = inputs_and_targets(held_out)
    estimates = {}
    for name, correlate in (("concatenation", False), ("correlation", True)):
        keras.utils.set_random_seed(FLAGS.seed)  # for Python, NumPy and TensorFlow
        network = model.build(correlate)
        print(f"\n{name}:")
        train(network, training, FLAGS.steps)
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

    if FLAGS.steps < FLAGS["steps"].default:
        print(f"{FLAGS.steps} steps: the needed quality is not checked")
        return
    error, other = errors["correlation"].mean(), errors["concatenation"].mean()
    if not error <= FLAGS.at_most:
        raise SystemExit(f"NOT LEARNT: the endpoint error is {error:.3f}, expected {FLAGS.at_most}")
    if not error <= other / 2:
        raise SystemExit(f"NO BETTER: the endpoint error is {error:.3f}, without the correlation {other:.3f}")


if __name__ == "__main__":
    app.run(main)
