#!/usr/bin/env bash
# Tests and times the programs of tools/gpu/build.sh on this machine's GPU. Needs the GPU's driver and Python 3; the
# peers also PyTorch.
#
# Usage: tools/gpu/first_run.sh [correctness | times] [--out FOLDER] [--budget SECONDS] [--jobs N] [--limit SECONDS]
#                               [--failed FILE] [--programs FOLDER]
#
#   correctness         runs all tests, 8 at once, and those of a program that failed once more, each in a process of its
#                       own; then new and risky kernels under compute-sanitizer. Ends within 400 seconds
#   times               times the kernels one after another, then PyTorch's, torchvision's and CuPy's for the same sizes,
#                       and reads hardware counters of two kernels. Ends within 300 seconds
#                       Without a name: both, without budgets, and all kernels under compute-sanitizer
#   --out FOLDER        for results (default: gpu_results)
#   --budget SECONDS    another one; 0 is none
#   --jobs N            tests at once (default: 8, or the cores if those are fewer)
#   --limit SECONDS     at most, for a program
#   --failed FILE       the summary of an earlier run of correctness, whose failed tests times runs first
#   --programs FOLDER   with the programs (default: this script's; in a clone, what build/gpu.tar.xz contains)
#
# FOLDER gets, of each command: NAME.txt, a summary, up to date after each result; NAME_failures.txt, the ends of logs;
# NAME.tgz, all logs. times also writes table.md. These are at most 8 files of at most 16 MiB.
# Environment: PYTHON, which has PyTorch and CuPy (default: python3).
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

case ${1-} in
  -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
esac
programs=$here
if [[ -e $here/build.sh && " $* " != *" --programs"* ]]; then
  build=$here/../../build
  if [[ ! -e $build/gpu.tar.xz ]]; then
    printf 'ERROR: build/gpu.tar.xz is missing.\n  Run: bash tools/gpu/build.sh\n' >&2
    exit 1
  fi
  "${PYTHON:-python3}" -m tarfile -e "$build/gpu.tar.xz" "$build" || exit
  programs=$build/gpu
fi
ulimit -c 0
exec "${PYTHON:-python3}" "$here/first_run.py" --programs "$programs" "$@"
