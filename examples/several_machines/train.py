"""Trains a classifier in one process and in four distributed ways, and compares the losses.

    python examples/several_machines/train.py

Exits with status 1 if the losses differ, if the classifier does not learn, or if a process fails. Takes half a minute
on two cores.
"""

import os
import pathlib
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported
os.environ["no_proxy"] = "localhost,127.0.0.1"  # gRPC takes proxies for the loopback device, too
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))  # for training.py

import cluster
import data_service
import model
import numpy as np
import parameter_server
import tensorflow as tf
import training
import worker
from absl import flags

FLAGS = training.define_flags("several_machines", steps=100, multiple_of=10)
flags.DEFINE_float("at_most", 0.7, "needed mean loss of the last ten steps")
DIFFERENCE = 1e-6  # sums of float32 in another order


def in_one_process(steps: int) -> list[list[float]]:
    return cluster.run([(None, model.train, steps)])


def on_two_devices(steps: int) -> list[list[float]]:
    return cluster.run([(None, model.train, steps, 2)])


def on_two_workers(steps: int) -> list[list[float]]:
    return cluster.run([(task, worker.train, steps) for task in cluster.tasks(worker=2)])


def with_data_service(steps: int) -> list[list[float]]:
    dispatcher = tf.data.experimental.service.DispatchServer()  # at a free port
    address = dispatcher.target.split("://")[1]
    return cluster.run([(None, data_service.train, address, steps)], [(None, data_service.work, address)])


def with_parameter_server(steps: int) -> list[list[float]]:
    chief, *servers = cluster.tasks(chief=1, worker=1, ps=1)
    return cluster.run(
        [(chief, parameter_server.coordinate, steps)], [(task, parameter_server.serve) for task in servers]
    )


def main(_: pathlib.Path) -> None:
    expected = None
    for way in (in_one_process, on_two_devices, on_two_workers, with_data_service, with_parameter_server):
        start = time.monotonic()
        losses = np.array(way(FLAGS.steps))  # [processes that train, steps]
        expected = losses[0] if expected is None else expected
        difference = abs(losses - expected).max()
        print(
            f"{way.__name__:22} loss {losses[0, 0]:.4f} to {losses[0, -10:].mean():.4f}"
            f"{difference:10.1e} apart{time.monotonic() - start:6.0f} s",
            flush=True,
        )
        if not difference <= DIFFERENCE * expected.max():
            raise SystemExit(f"NOT THE SAME: losses are {difference} from those of one process")
    last = expected[-10:].mean()
    training.need(last <= FLAGS.at_most, f"NOT LEARNT: the loss is {last:.3f}, expected at most {FLAGS.at_most}")


if __name__ == "__main__":
    training.run(main)
