"""Fits a parabola by gradient descent: variables, a tape, an optimizer, tf.function."""

import keras
import tensorflow as tf

TRUE = (1.0, -2.0, 0.5)  # y = 1 - 2 x + x^2 / 2

random = tf.random.Generator.from_seed(0)
x = random.uniform([200], -3.0, 3.0)
y = TRUE[0] + TRUE[1] * x + TRUE[2] * x**2 + random.normal([200], stddev=0.1)

# Trainable weights are variables; constants and data are tensors.
weights = tf.Variable(tf.zeros([3]))
features = tf.stack([tf.ones_like(x), x, x**2], 1)  # [200, 3]


def loss_fn():
    return tf.reduce_mean((tf.linalg.matvec(features, weights) - y) ** 2)


# A step by hand: the tape records the operations on variables and differentiates them.
with tf.GradientTape() as tape:
    loss = loss_fn()
gradient = tape.gradient(loss, weights)
print(f"loss {loss:.3f}, gradient {gradient.numpy().round(2)}")
weights.assign_sub(0.05 * gradient)
print(f"after one step down the gradient: loss {loss_fn():.3f}")

# The same with an optimizer, as one graph, which is traced in the first call.
optimizer = keras.optimizers.Adam(0.1)
optimizer.build([weights])  # creates its variables before the graph is traced


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = loss_fn()
    optimizer.apply([tape.gradient(loss, weights)], [weights])
    return loss


for number in range(301):
    loss = step()
    if number % 100 == 0:
        print(f"step {number}: loss {loss:.4f}")
print(f"weights {weights.numpy().round(2)}, true {TRUE}")

# Here the best weights have a closed form, which serves as a check.
best = tf.linalg.lstsq(features, y[:, tf.newaxis])[:, 0]
print(f"least squares {best.numpy().round(2)}, difference {tf.reduce_max(tf.abs(best - weights)):.0e}")
