"""For tests of opcheck and gradient_error: inputs, functions with a fault."""

import numpy as np
import tensorflow as tf

_RNG = np.random.default_rng(0)
X, OTHER = (tf.constant(_RNG.normal(size=(3, 4)), tf.float32) for _ in range(2))


@tf.custom_gradient
def gradient_of_another_element(x):
    """A reversed Jacobian: sums over inputs and over outputs are correct."""
    return 2 * x, lambda dy: 2 * tf.reverse(dy, [1])


def wrong_in_bfloat16(x):
    return x * (3 if x.dtype == tf.bfloat16 else 2)


def swallows_nan(x):
    return tf.where(tf.math.is_nan(x), tf.zeros_like(x), x)


def cube(gradient_of_square):
    """Returns x^3 with a correct first gradient."""

    @tf.custom_gradient
    def cube(x):
        return x**3, lambda dy: 3 * dy * gradient_of_square(x)

    return cube


@tf.custom_gradient
def square_without_gradient(x):
    def gradient(dy):
        raise LookupError("the square has no gradient")

    return x**2, gradient
