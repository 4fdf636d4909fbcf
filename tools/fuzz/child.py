"""A child process of fuzz.py that runs programs, so that crashes do no harm.

Arguments: the file descriptor for messages; the limit of allocated bytes (0: none); and a program's file, or the first
seed and the surfaces to draw programs from endlessly.
Messages are lines of JSON: {"surface", "case", "program"} before a program runs, {"outcome", "error", "seconds"}
after it, {"seed"} after a batch.
"""

import itertools
import json
import os
import pathlib
import resource
import sys
import time
import traceback

import hypothesis
import tensorflow as tf
from example_calls import examples
from programs import programs

_BATCH = 25
_CLEAR = (tf.errors.OpError, ValueError, TypeError, OverflowError, NotImplementedError)


def outcome(source):
    """Runs a program; returns "value" or the error's class, and a description if that outcome is a finding."""
    try:
        exec(compile(source, "<case>", "exec"), {})
    except tf.errors.InternalError as error:
        return "InternalError", str(error)
    except _CLEAR as error:
        return type(error).__name__, "" if str(error) else "it has no message"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1].filename
        # Errors that TensorFlow or Keras raise for odd objects are not findings.
        ours = "/tensorflow_ops/" in where
        return f"{type(error).__name__} of {'ours' if ours else 'others'}", f"{error!r} in {where}" if ours else ""
    return "value", ""


def _limit_memory(max_bytes):
    with open("/proc/self/status", encoding="utf-8") as status:
        used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
    # TensorFlow reports tensors that it cannot allocate; any other failed allocation ends the process.
    resource.setrlimit(resource.RLIMIT_DATA, (used + max_bytes, used + max_bytes))


def _draw(first_seed, surfaces, run):
    settings = hypothesis.settings(
        max_examples=_BATCH,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    for seed in itertools.count(first_seed):
        drawn = hypothesis.given(programs(surfaces))(lambda case: run(*case))
        hypothesis.seed(seed)(settings(drawn))()
        yield seed


def main():
    messages, max_bytes, *what = sys.argv[1:]
    send_to = os.fdopen(int(messages), "w", encoding="utf-8")

    def send(**message):
        send_to.write(json.dumps(message) + "\n")
        send_to.flush()

    def run(surface, case, program):
        send(surface=surface, case=case, program=program)
        start = time.process_time()
        result, error = outcome(program)
        send(outcome=result, error=error, seconds=time.process_time() - start)

    tf.debugging.disable_traceback_filtering()  # the full traceback shows whose error it is
    tf.keras.config.disable_traceback_filtering()
    if len(what) > 1:
        examples()
    if int(max_bytes):
        _limit_memory(int(max_bytes))
    if len(what) == 1:
        run("file", what[0], pathlib.Path(what[0]).read_text(encoding="utf-8"))
    else:
        for seed in _draw(int(what[0]), what[1:], run):
            send(seed=seed)


if __name__ == "__main__":
    main()
