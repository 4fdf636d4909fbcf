"""A training step on one device, or on several with the same result.

The loss is a sum over examples divided by the size of the whole batch. The gradients of
the parts therefore add up to the gradient of the whole batch, however it is split.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

import tensorflow_ops as tfo

MODES = ("one", "make_parallel", "mirrored")

# Batch -> sum of its examples' losses divided by the size of the whole batch.
Step = Callable[[dict[str, tf.Tensor]], tf.Tensor]


def split_cpu(count: int) -> None:
    """Splits the CPU into logical devices, to try the modes without GPUs. Call it first."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


def devices() -> list[str]:
    """Returns the GPUs or, without GPUs, the CPU's logical devices."""
    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in found]


def strategy(mode: str) -> tf.distribute.Strategy:
    """Returns the strategy in whose scope to create variables."""
    return tf.distribute.MirroredStrategy(devices()) if mode == "mirrored" else tf.distribute.get_strategy()


def training_step(
    mode: str,
    mirrors: tf.distribute.Strategy,
    network: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    losses: Callable[..., tf.Tensor],
    batch_size: int,
) -> Step:
    """Returns a function for one step.

    Args:
      mode: "one"; "make_parallel": splits each batch in the graph, with one copy of the
        weights; "mirrored": copies the weights to each device and all-reduces gradients.
      mirrors: the result of `strategy(mode)`.
      network: the network to train.
      optimizer: a built optimizer.
      losses: (image, label, sample) -> loss of each example.
      batch_size: size of the whole batch.
    """
    if mode == "make_parallel":
        losses = tfo.distribute.make_parallel(losses, devices=devices())

    def step(batch):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(losses(batch["image"], batch["label"], batch["sample"])) / batch_size
            # Scaling prevents underflow of float16 gradients; `apply` removes the scale.
            scaled = optimizer.scale_loss(total)
        optimizer.apply(tape.gradient(scaled, network.trainable_variables), network.trainable_variables)
        return total

    if mode != "mirrored":
        return step

    def mirrored_step(batch):
        return mirrors.reduce("SUM", mirrors.run(step, args=(batch,)), axis=None)

    return mirrored_step
