"""Trains a translator from written dates to ISO form, decodes with several beam widths, exports and serves.

    python examples/seq2seq/train.py

The texts have typing errors, so the most likely next character is not always part of the
most likely date, which beam search finds. Exits with status 1 if the accuracy on held-out
days is too low. Takes a minute or two on two cores.
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
import tensorflow as tf
from absl import app, flags

import tensorflow_ops as tfo

TRAINING_DATES, HELD_OUT_DATES = 60000, 1000
BATCH_SIZE, EVALUATION_BATCH = 64, 250
LEARNING_RATE = 2e-3
EPOCHS = 5
WIDTHS = (1, 2, 4, 8)
EXPORTED_WIDTH = 4
# Minimum accuracy of greedy search on the held-out days.
NEEDED = 0.8
SERVED = ("the third of march nineteen ninety-eight", "sunday, 29 feb '04", "2o17 novembre 5th")

FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 900, f"training steps, a multiple of {EPOCHS}", lower_bound=EPOCHS)
flags.register_validator("steps", lambda steps: steps % EPOCHS == 0, f"expected a multiple of {EPOCHS}")
flags.DEFINE_integer("seed", 0, "seed of the dates, the errors and the weights", lower_bound=0)
flags.DEFINE_bool("jit_compile", False, "compile the training step with XLA: again for each length of texts")
flags.DEFINE_string("output", "build/seq2seq", "the folder for the exported decoder")


def batches(dates: data.Dates, seed: int) -> tf.data.Dataset:
    """Returns endless batches of ((source, target), target), each padded to its longest text."""
    targets = data.encode_targets(dates.iso)
    dataset = tf.data.Dataset.from_tensor_slices((dates.texts, targets))
    dataset = dataset.shuffle(len(targets), seed=seed).repeat().batch(BATCH_SIZE, drop_remainder=True)
    return dataset.map(lambda texts, targets: ((model.encode_text(texts), targets), targets)).prefetch(2)


def train(translator: keras.Model, dates: data.Dates, steps: int, seed: int, jit_compile: bool) -> None:
    """Trains with teacher forcing."""
    translator.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps), global_clipnorm=1.0),
        tfo.losses.SparseSoftmaxCrossEntropy(),
        jit_compile=jit_compile,
    )
    translator.fit(batches(dates, seed), epochs=EPOCHS, steps_per_epoch=steps // EPOCHS, verbose=2)


def measure(translator: model.Translator, dates: data.Dates, beam_width: int) -> dict[str, float]:
    """Measures the accuracy of the first and of any hypothesis, the first's log probability, and the time."""
    decoder = model.Decoder(translator, beam_width)
    texts = [dates.texts[i : i + EVALUATION_BATCH] for i in range(0, len(dates.texts), EVALUATION_BATCH)]
    decoder.decode(tf.constant(texts[0]))  # traces
    start = time.monotonic()
    results = [decoder.decode(tf.constant(part)) for part in texts]
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


def main(argv: list[str]) -> None:
    """Runs the example."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    output = pathlib.Path(FLAGS.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(FLAGS.seed)  # for Python, NumPy and TensorFlow
    if not FLAGS.jit_compile:  # Keras does not compile deterministic ops with XLA
        tf.config.experimental.enable_op_determinism()

    print(f"tensorflow_ops {tfo.__version__} from {pathlib.Path(tfo.__file__).parent}")
    training = data.draw_dates(min(TRAINING_DATES, 2 * BATCH_SIZE * FLAGS.steps), training=True, seed=[FLAGS.seed, 0])
    held_out = data.draw_dates(HELD_OUT_DATES, training=False, seed=[FLAGS.seed, 1])
    translator = model.Translator()
    start = time.monotonic()
    train(translator, training, FLAGS.steps, FLAGS.seed, FLAGS.jit_compile)
    print(f"{translator.count_params()} weights, {FLAGS.steps} steps in {time.monotonic() - start:.0f} s")

    print("\non days it has not seen      right    among all K    log probability    ms a date")
    results = {width: measure(translator, held_out, width) for width in WIDTHS}
    for width, result in results.items():
        name = "greedy search" if width == 1 else f"beam search, K = {width}"
        print(f"{name:25}{result['accuracy']:9.3f}{result['any']:15.3f}{result['log_prob']:19.4f}{result['ms']:13.2f}")
    greedy, widest = results[1], results[WIDTHS[-1]]
    print("\nwhere they differ:")
    differ = np.flatnonzero(greedy["first"] != widest["first"])[:5]
    for i in differ:
        print(
            f"  {held_out.texts[i]!r}: greedy {greedy['first'][i]}, beam {widest['first'][i]}, right {held_out.iso[i]}"
        )

    folder = output / "decoder"
    decoder = model.Decoder(translator, EXPORTED_WIDTH)
    tf.saved_model.save(decoder, folder, signatures=decoder.decode)
    print(f"\n{folder}, in a new process:")
    sys.stdout.flush()
    serve = pathlib.Path(__file__).with_name("serve.py")
    subprocess.run(
        [sys.executable, *(["-E", "-s"] if sys.flags.ignore_environment else []), serve, folder, *SERVED], check=True
    )

    if FLAGS.steps < FLAGS["steps"].default:
        print(f"{FLAGS.steps} steps: the needed quality is not checked")
        return
    if not greedy["accuracy"] >= NEEDED:
        raise SystemExit(f"NOT LEARNT: greedy search is right for {greedy['accuracy']:.3f}, expected {NEEDED}")
    if widest["log_prob"] < greedy["log_prob"]:
        raise SystemExit("NOT SEARCHED: a beam finds less likely dates than greedy search")


if __name__ == "__main__":
    app.run(main)
