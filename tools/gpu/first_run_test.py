"""Tests first_run and peers.py: the programs, CUDA's tools and PyTorch are fakes.

usage: "$(bash tools/setup/python_env.sh)" -m pytest -q tools/gpu
"""

import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from unittest import mock

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKES = {
    "nvidia-smi": "echo an imagined GPU",
    "ncu": "[[ $1 != --version ]] || exit 0; echo counters of ${@: -3:1}",
    "compute-sanitizer": """[[ $1 != --version ]] || exit 0
tool=$2
[[ ! ${UNSUPPORTED-} ]] || { echo '========= Error: Device not supported'; exit 1; }
shift 4
export SANITIZED=1
echo "========= COMPUTE-SANITIZER"
[[ $tool != racecheck || $1 != *zero_out* ]] || { echo '========= Error: Race'; exit 99; }
[[ $tool != synccheck || $1 != *recurrent* ]] || echo '========= Barrier error'
"$@\"""",
}
TORCH = """
import sys
from unittest import mock

torch = sys.modules["torch"] = sys.modules["torchvision"] = mock.MagicMock(__version__="2.0")
torch.no_grad.return_value = lambda function: function
torch.cuda.get_device_name.return_value = "an imagined GPU"
torch.cuda.mem_get_info.return_value = 1 << 37, 1 << 37
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
    "zero_out_test": """[[ $1 == --gpu ]] || exit 1
case $2 in
  --benchmark) ;;
  --list) echo ZeroOut.CudaKernelKeepsOneElement ;;
  *) echo 'ZeroOut.CudaKernelKeepsOneElement [baseline] ok' ;;
esac""",
}
HANGS = "trap '' TERM; while :; do sleep 0.1; done"
FAIL = {
    "recurrent_test": f"""case $2 in
  --list) echo Lstm.A Lstm.B Lstm.C ;;
  =*) sleep 1000 ;;
  *) [[ ! ${{SANITIZED-}} ]] || sleep 1000; {HANGS} ;;
esac""",
    "crf_test": """case $* in
  '--gpu --list') echo Crf.Faults; echo Crf.Passes ;;
  '--gpu --benchmark') ;;
  '--gpu =Crf.Passes') ;;
  *) [[ ! ${CUDA_COREDUMP_FILE-} ]] || head -c 20000000 /dev/urandom >"$CUDA_COREDUMP_FILE"
    echo "blocking ${CUDA_LAUNCH_BLOCKING-}"; exit 134 ;;
esac""",
    "update_cache_test": """case $2 in
  --list) echo UpdateCache.Prints ;;
  *) echo 'UpdateCache.Prints [baseline] FAILED'
    [[ ${SANITIZED-} ]] || head -c 100000000 /dev/zero | tr '\\0' x
    echo the end; exit 1 ;;
esac""",
    "nms_test": """case $2 in
  --benchmark) printf '%s\\n' 'TimeOnGpu' \\
    '{"name": "float32 softmax [4096, 32000]", "device": "cuda", "ms": 0.5, "bytes": 1073741824}' \\
    '{"name": "float32 log_softmax [4096, 32000]", "device": "cuda", "ms": 0.5, "bytes": 1073741824}' \\
    '{"name": "float32 gather_tree [8, 8, 8]", "device": "cuda", "ms": 0.25, "bytes": 1024}' \\
    '{"name": "connected_components [8, 512, 512]", "device": "cuda", "ms": 1, "bytes": 0}' \\
    '{"name": "float32 distance_transform [8, 512, 512]", "device": "cuda", "ms": 1, "bytes": 0}' \\
    '{"name": "float32 correlation_cost_grad [1, 48, 64, 256], radius 10", "device": "cuda", "ms": 1, "bytes": 0}' \\
    '{"name": "float16 deform_conv [1, 100, 152, 128]", "device": "cuda", "ms": 0.1, "bytes": 0}' \\
    '{"name": "attention float16  4 x 4096 queries, 16 heads, depth 64 causal", "device": "cuda", "ms": 1, '\\
'"bytes": 0}' \\
    '{"name": "float16 quantized_matmul [1, 4096, 16384] int4", "device": "cuda", "ms": 0.1, "bytes": 0}' '{"name'
    kill -SEGV $$ ;;
