"""Calls ops and public functions with hostile arguments, and saves programs of findings.

A finding is a crash, a hang, GBs of memory, an unexpected error, or a result or error that depends on how a call is
made (calls.py), on the number of threads, or on the bytes in fresh memory.

    python tools/fuzz/fuzz.py --minutes 60
    python tools/fuzz/fuzz.py --cases 100 --seed 7 --surface raw_op
    python tools/fuzz/fuzz.py --program build/fuzz/raw_op_0123456789ab.py

Surfaces: raw_op (shapes, values, attrs), graph (edited GraphDefs and SavedModels), public (odd Python types).
Prints the program of each finding, and saves it in the folder --out.
"""

import argparse
import collections
import hashlib
import itertools
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

import fresh_memory
import programs

_FOLDER = pathlib.Path(__file__).resolve().parent
_SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
# Limits for each way of a call; the second for waiting, or a busy machine. Sanitizers also slow TensorFlow's tracing.
_CPU_SECONDS, _SECONDS = (60, 300) if _SANITIZED else (10, 60)
_MAX_BYTES = 3 << 30
_DEATHS = ("crash", "hang", "memory")
# Threads and ways. All ways agree with the eager one, so the second process has only that.
_CHILDREN = (
    (1, ("eager", "known_shapes", "unknown_shapes", "known_values", "compiled")),
    (3, ("eager",)),
)


class Child:
    """A process that runs programs: with this number of intra-op threads, and calls of raw ops in these ways."""

    def __init__(self, threads, ways):
        self._log = tempfile.TemporaryFile()
        read, write = os.pipe()
        environment = {
            **os.environ,
            **fresh_memory.ENVIRONMENT,
            "PYTHONHASHSEED": "0",  # the order of sets in messages
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TF_NUM_INTRAOP_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join([str(_FOLDER), *(p for p in sys.path if p)]),
        }
        # AddressSanitizer reserves TBs of address space, so there ASAN_OPTIONS sets the limit. It fills memory with one
        # byte only, so that each child has another.
        limit = "0" if _SANITIZED else str(_MAX_BYTES)
        fill = f"malloc_fill_byte={threads}:max_malloc_fill_size={_MAX_BYTES}"
        environment["ASAN_OPTIONS"] = f"{environment.get('ASAN_OPTIONS', '')}:{fill}"
        command = [sys.executable, str(_FOLDER / "child.py"), str(write), limit, *ways]
        self._process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=[write],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            cwd=tempfile.gettempdir(),
            text=True,
        )
        os.close(write)
        # Unbuffered, so that select sees all data.
        self._messages = os.fdopen(read, "rb", buffering=0)

    def start(self, program):
        """Starts a program, when the process is ready."""
        self._process.stdin.write(json.dumps(program) + "\n")
        self._process.stdin.flush()

    def result(self):
        """Waits for the program that was started last. Returns a dict with outcome, error, result and CPU seconds."""
        if self._message() is None:
            raise RuntimeError(f"the process that runs cases ended: {self._death()}")
        way, message = "", {"way": ""}
        while "way" in message:
            way = message["way"]
            start, cpu, before = time.monotonic(), self._cpu_seconds(), self._resident()
            while not select.select([self._messages], [], [], 0.1)[0]:
                if self._cpu_seconds() - cpu > _CPU_SECONDS or time.monotonic() - start > _SECONDS:
                    return self._ended("hang", f"{way}: more than {_CPU_SECONDS} s of CPU, or {_SECONDS} s")
                if self._resident() - before > _MAX_BYTES:
                    return self._ended("memory", f"{way}: more than {_MAX_BYTES >> 30} GB")
            message = self._message()
            if message is None:
                return self._ended("crash", f"{way}: {self._death()}")
        return message

    def _ended(self, outcome, error):
        self.stop()
        return {"outcome": outcome, "error": error, "result": None, "seconds": 0}

    def _message(self):
        """Returns the next message, or None if the process has died."""
        return json.loads(self._messages.readline() or b"null")

    def _death(self):
        code = self._process.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self._log.seek(0)
        return f"{name}\n" + self._log.read()[-6000:].decode(errors="replace")

    def stop(self):
        self._process.kill()
        self._process.wait()

    def _stat(self, name):
        return pathlib.Path(f"/proc/{self._process.pid}/{name}").read_text(encoding="utf-8")

    def _cpu_seconds(self):
        return sum(map(int, self._stat("stat").rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def _resident(self):
        return int(self._stat("statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Fuzzer:
    """Runs cases, counts outcomes and records findings."""

    def __init__(self, out=None):
        self.counts = collections.defaultdict(collections.Counter)  # outcomes by surface
        self.findings = []  # (surface, case, outcome, error, program)
        self.slowest = 0, ""  # CPU seconds, program
        self._out, self._seen, self._children = out, set(), {}

    def run(self, surfaces, seed=0, cases=None, seconds=None):
        """Runs this many cases, or cases for this many seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        for case in itertools.islice(programs.programs(surfaces, seed), cases):
            if end is not None and time.monotonic() > end:
                break
            self.run_case(*case)

    def run_case(self, surface, case, program):
        """Runs a program in both children. Returns nothing: counts its outcome, records a finding."""
        for i, arguments in enumerate(_CHILDREN):
            if i not in self._children:
                self._children[i] = Child(*arguments)
            self._children[i].start(program)
        results = [self._children[i].result() for i in range(len(_CHILDREN))]
        for i, result in enumerate(results):
            if result["outcome"] in _DEATHS:
                del self._children[i]
        first, second = sorted(results, key=lambda result: not result["error"])
        outcome, error = first["outcome"], first["error"]
        memory_ended = "ResourceExhaustedError" in (first["outcome"], second["outcome"])
        if not error and first["result"] != second["result"] and not memory_ended:
            outcome = "threads"
            error = f"1 and 3 threads, or other bytes in fresh memory: {first['result']}, {second['result']}"
        self.counts[surface][outcome] += 1
        self.slowest = max(self.slowest, (first["seconds"], program))
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--surface", choices=list(programs.SURFACES), action="append", help="default: all")
    parser.add_argument("--program", action="append", help="a finding's program to run again")
    parser.add_argument("--out", help="a folder for the programs of findings")
    options = parser.parse_args()
    if (options.minutes, options.cases, options.program) == (None, None, None):
        parser.error("expected --minutes, --cases or --program")
    fuzzer = Fuzzer(options.out)
    for path in options.program or ():
        fuzzer.run_case("file", path, pathlib.Path(path).read_text(encoding="utf-8"))
    if not options.program:
        seconds = None if options.minutes is None else options.minutes * 60
        fuzzer.run(options.surface or list(programs.SURFACES), options.seed, options.cases, seconds)
    fuzzer.stop()
    print()
    for surface, counts in fuzzer.counts.items():
        print(f"{surface}: {counts.total()} cases: " + ", ".join(f"{n} {o}" for o, n in counts.most_common()))
    print("The slowest case took {:.1f} s of CPU:\n{}".format(*fuzzer.slowest))
    print(f"{len(fuzzer.findings)} findings")
    return 1 if fuzzer.findings else 0


if __name__ == "__main__":
    sys.exit(main())
