#!/usr/bin/env bash
# Runs the programs of tools/gpu/build.sh on this machine's GPU, which takes about half an hour: the steps that tell most
# come first, and no failure stops what follows. In the repository, it builds the programs first. Needs the GPU's
# driver; the step peers also PyTorch, and sanitizers compute-sanitizer.
#
# Usage: tools/gpu/first_run.sh [--out FOLDER] [STEP]...
#
#   --out FOLDER  the folder for results (default: gpu_results, beside that of the programs)
#   STEP          one of these; default: all, in this order
#     machine     describes the GPU, its driver and the software
#     tests       runs all tests
#     times       times all kernels: a line of JSON for each size
#     peers       times torchvision's and PyTorch's kernels for the same sizes: table.md
#     sanitizers  runs the tests under compute-sanitizer
#
# The folder has a log of each run, and summary.txt, a line for each: passed or FAILED, seconds, name. Environment:
# PYTHON, which has PyTorch (default: python3); LIMIT, the seconds for a test or its benchmarks (default: 120).
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() { printf 'ERROR: %s\n  See: %s --help\n' "$1" "$0" >&2 && exit 1; }
out=$(dirname "$here")/gpu_results
steps=()
arguments=("$@")
while (($# > 0)); do
  case $1 in
    -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
    --out) out=${2:?"--out needs a folder"} && shift ;;
    machine | tests | times | peers | sanitizers) steps+=("$1") ;;
    *) fail "unknown argument $1." ;;
  esac
  shift
done
((${#steps[@]} > 0)) || steps=(machine tests times peers sanitizers)

if [[ ! -e $here/zero_out_test && -e $here/build.sh ]]; then
  bash "$here/build.sh" || exit
  exec bash "$here/../../build/gpu/first_run.sh" "${arguments[@]}"
fi
# First those of which the emulation of CUDA shows least: operations of warps, blocks that share memory.
programs=()
for program in "$here"/{mma,tile_product,connected_components,ctc_loss,nms,ctc_decode,deform_conv}_test "$here"/*_test; do
  program=${program##*/}
  [[ ! -x $here/$program || " ${programs[*]} " == *" $program "* ]] || programs+=("$program")
done

{ mkdir -p "$out" && out=$(cd "$out" && pwd) && : >"$out/summary.txt"; } || fail "cannot write to $out."

# Runs a command within $2 seconds, with its output in the file $1, and adds its `result` to the summary.
run() {
  local name=$1 limit=$2 log=$out/$1 start=$SECONDS status=0
  shift 2
  result=passed
  mkdir -p "${log%/*}"
  # The outer redirection hides the shell's message about a crash, which the summary has.
  { timeout --kill-after=10 "$limit" "$@" >"$log" 2>"$log.err" </dev/null; } 2>/dev/null || status=$?
  case $status in
    0) ;;
    124 | 137) result="FAILED (more than $limit s)" ;;
    *) result="FAILED (status $status)" ;;
  esac
  printf '%s, %d s: %s\n' "$result" "$((SECONDS - start))" "$name" | tee -a "$out/summary.txt"
  ((status == 0)) || tail -qn 5 "$log" "$log.err"
  [[ -s $log.err ]] || rm -f "$log.err"
  return "$status"
}

limit=${LIMIT:-120}
for step in "${steps[@]}"; do
  printf '==> %s\n' "$step"
  case $step in
    machine)
      run machine/gpu.txt 60 nvidia-smi
      run machine/python.txt 60 "${PYTHON:-python3}" -c \
        'import torch, torchvision; print(torch.__version__, torchvision.__version__, torch.version.cuda)'
      run machine/sanitizer.txt 60 compute-sanitizer --version
      ;;
    tests)
      for program in "${programs[@]}"; do run "tests/$program.log" "$limit" "$here/$program"; done
      ;;
    times)
      for program in "${programs[@]}"; do
        run "times/$program.jsonl" "$limit" "$here/$program" --benchmark ||
          printf '{"name": "%s", "error": "%s"}\n' "$program" "$result" >>"$out/times/$program.jsonl"
      done
      ;;
    peers) run table.md 900 "${PYTHON:-python3}" "$here/peers.py" "$out"/times/*.jsonl ;;
    sanitizers)
      for tool in racecheck memcheck synccheck initcheck; do
        for program in "${programs[@]}"; do
          run "sanitizers/$program.$tool.log" "$limit" compute-sanitizer --tool "$tool" --error-exitcode 1 "$here/$program"
          [[ $result != *"status 127"* ]] || break 2 # there is no compute-sanitizer
        done
      done
      ;;
  esac
done

printf '\nResults are in %s.\n' "$out"
! grep FAILED "$out/summary.txt" >&2
