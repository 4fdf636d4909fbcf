"""Calls ops and public functions with hostile arguments, and saves programs of findings.

A finding is a crash, a hang, GBs of memory, an unexpected error, or a result or error that depends on how a call is
made (calls.py), on the number of threads, or on the bytes in fresh memory.

    python tools/fuzz/fuzz.py --minutes 60
    python tools/fuzz/fuzz.py --cases 100 --seed 7 --surface raw_op
    python tools/fuzz/fuzz.py --program build/fuzz/raw_op_0123456789ab.py

Surfaces: raw_op (shapes, values, attrs), graph (edited GraphDefs and SavedModels), public (odd Python types), relation
(relations.py: padding, rows of RaggedTensors, float32 and float64, places of samples, the switch, LiteRT, caches).
Prints the program of each finding, and saves it in the folder --out.
"""

import argparse
import collections
import hashlib
import itertools
import multiprocessing.connection
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import calls
import fresh_memory
import oracle
import programs
import tensorflow as tf
from example_calls import examples

_SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
# Limits for each way of a call; the second for waiting, or a busy machine. Sanitizers also slow TensorFlow's tracing.
_CPU_SECONDS, _SECONDS = (60, 300) if _SANITIZED else (10, 60)
_MAX_BYTES = 3 << 30
_DEATHS = ("crash", "hang", "memory")
# Threads and ways. All ways agree with the eager one, so the second process has only that.
_CHILDREN = (
    (1, tuple(way.__name__ for way in calls.WAYS)),
    (3, ("eager",)),
)
_CLEAR = (tf.errors.OpError, ValueError, TypeError, OverflowError, NotImplementedError, LookupError)
_UNCLEAR = (tf.errors.InternalError, tf.errors.UnknownError, oracle.DisagreementError)


def _outcome(source):
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


