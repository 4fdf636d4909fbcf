#!/usr/bin/env bash
# Runs the programs of tools/gpu/build.sh on this machine's GPU, which takes about half an hour: the steps that tell most
# come first, and no failure stops what follows. In the repository, it builds the programs first. Needs the GPU's
# driver; the step peers also PyTorch, and sanitizers compute-sanitizer.
#
# Usage: tools/gpu/first_run.sh [--out FOLDER] [--budget SECONDS] [--resume] [STEP]...
#
#   --out FOLDER      the folder for results (default: gpu_results, beside that of the programs); FOLDER.tgz has them, too
#   --budget SECONDS  ends by then; the summary says what is missing
#   --resume          runs what is missing, by the summary in the folder; what failed not again
#   STEP              one of these; default: all, in this order
#     machine     describes the GPU, its driver and the software
#     tests       runs all tests of kernels; those of a program that fails once more, each in a process of its own
#     times       times all kernels: a line of JSON for each size
#     peers       times PyTorch's, torchvision's and CuPy's kernels for the same sizes: table.md
#     sanitizers  runs the tests under compute-sanitizer, all of its tools before the next program
#
# The folder has a log of each run, and summary.txt, a line for each: passed, FAILED or missing, seconds, name.
# Environment: PYTHON, which has PyTorch and CuPy (default: python3); LIMIT, the seconds for a test or its benchmarks
# (default: 120).
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() { printf 'ERROR: %s\n  See: %s --help\n' "$1" "$0" >&2 && exit 1; }
out=$(dirname "$here")/gpu_results
budget=0 resume=
steps=()
arguments=("$@")
while (($# > 0)); do
  case $1 in
    -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
    --out) out=${2:?"--out needs a folder"} && shift ;;
    --budget)
      budget=${2:?"--budget needs seconds"} && shift
      [[ $budget =~ ^[1-9][0-9]*$ ]] || fail "--budget is $budget, expected seconds."
      ;;
    --resume) resume=1 ;;
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
for program in "$here"/{mma,tile_product,attention_gpu,attention_gpu_options,connected_components,ctc_loss,nms,ctc_decode,deform_conv}_test \
  "$here"/*_test; do
  program=${program##*/}
  [[ -x $here/$program && " ${programs[*]} " != *" $program "* ]] || continue
  # Not those that list no tests. One that does not start is to fail below.
  if ! names=$(timeout 20 "$here/$program" --gpu --list 2>/dev/null </dev/null) || [[ $names ]]; then
    programs+=("$program")
  fi
done

{ mkdir -p "$out" && out=$(cd "$out" && pwd); } || fail "cannot write to $out."
if [[ $resume ]]; then
  touch "$out/summary.txt" && sed -Ei '/^missing|no GPU|status 127/d' "$out/summary.txt"
else
  : >"$out/summary.txt" || fail "cannot write to $out."
fi

# Runs a command within $2 seconds, with its output in the file $1, and adds its `result` to the summary. Fails if it did
# not pass, now or before.
run() {
  local name=$1 limit=$2 log=$out/$1 start=$SECONDS status=0 is_cut=
  shift 2
  result=$(sed -n "s|, [0-9]* s: $name\$||p" "$out/summary.txt")
  if [[ $result ]]; then
    [[ $result == passed ]]
    return
  fi
  result=passed
  # 15 s for a program that does not end by itself, and for the archive.
  ((budget > 0 && budget - SECONDS - 15 < limit)) && is_cut=1 limit=$((budget - SECONDS - 15))
  if [[ $is_cut ]] && ((limit < 5)); then
    result=missing
    printf 'missing, 0 s: %s\n' "$name" >>"$out/summary.txt"
    return 1
  fi
  mkdir -p "${log%/*}"
  # The outer redirection hides the shell's message about a crash, which the summary has.
  { timeout --kill-after=10 "$limit" "$@" >"$log" 2>"$log.err" </dev/null; } 2>/dev/null || status=$?
  case $status in
    0) ;;
    3) result="FAILED (no GPU for it)" ;;
    124 | 137)
      # What is only slow did not fail.
      if [[ $is_cut ]]; then result=missing; else result="FAILED (more than $limit s)"; fi
      ;;
    *) result="FAILED (status $status)" ;;
  esac
  printf '%s, %d s: %s\n' "$result" "$((SECONDS - start))" "$name" | tee -a "$out/summary.txt"
  [[ $result == passed || $result == missing ]] || tail -qn 5 "$log" "$log.err"
  [[ -s $log.err ]] || rm -f "$log.err"
  return "$status"
}

# After a fault, CUDA refuses all that a process does: the tests after it have not run. CUDA then waits for each kernel,
# so that the error names it, and writes a file about the first fault.
run_apart() {
  local program=$1 test
  for test in $("$here/$program" --gpu --list 2>/dev/null); do
    run "tests/$program/$test.log" "$limit" env CUDA_LAUNCH_BLOCKING=1 CUDA_ENABLE_COREDUMP_ON_EXCEPTION="$coredump" \
      CUDA_COREDUMP_FILE="$out/coredump" "$here/$program" --gpu "=$test" || coredump=0
  done
}

# No other program would do better: there is no GPU, none of that architecture, or no compute-sanitizer.
ends_step() { [[ $result == *"no GPU"* || $result == *"status 127"* ]]; }

limit=${LIMIT:-120}
coredump=1
for step in "${steps[@]}"; do
  printf '==> %s\n' "$step"
  case $step in
    machine)
      run machine/gpu.txt 30 nvidia-smi -q
      run machine/libc.txt 30 ldd --version
      run machine/python.txt 60 "${PYTHON:-python3}" -c \
        'import torch, torchvision; print(torch.__version__, torchvision.__version__, torch.version.cuda)'
      run machine/sanitizer.txt 30 compute-sanitizer --version
      ;;
    tests)
      for program in "${programs[@]}"; do
        run "tests/$program.log" "$limit" "$here/$program" --gpu || ends_step || [[ $result == missing ]] ||
          run_apart "$program"
        ! ends_step || break
      done
      ;;
    times)
      for program in "${programs[@]}"; do
        run "times/$program.jsonl" "$limit" "$here/$program" --gpu --benchmark || [[ $result == missing ]] ||
          grep -q '"error"' "$out/times/$program.jsonl" ||
          printf '{"name": "%s", "error": "%s"}\n' "$program" "$result" >>"$out/times/$program.jsonl"
        ! ends_step || break
      done
      ;;
    peers)
      times=("$out"/times/*.jsonl)
      if [[ -e ${times[0]} ]]; then
        run table.md 300 "${PYTHON:-python3}" "$here/peers.py" "${times[@]}"
      else
        printf 'missing, 0 s: table.md, which needs the step times in the same folder\n' | tee -a "$out/summary.txt"
      fi
      ;;
    sanitizers)
      for program in "${programs[@]}"; do
        for tool in memcheck racecheck synccheck initcheck; do
          run "sanitizers/$program.$tool.log" "$limit" \
            compute-sanitizer --tool "$tool" --error-exitcode 1 "$here/$program" --gpu
          ! ends_step || break 2
        done
      done
      ;;
  esac
done

# In one file: often only few come back from a machine.
tar -czf "$out.tgz" -C "$(dirname "$out")" "$(basename "$out")"
printf '\nResults are in %s, and in %s.tgz.\n' "$out" "$out"
! grep -E '^(FAILED|missing)' "$out/summary.txt" >&2
