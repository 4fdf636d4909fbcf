"""What the examples' train.py share: flags, seeds, `fit`, new processes that load what was saved, and the final checks.

A train.py defines its model, data and losses in a main function, which it gives to `run`.
"""

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import keras
import tensorflow as tf
from absl import app, flags

import tensorflow_ops as tfo

FLAGS = flags.FLAGS
flags.disclaim_key_flags()  # --help shows them among those of train.py


def define_flags(name: str, steps: int, multiple_of: int) -> flags.FlagValues:
    """Defines the flags of all examples; returns all flags. The needed quality is for the default of `steps`."""
    flags.DEFINE_integer(
        "steps", steps, f"training steps of each network, a multiple of {multiple_of}", lower_bound=multiple_of
    )
    flags.register_validator("steps", lambda value: value % multiple_of == 0, f"expected a multiple of {multiple_of}")
    flags.DEFINE_integer("seed", 0, "seed of the data and the weights", lower_bound=0)
    flags.DEFINE_string("output", f"build/{name}", "the folder for what the program writes")
    return FLAGS


def uses_xla() -> bool:
    """Returns the flag --jit_compile, which some examples have."""
    return getattr(FLAGS, "jit_compile", False)


def run(main: Callable[[pathlib.Path], None]) -> None:
    """Parses the flags, and calls `main` with the folder for its files."""

    def start(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"unexpected arguments: {argv[1:]}")
        output = pathlib.Path(FLAGS.output).resolve()
        output.mkdir(parents=True, exist_ok=True)
        keras.utils.set_random_seed(FLAGS.seed)  # for Python, NumPy and TensorFlow
        if not uses_xla():  # Keras does not compile deterministic ops with XLA
            tf.config.experimental.enable_op_determinism()
        print(f"tensorflow_ops {tfo.__version__} from {pathlib.Path(tfo.__file__).parent}")
        main(output)
        if is_short():
            print(f"{FLAGS.steps} steps: the needed quality is not checked")

    app.run(start)


def fit(
    network: keras.Model, batches: tf.data.Dataset, loss, *, learning_rate: float, epochs: int, clipnorm=None, **options
) -> None:
    """Trains with Adam, whose rate decreases along a cosine. `loss` and `options` are those of `compile`."""
    schedule = keras.optimizers.schedules.CosineDecay(learning_rate, FLAGS.steps)
    optimizer = keras.optimizers.Adam(schedule, global_clipnorm=clipnorm)
    network.compile(optimizer, loss, jit_compile=uses_xla(), **options)
    start = time.monotonic()
    network.fit(batches, epochs=epochs, steps_per_epoch=FLAGS.steps // epochs, verbose=2)
    print(f"{network.count_params()} weights, {FLAGS.steps} steps in {time.monotonic() - start:.0f} s", flush=True)


def call(program: str, *arguments, check: bool = True) -> str:
    """Runs a program beside train.py in a new process; returns what it prints."""
    isolation = ["-E", "-s"] if sys.flags.ignore_environment else []  # as this process: no PYTHONPATH
    command = [sys.executable, *isolation, pathlib.Path(sys.argv[0]).with_name(program), *arguments]
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, text=True).stdout


def load_in_new_process(program: str, saved: pathlib.Path, *arguments) -> list[str]:
    """Runs a program that loads what was saved; shows and returns the lines that it prints."""
    print(f"\n{saved}, in a new process:", flush=True)
    printed = call(program, saved, *arguments)
    print(printed, end="", flush=True)
    return printed.splitlines()


def is_short() -> bool:
    """Returns whether there are too few steps to learn what is needed."""
    return FLAGS.steps < FLAGS["steps"].default


def need(reached: bool, problem: str) -> None:
    """Exits with status 1 and says the problem, unless the quality is reached or the run is short."""
    if not (reached or is_short()):
        raise SystemExit(problem)
