"""Saves and restores all state that a run needs to resume with the same result."""

import pathlib

import keras
import tensorflow as tf


class State:
    """The variables of a run, and two checkpoints of them in its folder.

    `latest` contains the weights, the optimizer's slots and loss scale, the step, and the
    state of early stopping. Data and dropout have no state: they are functions of the seed
    and the step. `best` contains the weights with the lowest validation loss.

    A checkpoint becomes valid when TensorFlow replaces the file "checkpoint" that names it.
    If the process is killed while it writes, the previous checkpoint remains.
    """

    def __init__(self, run: pathlib.Path, network: keras.Model, optimizer: keras.optimizers.Optimizer):
        self.step = tf.Variable(0, dtype=tf.int64)
        self.loss_sum = tf.Variable(0.0)  # over the steps since the last report
        self.best_loss = tf.Variable(float("inf"))
        self.rounds_since_best = tf.Variable(0)
        # Saves lists of variables: tf.train.Checkpoint(network=network) would omit those that Keras does not track.
        weights = [variable.value for variable in network.variables]
        slots = [variable.value for variable in optimizer.variables]
        scalars = {name: value for name, value in vars(self).items() if isinstance(value, tf.Variable)}
        self.latest = tf.train.CheckpointManager(
            tf.train.Checkpoint(weights=weights, slots=slots, **scalars), run / "latest", max_to_keep=2
        )
        self.best = best_weights(run, network)

    def restore(self) -> int:
        """Restores the latest checkpoint, if any; returns the step."""
        if self.latest.latest_checkpoint:
            self.latest.checkpoint.restore(self.latest.latest_checkpoint).assert_consumed()
        return int(self.step)

    def save(self) -> None:
        """Saves the latest checkpoint."""
        self.latest.save(int(self.step))

    def judge(self, validation_loss: float) -> bool:
        """Records a validation loss; saves the weights and returns True if it is the lowest so far."""
        if validation_loss < float(self.best_loss):
            self.best_loss.assign(validation_loss)
            self.rounds_since_best.assign(0)
            self.best.save(int(self.step))
            return True
        self.rounds_since_best.assign_add(1)
        return False


def best_weights(run: pathlib.Path, network: keras.Model) -> tf.train.CheckpointManager:
    """Returns the manager of the checkpoint with the best weights."""
    weights = [variable.value for variable in network.variables]
    return tf.train.CheckpointManager(tf.train.Checkpoint(weights=weights), run / "best", max_to_keep=1)


def restore_best(run: pathlib.Path, network: keras.Model) -> int:
    """Loads a run's best weights into the network; returns their step."""
    best = best_weights(run, network)
    if not best.latest_checkpoint:
        raise SystemExit(f"{run} has no weights yet, because its first evaluation has not taken place.")
    best.checkpoint.restore(best.latest_checkpoint).assert_consumed()
    return int(best.latest_checkpoint.rpartition("-")[2])
