"""Trains taggers with and without a CRF, compares them with the best possible one, saves one and loads it.

    python examples/tagger/train.py

Exits with status 1 if the CRF's accuracy or F1 is too far from the best possible, or if
the loaded tagger finds other tags. Takes half a minute on two cores.
"""

import os
import pathlib
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))  # for training.py

import data
import metrics
import model
import numpy as np
import picture
import tensorflow as tf
import training
from absl import flags

import tensorflow_ops as tfo

HELD_OUT_RECORDS, BATCH_SIZE, EPOCHS = 500, 50, 5
MODELS = {
    "table, softmax": ("table", False),
    "LSTM, softmax": ("LSTM", False),
    "table, CRF": ("table", True),
    "LSTM, CRF": ("LSTM", True),
}
SAVED, BEST = "table, CRF", "true probabilities"

FLAGS = training.define_flags("tagger", steps=600, multiple_of=EPOCHS)
flags.DEFINE_float("at_least", 0.95, "needed accuracy and F1 of the saved tagger, as fractions of the best possible")


def accuracy(tags: np.ndarray, records: data.Records) -> float:
    """Returns the fraction of days with the right tag."""
    metric = tfo.metrics.TagAccuracy(dtype="float64")
    metric.update_state(records.seasons, tags)
    return float(metric.result())


def measure(name: str, tagged: model.Tagged, records: data.Records, rest: str = "") -> dict[str, float]:
    """Measures the tags, and the most probable tag of each day; prints a row of the table of results."""
    result = {
        "accuracy": accuracy(tagged.tags, records),
        "of marginals": accuracy(tagged.probabilities.argmax(-1), records),
        "F1": metrics.span_f1(tagged.tags, records.seasons, records.lengths),
    }
    print(f"{name:24}{result['accuracy']:9.3f}{result['of marginals']:15.3f}{result['F1']:12.3f}{rest}", flush=True)
    return result


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


def main(output: pathlib.Path) -> None:
    tfo.layers.use_fused_ops()  # Keras's LSTM calls tfo.nn.lstm
    records = data.draw_records(FLAGS.steps // EPOCHS * BATCH_SIZE, [FLAGS.seed, 0])
    held_out = data.draw_records(HELD_OUT_RECORDS, [FLAGS.seed, 1])
    print(f"\n{'on held-out records':24} accuracy   of marginals          F1    weights    time")
    taggers, tagged, results = {}, {}, {}
    for name, (network, crf) in MODELS.items():
        start = time.monotonic()
        tagger = taggers[name] = model.build(network, crf, FLAGS.steps)
        tagger.fit(records.weather, records.seasons, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=0)
        seconds = time.monotonic() - start
        tagged[name] = model.tag(tagger, held_out)
        results[name] = measure(name, tagged[name], held_out, f"{tagger.count_params():11}{seconds:6.0f} s")
    results[BEST] = measure(BEST, model.tag_by_truth(held_out), held_out)
    print_transitions(taggers[SAVED].layers[-1].transitions)

    shown = typical(tagged[SAVED].tags, held_out)
    strips = {"truth": held_out.seasons} | {name: tagged[name].tags for name in MODELS}
    picture.draw(held_out, shown, tagged[SAVED].probabilities, strips).savefig(output / "seasons.png", dpi=100)
    taggers[SAVED].save(output / "tagger.keras")
    texts = [data.as_digits(held_out, i) for i in range(2)]
    printed = training.load_in_new_process("tag.py", output / "tagger.keras", *texts)
    print(f"\n{output / 'seasons.png'}")

    if printed[1::3] != [data.as_letters(tagged[SAVED].tags[i], held_out.lengths[i]) for i in range(2)]:
        raise SystemExit("NOT THE SAME: the loaded tagger finds other tags")
    for name in ("accuracy", "F1"):
        result, best, at_least = results[SAVED][name], results[BEST][name], FLAGS.at_least
        training.need(
            result >= at_least * best, f"NOT LEARNT: {name} is {result:.3f}, expected {at_least} * {best:.3f}"
        )


if __name__ == "__main__":
    training.run(main)
