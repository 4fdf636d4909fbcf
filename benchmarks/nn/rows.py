"""Functions of rows of logits, compared with TensorFlow's and with these compiled by XLA. 10 min.

Logits of real models; memory, and that of linear_cross_entropy compared with the logits that it does not hold.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from harness import Case, in_graph, normal, table

import tensorflow_ops as tfo

# Rows and classes: a language model's, ImageNet's, a digit's.
SHAPES = ((4096, 32000), (16384, 1000), (1_000_000, 10))


@dataclasses.dataclass
class Function:
    """A function of tensors of one shape, and possibly of labels."""

    ours: Callable
    peer: Callable
    tensors: int = 1  # that it reads and has gradients to, of the rows' shape
    labels: bool = False  # whether the last argument is labels
    distribution: bool = False  # whether the second tensor contains distributions
    full_result: bool = False  # whether the result has the rows' shape


def _composed_entropy(x):
    log_p = tf.nn.log_softmax(x)
    return -tf.reduce_sum(tf.exp(log_p) * log_p, -1)


def _composed_kl(m1, s1, m2, s2):
    return 0.5 * tf.reduce_sum(s2 - s1 + (tf.exp(s1) + tf.square(m1 - m2)) / tf.exp(s2) - 1, -1)


FUNCTIONS = {
    "sparse_softmax_cross_entropy": Function(
        lambda x, y: tfo.nn.sparse_softmax_cross_entropy(y, x),
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x),
        labels=True,
    ),
    "softmax_entropy": Function(tfo.nn.softmax_entropy, _composed_entropy),
    "log_prob_from_logits": Function(tfo.nn.log_prob_from_logits, tf.nn.log_softmax, full_result=True),
    "softmax": Function(tfo.nn.softmax, tf.nn.softmax, full_result=True),
    "softmax_cross_entropy": Function(
        lambda x, t: tfo.nn.softmax_cross_entropy(t, x),
        lambda x, t: tf.nn.softmax_cross_entropy_with_logits(labels=t, logits=x),
        tensors=2,
        distribution=True,
    ),
    "label_log_prob": Function(
        lambda x, y: tfo.nn.label_log_prob(y, x),
        lambda x, y: tf.gather(tf.nn.log_softmax(x), y, batch_dims=1),
        labels=True,
    ),
    "gaussian_kl": Function(lambda m1, s1, m2, s2: tfo.nn.gaussian_kl((m1, s1), (m2, s2)), _composed_kl, tensors=4),
}


def rows_of(function, shapes):
    """Yields the cases of a function: it, TensorFlow's, and that compiled by XLA."""
    for rows, classes in shapes:
        for dtype in ("float32", "bfloat16"):
            generator = tf.random.Generator.from_seed(1)
            # bfloat16 values in both dtypes, so that differences come from the function.
            inputs = [
                tf.cast(tf.cast(generator.normal([rows, classes]), tf.bfloat16), dtype) for _ in range(function.tensors)
            ]
            if function.distribution:
                inputs[1] = tf.cast(tf.nn.softmax(tf.cast(inputs[1], tf.float32)), dtype)
            if function.labels:
                inputs.append(generator.uniform([rows], 0, classes, tf.int64))
            # A general upstream gradient, not only that of a mean.
            upstream = generator.normal([rows, classes] if function.full_result else [rows])
            size, to = rows * classes * inputs[0].dtype.size, range(function.tensors)
            read, written = function.tensors * size, function.full_result * size
            # The gradient reads its inputs again, and the upstream gradient.
            moved = {"forward": (read, written), "forward+backward": (2 * read + written, written + read)}
            yield [
                Case(
                    {"logits": f"[{rows}, {classes}]", "dtype": dtype, "pass": which},
                    in_graph(function.ours, inputs, to if "back" in which else (), upstream),
                    {
                        "TensorFlow": in_graph(function.peer, inputs, to if "back" in which else (), upstream),
                        "XLA": in_graph(
                            function.peer, inputs, to if "back" in which else (), upstream, jit_compile=True
                        ),
                    },
                    inputs,
                    bytes_moved,
                    off=("TensorFlow",) if which == "forward" else (),
                    facts=functools.partial(off_definition, function, inputs) if which == "forward" else None,
                )
                for which, bytes_moved in moved.items()
            ]


def off_definition(function, inputs, results):
    """Returns the largest differences from the float64 definition on a few rows."""
    few = [t[:64] for t in inputs]
    expected = function.peer(*(tf.cast(t, tf.float64) if t.dtype.is_floating else t for t in few))
    return {
        f"{name} off float64": f"{np.abs(tf.cast(results[name][:64], tf.float64) - expected).max():.1e}"
        for name in ("ours", "TensorFlow")
    }


def memory_of(function):
    """Yields a case of a language model's logits."""
    yield from rows_of(function, [(4096, 8000)])


for _name, _function in FUNCTIONS.items():
    for _suffix, _options, _cases in (
        ("", {}, functools.partial(rows_of, _function, SHAPES)),
        ("_memory", {"speed": False, "memory": ("ours", "TensorFlow")}, functools.partial(memory_of, _function)),
    ):
        table(_name + _suffix, **_options)(functools.wraps(memory_of if _suffix else rows_of)(_cases))


@table(speed=False, memory=("ours", "TensorFlow"))
def linear_cross_entropy():
    """It does not hold the logits, so its memory grows with the chunk and the weights, not with the rows."""
    for rows, features, classes in ((2048, 256, 32000), (4096, 256, 32000), (8192, 256, 32000), (2048, 256, 128000)):
        x, w = normal(rows, features), normal(features, classes, seed=1)
        labels = tf.random.Generator.from_seed(1).uniform([rows], 0, classes, tf.int64)

        def ours(x, w, labels=labels):
            return tfo.nn.linear_cross_entropy(x, w, labels)

        def theirs(x, w, labels=labels):
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x @ w)

        for to, which in (((), "forward"), ((0, 1), "forward+backward")):
            # TensorFlow's composition holds the logits, their gradient and a temporary.
            fits = rows * classes <= 2048 * 128000
            yield Case(
                {"rows": rows, "classes": classes, "logits, MB": rows * classes * 4 // 10**6, "pass": which},
                in_graph(ours, (x, w), to),
                {"TensorFlow": in_graph(theirs, (x, w), to)} if fits else {},
                (x, w),
            )
