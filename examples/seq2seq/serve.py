"""Loads an exported decoder, without the model's code, and decodes texts with it.

python examples/seq2seq/serve.py build/seq2seq/decoder "the 3rd of march '98"
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import tensorflow as tf

import tensorflow_ops  # noqa: F401  (registers the ops that the SavedModel calls)


def main():
    """Prints the hypotheses for each text."""
    folder, *texts = sys.argv[1:]
    decode = tf.saved_model.load(folder).signatures["serving_default"]
    result = decode(texts=tf.constant(texts))
    for text, dates, log_probs in zip(texts, result["dates"].numpy(), result["log_probs"].numpy(), strict=True):
        found = [f"{date.decode()} {prob:.3f}" for date, prob in zip(dates, tf.exp(log_probs).numpy(), strict=True)]
        print(f"{text}: {', '.join(found[:3])}")


if __name__ == "__main__":
    main()
