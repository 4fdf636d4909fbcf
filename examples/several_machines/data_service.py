"""Batches that another process prepares: `python data_service.py ADDRESS` runs a worker of the tf.data service."""

import sys

import data
import model
import tensorflow as tf

service = tf.data.experimental.service


def work(dispatcher: str) -> None:
    """Prepares batches for the dispatcher of this address. The process has imported tensorflow_ops."""
    service.WorkerServer(service.WorkerConfig(dispatcher)).join()


def train(dispatcher: str, steps: int) -> list[float]:
    """Trains in this process with batches that workers prepare, in the same order if there is one worker."""
    batches = data.batches(steps).apply(service.distribute("parallel_epochs", f"grpc://{dispatcher}"))
    step = tf.function(model.training_step())
    return [float(step(images, labels)) for images, labels in batches]


if __name__ == "__main__":
    work(sys.argv[1])
