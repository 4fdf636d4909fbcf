"""hinge_loss's times on the CPU, beside the time that memory needs to move the tensors once.

usage: python benchmarks/run.py tutorial/hinge_loss [--case CLASSES] with the wheel installed (benchmarks/README.md).
"""

import harness
import tensorflow as tf

import tensorflow_ops as tfo

# Other implementations, as {name: function of the same arguments}.
PEERS = {}


def _loss(labels, logits):
    return tfo.tutorial.hinge_loss(labels, logits).loss


@harness.table()
def times():
    for classes in (10, 1000, 100_000):
        rows = 10_000_000 // classes
        labels, logits = harness.integers(0, classes, rows), harness.normal(rows, classes)
        for dtype in harness.DTYPES:
            where = {"classes": classes, "dtype": dtype}
            yield harness.passes(where, _loss, (labels, tf.cast(logits, dtype)), to=1, peers=PEERS)
