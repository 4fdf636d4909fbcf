"""Times the CTC decoders against TensorFlow's.

    python benchmarks/seq2seq/ctc_decode.py [--seconds SECONDS]

TensorFlow's decoders read time-major logits, and its beam search takes the last class as
blank. Its greedy decoder sums the greatest logits, with no softmax. "x floor" is the time
divided by that of reading the logits. Logits are normal numbers times `scale`: a model that
is sure of its labels has large ones. The last table has a search with a language model, a
table of scores by the last label, which TensorFlow's decoder cannot take.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import harness
import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

THREADS = 2
# [batch, frames, classes], beam_width, scale.
SEARCH_CASES = (
    ((1, 200, 32), 16, 4.0),
    ((8, 200, 32), 100, 4.0),
    ((8, 200, 100), 10, 1.0),
    ((1, 1000, 100), 100, 4.0),
    ((4, 100, 1000), 20, 4.0),
)
GREEDY_CASES = ((1, 200, 32), (8, 400, 100), (32, 400, 128), (4, 200, 5000))
MODEL_CASES = (((1, 200, 32), 16), ((8, 200, 32), 100))


def inputs(shape, scale):
    """Returns logits, their copy with the time first, and lengths."""
    scores = np.random.default_rng(0).normal(0, scale, shape).astype(np.float32)
    return tf.constant(scores), tf.constant(scores.transpose(1, 0, 2).copy()), tf.fill([shape[0]], shape[1])


def search_row(case, rates, seconds):
    """Returns a row of the table of beam searches."""
    shape, width, scale = case
    logits, time_major, lengths = inputs(shape, scale)
    options = {"beam_width": width, "top_paths": 1}
    calls = {
        "ours": lambda: tfo.seq2seq.ctc_beam_search_decode(logits, lengths, blank_index=shape[2] - 1, **options),
        "TF": lambda: tf.nn.ctc_beam_search_decoder(time_major, lengths, **options),
    }
    times = harness.interleave(calls, seconds, min_rounds=3)
    ours, theirs = calls["ours"](), calls["TF"]()
    return {
        "[batch, frames, classes]": list(shape),
        "beam": width,
        "scale": scale,
        "ms": f"{1e3 * times['ours']:.2f}",
        "TF ms": f"{1e3 * times['TF']:.1f}",
        "TF / ours": f"{times['TF'] / times['ours']:.0f}",
        "us a frame": f"{1e6 * times['ours'] / (shape[0] * shape[1]):.1f}",
        "x floor": f"{times['ours'] / rates.floor(logits.shape.num_elements() * 4, 0):.0f}",
        "log probability, minus TF's": f"{float(tf.reduce_mean(ours.log_probs - theirs[1])):.4f}",
    }


def greedy_row(shape, rates, seconds):
    """Returns a row of the table of best paths."""
    logits, time_major, lengths = inputs(shape, 1.0)
    calls = {
        "ours": lambda: tfo.seq2seq.ctc_greedy_decode(logits, lengths),
        "TF": lambda: tf.nn.ctc_greedy_decoder(time_major, lengths, blank_index=0),
        "softmax": lambda: tf.reduce_max(tf.nn.log_softmax(logits), -1),
    }
    times = harness.interleave(calls, seconds)
    return {
        "[batch, frames, classes]": list(shape),
        "ms": f"{1e3 * times['ours']:.3f}",
        "TF / ours": f"{times['TF'] / times['ours']:.2f}",
        "TF log_softmax, maximum / ours": f"{times['softmax'] / times['ours']:.2f}",
        "x floor": f"{times['ours'] / rates.floor(logits.shape.num_elements() * 4, 0):.1f}",
    }


def model_row(case, seconds):
    """Returns a row of the table of searches with a language model."""
    shape, width = case
    logits, _, lengths = inputs(shape, 4.0)
    bigrams = tf.nn.log_softmax(tf.random.stateless_normal([shape[2], shape[2]], [1, 2]))

    def step_fn(labels, state):
        return tf.gather(bigrams, labels), state

    @tf.function
    def with_model():
        return tfo.seq2seq.ctc_beam_search_decode(logits, lengths, beam_width=width, step_fn=step_fn)

    calls = {
        "with": with_model,
        "without": lambda: tfo.seq2seq.ctc_beam_search_decode(logits, lengths, beam_width=width),
    }
    times = harness.interleave(calls, seconds)
    return {
        "[batch, frames, classes]": list(shape),
        "beam": width,
        "ms": f"{1e3 * times['with']:.1f}",
        "us a step": f"{1e6 * times['with'] / shape[1]:.0f}",
        "without ms": f"{1e3 * times['without']:.2f}",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row, at least")
    seconds = parser.parse_args().seconds
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    rates = harness.memory_rates()
    print(f"{harness.machine()}; {rates}\n")
    for title, rows in (
        ("ctc_beam_search_decode", [search_row(case, rates, seconds) for case in SEARCH_CASES]),
        ("ctc_greedy_decode", [greedy_row(shape, rates, seconds) for shape in GREEDY_CASES]),
        ("ctc_beam_search_decode with a language model", [model_row(case, seconds) for case in MODEL_CASES]),
    ):
        print(f"## {title}\n")
        harness.table(rows, list(rows[0]))
        print()


if __name__ == "__main__":
    main()
