"""For the tables of samples, NAMESPACE_samples_testing.py: an entry and its arguments."""

import numpy as np
import tensorflow as tf

RNG = np.random.default_rng(0)

# Per-row results, such as losses and overlaps, are float32 for 16-bit inputs.
ROW_DTYPES = {"float16": "float32", "bfloat16": "float32"}
# Forward mode is slow to trace, so only one sample per op tests it.
IN_ANOTHER_SAMPLE = {"forward_mode": "another sample of the op has this test"}
# A layer or a loss calls a function.
IN_THE_FUNCTIONS_SAMPLE = dict.fromkeys(
    ("gradients", "determinism", "extreme_values", "vectorization", "second_order", "forward_mode", "bad_input"),
    "the sample of the function that it calls has this test",
)


def normal(*shape):
    return tf.constant(RNG.normal(size=shape), tf.float32)


def sample(fn, *args, imports=("tensorflow_ops",), **options):
    """Returns the arguments of `OpSample`, which is above the tables' namespaces: op_samples_testing.py calls it."""
    return fn, args, None, {"imports": imports, **options}


def bind(fn, **attributes):
    return lambda *args: fn(*args, **attributes)
