"""For tests of python_op: modes, names, a declaration."""

import tensorflow as tf

MODES = {"eager": lambda f: f, "graph": tf.function}
_NUMBERS = iter(range(10**6))


def op_name():
    """Returns an unused op name."""
    return f"test::op_{next(_NUMBERS)}"


def same(x, *unused):
    """Returns a declaration: the output is like the first input."""
    return tf.TensorSpec(x.shape, x.dtype)
