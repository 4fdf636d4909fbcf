"""Trains, evaluates, exports and uses a classifier of handwritten digits.

    python main.py train                 # resumes automatically after an interruption
    python main.py evaluate
    python main.py export
    python main.py predict [IMAGE...]    # image files, or the held-out digits

Each command reads and writes the folder --run.
"""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported

import checkpoints
import data
import metrics
import model
import numpy as np
import parallel
import serving
import train as train_lib
from absl import app, flags, logging

FLAGS = flags.FLAGS
# These determine the result of a run.
flags.DEFINE_integer("steps", 1500, "maximum number of training steps", lower_bound=1)
flags.DEFINE_integer("batch_size", 64, "examples per step, over all devices", lower_bound=1)
flags.DEFINE_float("learning_rate", 2e-3, "learning rate after the warm-up", lower_bound=0)
flags.DEFINE_float("label_smoothing", 0.05, "of the loss", lower_bound=0, upper_bound=1)
flags.DEFINE_float("dropout", 0.3, "fraction of features to drop", lower_bound=0, upper_bound=1)
flags.DEFINE_enum("dtype", "float32", ["float32", "mixed_bfloat16", "mixed_float16"], "the Keras dtype policy")
flags.DEFINE_enum("parallel", "one", parallel.MODES, "how to split a batch over the devices")
flags.DEFINE_integer("devices", 0, "split the CPU into this many devices; 0: off", lower_bound=0)
flags.DEFINE_integer("every", 100, "steps per round; a round ends with evaluation and a checkpoint", lower_bound=1)
flags.DEFINE_integer("patience", 5, "stop after this many rounds without a lower validation loss", lower_bound=1)
flags.DEFINE_integer("seed", 0, "seed of weights, order, distortion and dropout", lower_bound=0)
SETTINGS = "steps batch_size learning_rate label_smoothing dropout dtype parallel devices every patience seed".split()

flags.DEFINE_string("run", "build/image_classifier", "the run's folder")
flags.DEFINE_float("at_least", 0.0, "evaluate and predict: exit with status 1 if the accuracy is lower")
flags.DEFINE_bool("invert", False, "predict: the images are dark on light")


def restored_network(run: pathlib.Path):
    """Returns the network with a run's best weights."""
    settings = checkpoints.read_settings(run)
    network = model.build((data.SIZE, data.SIZE, 1), len(data.CLASSES), policy=settings["dtype"])
    step = checkpoints.restore_last(checkpoints.manager(run / "best", max_to_keep=1, weights=network))
    if step is None:
        raise SystemExit(f"{run} has no weights yet, because its first evaluation has not taken place.")
    print(f"the weights of step {step}")
    return network


def check(accuracy: float) -> None:
    """Exits if the accuracy is lower than --at_least."""
    if accuracy < FLAGS.at_least:
        raise SystemExit(f"The accuracy is {accuracy:.4f}, below --at_least {FLAGS.at_least}.")


def train(run: pathlib.Path) -> None:
    """Trains, or resumes training."""
    if FLAGS.devices:
        parallel.split_cpu(FLAGS.devices)
    checkpoints.keep_settings(run, {name: FLAGS[name].value for name in SETTINGS})
    if not train_lib.train(run):
        raise SystemExit("stopped; the same command resumes")


def evaluate(run: pathlib.Path) -> None:
    """Evaluates the best weights on the held-out digits."""
    held_out = data.load().held_out
    measured = metrics.measure(held_out.labels, train_lib.predict(restored_network(run), held_out.images))
    print(metrics.table(measured.confusion, data.CLASSES))
    print(f"\n{len(held_out.labels)} held-out digits: loss {measured.loss:.4f}, accuracy {measured.accuracy:.4f}")
    check(measured.accuracy)


def export(run: pathlib.Path) -> None:
    """Writes the best weights as a SavedModel."""
    serving.export(restored_network(run), (data.SIZE, data.SIZE, 1), data.CLASSES, run / "saved_model")
    print(run / "saved_model")


def predict(run: pathlib.Path, *paths: str) -> None:
    """Classifies images with the SavedModel only."""
    if paths:
        images = np.stack([serving.read_image(path, data.SIZE, FLAGS.invert) for path in paths])
        for path, name, probability in zip(paths, *serving.predict(run / "saved_model", images), strict=True):
            print(f"{path}: {name}, probability {probability:.3f}")
        return
    held_out = data.load().held_out
    labels = [data.CLASSES[label] for label in held_out.labels]
    found, probabilities = serving.predict(run / "saved_model", held_out.images)
    for label, name, probability in zip(labels[:5], found, probabilities, strict=False):
        print(f"label {label}: {name}, probability {probability:.3f}")
    accuracy = np.mean([name == label for name, label in zip(found, labels, strict=True)])
    print(f"...\n{len(labels)} held-out digits: accuracy {accuracy:.4f}")
    check(accuracy)


def main(argv: list[str]) -> None:
    """Runs a command."""
    logging.set_verbosity(logging.WARNING)
    command, *paths = argv[1:] or [""]
    commands = {"train": train, "evaluate": evaluate, "export": export, "predict": predict}
    if command not in commands:
        raise app.UsageError(f"expected one of {', '.join(commands)}, got {command or 'nothing'}")
    if paths and command != "predict":
        raise app.UsageError(f"unexpected arguments: {' '.join(paths)}")
    commands[command](pathlib.Path(FLAGS.run).resolve(), *paths)


if __name__ == "__main__":
    app.run(main)
