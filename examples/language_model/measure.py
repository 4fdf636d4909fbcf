"""Measures a step of training over the length of its pieces of text.

    python examples/language_model/measure.py fused 512 1024 2048

Prints a line for each length: the length, seconds, and by how many bytes the process has
grown since a step of a few bytes. Stops where the memory that is free at the start does
not suffice.
"""

import os
import pathlib
import re
import resource
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import keras
import model
import numpy as np
import tensorflow as tf


def of_proc(file: str, name: str) -> int:
    """Returns a number of bytes that a file in /proc shows in kB."""
    return 1024 * int(re.search(rf"{name}:\s*(\d+)", pathlib.Path("/proc", file).read_text())[1])


def step_of(network: keras.Model):
    """Returns a step of training, traced once for all lengths."""
    weights = network.trainable_variables
    network.optimizer.build(weights)

    @tf.function(input_signature=2 * [tf.TensorSpec([None, None], tf.uint8)])
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = network.compute_loss(inputs, labels, network(inputs, training=True))
        network.optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return step


def random_text(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns a piece of text, and the bytes that follow its bytes."""
    text = np.random.default_rng(0).integers(model.BYTES, size=[1, length + 1], dtype=np.uint8)
    return text[:, :-1], text[:, 1:]


def main():
    """Prints the measurements of the lengths in the command line."""
    attention, *lengths = sys.argv[1:]
    # An allocation beyond this fails, instead of the machine.
    limit = int(0.9 * of_proc("meminfo", "MemAvailable"))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    step = step_of(model.build(attention, 1))
    step(*random_text(1))
    before = of_proc("self/status", "VmRSS")
    for length in map(int, lengths):
        text = random_text(length)
        try:
            step(*text)  # allocates what the process keeps
            start = time.monotonic()
            step(*text)
        except tf.errors.ResourceExhaustedError:
            break
        print(length, time.monotonic() - start, of_proc("self/status", "VmHWM") - before, flush=True)


if __name__ == "__main__":
    main()
