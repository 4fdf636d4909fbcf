"""Trains, evaluates, exports and uses a classifier of handwritten digits.

    python main.py train                 # resumes automatically after an interruption
    python main.py evaluate
    python main.py export
    python main.py predict [IMAGE...]    # image files, or the held-out digits

Each command reads and writes the folder --run.
"""

import dataclasses
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
import settings as settings_lib
import train as train_lib
from absl import app, flags, logging

DEFAULTS = settings_lib.Settings()

FLAGS = flags.FLAGS
flags.DEFINE_string("run", "build/image_classifier", "the run's folder")
flags.DEFINE_integer("steps", DEFAULTS.steps, "maximum number of training steps", lower_bound=1)
flags.DEFINE_integer("batch_size", DEFAULTS.batch_size, "examples per step, over all devices", lower_bound=1)
flags.DEFINE_float("learning_rate", DEFAULTS.learning_rate, "learning rate after the warm-up", lower_bound=0)
flags.DEFINE_float("label_smoothing", DEFAULTS.label_smoothing, "of the loss", lower_bound=0, upper_bound=1)
flags.DEFINE_float("dropout", DEFAULTS.dropout, "fraction of features to drop", lower_bound=0, upper_bound=1)
flags.DEFINE_enum("dtype", DEFAULTS.dtype, ["float32", "mixed_bfloat16", "mixed_float16"], "the Keras dtype policy")
flags.DEFINE_enum("parallel", DEFAULTS.parallel, parallel.MODES, "how to split a batch over the devices")
flags.DEFINE_integer("devices", DEFAULTS.devices, "split the CPU into this many devices; 0: off", lower_bound=0)
flags.DEFINE_integer(
    "every", DEFAULTS.every, "steps per round; a round ends with evaluation and a checkpoint", lower_bound=1
)
flags.DEFINE_integer(
    "patience", DEFAULTS.patience, "stop after this many rounds without a lower validation loss", lower_bound=1
)
flags.DEFINE_integer("seed", DEFAULTS.seed, "seed of weights, order, distortion and dropout", lower_bound=0)
flags.DEFINE_float("at_least", 0.0, "evaluate and predict: exit with status 1 if the accuracy is lower")
flags.DEFINE_bool("invert", False, "predict: the images are dark on light")


def restored_network(run: pathlib.Path):
    """Returns the network with a run's best weights."""
    settings = settings_lib.read(run)
    network = model.build((data.SIZE, data.SIZE, 1), len(data.CLASSES), policy=settings.dtype)
    step = checkpoints.restore_best(run, network)
    print(f"the weights of step {step}")
    return network


def check(accuracy: float) -> None:
    """Exits if the accuracy is lower than --at_least."""
    if accuracy < FLAGS.at_least:
        raise SystemExit(f"The accuracy is {accuracy:.4f}, below --at_least {FLAGS.at_least}.")


def train(run: pathlib.Path) -> None:
    """Trains, or resumes training."""
    names = [field.name for field in dataclasses.fields(settings_lib.Settings)]
    settings = settings_lib.Settings(**{name: FLAGS[name].value for name in names})
    if settings.devices:
        parallel.split_cpu(settings.devices)
    settings_lib.keep(run, settings)
    if not train_lib.train(run, settings):
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


def predict(run: pathlib.Path, paths: list[str]) -> None:
    """Classifies images with the SavedModel only."""
    predictor = serving.Predictor(run / "saved_model")
    if paths:
        images = np.stack([serving.read_image(path, predictor.image_shape, FLAGS.invert) for path in paths])
        found = predictor(images)
        for path, name, probabilities in zip(paths, *found, strict=True):
            print(f"{path}: {name}, probability {probabilities.max():.3f}")
        return
    held_out = data.load().held_out
    found = predictor(held_out.images)
    right = np.mean([name == data.CLASSES[label] for name, label in zip(found.classes, held_out.labels, strict=True)])
    for name, label, probabilities in list(zip(found.classes, held_out.labels, found.probabilities, strict=True))[:5]:
        print(f"label {data.CLASSES[label]}: {name}, probability {probabilities.max():.3f}")
    print(f"...\n{len(held_out.labels)} held-out digits: accuracy {right:.4f}")
    check(right)


def main(argv: list[str]) -> None:
    """Runs a command."""
    logging.set_verbosity(logging.WARNING)
    command, *paths = argv[1:] or [""]
    commands = {"train": train, "evaluate": evaluate, "export": export, "predict": predict}
    if command not in commands:
        raise app.UsageError(f"expected one of {', '.join(commands)}, got {command or 'nothing'}")
    if paths and command != "predict":
        raise app.UsageError(f"unexpected arguments: {' '.join(paths)}")
    run = pathlib.Path(FLAGS.run).resolve()
    predict(run, paths) if command == "predict" else commands[command](run)


if __name__ == "__main__":
    app.run(main)
