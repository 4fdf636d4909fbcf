"""Tests of check_launches.py, without its toolkit; .ci/run --release runs it."""

import check_launches
import pytest


@pytest.mark.parametrize(
    "threads, dynamic, facts, why",
    [
        (1024, 0, (90, 64, 48 << 10, 1024), None),
        (257, 0, (90, 64, 0, 256), "257 threads, more than the launch bound 256"),
        (1024, 0, (90, 65, 0, 1024), "1024 threads of 65 registers"),
        (32, 1024, (90, 32, 48 << 10, 1024), "49152 + 1024 bytes of shared memory, more than 49152"),
        (32, 62 << 10, (75, 32, 2 << 10, 1024), None),
        (32, 62 << 10, (75, 32, 3 << 10, 1024), "3072 + 63488 bytes of shared memory, more than 65536"),
        (32, 62 << 10, (80, 32, 3 << 10, 1024), None),
    ],
)
def test_names_what_a_gpu_refuses(threads, dynamic, facts, why):
    assert check_launches.fault(threads, dynamic, *facts) == why


def test_fails_for_kernels_that_the_wheel_lacks_and_without_launches(monkeypatch, capsys):
    kernels = {"Known()": [(90, 32, 0, 256)]}
    monkeypatch.setattr(check_launches, "compiled", lambda wheel: kernels)
    for launches, status, printed in (
        ({("Known()", 256, 0)}, 0, "1 kinds of launches, 0 faults"),
        ({("Known()", 512, 0)}, 1, "Known(), sm_90: 512 threads, more than the launch bound 256"),
        ({("Unknown()", 256, 0)}, 1, "Unknown(): not in the wheel"),
        (set(), 1, "0 kinds of launches"),
    ):
        monkeypatch.setattr(check_launches, "launched", lambda folder, launches=launches: launches)
        assert check_launches.main("launches", "wheel") == status
        assert printed in capsys.readouterr().out
