"""The nn functions to time, their peers in TensorFlow, and the bytes that each must move."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

# Rows and classes: a language model's, ImageNet's, a digit's.
SHAPES = ((4096, 32000), (16384, 1000), (1_000_000, 10))
DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass
class Function:
    """A function of tensors of one shape, and possibly of labels."""

    ours: Callable
    peer: Callable
    peer_name: str
    tensors: int = 1  # that it reads and has gradients to, of the rows' shape
    labels: bool = False  # whether the last argument is labels
    distribution: bool = False  # whether the second tensor contains distributions
    full_result: bool = False  # whether the result has the rows' shape

    def moved(self, which, rows, classes, size):
        """Returns the bytes that a pass must read and write."""
        logits = rows * classes * size
        read, written = self.tensors * logits, self.full_result * logits
        if which == "forward+backward":
            # The gradient reads its inputs again, and the upstream gradient.
            read, written = 2 * read + self.full_result * logits, written + self.tensors * logits
        return read, written


def _composed_entropy(x):
    log_p = tf.nn.log_softmax(x)
    return -tf.reduce_sum(tf.exp(log_p) * log_p, -1)


def _composed_log_prob(x, labels):
    return tf.gather(tf.nn.log_softmax(x), labels, batch_dims=1)


def _composed_kl(m1, s1, m2, s2):
    return 0.5 * tf.reduce_sum(s2 - s1 + (tf.exp(s1) + tf.square(m1 - m2)) / tf.exp(s2) - 1, -1)


FUNCTIONS = {
    "sparse_softmax_cross_entropy": Function(
        lambda x, y: tfo.nn.sparse_softmax_cross_entropy(y, x),
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x),
        "tf.nn.sparse_softmax_cross_entropy_with_logits",
        labels=True,
    ),
    "softmax_entropy": Function(
        tfo.nn.softmax_entropy,
        _composed_entropy,
        "composed",
    ),
    "log_prob_from_logits": Function(
        tfo.nn.log_prob_from_logits, tf.nn.log_softmax, "tf.nn.log_softmax", full_result=True
    ),
    "softmax": Function(tfo.nn.softmax, tf.nn.softmax, "tf.nn.softmax", full_result=True),
    "softmax_cross_entropy": Function(
        lambda x, t: tfo.nn.softmax_cross_entropy(t, x),
        lambda x, t: tf.nn.softmax_cross_entropy_with_logits(labels=t, logits=x),
        "tf.nn.softmax_cross_entropy_with_logits",
        tensors=2,
        distribution=True,
    ),
    "label_log_prob": Function(
        lambda x, y: tfo.nn.label_log_prob(y, x),
        _composed_log_prob,
        "gather of log_softmax",
        labels=True,
    ),
    "gaussian_kl": Function(
        lambda m1, s1, m2, s2: tfo.nn.gaussian_kl((m1, s1), (m2, s2)),
        _composed_kl,
        "composed",
        tensors=4,
    ),
}


class Case:
    """A function on tensors of one shape and dtype as calls: ours, the peer's, and the peer's compiled by XLA."""

    def __init__(self, name, rows, classes, dtype):
        self.function, self._shape = FUNCTIONS[name], (rows, classes)
        generator = tf.random.Generator.from_seed(1)
        # bfloat16 values in both dtypes, so that differences come from the function.
        self._tensors = [
            tf.cast(tf.cast(generator.normal([rows, classes]), tf.bfloat16), dtype)
            for _ in range(self.function.tensors)
        ]
        if self.function.distribution:
            self._tensors[1] = tf.cast(tf.nn.softmax(tf.cast(self._tensors[1], tf.float32)), dtype)
        self._inputs = list(self._tensors)
        if self.function.labels:
            self._inputs.append(generator.uniform([rows], 0, classes, tf.int64))
        result = self.function.ours(*self._inputs)
        self._d_result = tf.cast(generator.normal(result.shape), result.dtype)
        self._size = tf.as_dtype(dtype).size

    def calls(self):
        """Returns {(whose, pass): call} to time; a call returns tensors."""
        calls = {}
        for whose in ("ours", "peer", "XLA"):
            forward, both = self._forward(whose), self._both(whose)
            calls[whose, "forward"] = lambda call=forward: call(*self._inputs)
            calls[whose, "forward+backward"] = lambda call=both: call(*self._inputs)
        return calls

    def _function(self, whose):
        return self.function.ours if whose == "ours" else self.function.peer

    def _forward(self, whose):
        return tf.function(self._function(whose), jit_compile=whose == "XLA")

    def _both(self, whose):
        function = self._function(whose)

        @tf.function(jit_compile=whose == "XLA")
        def both(*inputs):
            tensors = inputs[: self.function.tensors]
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = function(*inputs)
            # A general upstream gradient, not only that of a mean.
            return result, tape.gradient(result, tensors, output_gradients=tf.cast(self._d_result, result.dtype))

        return both

    def moved(self, which):
        return self.function.moved(which, *self._shape, self._size)

    def difference(self, whose):
        """Returns the largest difference from the float64 definition on a few rows."""
        few = [tf.cast(t[:64], tf.float64) for t in self._tensors] + self._inputs[self.function.tensors :]
        if self.function.labels:
            few[-1] = few[-1][:64]
        expected = self.function.peer(*few)
        rows = [t[:64] for t in self._inputs]
        got = tf.cast(getattr(self.function, whose)(*rows), tf.float64)
        return float(np.max(np.abs(got - expected)))
