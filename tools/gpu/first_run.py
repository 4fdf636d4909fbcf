"""Tests and times the CUDA kernels on this machine's GPU: first_run.sh, which starts this, describes the options.

Every wait has a limit, so a budget holds even if programs hang; what there is no time for is missing in the summary.
"""

import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback

BUDGETS = {"correctness": 400, "times": 300}
# Show within seconds whether the GPU does what its emulation does: launches, tensor cores, asynchronous copies.
ALIVE = ["zero_out", "mma", "tile_product", "attention_gpu"]
# New or changed since the kernels were last read against hardware; then operations of warps, and blocks that share
# memory, of which the emulation shows least.
RISKY = [
    *ALIVE[1:],
    *("attention_gpu_options", "quantized_matmul", "recurrent", "update_cache", "assignment"),
    *("correlation_cost", "grid_sample", "normalization", "depthwise_conv", "activations", "dropout"),
    *("apply_gradients", "nms", "ctc_loss", "connected_components", "deform_conv", "ctc_decode"),
]
# By what is least certain about their times.
TIMED = [
    *("attention_gpu", "quantized_matmul", "recurrent", "update_cache", "assignment"),
    *("correlation_cost", "deform_conv", "nms", "softmax", "normalization", "depthwise_conv", "activations"),
    *("dropout", "apply_gradients", "roi_average", "ctc_loss", "grid_sample", "box_iou"),
]
COUNTED = {"Attend": "attention_gpu_test", "ToKeys": "attention_gpu_test"}
TOOLS = ["racecheck", "memcheck", "synccheck"]

GRACE = 1  # seconds until a program that ignores SIGTERM is killed
ENDING = 3  # seconds that a program may take beyond its limit
LEAST = 3  # seconds; with less left, a program does not start
LOG_BYTES = 64 << 10  # of the start of a log, and of its end
ARCHIVE_BYTES = 15 << 20  # before compression, so also after it
# Of compute-sanitizer: what it returns, and the lines before its end, for errors in kernels.
ERROR_STATUS, ERROR_LINE = 99, r"^=+ (Invalid|Misaligned|Program hit|Barrier error|(Error|Warning): Race)"
CORES = os.cpu_count() or 1


class Log:
    """A file of the start and the end of what is written to it: a program may print without end."""

    def __init__(self, path):
        self._path = path
        self._file = open(path, "wb", buffering=0)
        self._room, self._left_out, self._tail = LOG_BYTES, 0, b""

    def write(self, data):
        self._file.write(data[: self._room])
        rest = self._tail + data[self._room :]
        self._room = max(self._room - len(data), 0)
        self._tail = rest[-LOG_BYTES:]
        self._left_out += len(rest) - len(self._tail)

    def close(self):
        if self._left_out:
            self._file.write(b"\n[%d bytes left out]\n" % self._left_out)
        self._file.write(self._tail)
        self._file.close()
        if not self._path.stat().st_size:
            self._path.unlink()


class Results:
    """The files in the folder for results. They have all results at any time; the archive has them after each step."""

    def __init__(self, folder, command, budget):
        self.folder, self._command, self._budget = folder, command, budget
        self.logs = pathlib.Path(tempfile.mkdtemp(prefix="gpu_results."))
        self._start, self._lock = time.monotonic(), threading.RLock()
        self._results, self.notes = {}, []  # name: (passed, FAILED... or missing..., seconds)
        folder.mkdir(parents=True, exist_ok=True)
        self._failures = folder / f"{command}_failures.txt"
        self._failures.write_text("")
        (folder / f"{command}.tgz").unlink(missing_ok=True)
        self._write()

    def plan(self, names):
        """Lists what is missing until it is added."""
        with self._lock:
            for name in names:
                self._results.setdefault(name, ("missing", 0))
            self._write()

    def add(self, name, result, seconds=0.0, logs=()):
        with self._lock:
            self._results[name] = (result, seconds)
            self._write()
            print(f"{result}, {seconds:.0f} s: {name}", flush=True)
            if result.startswith("FAILED"):
                with open(self._failures, "a") as file:
                    file.write(f"######## {result}: {name}\n{excerpt(logs)}\n")

    def note(self, text):
        with self._lock:
            self.notes.append(text)
            self._write()

    def names(self, state):
        return [name for name, (result, _) in self._results.items() if result.startswith(state)]

    def _write(self):
        states = "FAILED", "missing", "passed"
        counts = ", ".join(f"{len(self.names(state))} {state}" for state in states)
        budget = f" of {self._budget}" if self._budget else ""
        lines = [f"{self._command}: {counts}, in {time.monotonic() - self._start:.0f}{budget} s", *self.notes]
        for state in states:
            lines += [f"{self._results[n][0]}, {self._results[n][1]:.0f} s: {n}" for n in self.names(state)]
        self._replace(f"{self._command}.txt", lambda path: path.write_text("\n".join(lines) + "\n"))

    def _replace(self, name, write):
        # Files that are being written must not take the place of complete ones.
        part = self.folder / f"{name}.part"
        write(part)
        part.replace(self.folder / name)

    def archive(self):
        """Packs the logs; the largest not, if they are too large."""

        def write(path):
            left, left_out = ARCHIVE_BYTES, []
            with tarfile.open(path, "w:gz", compresslevel=6) as archive:
                for file in sorted(filter(pathlib.Path.is_file, self.logs.rglob("*")), key=lambda f: f.stat().st_size):
                    left -= file.stat().st_size + 1024
                    name = file.relative_to(self.logs)
                    if left < 0:
                        left_out.append(str(name))
                    else:
                        archive.add(file, pathlib.Path(self._command) / name)
            if left_out:
                text = f"Left out of {self._command}.tgz, because they are large: {', '.join(left_out)}"
                self.notes = [note for note in self.notes if not note.startswith("Left out")] + [text]

        with self._lock:
            self._replace(f"{self._command}.tgz", write)
            self._write()


