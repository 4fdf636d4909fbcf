"""Runs the jobs of many opchecks in few processes, one after another, and records which steps crashed."""

import json
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import time

_HERE = os.path.dirname(os.path.abspath(__file__))
_SCRIPT, _SERVER = os.path.join(_HERE, "child.py"), os.path.join(_HERE, "fork_server.py")
# Modules that all children import.
_PRELOADED = ("tensorflow",)
# Thread counts, and the steps to run with each; None is all.
THREADS = {4: None, 1: {"large"}}
# A step is killed after this time.
_STEP_SECONDS = 240


class Job:
    """A SavedModel, and the steps that a child runs with it."""

    def __init__(self, folder, name, imports):
        self.name, self.imports, self.steps = name, tuple(imports), []
        self._folder = os.path.join(folder, name)
        os.makedirs(self._folder)
        self.model = os.path.join(self._folder, "model")

    def add(self, step, **given):
        """Adds a step, and writes its arguments to a file."""
        with open(os.path.join(self._folder, f"{step}.given"), "wb") as file:
            pickle.dump(given, file)
        self.steps.append(step)

    def result(self, step, threads=4):
        """Returns (state, value): ("ok", ...), ("raised", text), ("crashed", text) or ("missing", "")."""
        try:
            with open(os.path.join(self._folder, f"{step}.{threads}.result"), "rb") as file:
                return pickle.load(file)
        except FileNotFoundError:
            return "missing", ""

    def put(self, step, threads, value):
        """Records the result of a step that the child could not record."""
        with open(os.path.join(self._folder, f"{step}.{threads}.result"), "wb") as file:
            pickle.dump(value, file)


class _ForkServer:
    """Starts children, one at a time."""

    def __init__(self, folder):
        self._folder = folder
        # No GPU: the parent may hold all of its memory. No OpenBLAS threads: a process that forks must have one thread.
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "OPENBLAS_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        with open(self._file("server_log"), "w", encoding="utf-8") as log:
            self._server = subprocess.Popen(
                [sys.executable, _SERVER, *_PRELOADED],
                env={**os.environ, **environment},
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
            )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()

    def _file(self, name):
        return os.path.join(self._folder, name)

    def run(self, threads):
        """Runs a child. Returns how it ended, as text."""
        request = json.dumps([_SCRIPT, self._file("log"), self._folder, str(threads)])
        try:
            self._server.stdin.write(f"{request}\n".encode())
        except BrokenPipeError:
            pass
        process = self._server.stdout.readline()
        if not process:
            return self._last_words("server_log")
        seen, since, hung = None, time.monotonic(), False
        while not select.select([self._server.stdout], [], [], 0.5)[0]:
            underway = _read(self._file("underway"))
            if underway != seen:
                seen, since = underway, time.monotonic()
            elif time.monotonic() - since > _STEP_SECONDS and not hung:
                hung = True
                os.kill(int(process), signal.SIGKILL)
        code = int(self._server.stdout.readline())
        if hung:
            return f"it was still running after {_STEP_SECONDS} s"
        last = self._last_words("log")
        return f"the process died of {signal.Signals(-code).name}: {last}" if code < 0 else last

    def _last_words(self, name):
        with open(self._file(name), encoding="utf-8", errors="replace") as log:
            lines = [line.rstrip() for line in log if line.strip()]
        # TensorFlow logs a failed check before the stack.
        fatal = [line.partition("] ")[2] for line in lines if re.match(r"F\d{4} ", line)]
        return (fatal[:1] or lines[-1:] or [""])[0]


def run(folder, jobs):
    """Runs all steps of all jobs. After a crash a new child continues with the step after the crashed one."""
    groups = []
    for imports in dict.fromkeys(job.imports for job in jobs):
        for threads, only in THREADS.items():
            of_group = {job.name: job for job in jobs if job.imports == imports}
            planned = [(name, [s for s in job.steps if only is None or s in only]) for name, job in of_group.items()]
            planned = [(name, steps) for name, steps in planned if steps]
            if planned:
                groups.append((of_group, imports, planned, threads))
    if groups:
        with _ForkServer(folder) as server:
            for group in groups:
                _run_group(server, folder, *group)


def _run_group(server, folder, by_name, imports, planned, threads):
    with open(os.path.join(folder, "plan.pkl"), "wb") as file:
        pickle.dump({"imports": imports, "jobs": planned}, file)
    underway_path = os.path.join(folder, "underway")
    while True:
        if os.path.exists(underway_path):
            os.remove(underway_path)
        outcome = server.run(threads)
        underway = _read(underway_path)
        if underway == "done":
            return
        if not underway:  # the child ended before its first job, and so would any other
            for name, steps in planned:
                for step in ("load", *steps):
                    by_name[name].put(step, threads, ("raised", outcome))
            return
        name, step = underway.splitlines()
        steps = dict(planned)[name]
        # Loading again would crash again.
        for crashed in ("load", *steps) if step == "load" else (step,):
            by_name[name].put(crashed, threads, ("crashed", outcome))
        if step == "load":
            planned = [(n, s) for n, s in planned if n != name]
            with open(os.path.join(folder, "plan.pkl"), "wb") as file:
                pickle.dump({"imports": imports, "jobs": planned}, file)


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
