"""Trains a translator from written dates to ISO form, decodes with several beam widths, exports and serves.

    python examples/seq2seq/train.py

The texts have typing errors, so the most likely next character is not always part of the
most likely date, which beam search finds. Exits with status 1 if the accuracy on held-out
days is too low. Takes a minute or two on two cores.
"""

import os
import pathlib
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))  # for training.py

import data
import model
import numpy as np
import tensorflow as tf
import training
from absl import flags

import tensorflow_ops as tfo

TRAINING_DATES, HELD_OUT_DATES = 60000, 1000
BATCH_SIZE, EVALUATION_BATCH, EPOCHS = 64, 250, 5
WIDTHS = (1, 2, 4, 8)
EXPORTED_WIDTH = 4
NEEDED = 0.8  # accuracy of greedy search on the held-out days
SERVED = ("the third of march nineteen ninety-eight", "sunday, 29 feb '04", "2o17 novembre 5th")

FLAGS = training.define_flags("seq2seq", steps=900, multiple_of=EPOCHS)
flags.DEFINE_bool("jit_compile", False, "compile the training step with XLA: again for each length of texts")


def batches(dates: data.Dates, seed: int) -> tf.data.Dataset:
    """Returns endless batches of ((source, target), target), each padded to its longest text: teacher forcing."""
    targets = data.encode_targets(dates.iso)
    dataset = tf.data.Dataset.from_tensor_slices((dates.texts, targets))
    dataset = dataset.shuffle(len(targets), seed=seed).repeat().batch(BATCH_SIZE, drop_remainder=True)
    return dataset.map(lambda texts, targets: ((model.encode_text(texts), targets), targets)).prefetch(2)


def measure(translator: model.Translator, dates: data.Dates, beam_width: int) -> dict[str, float]:
    """Measures the accuracy of the first and of any hypothesis, the first's log probability, and the time."""
    decoder = model.Decoder(translator, beam_width)
    texts = list(tf.data.Dataset.from_tensor_slices(dates.texts).batch(EVALUATION_BATCH))
    decoder.decode(texts[0])  # traces
    start = time.monotonic()
    results = [decoder.decode(part) for part in texts]
    seconds = time.monotonic() - start
    found = np.concatenate([result["dates"].numpy() for result in results]).astype(str)
    log_probs = np.concatenate([result["log_probs"].numpy() for result in results])
    right = found == np.array(dates.iso)[:, np.newaxis]
    return {
        "accuracy": right[:, 0].mean(),
        "any": right.any(1).mean(),
        "log_prob": log_probs[:, 0].mean(),
        "ms": 1e3 * seconds / len(found),
        "first": found[:, 0],
    }


def main(output: pathlib.Path) -> None:
    dates = data.draw_dates(min(TRAINING_DATES, 2 * BATCH_SIZE * FLAGS.steps), training=True, seed=[FLAGS.seed, 0])
    held_out = data.draw_dates(HELD_OUT_DATES, training=False, seed=[FLAGS.seed, 1])
    translator = model.Translator()
    loss = tfo.losses.SparseSoftmaxCrossEntropy()
    training.fit(translator, batches(dates, FLAGS.seed), loss, learning_rate=2e-3, epochs=EPOCHS, clipnorm=1.0)

    print("\non days it has not seen      right    among all K    log probability    ms a date")
    results = {width: measure(translator, held_out, width) for width in WIDTHS}
    for width, result in results.items():
        name = "greedy search" if width == 1 else f"beam search, K = {width}"
        print(f"{name:25}{result['accuracy']:9.3f}{result['any']:15.3f}{result['log_prob']:19.4f}{result['ms']:13.2f}")
    greedy, widest = results[1], results[WIDTHS[-1]]
    print("\nwhere they differ:")
    for i in np.flatnonzero(greedy["first"] != widest["first"])[:5]:
        found = f"greedy {greedy['first'][i]}, beam {widest['first'][i]}, right {held_out.iso[i]}"
        print(f"  {held_out.texts[i]!r}: {found}")

    decoder = model.Decoder(translator, EXPORTED_WIDTH)
    tf.saved_model.save(decoder, output / "decoder", signatures=decoder.decode)
    training.load_in_new_process("serve.py", output / "decoder", *SERVED)

    right = greedy["accuracy"]
    training.need(right >= NEEDED, f"NOT LEARNT: greedy search is right for {right:.3f}, expected {NEEDED}")
    training.need(
        widest["log_prob"] >= greedy["log_prob"], "NOT SEARCHED: a beam finds less likely dates than greedy search"
    )


if __name__ == "__main__":
    training.run(main)
