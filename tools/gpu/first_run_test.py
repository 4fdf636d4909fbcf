"""Tests first_run.sh and peers.py: the programs, CUDA's tools and PyTorch are fakes.

usage: "$(bash tools/setup/python_env.sh)" -m pytest -q tools/gpu
"""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKES = {
    "nvidia-smi": "echo an imagined GPU",
    "compute-sanitizer": """[[ $1 != --version ]] || exit 0
while [[ $1 == --* ]]; do [[ $1 != --tool ]] || tool=$2; shift 2; done
"$@" && [[ $tool != racecheck || $1 != *zero_out* ]]""",
}
TORCH = """
import sys
from unittest import mock

torch = sys.modules["torch"] = sys.modules["torchvision"] = mock.MagicMock(__version__="2.0")
torch.no_grad.return_value = lambda function: function
torch.cuda.get_device_name.return_value = "an imagined GPU"
torch.cuda.Event.return_value.elapsed_time.return_value = 2.0
torch.empty_like.return_value = torch.empty.return_value = mock.MagicMock()
torch.empty.return_value.numel.return_value = 3 << 30
torch.log_softmax.side_effect = RuntimeError("no such kernel\\nstack")
sys.modules["torch.nn"] = torch.nn
"""
# In the place of what build.sh packs.
PASSES = {"zero_out_test": "[[ ${1-} == --benchmark ]] || echo 'ZeroOut.CudaKernelKeepsOneElement [baseline] ok'"}
FAIL = {
    "connected_components_test": "sleep 1000",
    "nms_test": """case $1 in
  --benchmark) printf '%s\\n' 'TimeOnGpu' \\
    '{"name": "float32 softmax [4096, 32000]", "device": "cuda", "ms": 0.5, "bytes": 1073741824}' \\
    '{"name": "float32 log_softmax [4096, 32000]", "device": "cuda", "ms": 0.5, "bytes": 1073741824}' \\
    '{"name": "float32 gather_tree [8, 8, 8]", "device": "cuda", "ms": 0.25, "bytes": 1024}'
    kill -SEGV $$ ;;
esac""",
}


def write(path, script):
    path.write_text(f"#!/usr/bin/env bash\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path):
    """A folder with fakes."""
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    for name, script in FAKES.items():
        write(fakes / name, script)
    (fakes / "torch.py").write_text(TORCH)
    (fakes / "torchvision.py").write_text("import torch")
    return tmp_path


def run(folder, script, *arguments, **environment):
    environment = {"PATH": f"{folder}/fakes:{os.environ['PATH']}", "PYTHONPATH": f"{folder}/fakes"} | environment
    return subprocess.run(
        ["bash", script, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )


def unpacked(folder, programs):
    """Makes the folder of the archive: the scripts, and programs {name: script}."""
    gpu = folder / "gpu"
    gpu.mkdir()
    for name in ("first_run.sh", "peers.py"):
        shutil.copy(ROOT / "tools/gpu" / name, gpu)
    for name, script in programs.items():
        write(gpu / name, script)
    return gpu


def summary_of(results):
    """Returns {file of the summary: result}, in its order."""
    lines = (results / "summary.txt").read_text().splitlines()
    return {line.partition(" s: ")[2]: re.sub(r", \d+$", "", line.partition(" s: ")[0]) for line in lines}


def test_all_passes(machine):
    gpu = unpacked(machine, PASSES)
    done = run(machine, gpu / "first_run.sh", "machine", "tests", "times", "peers")
    assert done.returncode == 0, done.stdout
    results = gpu.parent / "gpu_results"
    assert "CudaKernelKeepsOneElement [" in (results / "tests/zero_out_test.log").read_text()
    assert (results / "machine/gpu.txt").read_text() == "an imagined GPU\n"


def test_no_failure_stops_what_follows(machine):
    gpu = unpacked(machine, PASSES | FAIL)
    results = machine / "results"
    done = run(machine, gpu / "first_run.sh", "--out", results, LIMIT="3")
    assert done.returncode == 1, done.stdout
    summary = summary_of(results)
    tests = ("connected_components_test", "nms_test", "zero_out_test")
    tools = ("racecheck", "memcheck", "synccheck", "initcheck")
    assert list(summary) == [
        *(f"machine/{name}.txt" for name in ("gpu", "python", "sanitizer")),
        *(f"tests/{test}.log" for test in tests),
        *(f"times/{test}.jsonl" for test in tests),
        "table.md",
        *(f"sanitizers/{test}.{tool}.log" for tool in tools for test in tests),
    ]
    failed = {name: result for name, result in summary.items() if result != "passed"}
    assert failed == {
        "tests/connected_components_test.log": "FAILED (more than 3 s)",
        "times/connected_components_test.jsonl": "FAILED (more than 3 s)",
        "times/nms_test.jsonl": "FAILED (status 139)",
        **{f"sanitizers/connected_components_test.{tool}.log": "FAILED (more than 3 s)" for tool in tools},
        "sanitizers/zero_out_test.racecheck.log": "FAILED (status 1)",
    }
    for name in failed:
        assert name in done.stdout.rpartition("Results are in")[2]
    assert (results / "table.md").read_text().splitlines()[4:] == [
        "| connected_components_test | FAILED (more than 3 s) | - | - | - |",
        "| float32 softmax [4096, 32000] | 0.500 | 2.000 | 4.00 | 67% |",
        "| float32 log_softmax [4096, 32000] | 0.500 | RuntimeError: no such kernel | - | 67% |",
        "| float32 gather_tree [8, 8, 8] | 0.250 | - | - | 0% |",
        "| nms_test | FAILED (status 139) | - | - | - |",
    ]


def test_a_machine_without_tools(machine):
    gpu = unpacked(machine, PASSES)
    results = machine / "no results"
    done = run(machine, gpu / "first_run.sh", "--out", results, PATH="/usr/bin:/bin", PYTHON="no_python")
    assert done.returncode == 1, done.stdout
    failed = {name for name, result in summary_of(results).items() if result == "FAILED (status 127)"}
    assert failed == {
        *(f"machine/{name}.txt" for name in ("gpu", "python", "sanitizer")),
        "table.md",
        "sanitizers/zero_out_test.racecheck.log",
    }


def test_unknown_arguments(machine):
    for script in ("build.sh", "first_run.sh"):
        done = run(machine, ROOT / "tools/gpu" / script, "--unknown")
        assert done.returncode == 1
        assert "ERROR: unknown argument --unknown" in done.stdout
