"""Trains a network to read lines of digits with CTC, compares the searches that read its output, exports and serves.

    python examples/digit_lines/train.py

The lines are article numbers with a check digit. The network does not know that, but a
search can. Exits with status 1 if too few lines are read correctly. Takes less than a
minute on two cores.
"""

import os
import pathlib
import subprocess
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import data
import keras
import model
import numpy as np
import picture
import tensorflow as tf
from absl import app, flags
from PIL import Image

import tensorflow_ops as tfo

TRAINING_LINES, HELD_OUT_LINES = 16000, 1000
BATCH_SIZE, EPOCHS = 32, 5
LEARNING_RATE = 3e-3
SEARCHES = {"greedy": model.read_greedily, "beam": model.read_by_beam, "beam + check digit": model.read_by_rule}

FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 720, f"training steps, a multiple of {EPOCHS}", lower_bound=EPOCHS)
flags.register_validator("steps", lambda steps: steps % EPOCHS == 0, f"expected a multiple of {EPOCHS}")
flags.DEFINE_integer("seed", 0, "seed of the lines and the weights", lower_bound=0)
flags.DEFINE_float("at_least", 0.95, "needed share of right lines by beam search with the check digit")
flags.DEFINE_string("output", "build/digit_lines", "the folder for the model and the picture")


def train(network: keras.Model, lines: data.Lines, steps: int) -> None:
    """Trains with CTC, which needs no positions of the digits."""
    schedule = keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps)
    network.compile(keras.optimizers.Adam(schedule), tfo.losses.CTC(blank_index=model.BLANK))
    labels = model.labels_of(lines.numbers)
    batches = tf.data.Dataset.from_tensor_slices((lines.images, labels)).repeat().batch(BATCH_SIZE).prefetch(2)
    network.fit(batches, epochs=EPOCHS, steps_per_epoch=steps // EPOCHS, verbose=2)


def shown_lines(texts: dict[str, list[str]], truth: list[str]) -> list[int]:
    """Returns a line that greedy search reads correctly, and three that it does not and the check digit corrects.

    If the check digit makes no line right, returns the first four.
    """
    greedy, *_, rule = (np.array(found) == np.array(truth) for found in texts.values())
    return [*np.flatnonzero(greedy & rule)[:1], *np.flatnonzero(~greedy & rule)[:3]] or [0, 1, 2, 3]


def serve(network: keras.Model, images: np.ndarray, folder: pathlib.Path) -> list[str]:
    """Saves the network and its search as a SavedModel, and reads lines with it in a new process."""
    reader = model.Reader(network)
    tf.saved_model.save(reader, folder, signatures=reader.read)
    paths = [folder.parent / f"line_{i}.png" for i in range(len(images))]
    for image, path in zip(images, paths, strict=True):
        Image.fromarray(image[..., 0]).save(path)
    program = pathlib.Path(__file__).with_name("serve.py")
    isolation = ["-E", "-s"] if sys.flags.ignore_environment else []
    command = [sys.executable, *isolation, program, folder, *paths]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print(f"\n{folder}, in a new process:\n{printed}", end="")
    return [line.split(": ")[1] for line in printed.splitlines()]


def main(argv: list[str]) -> None:
    """Runs the example."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    output = pathlib.Path(FLAGS.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(FLAGS.seed)  # for Python, NumPy and TensorFlow
    tf.config.experimental.enable_op_determinism()

    print(f"tensorflow_ops {tfo.__version__} from {pathlib.Path(tfo.__file__).parent}")
    training = data.draw_lines(min(TRAINING_LINES, BATCH_SIZE * FLAGS.steps), training=True, seed=[FLAGS.seed, 0])
    held_out = data.draw_lines(HELD_OUT_LINES, training=False, seed=[FLAGS.seed, 1])
    network = model.build()
    start = time.monotonic()
    train(network, training, FLAGS.steps)
    print(f"{network.count_params()} weights, {FLAGS.steps} steps in {time.monotonic() - start:.0f} s")

    logits = tf.convert_to_tensor(network.predict(held_out.images, batch_size=250, verbose=0))
    truth = [model.as_text(number) for number in held_out.numbers]
    print(f"\n{'on held-out digits':24} wrong digits    right lines    ms a line")
    texts, right = {}, {}
    for name, read in SEARCHES.items():
        start = time.monotonic()
        texts[name] = read(logits)
        seconds = time.monotonic() - start
        right[name] = np.mean([found == true for found, true in zip(texts[name], truth, strict=True)])
        wrong_digits = tfo.metrics.EditDistance("characters")
        wrong_digits.update_state(truth, texts[name])
        print(f"{name:24}{wrong_digits.result():13.4f}{right[name]:15.3f}{1e3 * seconds / len(truth):13.3f}")

    shown = shown_lines(texts, truth)
    if serve(network, held_out.images[shown], output / "reader") != [texts["beam + check digit"][i] for i in shown]:
        raise SystemExit("NOT EXPORTED: the new process reads other numbers")
    compared = {name: texts[name] for name in ("greedy", "beam + check digit")}
    picture.draw(held_out, logits, compared, shown).savefig(output / "digit_lines.png", dpi=80)
    print(f"\n{output / 'digit_lines.png'}")

    if FLAGS.steps < FLAGS["steps"].default:
        print(f"{FLAGS.steps} steps: the needed quality is not checked")
        return
    best = right["beam + check digit"]
    if not best >= FLAGS.at_least:
        raise SystemExit(f"NOT LEARNT: {best:.3f} of the lines are right, expected {FLAGS.at_least}")
    if not best > right["greedy"]:
        raise SystemExit("NOT SEARCHED: the check digit corrects no line")


if __name__ == "__main__":
    app.run(main)
