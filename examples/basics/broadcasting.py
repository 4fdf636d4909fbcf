"""Broadcasting: how it saves memory, and how it hides a mistake."""

import keras
import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

# A dim of size 1 is repeated to the size of the other tensor, without a copy.
a, column = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([[10.0], [20.0]])
print("[2, 2] + [2, 1]:", (a + column).numpy().tolist())

# A benefit: combining features of each frame with features of the whole sound. The usual way
# tiles the second, concatenates and projects. The projection of a concatenation is a sum of
# projections, which broadcasts: tfo.layers.Merge.
random = np.random.default_rng(0)
frames = tf.constant(random.normal(size=[8, 50, 16]), tf.float32)
speaker = tf.constant(random.normal(size=[8, 1, 32]), tf.float32)
merge = tfo.layers.Merge(24)
merged = merge([frames, speaker])
dense = keras.layers.Dense(24)
dense.build([None, None, 16 + 32])
dense.set_weights(merge.get_weights())
tiled = tf.concat([frames, tf.tile(speaker, [1, 50, 1])], -1)
print(f"Merge {merged.shape} differs from Dense over the tiles by {np.abs(merged - dense(tiled)).max():.0e}")
print(f"numbers in the inputs: {tf.size(frames) + tf.size(speaker)} in the tiles: {tf.size(tiled)}")

# A risk: labels [n, 1] and predictions [n] raise no error. Their difference is [n, n], each
# prediction minus each label, and the mean of its squares looks like a valid loss. Training
# with it learns the labels' mean.
labels, predictions = tf.constant([[1.0], [2.0], [3.0]]), tf.constant([1.0, 2.0, 3.0])
wrong = tf.reduce_mean((labels - predictions) ** 2)
print(f"all predictions are right, and the loss is {wrong:.3f}:", (labels - predictions).shape)

# Remove the extra axis explicitly, and check shapes at the start of a function.
print("with equal shapes:", tf.reduce_mean((tf.squeeze(labels, -1) - predictions) ** 2).numpy())
try:
    tf.debugging.assert_shapes([(predictions, ["N", 1]), (labels, ["N", 1])])
except ValueError as error:
    print("the check raises:", str(error).splitlines()[0])

# A sum over all axes hides the mistake; a sum over one axis reveals it.
both = tf.constant([[1.0], [2.0]]) + tf.constant([1.0, 2.0])
print("sum of [2, 1] + [2]:", tf.reduce_sum(both).numpy(), "along axis 0:", tf.reduce_sum(both, 0).numpy())
