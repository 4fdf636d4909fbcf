"""Trains a network to read lines of digits with CTC, compares the searches that read its output, exports and serves.

    python examples/digit_lines/train.py

The lines are article numbers with a check digit. The network does not know that, but a
search can. Exits with status 1 if too few lines are read correctly. Takes less than a
minute on two cores.
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
import picture
import tensorflow as tf
import training
from absl import flags
from PIL import Image

import tensorflow_ops as tfo

TRAINING_LINES, HELD_OUT_LINES = 16000, 1000
BATCH_SIZE, EPOCHS = 32, 5
SEARCHES = {"greedy": model.read_greedily, "beam": model.read_by_beam, "beam + check digit": model.read_by_rule}

FLAGS = training.define_flags("digit_lines", steps=720, multiple_of=EPOCHS)
flags.DEFINE_float("at_least", 0.95, "needed share of right lines by beam search with the check digit")


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
    return [line.split(": ")[1] for line in training.load_in_new_process("serve.py", folder, *paths)]


def main(output: pathlib.Path) -> None:
    lines = data.draw_lines(min(TRAINING_LINES, BATCH_SIZE * FLAGS.steps), training=True, seed=[FLAGS.seed, 0])
    held_out = data.draw_lines(HELD_OUT_LINES, training=False, seed=[FLAGS.seed, 1])
    network = model.build()
    # CTC needs no positions of the digits.
    batches = tf.data.Dataset.from_tensor_slices((lines.images, model.labels_of(lines.numbers)))
    batches = batches.repeat().batch(BATCH_SIZE).prefetch(2)
    training.fit(network, batches, tfo.losses.CTC(blank_index=model.BLANK), learning_rate=3e-3, epochs=EPOCHS)

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

    best, at_least = right["beam + check digit"], FLAGS.at_least
    training.need(best >= at_least, f"NOT LEARNT: {best:.3f} of the lines are right, expected {at_least}")
    training.need(best > right["greedy"], "NOT SEARCHED: the check digit corrects no line")


if __name__ == "__main__":
    training.run(main)
