"""Tests first_run.sh and peers.py: the programs, CUDA's tools and PyTorch are fakes.

usage: "$(bash tools/setup/python_env.sh)" -m pytest -q tools/gpu
"""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
from unittest import mock

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
sys.modules["torch.nn"], sys.modules["torch.nn.attention"] = torch.nn, torch.nn.attention
"""
CUPY = """
import sys
from unittest import mock
from numpy import *

def label(masks, structure):
    assert masks.shape == (8, 512, 512) and masks.dtype == bool and 0.4 < masks.mean() < 0.6, masks
    assert (array(structure).sum((1, 2)) == [0, 9, 0]).all(), structure

def distance_transform_edt(mask, float64_distances):
    assert mask.shape == (512, 512) and not float64_distances
    raise MemoryError("is " + "full")

sys.modules["cupyx.scipy.ndimage"] = mock.MagicMock(label=label, distance_transform_edt=distance_transform_edt)
"""
# In the place of what build.sh packs.
PASSES = {
    "attention_test": "[[ $* == '--gpu --list' ]]",
    "zero_out_test": """[[ $1 == --gpu ]] || exit 1
case $2 in
  --benchmark) ;;
  --list) echo ZeroOut.CudaKernelKeepsOneElement ;;
  *) echo 'ZeroOut.CudaKernelKeepsOneElement [baseline] ok' ;;
esac""",
}
FAIL = {
    "connected_components_test": "[[ $* == *--list ]] && echo Components.Hang && exit; sleep 1000",
    "crf_test": """case $* in
  '--gpu --list') echo Crf.Faults; echo Crf.Passes ;;
  '--gpu --benchmark') ;;
  '--gpu =Crf.Passes') ;;
  *) echo "blocking ${CUDA_LAUNCH_BLOCKING-}"; exit 134 ;;
esac""",
    "nms_test": """case $2 in
  --list) echo Nms.Cuda ;;
  --benchmark) printf '%s\\n' 'TimeOnGpu' \\
    '{"name": "float32 softmax [4096, 32000]", "device": "cuda", "ms": 0.5, "bytes": 1073741824}' \\
    '{"name": "float32 log_softmax [4096, 32000]", "device": "cuda", "ms": 0.5, "bytes": 1073741824}' \\
    '{"name": "float32 gather_tree [8, 8, 8]", "device": "cuda", "ms": 0.25, "bytes": 1024}' \\
    '{"name": "connected_components [8, 512, 512]", "device": "cuda", "ms": 1, "bytes": 0}' \\
    '{"name": "float32 distance_transform [8, 512, 512]", "device": "cuda", "ms": 1, "bytes": 0}' \\
    '{"name": "float32 correlation_cost_grad [1, 48, 64, 256], radius 10", "device": "cuda", "ms": 1, "bytes": 0}' \\
    '{"name": "float16 deform_conv [1, 100, 152, 128]", "device": "cuda", "ms": 0.1, "bytes": 0}' \\
    '{"name": "attention float16  4 x 4096 queries, 16 heads, depth 64 causal", "device": "cuda", "ms": 1, "bytes": 0}'
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
    (fakes / "cupy.py").write_text(CUPY)
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


