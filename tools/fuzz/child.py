"""A child process of fuzz.py that runs programs, so that crashes do no harm.

Arguments: the file descriptor for messages, the limit of allocated bytes (0: none), the ways to make calls of raw ops.
Reads programs from stdin, as JSON strings in lines. Messages are lines of JSON: {"ready"} before a program, {"way"}
before it calls an op in another way (calls.py), {"outcome", "error", "result", "seconds"} after it.
"""

import hashlib
import json
import os
import resource
import sys
import time
import traceback

import calls
import oracle
import tensorflow as tf
from example_calls import examples

_CLEAR = (tf.errors.OpError, ValueError, TypeError, OverflowError, NotImplementedError, LookupError)
_UNCLEAR = (tf.errors.InternalError, tf.errors.UnknownError, oracle.DisagreementError)


def outcome(source):
    """Runs a program. Returns "value" or the error's class, a description of a finding, a text of the result."""
    scope = {}
    try:
        exec(compile(source, "<case>", "exec"), scope)
    except Exception as error:
        return *_raised(error), oracle.text_of_error(error)
    return "value", "", hashlib.sha256(repr(oracle.bits(scope.get("result"))).encode()).hexdigest()


def _raised(error):
    name = type(error).__name__
    if isinstance(error, _UNCLEAR):
        return name, str(error)
    if isinstance(error, _CLEAR) and type(error) not in (KeyError, IndexError):
        return name, "" if str(error) else "it has no message"
    where = traceback.extract_tb(error.__traceback__)[-1].filename
    # Errors that TensorFlow or Keras raise for odd objects are not findings.
    ours = "/tensorflow_ops/" in where
    return f"{name} of {'ours' if ours else 'others'}", f"{error!r} in {where}" if ours else ""


def _limit_memory(max_bytes):
    with open("/proc/self/status", encoding="utf-8") as status:
        used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
    # TensorFlow reports tensors that it cannot allocate; any other failed allocation ends the process.
    resource.setrlimit(resource.RLIMIT_DATA, (used + max_bytes, used + max_bytes))


def main():
    messages, max_bytes, *ways = sys.argv[1:]
    send_to = os.fdopen(int(messages), "w", encoding="utf-8")

    def send(**message):
        send_to.write(json.dumps(message) + "\n")
        send_to.flush()

    tf.debugging.disable_traceback_filtering()  # the full traceback shows whose error it is
    tf.keras.config.disable_traceback_filtering()
    # It adds in another order than eager calls, and divides by sizes of 0 (TensorFlow 2.21), which ends the process.
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    calls.WAYS = [getattr(calls, way) for way in ways]
    calls.on_way = lambda way: send(way=way)
    if int(max_bytes):
        _limit_memory(int(max_bytes))
    for line in sys.stdin:
        program = json.loads(line)
        if "public(" in program:
            examples()  # its first call takes longer than a program may
        send(ready=True)
        start = time.process_time()
        name, error, result = outcome(program)
        send(outcome=name, error=error, result=result, seconds=time.process_time() - start)


if __name__ == "__main__":
    main()