esac""",
}


MORE = {"recurrent_test": "exit 9", "attention_gpu_test": ""}


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


def command_of(folder, *arguments, **environment):
    environment = {"PATH": f"{folder}/fakes:{os.environ['PATH']}", "PYTHONPATH": f"{folder}/fakes"} | environment
    return {
        "args": ["bash", *map(str, arguments)],
        "env": os.environ | environment,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }


def run(folder, *arguments, **environment):
    return subprocess.run(**command_of(folder, *arguments, **environment), timeout=100)


def unpacked(folder, programs):
    """Makes the folder of the archive: the scripts, and programs {name: script}. Returns the script to run."""
    gpu = folder / "gpu"
    gpu.mkdir()
    for name in ("first_run.sh", "first_run.py", "peers.py"):
        shutil.copy(ROOT / "tools/gpu" / name, gpu)
    for name, script in programs.items():
        write(gpu / name, script)
    return gpu / "first_run.sh"


def module_of(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/gpu/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def peers():
    """Returns peers.py as a module, with a fake PyTorch."""
    torch = mock.MagicMock()
    torch.no_grad.return_value = lambda function: function
    with mock.patch.dict(sys.modules, {"torch": torch, "torch.nn": torch.nn}):
        return module_of("peers")


def summary_of(results, command):
    """Returns {name: result}, and the lines above these, of the summary in a folder of few small files."""
    sizes = [path.stat().st_size for path in results.iterdir()]
    assert len(sizes) <= 8 and max(sizes) <= 16 << 20, sizes
    lines = (results / f"{command}.txt").read_text().splitlines()
    found = [re.fullmatch(r"((?:passed|FAILED|missing).*), \d+ s: (\S+)", line) for line in lines]
    notes = [line for line, match in zip(lines, found, strict=True) if not match]
    return {match[2]: match[1] for match in found if match}, notes


def logs_of(results, command):
    """Returns {path: text} of the archive."""
    with tarfile.open(results / f"{command}.tgz") as archive:
        return {
            member.name.removeprefix(f"{command}/"): archive.extractfile(member).read().decode() for member in archive
        }


def test_no_failure_stops_correctness(machine):
    script, results = unpacked(machine, PASSES | FAIL), machine / "results"
    start = time.monotonic()
    done = run(machine, script, "correctness", "--out", results, "--limit", 2, "--jobs", 8)
    assert time.monotonic() - start < 30 and done.returncode == 1, done.stdout
    summary, notes = summary_of(results, "correctness")
    slow = "(more than 2 s)"
    assert {name: result for name, result in summary.items() if result != "passed"} == {
        "tests/recurrent_test": f"FAILED {slow}",
        "tests/recurrent_test/Lstm.A": f"FAILED {slow}",
        "tests/recurrent_test/Lstm.B": f"FAILED {slow}",
        "tests/recurrent_test/Lstm.C": "missing",
        "tests/crf_test": "FAILED (status 134)",
        "tests/crf_test/Crf.Faults": "FAILED (status 134)",
        "tests/update_cache_test": "FAILED (status 1)",
        "tests/update_cache_test/UpdateCache.Prints": "FAILED (status 1)",
        **{f"{tool}/update_cache_test": "FAILED (status 1)" for tool in ("memcheck", "racecheck", "synccheck")},
        **{f"{tool}/recurrent_test": f"missing {slow}" for tool in ("memcheck", "racecheck")},
        "synccheck/recurrent_test": "FAILED (found errors until it was ended)",
    }
    assert (
        "tests/nms_test" in summary and "tests/crf_test/Crf.Passes" in summary and "memcheck/zero_out_test" in summary
    )
    # Not a risky kernel.
    assert "racecheck/zero_out_test" not in summary and "memcheck/crf_test" not in summary
    assert re.fullmatch(r"correctness: 11 FAILED, 3 missing, 13 passed, in \d+ of 400 s", notes[0]), notes
    assert notes[1].startswith("GPU: an imagined GPU; ")
    assert notes[2] == "Left out of correctness.tgz, because they are large: coredump"
    logs = logs_of(results, "correctness")
    assert logs["tests/crf_test/Crf.Faults.log"] == "blocking 1\n"
    assert "CudaKernelKeepsOneElement [" in logs["tests/zero_out_test.log"]
    large = logs["tests/update_cache_test.log"]
    assert len(large) < 140_000 and large.endswith("xthe end\n") and "bytes left out]" in large
    failures = (results / "correctness_failures.txt").read_text()
    assert "FAILED (status 134): tests/crf_test/Crf.Faults\nblocking 1\n" in failures
    assert "UpdateCache.Prints [baseline] FAILED\nxxx" in failures and len(failures) < 50_000


def test_times(machine):
    script, results = unpacked(machine, PASSES | FAIL | MORE), machine / "results"
    failed = machine / "correctness.txt"
    failed.write_text("1 FAILED\nFAILED (status 134), 1 s: tests/crf_test\npassed, 1 s: tests/nms_test\n")
    done = run(machine, script, "times", "--out", results, "--failed", failed)
    assert done.returncode == 1, done.stdout
    summary, _ = summary_of(results, "times")
    assert [name for name in summary if name.startswith("tests/")] == [
        *("tests/crf_test", "tests/crf_test/Crf.Faults", "tests/crf_test/Crf.Passes"),
    ]
    assert summary["times/recurrent_test"] == "FAILED (status 9)"
    assert summary["times/nms_test"] == "FAILED (status 139)"
    assert summary["table.md"] == summary["times/zero_out_test"] == summary["counters/Attend"] == "passed"
    logs = logs_of(results, "times")
    assert logs["counters/Attend.log"].endswith("attention_gpu_test\n")
    assert (results / "table.md").read_text().splitlines()[4:] == [
        "| recurrent_test | FAILED (status 9) | - | - | - | - |",
        "| update_cache_test | FAILED (status 1) | - | - | - | - |",
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
        *(
            f"| float16 quantized_matmul [1, 4096, 16384] int4, {peer} | 0.100 | 2.000 | 20.00 | 0% | 1.3 |"
            for peer in ("mm", "_weight_int4pack_mm")
        ),
        "| nms_test | FAILED (status 139) | - | - | - | - |",
    ]


def test_a_budget_holds_if_all_programs_hang(machine):
    script = unpacked(machine, dict.fromkeys(("mma_test", "nms_test", "zero_out_test"), HANGS))
    others = {"correctness": ("tests/nms_test", "memcheck/mma_test"), "times": ("times/mma_test", "table.md")}
    start = time.monotonic()
    options = "--budget", 8, "--jobs", 2
    runs = [
        subprocess.Popen(**command_of(machine, script, command, "--out", machine / command, *options))
        for command in others
    ]
    for process, (command, missing) in zip(runs, others.items(), strict=True):
        output, _ = process.communicate(timeout=20)
        assert time.monotonic() - start < 8 and process.returncode == 1, output
        summary, _ = summary_of(machine / command, command)
        assert summary["tests/zero_out_test"].startswith("missing (no time after")
        assert {summary[name] for name in missing} == {"missing"}


def test_what_there_is_when_it_is_ended(machine):
    script, results = unpacked(machine, PASSES | {"nms_test": HANGS}), machine / "results"
    with subprocess.Popen(**command_of(machine, script, "correctness", "--out", results)) as process:
        while (
            "passed" not in process.stdout.readline()
            or "zero_out_test" not in (results / "correctness.txt").read_text()
        ):
            pass
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 143
    summary, _ = summary_of(results, "correctness")
    assert summary["tests/zero_out_test"] == "passed" and summary["tests/nms_test"] == "missing (stopped)"
    assert "tests/zero_out_test.log" in logs_of(results, "correctness")


def test_a_machine_without_a_gpu(machine):
    refuses = dict.fromkeys(("nms_test", "zero_out_test"), "echo 'This program needs a GPU: none' >&2; exit 3")
    script, results = unpacked(machine, refuses), machine / "results"
    for command in ("correctness", "times"):
        done = run(machine, script, command, "--out", results)
        assert done.returncode == 1
        summary, notes = summary_of(results, command)
        assert summary["tests/zero_out_test"] == "FAILED (no GPU for it)", summary
        others = {result for name, result in summary.items() if not name.startswith(("machine/", "tests/"))}
        assert others == {"missing"}, summary
        assert "Nothing else can run: there is no GPU, or none of the programs' architecture." in notes
        assert "needs a GPU: none" in (results / f"{command}_failures.txt").read_text()


def test_all_of_it_with_and_without_tools(machine):
    script, results = unpacked(machine, PASSES | {"mma_test": "", "attention_gpu_test": ""}), machine / "results"
    done = run(machine, script, "--out", results)
    assert done.returncode == 1, done.stdout
    summary, notes = summary_of(results, "correctness")
    assert summary["racecheck/zero_out_test"] == "FAILED (found errors)" and summary["synccheck/mma_test"] == "passed"
    assert " s" in notes[0] and " of " not in notes[0]
    assert summary_of(results, "times")[0]["times/mma_test"] == "passed"
    run(machine, script, "--out", results, PATH="/usr/bin:/bin", PYTHON=sys.executable, PYTHONPATH="")
    summary, notes = summary_of(results, "correctness")
    assert summary["machine/gpu"] == "missing (no nvidia-smi)"
    assert summary["tests/mma_test"] == "passed" and summary["racecheck/mma_test"] == "missing"
    assert "There is no compute-sanitizer: all of its runs are missing." in notes
    summary, _ = summary_of(results, "times")
    assert summary["counters/Attend"] == "missing (no ncu)" and summary["times/mma_test"] == "passed"
    run(machine, script, "correctness", "--out", results, UNSUPPORTED="1")
    summary, notes = summary_of(results, "correctness")
    assert summary["memcheck/zero_out_test"] == "FAILED (status 1)" and summary["racecheck/mma_test"] == "missing"
    assert "memcheck/zero_out_test did not pass: compute-sanitizer's other runs are missing." in notes
    assert "Device not supported" in (results / "correctness_failures.txt").read_text()


def test_the_programs_that_come_first_exist():
    first_run = module_of("first_run")
    tests = {path.stem for path in (ROOT / "tensorflow_ops").rglob("*_test.cc")}
    names = {f"{name}_test" for name in (*first_run.ALIVE, *first_run.RISKY, *first_run.TIMED)}
    assert names | set(first_run.COUNTED.values()) <= tests, names - tests


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
        ("float16 quantized_matmul_grad [2, 3, 5] int4 groups", 2 * 2 * 3 * 5),
        ("float32 softmax [8, 8]", None),
    ],
)
def test_operations(name, operations):
    assert peers().operations_of(name) == operations


@pytest.mark.parametrize(
    "name, shapes",
    [
        ("float16 decode_attention [2, 3, 8, 16, 100, 4]", [(2, 3, 100, 4, 16), (2, 3, 100, 4, 16), (6, 8, 1, 16)]),
        ("float32 lstm_grad [64, 100, 256]", [(64, 100, 1)]),
        ("update_cache [16, 1024, 4096 bytes] in place", [(16 * 1024, 1024), (16, 1024)]),
        ("bfloat16 layer_norm_grad [40, 64]", [(40, 64), (64,), (64,)]),
        ("float32 depthwise_conv2d [32, 56, 56, 96], 7 taps", [(32, 96, 56, 56), (96, 1, 7, 7)]),
    ],
)
def test_the_inputs_of_peers(name, shapes):
    module = peers()
    assert module.call_of(name)
    assert [call.args[0] for call in module.torch.randn.call_args_list] == shapes


def test_the_queries_and_keys_of_attentions_peer():
    module = peers()
    module.call_of("attention float16  2 x 1 queries, 32 heads, depth 128, 8192 keys, 8 key heads")
    shapes = [call.args[0] for call in module.torch.randn.call_args_list]
    assert shapes == [(2, 32, 1, 128), (2, 8, 8192, 128), (2, 8, 8192, 128)]


def test_unknown_arguments(machine):
    done = run(machine, ROOT / "tools/gpu/build.sh", "--unknown")
    assert done.returncode == 1 and "ERROR: unknown argument --unknown" in done.stdout
    done = run(machine, unpacked(machine, PASSES), "--unknown")
    assert done.returncode == 2 and "unrecognized arguments: --unknown" in done.stdout
    done = run(machine, machine / "gpu/first_run.sh", "times", "--failed", "none.txt")
    assert done.returncode == 2 and "there is no none.txt" in done.stdout
    (machine / "tools").mkdir()
    shutil.copytree(ROOT / "tools/gpu", machine / "tools/gpu")
    done = run(machine, machine / "tools/gpu/first_run.sh", "times")
    assert done.returncode == 1 and "Run: bash tools/gpu/build.sh" in done.stdout
