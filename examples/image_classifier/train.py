"""Training that resumes after an interruption, with the same result as without it."""

import pathlib
import signal
import time

import board
import checkpoints
import data
import keras
import metrics
import model
import numpy as np
import parallel
import tensorflow as tf
from settings import Settings

import tensorflow_ops as tfo

EVALUATION_BATCH = 256


def make_optimizer(settings: Settings) -> keras.optimizers.Optimizer:
    """Returns AdamW with a learning rate that warms up, then decreases along a cosine."""
    warmup = min(100, settings.steps // 10)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, settings.steps - warmup, warmup_target=settings.learning_rate, warmup_steps=warmup
    )
    optimizer = keras.optimizers.AdamW(rate, weight_decay=1e-3)
    if settings.dtype == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def predict(network: keras.Model, images: np.ndarray) -> tf.Tensor:
    """Returns the logits of images, computed in batches."""
    parts = [images[i : i + EVALUATION_BATCH] for i in range(0, len(images), EVALUATION_BATCH)]
    return tf.concat([network(part) for part in parts], 0)


class StopRequest:
    """Context manager: records Ctrl-C and SIGTERM, so that the current step can finish."""

    def __init__(self):
        self.signal = None

    def __enter__(self):
        self._handlers = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception):
        self._restore()

    def _restore(self):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        self.signal = signal.Signals(number)
        self._restore()  # a second signal ends the process


def finish_round(
    state: checkpoints.State,
    settings: Settings,
    network: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    validation: data.Examples,
    steps_per_second: float,
) -> None:
    """Evaluates, reports, and saves a checkpoint."""
    step = int(state.step)
    logits = predict(network, validation.images)
    measured = metrics.measure(validation.labels, logits)
    training_loss = float(state.loss_sum) / ((step - 1) % settings.every + 1)
    state.loss_sum.assign(0.0)
    rate = float(optimizer.learning_rate)
    board.write_scalars(
        step,
        {
            "training/loss": training_loss,
            "training/learning_rate": rate,
            "validation/loss": measured.loss,
            "validation/accuracy": measured.accuracy,
        },
    )
    board.write_pictures(step, validation.images, validation.labels, logits, data.CLASSES)
    best = state.judge(measured.loss)
    state.save()
    # Printed after the checkpoint, so that the line confirms it.
    print(
        f"step {step:5}  learning rate {rate:.5f}  loss {training_loss:.4f}  validation loss {measured.loss:.4f}"
        f"  accuracy {measured.accuracy:.4f}  {steps_per_second:4.0f} steps/s{'  best' if best else ''}",
        flush=True,
    )


def train(run: pathlib.Path, settings: Settings) -> bool:
    """Trains until the last step, or until the validation loss has not decreased for `patience` rounds.

    Returns:
      False if a signal stopped it before the end; the same call resumes.
    """
    keras.utils.set_random_seed(settings.seed)  # for Python, NumPy and TensorFlow: initial weights
    tf.config.experimental.enable_op_determinism()
    splits = data.load()

    strategy = parallel.strategy(settings.parallel)
    with strategy.scope():
        options = {"dropout": settings.dropout, "policy": settings.dtype}
        network = model.build(splits.training.images.shape[1:], len(data.CLASSES), **options)
        optimizer = make_optimizer(settings)
        optimizer.build(network.trainable_variables)
    state = checkpoints.State(run, network, optimizer)
    first_step = state.restore()
    print(
        f"{network.count_params()} weights; {'resuming' if first_step else 'starting'} at step {first_step}", flush=True
    )

    loss = tfo.losses.SparseSoftmaxCrossEntropy(label_smoothing=settings.label_smoothing, reduction=None)

    def losses(image, label, sample):
        # The first sample's number identifies the step and the device. A device may have no samples.
        dropout_seed = tf.stack([tf.cast(settings.seed, tf.int64), tf.reduce_sum(sample[:1])])
        return loss(label, network(image, dropout_seed))

    one_step = parallel.training_step(settings.parallel, strategy, network, optimizer, losses, settings.batch_size)

    @tf.function
    def step(batch):
        state.loss_sum.assign_add(one_step(batch))
        state.step.assign_add(1)

    batches = data.training_batches(
        splits.training,
        seed=settings.seed,
        batch_size=settings.batch_size,
        first_step=first_step,
        steps=settings.steps,
    )
    with StopRequest() as stop, board.writer(run).as_default():
        start, before = time.monotonic(), first_step
        for batch in strategy.experimental_distribute_dataset(batches):
            if int(state.rounds_since_best) >= settings.patience:
                break
            step(batch)
            now = int(state.step)
            if now % settings.every == 0 or now == settings.steps:
                speed = (now - before) / (time.monotonic() - start)
                finish_round(state, settings, network, optimizer, splits.validation, speed)
                start, before = time.monotonic(), now
            if stop.signal:
                break
        if stop.signal:
            state.save()
    return not stop.signal
