#!/usr/bin/env bash
# Builds, checks and times the CUDA kernels on a machine with a GPU. It needs
# nvcc 13, g++, Python 3.10 with PyTorch, and for a comparison torchvision; no
# Bazel, no TensorFlow, no network.
#
# Usage: tools/gpu/run.sh [--quick] [--out FILE] [--sanitize] [--build_only]
#                         [--archs "80 90"] [--jobs N] [--objects DIR]
#
#   --quick       small checks and two timings instead of all
#   --out FILE    write the table of timings (Markdown) to FILE, too
#   --sanitize    also run the small checks under compute-sanitizer, where it is on
#                 PATH: memcheck, racecheck, initcheck, synccheck
#   --build_only  stop after the build
#   --archs LIST  compute capabilities to build for (default: this machine's GPU,
#                 else those of --config=cuda)
#   --jobs N      compilers at a time (default: one per core)
#   --objects DIR take what Bazel compiled (bazel-bin, after a build with
#                 --config=cuda), and compile only what is not there; the
#                 resources of those kernels are not listed
#
# PYTHON names the interpreter (default: python3). The build is in build/gpu/;
# build/gpu/cuda/resources.txt lists each kernel's registers, spills and shared
# memory.
#
# The steps: 1. build.py, with the files and flags of the BUILD files. 2. check.py:
# our CPU algorithms against their definitions, the kernels against those, all
# against torchvision. 3. bench.py: one table of timings.
#
# Without a GPU the kernels are built by nvcc and not run; compiled by g++ they are
# checked on the processor. The exit status is then 3.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/common.sh"
help_if_asked "$@"

quick=()
table=()
build=()
sanitize=false
build_only=false
while (($# > 0)); do
  case $1 in
    --quick) quick=(--quick) ;;
    --sanitize) sanitize=true ;;
    --build_only) build_only=true ;;
    --out | --archs | --jobs | --objects)
      (($# > 1)) || die "$1 needs a value." "See: $0 --help"
      case $1 in
        --out) table=(--out "$(realpath --canonicalize-missing -- "$2")") ;;
        *) build+=("$1" "$2") ;;
      esac
      shift
      ;;
    *) die "unknown argument $1." "See: $0 --help" ;;
  esac
  shift
done
python=${PYTHON:-python3}
cd "$root"

capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -nu | tr '\n' ' ' || true)
if [[ $capabilities =~ ^[0-9\ ]+$ ]]; then
  build=(--archs "${capabilities% }" "${build[@]}")
fi

say "building"
library=$("$python" tools/gpu/build.py "${build[@]}")
say "$(<"${library%/*}/build.txt"): $library"
! "$build_only" || exit 0

"$python" -c 'import torch' 2>/dev/null ||
  die "$python has no PyTorch: the kernels were built, nothing was run." \
    "Set PYTHON to an interpreter that has it, or ask for --build_only."

say "checking the processor's algorithms"
"$python" tools/gpu/check.py --library "$library" --device cpu

if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  say "no GPU: checking the kernels on the processor"
  emulated=$("$python" tools/gpu/build.py --emulated "${build[@]}")
  "$python" tools/gpu/check.py --library "$emulated" --device emulated
  printf '\n%s\n' "NOT RUN: PyTorch sees no GPU here. The kernels were built by nvcc, and checked on the processor as g++ compiles
them. What they do and how fast they are on a GPU was not looked at." >&2
  exit 3
fi

say "checking the kernels on the GPU"
"$python" tools/gpu/check.py --library "$library" --device cuda "${quick[@]}"

if "$sanitize"; then
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck synccheck; do
      say "compute-sanitizer: $tool"
      # Without PyTorch's cache each tensor is an allocation, whose end memcheck sees.
      PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool "$tool" --error-exitcode 1 \
        "$python" tools/gpu/check.py --library "$library" --device cuda --quick --only_kernels
    done
  else
    say "NOT RUN: compute-sanitizer is not on PATH"
  fi
fi

say "timing"
"$python" tools/gpu/bench.py --library "$library" "${quick[@]}" "${table[@]}"
