"""A run's folder: its settings, and all state that it needs to resume with the same result."""

import json
import os
import pathlib

import keras
import tensorflow as tf


def read_settings(run: pathlib.Path) -> dict:
    """Returns the settings of an existing run."""
    path = run / "settings.json"
    if not path.exists():
        raise SystemExit(f"{run} holds no run: there is no settings.json. Train first, or name its folder with --run.")
    return json.loads(path.read_text())


def keep_settings(run: pathlib.Path, settings: dict) -> None:
    """Writes the settings of a new run, or checks that an existing run has the same ones."""
    path = run / "settings.json"
    if not path.exists():
        run.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(settings, indent=2) + "\n")
        os.replace(draft, path)  # atomic: never leaves a partial file
    then = read_settings(run)
    changed = [f"--{name} was {then[name]} and is {now}" for name, now in settings.items() if then[name] != now]
    if changed:
        raise SystemExit(
            f"{run} was started with other settings: {'; '.join(changed)}. "
            "Give the same to resume it, or another --run to start anew."
        )


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
        self.latest = manager(run / "latest", max_to_keep=2, weights=network, slots=optimizer, **vars(self))
        self.best = manager(run / "best", max_to_keep=1, weights=network)
        self.network, self.optimizer = network, optimizer

    def restore(self) -> int:
        """Restores the latest checkpoint, if any; returns the step."""
        return restore_last(self.latest) or 0

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


def manager(folder: pathlib.Path, max_to_keep: int, **parts) -> tf.train.CheckpointManager:
    """Returns the manager of checkpoints of models, optimizers and variables."""
    # Lists of variables: tf.train.Checkpoint(weights=network) would omit those that Keras does not track.
    parts = {
        name: part if isinstance(part, tf.Variable) else [variable.value for variable in part.variables]
        for name, part in parts.items()
    }
    return tf.train.CheckpointManager(tf.train.Checkpoint(**parts), folder, max_to_keep)


def restore_last(saved: tf.train.CheckpointManager) -> int | None:
    """Restores the last checkpoint, completely; returns its step, or None if there is no checkpoint."""
    if not saved.latest_checkpoint:
        return None
    saved.checkpoint.restore(saved.latest_checkpoint).assert_consumed()
    return int(saved.latest_checkpoint.rpartition("-")[2])
