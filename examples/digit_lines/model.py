"""A network from images of lines to CTC's logits, and three ways to read its output."""

import data
import keras
import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

BLANK = 0
CLASSES = 11  # blank, then the digits
BEAM_WIDTH, TOP_PATHS = 32, 8


def build() -> keras.Model:
    """Returns a network from uint8 [N, HEIGHT, WIDTH, 1] to logits [N, WIDTH / 2, CLASSES]: a frame for two columns."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input([data.HEIGHT, data.WIDTH, 1], dtype="uint8"),
            layers.Rescaling(1 / 128, -0.5),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(32, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.MaxPooling2D([2, 1]),
            layers.Conv2D(64, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.MaxPooling2D([2, 1]),
            layers.Permute([2, 1, 3]),
            layers.Reshape([data.WIDTH // 2, -1]),  # the rows of a frame become channels
            layers.Conv1D(96, 5, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.Dense(CLASSES),
        ]
    )


def labels_of(numbers: np.ndarray) -> np.ndarray:
    """Returns the classes of digits."""
    return numbers + 1


def all_frames(logits: tf.Tensor) -> tf.Tensor:
    """Returns the lengths [N] of lines: all frames."""
    return tf.fill(tf.shape(logits)[:1], tf.shape(logits)[1])


def as_text(number: np.ndarray) -> str:
    """Returns a number's digits as a string."""
    return "".join(map(str, number))


def as_texts(labels: tf.Tensor) -> list[str]:
    """Returns labels [N, T], padded with -1, as strings of digits."""
    return [as_text(row[row > BLANK] - 1) for row in labels.numpy()]


def read_greedily(logits: tf.Tensor) -> list[str]:
    """Reads the most probable class of each frame."""
    return as_texts(tfo.seq2seq.ctc_greedy_decode(logits, all_frames(logits), blank_index=BLANK).labels)


def read_by_beam(logits: tf.Tensor) -> list[str]:
    """Reads the most probable number, over all its alignments."""
    found = tfo.seq2seq.ctc_beam_search_decode(logits, all_frames(logits), beam_width=BEAM_WIDTH, blank_index=BLANK)
    return as_texts(found.labels[:, 0])


def check_digits(labels: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tuple]:
    """Scores the next digit of prefixes: 0 if an article number allows it, -inf if not.

    Args:
      labels: int32 [rows], the last label of each prefix; blank for the empty prefix.
      state: int32 [rows] each: how many digits come before that label, and their weighted
        sum.

    Returns:
      float32 [rows, CLASSES], and the state with the label.
    """
    count, total = state
    is_digit = tf.cast(tf.not_equal(labels, BLANK), tf.int32)
    weights = tf.constant([*data.CHECK_WEIGHTS, 0], tf.int32)
    total += is_digit * (labels - 1) * tf.gather(weights, count)
    count += is_digit
    check_digit = tf.one_hot(-total % 10 + 1, CLASSES, on_value=True, off_value=False)
    digits = count[:, tf.newaxis]
    last, full = tf.equal(digits, data.DIGITS - 1), tf.equal(digits, data.DIGITS)
    forbidden = full | (last & ~check_digit)
    return tf.where(forbidden, -np.inf, 0.0), (count, total)


def labels_by_rule(logits: tf.Tensor) -> tf.Tensor:
    """Returns the labels of the most probable article number, padded with -1.

    The search cannot know that a prefix is the end, so it also finds numbers that lack
    digits: the best complete one of TOP_PATHS is the result, if there is any.
    """
    zeros = tf.zeros(tf.shape(logits)[:1], tf.int32)
    found = tfo.seq2seq.ctc_beam_search_decode(
        logits,
        all_frames(logits),
        beam_width=BEAM_WIDTH,
        top_paths=TOP_PATHS,
        blank_index=BLANK,
        step_fn=check_digits,
        initial_state=(zeros, zeros),
    )
    best = tf.argmax(tf.equal(found.lengths, data.DIGITS), 1)  # the first True
    return tf.gather(found.labels, best, batch_dims=1)


def read_by_rule(logits: tf.Tensor) -> list[str]:
    """Reads the most probable article number."""
    return as_texts(labels_by_rule(logits))


class Reader(tf.Module):
    """The network and the search with the check digit, to export."""

    def __init__(self, network: keras.Model):
        super().__init__()
        self.network = network

    @tf.function(input_signature=[tf.TensorSpec([None, data.HEIGHT, data.WIDTH, 1], tf.uint8, "lines")])
    def read(self, lines: tf.Tensor) -> dict[str, tf.Tensor]:
        """Reads lines: digits [N, T], padded with negative numbers."""
        return {"digits": labels_by_rule(self.network(lines, training=False)) - 1}
