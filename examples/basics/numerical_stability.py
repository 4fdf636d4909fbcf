"""Numerical stability: softmax, cross entropy, entropy and KL without loss of digits."""

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo


def gradient(function, x):
    """Returns the gradient of the sum of function(x), as nested lists."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x).numpy().round(3).tolist()


# Floats have a largest and a smallest number: in float32, e^89 is infinite, and e^-104 is 0.
# Mathematically, x * y / y is x.
x, y = tf.constant(1.0), tf.constant(1e-46)  # rounds to 0
print("x * y / y:", (x * y / y).numpy())


# The formula of softmax overflows. After subtracting the largest logit, e^x is at most 1.
# Subtract each row's maximum: with the tensor's maximum, small rows become 0 / 0.
def naive_softmax(x):
    return tf.exp(x) / tf.reduce_sum(tf.exp(x), -1, keepdims=True)


logits = tf.constant([[1000.0, 0.0], [0.0, 0.0]])
print("softmax by its formula:", naive_softmax(logits).numpy().tolist())
print("minus the tensor's maximum:", naive_softmax(logits - tf.reduce_max(logits)).numpy().tolist())
print("minus each row's maximum, tfo.nn.softmax:", tfo.nn.softmax(logits).numpy().tolist())


# The logarithm of a probability that rounds to 0 is -infinity, and its gradient is NaN.
# Computed from logits, log p = x - log(sum(e^x)) is accurate.
def naive_loss(x):
    return -tf.math.log(tf.nn.softmax(x))[..., 1]


def loss(x):
    return tfo.nn.sparse_softmax_cross_entropy([1], x)


far = tf.constant([[200.0, 0.0]])
print("cross entropy by log(softmax):", naive_loss(far).numpy(), "gradient", gradient(naive_loss, far))
print("from logits:", loss(far).numpy(), "gradient", gradient(loss, far))


# A logit of -infinity masks a class. In the sum of p log p, 0 * -infinity is NaN, but the
# limit is 0.
def naive_entropy(x):
    return -tf.reduce_sum(tf.nn.softmax(x) * tf.nn.log_softmax(x), -1)


masked = tf.constant([[1.0, 2.0, -np.inf]])
print("entropy with a masked class:", naive_entropy(masked).numpy(), "and", tfo.nn.softmax_entropy(masked).numpy())
print("its gradient:", gradient(naive_entropy, masked), gradient(tfo.nn.softmax_entropy, masked))


# A small difference of large numbers has no correct digits: for small d, e^d - d - 1 is
# d^2 / 2, but the formula gives 0.
def naive_kl(mean, log_variance):
    return 0.5 * tf.reduce_sum(tf.exp(log_variance) + mean**2 - 1.0 - log_variance, -1)


mean, log_variance = tf.constant([0.0]), tf.constant([1e-4])
exact = 0.5 * (np.expm1(np.float64(1e-4)) - 1e-4)
naive, ours = naive_kl(mean, log_variance), tfo.nn.gaussian_kl((mean, log_variance))
print(f"KL: by its formula {naive:.2e}, tfo.nn.gaussian_kl {ours:.2e}, exact {exact:.2e}")

# float16 has 3 decimal digits (bfloat16: 2). Accumulate sums in float32.
ones = tf.ones([4096], tf.float16)
in_float32 = tf.reduce_sum(tf.cast(ones, tf.float32))
print("4096 ones added up in float16:", sum(ones).numpy(), "in float32:", in_float32.numpy())