def text_of(log):
    return log.read_text(errors="replace") if log.exists() else ""


def excerpt(logs):
    """Returns the first failure in logs, and their end."""
    text = "".join(map(text_of, logs))
    found = re.search(rf"FAILED|{ERROR_LINE}|[Ee]rror", text, re.M)
    start = max(text.rfind("\n", 0, found.start()) + 1 - 200, 0) if found else len(text)
    if len(text) <= 6000:
        return text
    return f"{text[start : start + 4000]}\n[...]\n{text[-2000:]}"


class Session:
    """Runs programs until the deadline."""

    def __init__(self, options, results):
        self.results, self.jobs, self._limit = results, options.jobs, options.limit
        budget = options.budget or math.inf
        self.has_budget = budget < math.inf
        self._deadlines = [time.monotonic() + budget - min(10, budget / 10)]  # the rest is for the archive
        self._folder = options.programs
        self._running, self.stopped = set(), False

    def left(self):
        return self._deadlines[-1] - time.monotonic()

    @contextlib.contextmanager
    def until(self, part):
        """Within it, only a part of the time that is left is for programs."""
        self._deadlines.append(time.monotonic() + part * self.left())
        try:
            yield
        finally:
            self._deadlines.pop()

    def programs(self, first):
        """Returns the names of all programs, in the order of preference."""
        names = [path.name for path in sorted(self._folder.glob("*_test"))]
        order = {f"{name}_test": i for i, name in enumerate(first)}
        return sorted(names, key=lambda name: order.get(name, len(order)))

    def path(self, program):
        return str(self._folder / program)

    def run(self, name, limit, *command, log=None, environment=None, slow="FAILED"):
        """Runs a command, adds its result and returns it: passed, FAILED..., or missing... for lack of time."""
        limit = limit if self.has_budget else 4 * limit
        limit = min(limit, self._limit) if self._limit else limit
        left = self.left() - ENDING
        is_cut, limit = left < limit, min(limit, left)
        if (limit < LEAST and is_cut) or self.stopped:
            return "missing"
        start = time.monotonic()
        logs = log or self.results.logs / f"{name}.log", self.results.logs / f"{name}.err"
        status = self.execute(command, limit, *logs, environment)
        seconds = time.monotonic() - start
        if status == 0:
            result = "passed"
        elif self.stopped and status == 137:
            result = "missing (stopped)"
        elif status == 3:
            result = "FAILED (no GPU for it)"
        elif status in (124, 137) and seconds > limit - 0.1:
            result = f"missing (no time after {limit:.0f} s)" if is_cut else f"{slow} (more than {limit:.0f} s)"
        elif status == ERROR_STATUS:
            result = "FAILED (found errors)"
        else:
            result = f"FAILED (status {status})"
        self.results.add(name, result, seconds, logs)
        return result

    def execute(self, command, limit, log, errors, environment=None):
        """Returns the status of a command. Takes at most ENDING seconds more than the limit."""
        for path in (log, errors):
            path.parent.mkdir(parents=True, exist_ok=True)
        # `timeout` also ends the program if this process is killed.
        process = subprocess.Popen(
            ["timeout", f"--kill-after={GRACE}", f"{limit:.1f}", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        self._running.add(process)
        if self.stopped:
            kill(process)
        end = time.monotonic() + limit + GRACE + 0.5
        with selectors.DefaultSelector() as selector:
            files = {process.stdout: Log(log), process.stderr: Log(errors)}
            for pipe in files:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map() and time.monotonic() < end:
                has_ended = process.poll() is not None
                events = selector.select(0.2)
                for key, _ in events:
                    data = os.read(key.fd, 1 << 16)
                    if data:
                        files[key.fileobj].write(data)
                    else:
                        selector.unregister(key.fileobj)
                if has_ended and not events:
                    break  # another process, which it started, has the pipe
        for pipe, file in files.items():
            pipe.close()
            file.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(end - time.monotonic(), 0))
        kill(process)
        try:
            status = process.wait(1)
        except subprocess.TimeoutExpired:
            status = 137  # in a call of the driver that does not end
        self._running.discard(process)
        return 128 - status if status < 0 else status

    def each(self, function, items):
        """Calls a function for each item, several at once. Returns [(item, result or None)]."""

        def call(item):
            try:
                return item, function(item)
            except Exception as error:  # a full disk, say, must not end the others
                traceback.print_exc()
                self.results.note(f"{item}: {error!r}")
                return item, None

        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(call, items))

    def stop(self):
        self.stopped = True
        for process in list(self._running):
            kill(process)


