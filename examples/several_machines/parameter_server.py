"""Training by ParameterServerStrategy: a coordinator schedules steps on workers, which read variables of a server.

Each machine runs `python parameter_server.py`, with a TF_CONFIG that names all machines, and itself:

    {"cluster": {"chief": ["first:2222"], "worker": ["second:2222"], "ps": ["third:2222"]},
     "task": {"type": "chief", "index": 0}}
"""

import data
import model
import tensorflow as tf


def serve() -> None:
    """Serves as a worker or as a parameter server."""
    task = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(task.cluster_spec(), task.task_type, task.task_id).join()


def coordinate(steps: int) -> list[float]:
    """Trains on the cluster; returns the losses."""
    task = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(task)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        step = model.training_step()

    @tf.function(autograph=False)
    def step_of_worker(batches):
        return strategy.run(step, args=next(batches))

    batches = iter(coordinator.create_per_worker_dataset(data.batches(steps)))
    losses = [coordinator.schedule(step_of_worker, args=(batches,)) for _ in range(steps)]
    coordinator.join()
    return [float(loss.fetch()) for loss in losses]


if __name__ == "__main__":
    task = tf.distribute.cluster_resolver.TFConfigClusterResolver().task_type
    print(*coordinate(steps=100), sep="\n") if task == "chief" else serve()
