"""Trains taggers with and without a CRF, compares them with the best possible one, saves one and loads it.

    python examples/tagger/train.py

Exits with status 1 if the CRF's accuracy or F1 is too far from the best possible, or if
the loaded tagger finds other tags. Takes half a minute on two cores.
"""

import os
import pathlib
import subprocess
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import data
import keras
import metrics
import model
import numpy as np
import picture
import tensorflow as tf
from absl import app, flags

import tensorflow_ops as tfo

HELD_OUT_RECORDS = 500
BATCH_SIZE, EPOCHS = 50, 5
MODELS = {
    "table, softmax": ("table", False),
    "window, softmax": ("window", False),
    "table, CRF": ("table", True),
    "window, CRF": ("window", True),
}
SAVED = "table, CRF"
BEST = "true probabilities"

FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 600, f"training steps of each model, a multiple of {EPOCHS}", lower_bound=EPOCHS)
flags.register_validator("steps", lambda steps: steps % EPOCHS == 0, f"expected a multiple of {EPOCHS}")
flags.DEFINE_integer("seed", 0, "seed of the records and the weights", lower_bound=0)
flags.DEFINE_float("at_least", 0.95, "needed accuracy and F1 of the saved tagger, as fractions of the best possible")
flags.DEFINE_string("output", "build/tagger", "the folder for the picture and the saved tagger")


def train(network: str, crf: bool, records: data.Records) -> keras.Model:
    """Returns a trained model."""
    tagger = model.build(network, crf, FLAGS.steps)
    tagger.fit(records.weather, records.seasons, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=0)
    return tagger


def measure(tagged: model.Tagged, records: data.Records) -> dict[str, float]:
    """Measures the tags, and the most probable tag of each day."""
    return {
        "accuracy": metrics.accuracy(tagged.tags, records.seasons),
        "of marginals": metrics.accuracy(tagged.probabilities.argmax(-1), records.seasons),
        "F1": metrics.span_f1(tagged.tags, records.seasons, records.lengths),
    }


def print_row(name: str, result: dict[str, float], rest: str = "") -> None:
    """Prints a row of the table of results."""
    print(f"{name:24}{result['accuracy']:9.3f}{result['of marginals']:15.3f}{result['F1']:12.3f}{rest}", flush=True)


def print_transitions(transitions: tf.Tensor) -> None:
    """Prints the learnt scores of changes."""
    print(f"\n{'learnt transitions':24}" + "".join(f"{name:>9}" for name in data.SEASONS))
    for season, row in zip(data.SEASONS, transitions.numpy(), strict=True):
        print(f"{'after ' + season:24}" + "".join(f"{score:9.2f}" for score in row))


def typical(tags: np.ndarray, records: data.Records) -> int:
    """Returns the long record whose tags are as accurate as those of most others: the median."""
    right = (tags == records.seasons).sum(1) / records.lengths
    long = np.flatnonzero(records.lengths > 0.9 * data.LONGEST)
    return long[np.argsort(right[long])[len(long) // 2]]


def tag_in_new_process(path: pathlib.Path, texts: list[str]) -> list[str]:
    """Runs tag.py with a saved tagger; returns the lines that it prints."""
    print(f"\n{path}, in a new process:")
    isolation = ["-E", "-s"] if sys.flags.ignore_environment else []
    command = [sys.executable, *isolation, pathlib.Path(__file__).with_name("tag.py"), path, *texts]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print(printed, end="")
    return printed.splitlines()


def main(argv: list[str]) -> None:
    """Runs the example."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    output = pathlib.Path(FLAGS.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(FLAGS.seed)  # for Python, NumPy and TensorFlow
    tf.config.experimental.enable_op_determinism()

    print(f"tensorflow_ops {tfo.__version__} from {pathlib.Path(tfo.__file__).parent}")
    training = data.draw_records(FLAGS.steps // EPOCHS * BATCH_SIZE, [FLAGS.seed, 0])
    held_out = data.draw_records(HELD_OUT_RECORDS, [FLAGS.seed, 1])
    print(f"\n{'on held-out records':24} accuracy   of marginals          F1    weights    time")
    taggers, tagged, results = {}, {}, {}
    for name, (network, crf) in MODELS.items():
        start = time.monotonic()
        taggers[name] = train(network, crf, training)
        seconds = time.monotonic() - start
        tagged[name] = model.tag(taggers[name], held_out)
        results[name] = measure(tagged[name], held_out)
        print_row(name, results[name], f"{taggers[name].count_params():11}{seconds:6.0f} s")
    tagged[BEST] = model.tag_by_truth(held_out)
    results[BEST] = measure(tagged[BEST], held_out)
    print_row(BEST, results[BEST])
    print_transitions(taggers[SAVED].layers[-1].transitions)

    shown = typical(tagged[SAVED].tags, held_out)
    strips = {"truth": held_out.seasons} | {name: tagged[name].tags for name in MODELS}
    picture.draw(held_out, shown, tagged[SAVED].probabilities, strips).savefig(output / "seasons.png", dpi=100)
    taggers[SAVED].save(output / "tagger.keras")
    printed = tag_in_new_process(output / "tagger.keras", [data.as_digits(held_out, i) for i in range(2)])
    print(f"\n{output / 'seasons.png'}")

    if printed[1::3] != [data.as_letters(tagged[SAVED].tags[i], held_out.lengths[i]) for i in range(2)]:
        raise SystemExit("NOT THE SAME: the loaded tagger finds other tags")
    if FLAGS.steps < FLAGS["steps"].default:
        print(f"{FLAGS.steps} steps: the needed quality is not checked")
        return
    for measure_name in ("accuracy", "F1"):
        result, best = results[SAVED][measure_name], results[BEST][measure_name]
        if not result >= FLAGS.at_least * best:
            raise SystemExit(f"NOT LEARNT: {measure_name} is {result:.3f}, expected {FLAGS.at_least} times {best:.3f}")


if __name__ == "__main__":
    app.run(main)
