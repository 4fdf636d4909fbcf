"""Training that resumes after an interruption, with the same result as without it."""

import contextlib
import pathlib
import signal
import time

import checkpoints
import data
import keras
import metrics
import model
import numpy as np
import parallel
import tensorflow as tf
from absl import flags

import tensorflow_ops as tfo

FLAGS = flags.FLAGS


def make_optimizer() -> keras.optimizers.Optimizer:
    """Returns AdamW with a learning rate that warms up, then decreases along a cosine."""
    warmup = min(100, FLAGS.steps // 10)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, FLAGS.steps - warmup, warmup_target=FLAGS.learning_rate, warmup_steps=warmup
    )
    optimizer = keras.optimizers.AdamW(rate, weight_decay=1e-3)
    return keras.optimizers.LossScaleOptimizer(optimizer) if FLAGS.dtype == "mixed_float16" else optimizer


def predict(network: keras.Model, images: np.ndarray, batch_size: int = 256) -> tf.Tensor:
    """Returns the logits of images, computed in batches."""
    return tf.concat([network(images[i : i + batch_size]) for i in range(0, len(images), batch_size)], 0)


@contextlib.contextmanager
def stop_signals():
    """Yields a list that gets Ctrl-C or SIGTERM, so that the current step can finish. A second one ends the process."""
    received, handlers = [], {}

    def restore():
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def note(number, frame):
        received.append(number)
        restore()

    handlers |= {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        restore()


def finish_round(state: checkpoints.State, validation: data.Examples, steps_per_second: float) -> None:
    """Evaluates, reports, and saves a checkpoint."""
    step, rate = int(state.step), float(state.optimizer.learning_rate)
    logits = predict(state.network, validation.images)
    measured = metrics.measure(validation.labels, logits)
    training_loss = float(state.loss_sum) / ((step - 1) % FLAGS.every + 1)
    state.loss_sum.assign(0.0)
    # TensorBoard groups names by what is before the slash.
    tf.summary.scalar("training/loss", training_loss, step)
    tf.summary.scalar("training/learning_rate", rate, step)
    tf.summary.scalar("validation/loss", measured.loss, step)
    tf.summary.scalar("validation/accuracy", measured.accuracy, step)
    metrics.write_pictures(step, validation.images, validation.labels, logits)
    best = state.judge(measured.loss)
    state.save()
    # Printed after the checkpoint, so that the line confirms it.
    print(
        f"step {step:5}  learning rate {rate:.5f}  loss {training_loss:.4f}  validation loss {measured.loss:.4f}"
        f"  accuracy {measured.accuracy:.4f}  {steps_per_second:4.0f} steps/s{'  best' if best else ''}",
        flush=True,
    )


def train(run: pathlib.Path) -> bool:
    """Trains until the last step, or until the validation loss has not decreased for --patience rounds.

    Returns:
      False if a signal stopped it before the end; the same call resumes.
    """
    keras.utils.set_random_seed(FLAGS.seed)  # for Python, NumPy and TensorFlow: initial weights
    tf.config.experimental.enable_op_determinism()
    training, validation, _ = data.load()

    strategy = parallel.strategy(FLAGS.parallel)
    with strategy.scope():
        shape = training.images.shape[1:]
        network = model.build(shape, len(data.CLASSES), dropout=FLAGS.dropout, policy=FLAGS.dtype)
        optimizer = make_optimizer()
        optimizer.build(network.trainable_variables)
    state = checkpoints.State(run, network, optimizer)
    first = state.restore()
    print(f"{network.count_params()} weights; {'resuming' if first else 'starting'} at step {first}", flush=True)

    loss = tfo.losses.SparseSoftmaxCrossEntropy(label_smoothing=FLAGS.label_smoothing, reduction=None)

    def losses(image, label, sample):
        # The first sample's number identifies the step and the device. A device may have no samples.
        dropout_seed = tf.stack([tf.cast(FLAGS.seed, tf.int64), tf.reduce_sum(sample[:1])])
        return loss(label, network(image, dropout_seed))

    part_of_step = parallel.training_step(FLAGS.parallel, network, optimizer, losses, FLAGS.batch_size)

    @tf.function
    def step(batch):
        state.loss_sum.assign_add(strategy.reduce("SUM", strategy.run(part_of_step, (batch,)), axis=None))
        state.step.assign_add(1)

    batches = data.training_batches(
        training, seed=FLAGS.seed, batch_size=FLAGS.batch_size, first_step=first, steps=FLAGS.steps
    )
    # A resumed run writes some steps again, with the same values.
    writer = tf.summary.create_file_writer(str(run / "events"))
    with stop_signals() as stopped, writer.as_default():
        start = time.monotonic()
        for batch in strategy.experimental_distribute_dataset(batches):
            if int(state.rounds_since_best) >= FLAGS.patience:
                break
            step(batch)
            now = int(state.step)
            if now % FLAGS.every == 0 or now == FLAGS.steps:
                finish_round(state, validation, (now - first) / (time.monotonic() - start))
                start, first = time.monotonic(), now
            if stopped:
                state.save()
                break
    return not stopped
