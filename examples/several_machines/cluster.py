"""Processes that stand for several machines. All of them end when one fails, or after a time limit."""

import faulthandler
import json
import multiprocessing
import os
import signal
import socket
from collections.abc import Sequence
from multiprocessing import connection

# Processes are forks of one that has imported these, which takes longer than most of them do.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tensorflow", "keras", "tensorflow_ops", "sklearn.datasets"])


class Task:
    """A task of a cluster: its TF_CONFIG, and its port, which its socket keeps from other programs."""

    def __init__(self, job: str, index: int):
        self.job, self.index, self.config = job, index, ""
        self.socket = socket.socket()
        # TensorFlow's servers set it, too: they can take the port while this socket keeps it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", 0))  # any free port of the loopback device


def tasks(**counts: int) -> list[Task]:
    """Returns the tasks of a cluster with so many processes for each job."""
    result = [Task(job, index) for job, count in counts.items() for index in range(count)]
    cluster = {job: [] for job in counts}
    for task in result:
        cluster[task.job].append("{}:{}".format(*task.socket.getsockname()))
    for task in result:
        task.config = json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.index}})
    return result


def _run(results, seconds, task, function, *arguments):
    """The main function of a process."""
    faulthandler.dump_traceback_later(seconds, exit=True)  # prints where it hangs; ends it without its parent, too
    if task:
        os.environ["TF_CONFIG"] = task.config
    results.send(function(*arguments))
    signal.pause()  # until the parent kills it: others may still call its server


def run(calls: Sequence[tuple], servers: Sequence[tuple] = (), seconds: float = 120) -> list:
    """Calls functions at the same time, each in a process of its own; returns their results.

    Args:
      calls: tuples of a task or None, a function, and its arguments.
      servers: the same, of functions that do not return. Their processes end when all calls have returned.
      seconds: the time limit.

    Raises:
      RuntimeError: a process failed; names its function and exit status.
    """
    processes, results = {}, {}
    try:
        for call in (*calls, *servers):
            reader, writer = PROCESSES.Pipe(duplex=False)
            processes[reader] = PROCESSES.Process(target=_run, args=(writer, seconds, *call), name=call[1].__name__)
            processes[reader].start()
            writer.close()
        readers = list(processes)[: len(calls)]
        while not all(reader in results for reader in readers):
            for reader in connection.wait(processes.keys() - results.keys()):
                try:
                    results[reader] = reader.recv()
                except EOFError:
                    process = processes[reader]
                    process.join()
                    raise RuntimeError(f"{process.name} ended with exit status {process.exitcode}") from None
        return [results[reader] for reader in readers]
    finally:
        for process in processes.values():
            process.kill()
            process.join()
