"""A worker of MultiWorkerMirroredStrategy, which trains with its part of each batch.

Each machine runs `python worker.py`, with a TF_CONFIG that names all machines, and itself:

    {"cluster": {"worker": ["first:2222", "second:2222"]}, "task": {"type": "worker", "index": 0}}
"""

import data
import model
import tensorflow as tf


def train(steps: int) -> list[float]:
    """Trains; returns the loss of each whole batch."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        step = model.training_step()

    @tf.function
    def step_of_all(images, labels):
        return strategy.reduce("SUM", strategy.run(step, args=(images, labels)), axis=None)

    shard = tf.data.experimental.AutoShardPolicy.DATA
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = shard
    batches = strategy.experimental_distribute_dataset(data.batches(steps).with_options(options))
    return [float(step_of_all(images, labels)) for images, labels in batches]


if __name__ == "__main__":
    print(*train(steps=100), sep="\n")
