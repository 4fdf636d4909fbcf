"""Runs the jobs of many opchecks in few processes, one after another, and finds out which crashed."""

import os
import pickle
import re
import signal
import subprocess
import sys
import time

_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
# Thread counts, and the steps that are run with each; None is all.
THREADS = {4: None, 1: {"large"}}
# A step that takes longer hangs.
_STEP_SECONDS = 240


class Job:
    """A SavedModel, and the steps that a child does with it."""

    def __init__(self, folder, name, imports):
        self.name, self.imports, self.steps = name, tuple(imports), []
        self._folder = os.path.join(folder, name)
        os.makedirs(self._folder)
        self.model = os.path.join(self._folder, "model")

    def add(self, step, **given):
        """Plans a step; what it is given is written at once."""
        with open(os.path.join(self._folder, f"{step}.given"), "wb") as file:
            pickle.dump(given, file)
        self.steps.append(step)

    def result(self, step, threads=4):
        """(state, value): ("ok", ...), ("raised", text), ("crashed", text) or ("missing", "")."""
        try:
            with open(os.path.join(self._folder, f"{step}.{threads}.result"), "rb") as file:
                return pickle.load(file)
        except FileNotFoundError:
            return "missing", ""

    def put(self, step, threads, value):
        """Records a step's result in the child's place."""
        with open(os.path.join(self._folder, f"{step}.{threads}.result"), "wb") as file:
            pickle.dump(value, file)


def run(folder, jobs):
    """Does all steps of all jobs. A child that dies is started again behind the step that killed it."""
    for imports in dict.fromkeys(job.imports for job in jobs):
        group = [job for job in jobs if job.imports == imports]
        for threads, only in THREADS.items():
            planned = [(job.name, [s for s in job.steps if only is None or s in only]) for job in group]
            planned = [(name, steps) for name, steps in planned if steps]
            if planned:
                _run_group(folder, {job.name: job for job in group}, imports, planned, threads)


def _run_group(folder, by_name, imports, planned, threads):
    with open(os.path.join(folder, "plan.pkl"), "wb") as file:
        pickle.dump({"imports": imports, "jobs": planned}, file)
    underway_path = os.path.join(folder, "underway")
    while True:
        if os.path.exists(underway_path):
            os.remove(underway_path)
        outcome = _run_child(folder, threads)
        underway = _read(underway_path)
        if underway == "done":
            return
        if not underway:  # it did not come to its first job: no other child would
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


def _run_child(folder, threads):
    """What became of a child, as text."""
    # The parent may hold all of a GPU's memory.
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    log_path = os.path.join(folder, "log")
    with open(log_path, "w", encoding="utf-8") as log:
        child = subprocess.Popen(
            [sys.executable, _SCRIPT, folder, str(threads)], env=environment, cwd=folder, stdout=log, stderr=log
        )
        hung = False
        seen, since = None, time.monotonic()
        while True:
            try:
                code = child.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                underway = _read(os.path.join(folder, "underway"))
                if underway != seen:
                    seen, since = underway, time.monotonic()
                elif time.monotonic() - since > _STEP_SECONDS:
                    hung = True
                    child.kill()
    if hung:
        return f"it was still running after {_STEP_SECONDS} s"
    with open(log_path, encoding="utf-8", errors="replace") as log:
        lines = [line.rstrip() for line in log if line.strip()]
    last = lines[-1] if lines else ""
    # What TensorFlow logs of a failed check stands above the stack.
    fatal = [line.partition("] ")[2] for line in lines if re.match(r"F\d{4} ", line)]
    last = fatal[0] if fatal else last
    return f"the process died of {signal.Signals(-code).name}: {last}" if code < 0 else last
