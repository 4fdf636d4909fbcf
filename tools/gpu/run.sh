#!/usr/bin/env bash
# Runs the tests of the CUDA kernels on this machine's GPU, then times the kernels
# beside torchvision's and PyTorch's. tools/gpu/build.sh builds both on a machine with
# Bazel: copy its build/gpu/ here.
#
# Usage: tools/gpu/run.sh [--quick] [--out FILE] [--sanitize] [--only_tests]
#
#   --quick       fewer timings
#   --out FILE    write the table of timings (Markdown) to FILE, too
#   --sanitize    also run the tests under compute-sanitizer: memcheck, racecheck,
#                 initcheck, synccheck
#   --only_tests  do not time
#
# PYTHON names the interpreter that has PyTorch (default: python3).
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/common.sh"
help_if_asked "$@"

programs=$root/build/gpu
timings=(--library "$programs/kernels.so")
sanitize=false
only_tests=false
while (($# > 0)); do
  case $1 in
    --quick) timings+=(--quick) ;;
    --sanitize) sanitize=true ;;
    --only_tests) only_tests=true ;;
    --out)
      (($# > 1)) || die "--out needs a file." "See: $0 --help"
      timings+=(--out "$(realpath --canonicalize-missing -- "$2")")
      shift
      ;;
    *) die "unknown argument $1." "See: $0 --help" ;;
  esac
  shift
done

tests=("$programs"/*_on_gpu)
[[ -x ${tests[0]} ]] || die "there are no programs in $programs." "Run tools/gpu/build.sh on a machine with Bazel and copy that folder."
nvidia-smi -L || die "this machine has no GPU." "nvidia-smi comes with the driver."
tools=("")
if "$sanitize"; then
  command -v compute-sanitizer >/dev/null || die "compute-sanitizer is not on PATH." "It comes with CUDA's toolkit."
  tools+=(memcheck racecheck initcheck synccheck)
fi

failed=()
for tool in "${tools[@]}"; do
  for test in "${tests[@]}"; do
    say "${test##*/}${tool:+ under $tool}"
    ${tool:+compute-sanitizer --tool "$tool" --error-exitcode 1} "$test" || failed+=("${test##*/}${tool:+ under $tool}")
  done
done
say "$((${#tools[@]} * ${#tests[@]} - ${#failed[@]})) passed, ${#failed[@]} failed"
((${#failed[@]} == 0)) || die "these failed: ${failed[*]}" "Run one alone: PROGRAM [PART_OF_A_TEST'S_NAME]"

"$only_tests" || "${PYTHON:-python3}" "$root/tools/gpu/bench.py" "${timings[@]}"
