"""A classifier that attends to the rows of an image, and its training by gradients of parts of each batch."""

from collections.abc import Callable

import data
import keras
import tensorflow as tf

import tensorflow_ops as tfo


def build() -> keras.Model:
    """Returns logits [N, CLASSES] of images [N, SIZE, SIZE], with the same weights in each process."""
    keras.utils.set_random_seed(0)
    images = keras.Input([data.SIZE, data.SIZE])
    rows = keras.layers.Dense(32)(images)
    rows = keras.layers.LayerNormalization()(rows + tfo.layers.MultiHeadAttention(4, 8)(rows, rows))
    return keras.Model(images, keras.layers.Dense(data.CLASSES)(keras.layers.Flatten()(rows)))


def training_step(distribute: Callable[[Callable], Callable] = lambda losses: losses) -> Callable:
    """Returns a function that trains a new model with images and labels, and returns their loss.

    The loss is a sum over examples, divided by the size of the whole batch. Losses and gradients of a batch's parts add
    up to those of the batch then, however it is split; `apply` adds up the gradients of all replicas of a strategy.
    """
    network, loss_fn = build(), tfo.losses.SparseSoftmaxCrossEntropy(reduction=None)
    optimizer = keras.optimizers.SGD(0.05)
    optimizer.build(network.trainable_variables)

    @distribute
    def losses(images, labels):
        return loss_fn(labels, network(images, training=True))

    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(losses(images, labels)) / data.BATCH_SIZE
        optimizer.apply(tape.gradient(loss, network.trainable_variables), network.trainable_variables)
        return loss

    return step


def train(steps: int, devices: int = 1) -> list[float]:
    """Trains in this process, with a part of each batch on each of the devices; returns the losses."""
    if devices > 1 and not tf.config.list_physical_devices("GPU"):
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    step = tf.function(training_step(tfo.distribute.make_parallel) if devices > 1 else training_step())
    return [float(step(images, labels)) for images, labels in data.batches(steps)]
