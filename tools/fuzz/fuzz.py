"""Calls ops and public functions with hostile arguments. Findings: crashes, hangs, GBs of memory, unexpected errors.

    python tools/fuzz/fuzz.py --minutes 60
    python tools/fuzz/fuzz.py --cases 100 --seed 7 --surface raw_op
    python tools/fuzz/fuzz.py --program build/fuzz/raw_op_0123456789ab.py

Surfaces: raw_op (shapes, values, attrs), graph (edited GraphDefs and SavedModels), public (odd Python types).
Prints the program of each finding, and saves it in the folder --out.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

_FOLDER = pathlib.Path(__file__).resolve().parent
_CPU_SECONDS, _SECONDS = 10, 60  # limits for a case; the second for waiting, or a busy machine
_MAX_BYTES = 3 << 30
_DEATHS = ("crash", "hang", "memory")
SURFACES = ("raw_op", "graph", "public")


class Child:
    """A process that runs cases in sequence. `what` are the last arguments of child.py."""

    def __init__(self, *what):
        self._log = tempfile.TemporaryFile()
        read, write = os.pipe()
        path = os.pathsep.join([str(_FOLDER), *(p for p in sys.path if p)])
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": path}
        # AddressSanitizer reserves TBs of address space, so there ASAN_OPTIONS sets the limit.
        limit = "0" if "libasan" in environment.get("LD_PRELOAD", "") else str(_MAX_BYTES)
        command = [sys.executable, str(_FOLDER / "child.py"), str(write), limit, *map(str, what)]
        self._process = subprocess.Popen(
            command, env=environment, pass_fds=[write], stdout=self._log, stderr=self._log, cwd=tempfile.gettempdir()
        )
        os.close(write)
        # Unbuffered, so that select sees all data.
        self._messages = os.fdopen(read, "rb", buffering=0)

    def message(self):
        """Returns the next message, or None if the process has died."""
        return json.loads(self._messages.readline() or b"null")

    def result(self):
        """Returns (outcome, error, CPU seconds) of the current case."""
        start, cpu, before = time.monotonic(), self._cpu_seconds(), self._resident()
        while not select.select([self._messages], [], [], 0.1)[0]:
            if self._cpu_seconds() - cpu > _CPU_SECONDS or time.monotonic() - start > _SECONDS:
                self.stop()
                return "hang", f"more than {_CPU_SECONDS} s of CPU, or {_SECONDS} s", _CPU_SECONDS
            if self._resident() - before > _MAX_BYTES:
                self.stop()
                return "memory", f"more than {_MAX_BYTES >> 30} GB", 0
        message = self.message()
        if message is not None:
            return message["outcome"], message["error"], message["seconds"]
        return "crash", self.death(), 0

    def death(self):
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
        self._out, self._seen = out, set()

    def run(self, surfaces, seed=0, cases=None, seconds=None):
        """Runs this many cases, or cases for this many seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        child = None
        while (cases is None or cases > 0) and (end is None or time.monotonic() < end):
            child = child or Child(seed, *surfaces)
            message = child.message()
            if message is None:
                raise RuntimeError(f"the process that draws cases ended: {child.death()}")
            if "seed" in message:
                seed = message["seed"] + 1
                continue
            cases = None if cases is None else cases - 1
            if self._run_case(child, message) in _DEATHS:
                child, seed = None, seed + 1
        if child is not None:
            child.stop()

    def run_program(self, path):
        """Runs a program from a file."""
        child = Child(os.path.abspath(path))
        if (message := child.message()) is None:
            raise RuntimeError(f"the process that runs {path} ended: {child.death()}")
        self._run_case(child, message)
        child.stop()

    def _run_case(self, child, case):
        outcome, error, cpu = child.result()
        self.counts[case["surface"]][outcome] += 1
        self.slowest = max(self.slowest, (cpu, case["program"]))
        if error:
            self._keep(case["surface"], case["case"], outcome, error, case["program"])
        return outcome

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
    parser.add_argument("--surface", choices=SURFACES, action="append", help="default: all")
    parser.add_argument("--program", action="append", help="a finding's program to run again")
    parser.add_argument("--out", help="a folder for the programs of findings")
    options = parser.parse_args()
    if (options.minutes, options.cases, options.program) == (None, None, None):
        parser.error("expected --minutes, --cases or --program")
    fuzzer = Fuzzer(options.out)
    for path in options.program or ():
        fuzzer.run_program(path)
    if not options.program:
        seconds = None if options.minutes is None else options.minutes * 60
        fuzzer.run(options.surface or SURFACES, options.seed, options.cases, seconds)
    print()
    for surface, counts in fuzzer.counts.items():
        print(f"{surface}: {counts.total()} cases: " + ", ".join(f"{n} {o}" for o, n in counts.most_common()))
    print("The slowest case took {:.1f} s of CPU:\n{}".format(*fuzzer.slowest))
    print(f"{len(fuzzer.findings)} findings")
    return 1 if fuzzer.findings else 0


if __name__ == "__main__":
    sys.exit(main())
