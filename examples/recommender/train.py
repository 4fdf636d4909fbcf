"""Trains a recommender with three large tables by Adam and by LazyAdam, compares both, saves one and loads it.

    python examples/recommender/train.py

Exits with status 1 if the two differ in quality, if they are too far from the true
probabilities, or if the loaded model recommends other films. Takes a minute on two cores.
"""

import os
import pathlib
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))  # for training.py

import data
import keras
import model
import numpy as np
import recommend
import tensorflow as tf
import training
from absl import flags

import tensorflow_ops as tfo

BATCH_SIZE, HELD_OUT_BATCHES, LEARNING_RATE = 2048, 50, 0.03
TIMED_STEPS = 20  # of Keras's own Adam, which is too slow for all steps
LARGEST_DIFFERENCE = 0.01  # of the AUC by LazyAdam from that by Adam

FLAGS = training.define_flags("recommender", steps=1000, multiple_of=1)
flags.DEFINE_float("at_least", 0.85, "how far the AUC must exceed 0.5, as a fraction of the best possible")


class Clock(keras.callbacks.Callback):
    """Measures the time of each step."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds.append(time.perf_counter() - self.start)


def train(optimizer: type[keras.optimizers.Adam], batches: tf.data.Dataset) -> tuple[keras.Model, float]:
    """Returns a network and the median time of a step, in ms. The seed alone decides the first weights."""
    keras.utils.set_random_seed(FLAGS.seed)
    network, clock = model.build(), Clock()
    schedule = keras.optimizers.schedules.CosineDecay(LEARNING_RATE, FLAGS.steps)
    network.compile(optimizer(schedule), keras.losses.BinaryCrossentropy(from_logits=True))
    network.fit(batches, verbose=0, callbacks=[clock])
    return network, 1e3 * np.median(clock.seconds)


def predict(network: keras.Model, clicks: data.Clicks) -> np.ndarray:
    """Returns the network's probabilities of clicks."""
    batches = tf.data.Dataset.from_tensor_slices(clicks.inputs)
    return tf.sigmoid(network.predict(batches, verbose=0)).numpy()


def area(probabilities: np.ndarray, clicks: data.Clicks) -> float:
    """Returns the AUC: how often a film with a click has a higher probability than one without."""
    metric = keras.metrics.AUC(num_thresholds=1000)
    metric.update_state(clicks.clicked.reshape(-1), probabilities.reshape(-1))
    return float(metric.result())


def main(output: pathlib.Path) -> None:
    world = data.create_world([FLAGS.seed, 0])
    clicks = data.draw_clicks(world, [FLAGS.steps, BATCH_SIZE], [FLAGS.seed, 1])
    held_out = data.draw_clicks(world, [HELD_OUT_BATCHES, BATCH_SIZE], [FLAGS.seed, 2])
    batches = tf.data.Dataset.from_tensor_slices((clicks.inputs, clicks.clicked))
    for key, names in clicks.inputs.items():
        print(f"{key:6}{len(set(names[0].flat)):6} names in a batch, {model.ROWS} rows")

    print(f"\n{'':24}ms a step{'AUC, held out':>17}")
    _, milliseconds = train(keras.optimizers.Adam, batches.take(TIMED_STEPS))
    print(f"{'Adam':24}{milliseconds:9.1f}", flush=True)
    with tfo.layers.use_fused_ops(["optimizers"]):
        network, milliseconds = train(keras.optimizers.Adam, batches)
    by_adam = area(predict(network, held_out), held_out)
    print(f"{'Adam, use_fused_ops':24}{milliseconds:9.1f}{by_adam:17.4f}", flush=True)
    network, milliseconds = train(tfo.optimizers.LazyAdam, batches)
    by_lazy_adam = area(predict(network, held_out), held_out)
    print(f"{'LazyAdam':24}{milliseconds:9.1f}{by_lazy_adam:17.4f}")
    best = area(held_out.probabilities, held_out)
    print(f"{'true probabilities':33}{best:17.4f}\n")

    user, words = world.names["user"][0], world.names["words"][: data.TYPED]
    tastes = sorted(zip(world.tastes[0], data.GENRES, strict=True), reverse=True)
    print(f"{user} likes " + ", ".join(f"{genre} {taste:.1f}" for taste, genre in tastes))
    print(f"{user} types " + ", ".join(words))
    network.save(output / "recommender.keras")
    (output / "films.txt").write_text("\n".join(world.names["film"]))
    printed = training.load_in_new_process(
        "recommend.py", output / "recommender.keras", output / "films.txt", user, *words
    )

    if printed != recommend.recommend(network, world.names["film"], user, words):
        raise SystemExit("NOT THE SAME: the loaded network recommends other films")
    difference = abs(by_lazy_adam - by_adam)
    training.need(difference <= LARGEST_DIFFERENCE, f"NOT AS GOOD: the AUC by LazyAdam differs by {difference:.3f}")
    least = 0.5 + FLAGS.at_least * (best - 0.5)
    training.need(by_lazy_adam >= least, f"NOT LEARNT: the AUC is {by_lazy_adam:.3f}, expected {least:.3f}")


if __name__ == "__main__":
    training.run(main)
