"""One training step on one device, or on several with the same result.

The loss is a sum over examples, divided by the size of the whole batch. Then it does not
matter how the batch is split: gradients of the parts add up to that of the whole.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

import tensorflow_ops as tfo

MODES = ("one", "make_parallel", "mirrored")

# A batch -> the sum of its examples' losses over the size of the whole batch.
Step = Callable[[dict[str, tf.Tensor]], tf.Tensor]


def split_cpu(count: int) -> None:
    """Makes several logical devices of the CPU, to try the modes without GPUs. Call it first."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


def devices() -> list[str]:
    """The GPUs, or the logical devices of the CPU where there are none."""
    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in found]


def strategy(mode: str) -> tf.distribute.Strategy:
    """In whose scope the variables are made."""
    return tf.distribute.MirroredStrategy(devices()) if mode == "mirrored" else tf.distribute.get_strategy()


def training_step(
    mode: str,
    mirrors: tf.distribute.Strategy,
    network: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    losses: Callable[..., tf.Tensor],
    batch_size: int,
) -> Step:
    """Returns the function that does one step.

    Args:
      mode: "one"; "make_parallel": splits each batch in the graph, one copy of the
        weights; "mirrored": a copy of the weights on each device, gradients all-reduced.
      mirrors: what `strategy(mode)` returned.
      network: whose weights are trained.
      optimizer: built.
      losses: (image, label, sample) -> the loss of each example.
      batch_size: of the whole batch.
    """
    if mode == "make_parallel":
        losses = tfo.distribute.make_parallel(losses, devices=devices())

    def step(batch):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(losses(batch["image"], batch["label"], batch["sample"])) / batch_size
            # float16 gradients would underflow without the scale; `apply` takes it out again.
            scaled = optimizer.scale_loss(total)
        optimizer.apply(tape.gradient(scaled, network.trainable_variables), network.trainable_variables)
        return total

    if mode != "mirrored":
        return step

    def mirrored_step(batch):
        return mirrors.reduce("SUM", mirrors.run(step, args=(batch,)), axis=None)

    return mirrored_step