def _resident(process):
    return int(pathlib.Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_child(descriptor, max_bytes, ways):
    """Runs programs, so that crashes do no harm. Sends its memory, then each way before it, then the outcome."""
    connection = multiprocessing.connection.Connection(descriptor)
    tf.debugging.disable_traceback_filtering()  # the full traceback shows whose error it is
    tf.keras.config.disable_traceback_filtering()
    # It adds in another order than eager calls, and divides by sizes of 0 (TensorFlow 2.21), which ends the process.
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    calls.WAYS = [getattr(calls, way) for way in ways]
    calls.on_way = connection.send
    if not _SANITIZED:  # AddressSanitizer reserves TBs of address space: ASAN_OPTIONS sets the limit
        used = next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
        # TensorFlow reports tensors that it cannot allocate; any other failed allocation ends the process.
        resource.setrlimit(resource.RLIMIT_DATA, ((int(used.split()[1]) << 10) + max_bytes,) * 2)
    while True:
        program = connection.recv()
        if "public(" in program or "accurate(" in program:
            examples()  # its first call takes longer than a program may
        connection.send(_resident("self"))
        start = time.process_time()
        outcome = _outcome(program)
        connection.send((*outcome, time.process_time() - start))


class Child:
    """A process that runs programs: with this number of intra-op threads, and calls of raw ops in these ways."""

    def __init__(self, threads, ways):
        self._log = tempfile.TemporaryFile()
        self._connection, theirs = multiprocessing.Pipe()
        # AddressSanitizer fills memory with one byte only, so that each child has another.
        fill = f"malloc_fill_byte={threads}:max_malloc_fill_size={_MAX_BYTES}"
        environment = {
            **os.environ,
            **fresh_memory.ENVIRONMENT,
            "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:{fill}",
            "PYTHONHASHSEED": "0",  # the order of sets in messages
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TF_NUM_INTRAOP_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), *(p for p in sys.path if p)]),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import fuzz; fuzz.run_child({theirs.fileno()}, {_MAX_BYTES}, {ways})"],
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=tempfile.gettempdir(),
        )
        theirs.close()
        self._stat = pathlib.Path(f"/proc/{self._process.pid}")

    def start(self, program):
        """Starts a program, when the process is ready."""
        self._connection.send(program)

    def result(self):
        """Waits for the program that was started last. Returns outcome, error, result and CPU seconds."""
        way = message = ""
        try:
            before = self._connection.recv()
            while isinstance(message, str):
                way = message
                start, cpu = time.monotonic(), self._cpu_seconds()
                while not self._connection.poll(0.1):
                    if self._cpu_seconds() - cpu > _CPU_SECONDS or time.monotonic() - start > _SECONDS:
                        return self._ended("hang", f"{way}: more than {_CPU_SECONDS} s of CPU, or {_SECONDS} s")
                    if _resident(self._process.pid) - before > _MAX_BYTES:
                        return self._ended("memory", f"{way}: more than {_MAX_BYTES >> 30} GB")
                message, before = self._connection.recv(), _resident(self._process.pid)
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            self._log.seek(0)
            return self._ended("crash", f"{way}: {name}\n{self._log.read()[-6000:].decode(errors='replace')}")
        return message

    def _ended(self, outcome, error):
        self.stop()
        return outcome, error, None, 0

    def stop(self):
        self._process.kill()
        self._process.wait()

    def _cpu_seconds(self):
        fields = (self._stat / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


class Fuzzer:
    """Runs cases in children, counts outcomes and records findings."""

    def __init__(self, out=None):
        self.counts = collections.defaultdict(collections.Counter)  # outcomes by surface
        self.findings = []  # (surface, case, outcome, error, program)
        self.slowest = 0, ""  # CPU seconds, program
        self._out, self._seen, self._children = out, set(), {}

    def run_case(self, surface, case, program):
        """Runs a program in all children: counts its outcome, records a finding."""
        for arguments in _CHILDREN:
            if arguments not in self._children:
                self._children[arguments] = Child(*arguments)
            self._children[arguments].start(program)
        results = [self._children[arguments].result() for arguments in _CHILDREN]
        for arguments, result in zip(_CHILDREN, results, strict=True):
            if result[0] in _DEATHS:
                del self._children[arguments]
        outcome, error, _, seconds = min(results, key=lambda result: not result[1])
        memory_ended = "ResourceExhaustedError" in (first for first, *_ in results)
        if not error and not memory_ended and len({result for *_, result, _ in results}) > 1:
            texts = ", ".join(result for *_, result, _ in results)
            outcome, error = "threads", f"1 and 3 threads, or other bytes in fresh memory: {texts}"
        self.counts[surface][outcome] += 1
        self.slowest = max(self.slowest, (seconds, program))
        if error:
            self._keep(surface, case, outcome, error, program)

    def stop(self):
        """Ends the children."""
        for child in self._children.values():
            child.stop()

    def _keep(self, surface, case, outcome, error, program):
        key = (surface, case, outcome, error[:40] if outcome != "crash" else "")
        if key in self._seen:
            return
        self._seen.add(key)
        self.findings.append((surface, case, outcome, error, program))
        print(f"\n##### {surface} {case}: {outcome}: {error}\n{program}", flush=True)
        if self._out:
            os.makedirs(self._out, exist_ok=True)
            name = hashlib.sha256(program.encode()).hexdigest()[:12]
            path = pathlib.Path(self._out) / f"{surface}_{name}.py"
            path.write_text(program, encoding="utf-8")
            print(f"Reproduce: {sys.executable} {__file__} --program {path}", flush=True)


def _cases(options):
    """Yields the arguments of run_case."""
    for path in options.program or ():
        yield "file", path, pathlib.Path(path).read_text(encoding="utf-8")
    end = time.monotonic() + 60 * (options.minutes or 1e9)
    for case in itertools.islice(programs.programs(options.surface or programs.SURFACES, options.seed), options.cases):
        if options.program or time.monotonic() > end:
            break
        yield case


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--surface", choices=list(programs.SURFACES), action="append", help="default: all")
    parser.add_argument("--program", action="append", help="a finding's program to run again")
    parser.add_argument("--out", help="a folder for the programs of findings")
    options = parser.parse_args()
    if not (options.minutes or options.cases or options.program):
        parser.error("expected --minutes, --cases or --program")
    fuzzer = Fuzzer(options.out)
    for case in _cases(options):
        fuzzer.run_case(*case)
    fuzzer.stop()
    print()
    for surface, counts in fuzzer.counts.items():
        print(f"{surface}: {counts.total()} cases: " + ", ".join(f"{n} {o}" for o, n in counts.most_common()))
    print("The slowest case took {:.1f} s of CPU:\n{}".format(*fuzzer.slowest))
    print(f"{len(fuzzer.findings)} findings")
    return 1 if fuzzer.findings else 0


if __name__ == "__main__":
    sys.exit(main())
