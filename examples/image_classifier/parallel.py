"""A training step on one device, or on several with the same result.

The loss is a sum over examples divided by the size of the whole batch. The gradients of
the parts therefore add up to the gradient of the whole batch, however it is split.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

import tensorflow_ops as tfo

# "make_parallel" splits each batch in the graph, with one copy of the weights; "mirrored"
# copies the weights to each device and all-reduces gradients.
MODES = ("one", "make_parallel", "mirrored")


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
    mode: str, network: keras.Model, optimizer: keras.optimizers.Optimizer, losses: Callable, batch_size: int
) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
    """Returns a step from a part of a batch to its loss. `losses`: (image, label, sample) -> loss of each example."""
    if mode == "make_parallel":
        losses = tfo.distribute.make_parallel(losses, devices=devices())

    def step(batch):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(losses(batch["image"], batch["label"], batch["sample"])) / batch_size
            # Scaling prevents underflow of float16 gradients; `apply` removes the scale.
            scaled = optimizer.scale_loss(total)
        optimizer.apply(tape.gradient(scaled, network.trainable_variables), network.trainable_variables)
        return total

    return step
