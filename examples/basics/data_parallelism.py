"""Data parallelism: splits a batch over several devices, with the gradients of one."""

import keras
import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

# Without GPUs, splits the CPU into two devices for demonstration, before anything runs.
if not tf.config.list_physical_devices("GPU"):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
print("devices:", [device.name for device in tf.config.list_logical_devices()])

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input([8]), keras.layers.Dense(32, "relu"), keras.layers.Dense(3)])
optimizer = keras.optimizers.Adam(0.01)
optimizer.build(model.trainable_variables)
cross_entropy = tfo.losses.SparseSoftmaxCrossEntropy()

x = np.random.default_rng(0).normal(size=[400, 8]).astype(np.float32)
y = x[:, :3].argmax(1)


def loss_fn(x, y):
    print("traced for a part of shape", x.shape)
    return cross_entropy(y, model(x, training=True))


# Converts a function of a batch to one that splits the batch. Scalars are averaged.
parallel_loss = tfo.distribute.make_parallel(loss_fn)

with tf.GradientTape(persistent=True) as tape:
    whole, parts = loss_fn(x[:15], y[:15]), parallel_loss(x[:15], y[:15])  # 15 splits unevenly
gradients = [tape.gradient(loss, model.trainable_variables) for loss in (whole, parts)]
apart = max(np.abs(a - b).max() for a, b in zip(*gradients, strict=True))
print(f"loss {whole:.4f} on one device, {parts:.4f} in parts; gradients differ by at most {apart:.0e}")


# In a tf.function, the parts and their gradients run concurrently.
@tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([None], tf.int64)])
def step(x, y):
    with tf.GradientTape() as tape:
        loss = parallel_loss(x, y)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


for epoch in range(5):
    # The last batch has a single example, so the second device contributes nothing.
    losses = [step(x[i : i + 57], y[i : i + 57]) for i in range(0, 400, 57)]
    print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
print(f"accuracy {np.mean(model(x).numpy().argmax(1) == y):.2f}")

# For copies of the variables on each device, or for several machines, use TensorFlow's
# strategies. This library's losses and layers run under them without changes:
#   with tf.distribute.MirroredStrategy().scope(): model = ...; model.compile(...)
