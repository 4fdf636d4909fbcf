"""A process that fuzz.py starts: runs programs, where a crash costs nothing.

Arguments: the descriptor that messages go to; the bytes that may be allocated (0: any); and a program's file, or the
first seed and the surfaces that programs are drawn from, without end.
A message is a line of JSON: {"surface", "case", "program"} before a program runs, {"outcome", "error", "seconds"}
behind it, {"seed"} behind a batch.
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
    """What running a program came to: "value" or the error's class; and what is wrong with that."""
    try:
        exec(compile(source, "<case>", "exec"), {})
    except tf.errors.InternalError as error:
        return "InternalError", str(error)
    except _CLEAR as error:
        return type(error).__name__, "" if str(error) else "it has no message"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1].filename
        # What TensorFlow or Keras makes of an odd object is theirs.
        ours = "/tensorflow_ops/" in where
        return f"{type(error).__name__} of {'ours' if ours else 'others'}", f"{error!r} in {where}" if ours else ""
    return "value", ""


def _limit_memory(most_bytes):
    with open("/proc/self/status", encoding="utf-8") as status:
        used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
    # TensorFlow reports a tensor that it cannot allocate; other memory that cannot be had ends the process.
    resource.setrlimit(resource.RLIMIT_DATA, (used + most_bytes, used + most_bytes))


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
    messages, most_bytes, *what = sys.argv[1:]
    send_to = os.fdopen(int(messages), "w", encoding="utf-8")

    def send(**message):
        send_to.write(json.dumps(message) + "\n")
        send_to.flush()

    def run(surface, case, program):
        send(surface=surface, case=case, program=program)
        start = time.process_time()
        result, error = outcome(program)
        send(outcome=result, error=error, seconds=time.process_time() - start)

    tf.debugging.disable_traceback_filtering()  # whose error it is, the traceback says
    tf.keras.config.disable_traceback_filtering()
    if len(what) > 1:
        examples()
    if int(most_bytes):
        _limit_memory(int(most_bytes))
    if len(what) == 1:
        run("file", what[0], pathlib.Path(what[0]).read_text(encoding="utf-8"))
    else:
        for seed in _draw(int(what[0]), what[1:], run):
            send(seed=seed)


if __name__ == "__main__":
    main()
