"""Tests of the processes: `python -m pytest examples/several_machines`."""

import os
import socket
import time

import cluster
import pytest

cluster.PROCESSES.set_forkserver_preload([])


def test_a_process_that_dies_ends_the_others():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="_exit ended with exit status 3"):
        cluster.run([(None, time.sleep, 100)], [(None, os._exit, 3)])
    assert time.monotonic() - start < 50


def test_processes_that_hang_end():
    with pytest.raises(RuntimeError, match="sleep ended with exit status 1"):
        cluster.run([(None, time.sleep, 100), (None, len, "done")], seconds=1)


def test_port_is_free_for_a_server_only():
    first, second = cluster.tasks(worker=2)
    address = first.socket.getsockname()
    assert address != second.socket.getsockname()
    with pytest.raises(OSError), socket.socket() as other:
        other.bind(address)
    cluster.run([(first, socket.create_server, address)])
