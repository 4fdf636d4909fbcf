"""Measures the time from an edit to the end of a Python test that runs the edited code.

usage: python tools/edit_times.py [--runs N] [--native]
Changes each file so that its object differs, builds, tests, and restores the file. Excludes
the build before an edit and Bazel's start. Prints a Markdown table.
"""

import argparse
import pathlib
import statistics
import subprocess
import time

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_TEST = "//tensorflow_ops/nn:ops_test"

# Description -> (file, text to append). The files are the largest of their kind.
_EDITS = {
    "vector loops of a family": (
        "tensorflow_ops/nn/cc/kernels/softmax/softmax_simd.cc",
        "namespace tfo::TFO_CPU_NAMESPACE {{ int Edited() {{ return {}; }} }}\n",
    ),
    "an OpKernel": (
        "tensorflow_ops/nn/cc/kernels/softmax/softmax_op.cc",
        "namespace tfo {{ int Edited() {{ return {}; }} }}\n",
    ),
    "a CPU algorithm": (
        "tensorflow_ops/nn/cc/kernels/softmax/softmax_cpu.cc",
        "namespace tfo {{ int Edited() {{ return {}; }} }}\n",
    ),
    "a Python wrapper": ("tensorflow_ops/nn/python/ops/softmax.py", "_EDITED = {}\n"),
}


def _seconds(command):
    start = time.monotonic()
    subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="edits per file; the table has medians")
    parser.add_argument("--native", action="store_true", help="build for this processor's instruction set only")
    options = parser.parse_args()
    bazel = subprocess.run(
        ["bash", "tools/setup/bazel.sh"], cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    config = ["--config=native"] if options.native else []
    build = [bazel, "build", *config, _TEST]
    test = [bazel, "test", *config, _TEST, "--test_filter=softmax_test"]
    _seconds(build)

    print("| edit of | built again after | test passed after |\n|---|---|---|")
    for what, (name, text) in _EDITS.items():
        file = _ROOT / name
        original = file.read_text()
        built, tested = [], []
        try:
            for _ in range(options.runs):
                # A new number, because the cache contains the outputs of earlier runs.
                file.write_text(original + text.format(time.time_ns() % 2**31))
                built.append(_seconds(build))
                tested.append(built[-1] + _seconds(test))
        finally:
            file.write_text(original)
        print(f"| {what} (`{file.name}`) | {statistics.median(built):.0f} s | {statistics.median(tested):.0f} s |")
    _seconds(build)


if __name__ == "__main__":
    main()