def kill(process):
    """Kills what is left of the group of processes that `timeout` made."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def describe_machine(s):
    query = "--query-gpu=name,driver_version,memory.total,compute_cap"
    commands = {
        "gpu": ["nvidia-smi", query, "--format=csv,noheader"],
        "gpu_details": ["nvidia-smi", "-q"],
        "processor": ["lscpu"],
        "libc": ["ldd", "--version"],
        "compute-sanitizer": ["compute-sanitizer", "--version"],
        "ncu": ["ncu", "--version"],
    }
    s.results.plan(f"machine/{name}" for name in commands)

    def describe(name):
        if shutil.which(commands[name][0]):
            s.run(f"machine/{name}", 10, *commands[name])
        else:
            s.results.add(f"machine/{name}", f"missing (no {commands[name][0]})")

    s.each(describe, commands)
    gpu = text_of(s.results.logs / "machine/gpu.log").strip()[:200] or "unknown"
    s.results.note(f"GPU: {gpu}; {CORES} cores, {s.jobs} tests at once")


def test_apart(s, program):
    """Runs a program's tests, each in a process of its own: after a fault CUDA refuses all that a process does.

    CUDA waits for each kernel, so that the error names it, and writes a file about the first fault.
    """
    limit = 10
    if s.stopped or s.left() < limit + ENDING:
        return
    names = s.results.logs / f"tests/{program}/list.log"
    s.execute([s.path(program), "--gpu", "--list"], limit, names, names.with_suffix(".err"))
    tests = [test for test in text_of(names).split() if re.fullmatch(r"[\w.]+", test)][:200]
    s.results.plan(f"tests/{program}/{test}" for test in tests)
    dump, hangs = s.results.logs / "coredump", 0
    for test in tests:
        environment = {"CUDA_LAUNCH_BLOCKING": "1"}
        if not dump.exists():
            environment.update(
                CUDA_ENABLE_COREDUMP_ON_EXCEPTION="1",
                CUDA_ENABLE_LIGHTWEIGHT_COREDUMP="1",
                CUDA_COREDUMP_FILE=str(dump),
            )
        name = f"tests/{program}/{test}"
        result = s.run(name, 20, s.path(program), "--gpu", f"={test}", environment=environment)
        hangs += "more than" in result
        if hangs == 2:
            break


def test_all(s, programs):
    results = s.each(lambda program: s.run(f"tests/{program}", 45, s.path(program), "--gpu"), programs)
    failed = [program for program, result in results if not result or result.startswith("FAILED")]
    if all("no GPU" in (result or "") for _, result in results):
        s.stop()
        s.results.note("Nothing else can run: there is no GPU, or none of the programs' architecture.")
    s.results.archive()
    with s.until(1 / 3):
        s.each(lambda program: test_apart(s, program), failed)
    s.results.archive()


def sanitize(s, program, tool):
    name = f"{tool}/{program}"
    options = ["--tool", tool, "--error-exitcode", str(ERROR_STATUS)]
    # A program is slower under these tools, by a factor that nobody knows.
    result = s.run(name, 90, "compute-sanitizer", *options, s.path(program), "--gpu", slow="missing")
    log = s.results.logs / f"{name}.log"
    if result.startswith("missing") and re.search(ERROR_LINE, text_of(log), re.M):
        result = "FAILED (found errors until it was ended)"
        s.results.add(name, result, logs=[log])
    return result


def correctness(s):
    programs = s.programs([ALIVE[0], *RISKY])
    probe = programs[0], "memcheck"
    sanitized = [p for p in programs if not s.has_budget or p[: -len("_test")] in RISKY]
    pairs = [(p, tool) for p in sanitized for tool in TOOLS[:2]] + [(p, TOOLS[2]) for p in sanitized]
    pairs = [probe, *(pair for pair in pairs if pair != probe)]
    s.results.plan(f"tests/{program}" for program in programs)
    s.results.plan(f"{tool}/{program}" for program, tool in pairs)
    describe_machine(s)
    test_all(s, programs)
    # Not every machine lets compute-sanitizer use its GPU.
    if not shutil.which("compute-sanitizer"):
        s.results.note("There is no compute-sanitizer: all of its runs are missing.")
    elif (result := sanitize(s, *probe)) == "passed":
        s.each(lambda pair: sanitize(s, *pair), pairs[1:])
    elif result.startswith("FAILED"):
        s.results.note(f"memcheck/{programs[0]} did not pass: compute-sanitizer's other runs are missing.")


def time_kernels(s, program):
    path = s.results.logs / f"times/{program}.jsonl"
    result = s.run(f"times/{program}", 40, s.path(program), "--gpu", "--benchmark", log=path)
    if result.startswith("FAILED") and '"error"' not in text_of(path):
        with open(path, "a") as file:
            file.write(f"\n{json.dumps({'name': program, 'error': result})}\n")


def count(s, kernel):
    options = "--clock-control none --set full --launch-skip 3 --launch-count 1 --kill yes --check-exit-code no".split()
    options += ["--kernel-name", f"regex:{kernel}", s.path(COUNTED[kernel])]
    s.run(f"counters/{kernel}", 45, "ncu", *options, "--gpu", "--benchmark")


def times(s, failed):
    programs = s.programs([*TIMED, *RISKY])
    # What takes longest to make its input is no question.
    programs.sort(key="gaussian_kl_test".__eq__)
    tested = [p for p in programs if p in failed] or s.programs(ALIVE)[:1]
    counted = [kernel for kernel, program in COUNTED.items() if program in programs]
    s.results.plan(f"tests/{program}" for program in tested)
    s.results.plan(f"times/{program}" for program in programs)
    s.results.plan(["table.md", *(f"counters/{kernel}" for kernel in counted)])
    describe_machine(s)
    test_all(s, tested)
    with s.until(0.6):
        for program in programs:
            time_kernels(s, program)
    s.results.archive()
    has_counters = shutil.which("ncu") and counted
    table = s.results.folder / "table.md"
    table.unlink(missing_ok=True)
    files = [s.results.logs / f"times/{program}.jsonl" for program in programs]
    with s.until(0.6 if has_counters else 1):
        peers = pathlib.Path(__file__).with_name("peers.py")
        s.run("table.md", 170, sys.executable, peers, *filter(pathlib.Path.exists, files), log=table)
    s.results.archive()
    for kernel in counted:
        if has_counters:
            count(s, kernel)
        else:
            s.results.add(f"counters/{kernel}", "missing (no ncu)")


def parse():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("command", nargs="?", choices=list(BUDGETS))
    for name in ("out", "programs", "failed"):
        parser.add_argument(f"--{name}", type=pathlib.Path)
    for name in ("budget", "jobs", "limit"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args()
    if not list(options.programs.glob("*_test")):
        parser.error(f"no programs in {options.programs}")
    if options.failed and not options.failed.exists():
        parser.error(f"there is no {options.failed}")
    options.programs = options.programs.resolve()
    return options


def main():
    options = parse()
    options.jobs = max(options.jobs or min(8, CORES), 1)
    folder = options.out or pathlib.Path("gpu_results")
    failed = re.findall(r"^FAILED.*: tests/(\w+)", options.failed.read_text() if options.failed else "", re.M)
    all_passed = True
    for command in [options.command] if options.command else BUDGETS:
        if options.budget is None:
            options.budget = BUDGETS[command] if options.command else 0
        results = Results(folder, command, options.budget)
        s = Session(options, results)

        def stop(number, _, s=s):
            signal.signal(number, signal.SIG_IGN)
            s.stop()
            sys.exit(143)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)
        try:
            correctness(s) if command == "correctness" else times(s, failed)
        finally:
            results.archive()
            shutil.rmtree(results.logs, ignore_errors=True)
        all_passed &= not results.names("FAILED") and not results.names("missing")
        print((folder / f"{command}.txt").read_text()[:6000])
    sys.exit(0 if all_passed else 1)


if __name__ == "__main__":
    main()
