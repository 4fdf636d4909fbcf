"""Trains, evaluates, exports and uses a classifier of handwritten digits.

    python main.py train                 # resumes by itself where it was stopped
    python main.py evaluate
    python main.py export
    python main.py predict [IMAGE...]    # of image files, or of the held-out digits

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
flags.DEFINE_integer("steps", DEFAULTS.steps, "training steps at most", lower_bound=1)
flags.DEFINE_integer("batch_size", DEFAULTS.batch_size, "examples in a step, on all devices together", lower_bound=1)
flags.DEFINE_float("learning_rate", DEFAULTS.learning_rate, "after the warm-up", lower_bound=0)
flags.DEFINE_float("label_smoothing", DEFAULTS.label_smoothing, "of the loss", lower_bound=0, upper_bound=1)
flags.DEFINE_float("dropout", DEFAULTS.dropout, "part of the features", lower_bound=0, upper_bound=1)
flags.DEFINE_enum("dtype", DEFAULTS.dtype, ["float32", "mixed_bfloat16", "mixed_float16"], "the Keras dtype policy")
flags.DEFINE_enum("parallel", DEFAULTS.parallel, parallel.MODES, "how a batch is split over the devices")
flags.DEFINE_integer("devices", DEFAULTS.devices, "split the CPU into so many devices; 0: do not", lower_bound=0)
flags.DEFINE_integer(
    "every", DEFAULTS.every, "steps of a round, which ends in evaluation and checkpoint", lower_bound=1
)
flags.DEFINE_integer(
    "patience", DEFAULTS.patience, "rounds without a lower validation loss to stop after", lower_bound=1
)
flags.DEFINE_integer("seed", DEFAULTS.seed, "of weights, order, distortion and dropout", lower_bound=0)
flags.DEFINE_float("at_least", 0.0, "evaluate and predict: exit with status 1 if the accuracy is lower")
flags.DEFINE_bool("invert", False, "predict: the images are dark on light")


def restored_network(run: pathlib.Path):
    """The network with the best weights of a run."""
    settings = settings_lib.read(run)
    network = model.build((data.SIZE, data.SIZE, 1), len(data.CLASSES), policy=settings.dtype)
    step = checkpoints.restore_best(run, network)
    print(f"the weights of step {step}")
    return network


def check(accuracy: float) -> None:
    """Ends the program if the accuracy is lower than --at_least."""
    if accuracy < FLAGS.at_least:
        raise SystemExit(f"The accuracy is {accuracy:.4f}, and --at_least {FLAGS.at_least} was asked for.")


def train(run: pathlib.Path) -> None:
    """Trains, or goes on training."""
    names = [field.name for field in dataclasses.fields(settings_lib.Settings)]
    settings = settings_lib.Settings(**{name: FLAGS[name].value for name in names})
    if settings.devices:
        parallel.split_cpu(settings.devices)
    settings_lib.keep(run, settings)
    if not train_lib.train(run, settings):
        raise SystemExit("stopped; the same command resumes")


def evaluate(run: pathlib.Path) -> None:
    """Measures the best weights on digits that training has not seen."""
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
    """Says what the images show, with nothing but the SavedModel."""
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