def peers():
    """Returns peers.py as a module, with a fake PyTorch."""
    torch = mock.MagicMock()
    torch.no_grad.return_value = lambda function: function
    with mock.patch.dict(sys.modules, {"torch": torch, "torch.nn": torch.nn}):
        spec = importlib.util.spec_from_file_location("peers", ROOT / "tools/gpu/peers.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


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
    with tarfile.open(f"{results}.tgz") as archive:
        assert "gpu_results/tests/zero_out_test.log" in archive.getnames()


def test_no_failure_stops_what_follows(machine):
    gpu = unpacked(machine, PASSES | FAIL)
    results = machine / "results"
    done = run(machine, gpu / "first_run.sh", "--out", results, LIMIT="3")
    assert done.returncode == 1, done.stdout
    summary = summary_of(results)
    programs = ("connected_components_test", "nms_test", "crf_test", "zero_out_test")
    tests = [f"tests/{program}.log" for program in programs]
    tests[3:3] = ["tests/crf_test/Crf.Faults.log", "tests/crf_test/Crf.Passes.log"]
    tests[1:1] = ["tests/connected_components_test/Components.Hang.log"]
    tools = ("memcheck", "racecheck", "synccheck", "initcheck")
    assert list(summary) == [
        *(f"machine/{name}.txt" for name in ("gpu", "libc", "python", "sanitizer")),
        *tests,
        *(f"times/{program}.jsonl" for program in programs),
        "table.md",
        *(f"sanitizers/{program}.{tool}.log" for program in programs for tool in tools),
    ]
    failed = {name: result for name, result in summary.items() if result != "passed"}
    assert failed == {
        "tests/connected_components_test.log": "FAILED (more than 3 s)",
        "tests/connected_components_test/Components.Hang.log": "FAILED (more than 3 s)",
        "tests/crf_test.log": "FAILED (status 134)",
        "tests/crf_test/Crf.Faults.log": "FAILED (status 134)",
        "times/connected_components_test.jsonl": "FAILED (more than 3 s)",
        "times/nms_test.jsonl": "FAILED (status 139)",
        **{f"sanitizers/connected_components_test.{tool}.log": "FAILED (more than 3 s)" for tool in tools},
        **{f"sanitizers/crf_test.{tool}.log": "FAILED (status 134)" for tool in tools},
        "sanitizers/zero_out_test.racecheck.log": "FAILED (status 1)",
    }
    assert (results / "tests/crf_test/Crf.Faults.log").read_text() == "blocking 1\n"
    for name in failed:
        assert name in done.stdout.rpartition("Results are in")[2]
    assert (results / "table.md").read_text().splitlines()[4:] == [
        "| connected_components_test | FAILED (more than 3 s) | - | - | - | - |",
        "| float32 softmax [4096, 32000] | 0.500 | 2.000 | 4.00 | 67% | - |",
        "| float32 log_softmax [4096, 32000] | 0.500 | RuntimeError: no such kernel | - | 67% | - |",
        "| float32 gather_tree [8, 8, 8] | 0.250 | - | - | 0% | - |",
        "| connected_components [8, 512, 512] | 1.000 | 2.000 | 2.00 | 0% | - |",
        "| float32 distance_transform [8, 512, 512] | 1.000 | MemoryError: is full | - | 0% | - |",
        "| float32 correlation_cost_grad [1, 48, 64, 256], radius 10 | 1.000 | 2.000 | 2.00 | 0% | 1.4 |",
        "| float16 deform_conv [1, 100, 152, 128] | 0.100 | 2.000 | 20.00 | 0% | 44.8 |",
        *(
            f"| attention float16  4 x 4096 queries, 16 heads, depth 64 causal, {backend} | 1.000 | 2.000 | 2.00 | 0% "
            "| 137.4 |"
            for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
        ),
        "| nms_test | FAILED (status 139) | - | - | - | - |",
    ]


# Counts by hand: products of rows and columns, an addition each.
@pytest.mark.parametrize(
    "name, operations",
    [
        ("attention bfloat16  4 x 8 queries, 2 heads, depth 16", 4 * 4 * 2 * 8 * 8 * 16),
        ("attention float16  4 x 8 queries, 2 heads, depth 16 key lengths", 4 * (4 + 5 + 6 + 6) * 2 * 8 * 16),
        ("attention_grad float16  4 x 8 queries, 2 heads, depth 16", 10 * 4 * 2 * 8 * 8 * 16),
        ("attention float16  2 x 1 queries, 32 heads, depth 128, 8192 keys, 8 key heads", 4 * 2 * 32 * 8192 * 128),
        ("float32 deform_conv_grad [1, 4, 5, 8]", 4 * 20 * 9 * 8 * 8),
        ("bfloat16 correlation_cost [2, 4, 5, 8], radius 1", 2 * 2 * 20 * 8 * 9),
        ("float32 softmax [8, 8]", None),
    ],
)
def test_operations(name, operations):
    assert peers().operations_of(name) == operations


def test_the_queries_and_keys_of_attentions_peer():
    module = peers()
    module.call_of("attention float16  2 x 1 queries, 32 heads, depth 128, 8192 keys, 8 key heads")
    shapes = [call.args[0] for call in module.torch.randn.call_args_list]
    assert shapes == [(2, 32, 1, 128), (2, 8, 8192, 128), (2, 8, 8192, 128)]


def test_a_budget_and_what_it_left(machine):
    hangs = {"nms_test": "[[ $2 == --list ]] && echo Nms.Hangs && exit; sleep 1000"}
    gpu = unpacked(machine, PASSES | hangs)
    results = machine / "results"
    script, logs = gpu / "first_run.sh", ["tests/nms_test.log", "tests/zero_out_test.log"]
    run(machine, script, "--out", results, "machine")
    done = run(machine, script, "--out", results, "--resume", "--budget", "24", "tests", "peers")
    assert done.returncode == 1, done.stdout
    missing = [name for name, result in summary_of(results).items() if result == "missing"]
    assert missing == [*logs, "table.md, which needs the step times in the same folder"]
    done = run(machine, script, "--out", results, "--resume", "--budget", "200", "machine", "tests", LIMIT="3")
    assert "gpu.txt" not in done.stdout, done.stdout
    slow = "FAILED (more than 3 s)"
    ran = [(logs[0], slow), ("tests/nms_test/Nms.Hangs.log", slow), (logs[1], "passed")]
    assert list(summary_of(results).items())[-3:] == ran
    summary = (results / "summary.txt").read_text()
    run(machine, script, "--out", results, "--resume", "machine", "tests")
    assert (results / "summary.txt").read_text() == summary


def test_a_machine_without_a_gpu_ends_each_step(machine):
    refuses = "[[ $2 == --list ]] && echo Nms.Cuda && exit; echo 'This program needs a GPU: none' >&2; exit 3"
    gpu = unpacked(machine, PASSES | {"nms_test": refuses})
    for _ in range(2):  # the second time, with --resume, as the first
        done = run(machine, gpu / "first_run.sh", "--resume", "tests", "times", "sanitizers")
        assert done.returncode == 1 and "needs a GPU: none" in done.stdout, done.stdout
        logs = "tests/nms_test.log", "times/nms_test.jsonl", "sanitizers/nms_test.memcheck.log"
        assert summary_of(machine / "gpu_results") == dict.fromkeys(logs, "FAILED (no GPU for it)")


def test_a_machine_without_tools(machine):
    gpu = unpacked(machine, PASSES)
    results = machine / "no results"
    done = run(machine, gpu / "first_run.sh", "--out", results, PATH="/usr/bin:/bin", PYTHON="no_python")
    assert done.returncode == 1, done.stdout
    failed = {name for name, result in summary_of(results).items() if result == "FAILED (status 127)"}
    assert failed == {
        *(f"machine/{name}.txt" for name in ("gpu", "python", "sanitizer")),
        "table.md",
        "sanitizers/zero_out_test.memcheck.log",
    }


def test_unknown_arguments(machine):
    for script in ("build.sh", "first_run.sh"):
        done = run(machine, ROOT / "tools/gpu" / script, "--unknown")
        assert done.returncode == 1
        assert "ERROR: unknown argument --unknown" in done.stdout
