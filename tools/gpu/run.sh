#!/usr/bin/env bash
# Compiles the tests of the CUDA kernels with nvcc, runs them on this machine's GPU, and times the kernels beside
# torchvision's and PyTorch's. Needs CUDA's toolkit and g++, but neither Bazel nor TensorFlow.
#
# Usage: tools/gpu/run.sh [--only_build] [--sanitize] [FOLDER]...
#
#   --only_build  neither run nor time
#   --sanitize    also run the tests under compute-sanitizer
#   FOLDER        a folder of kernels, such as softmax (default: all); name those that it includes, too
#
# Environment: NVCC (default: nvcc), ARCH (a compute capability such as 90; default: this GPU's), JOBS (default: all
# processors), PYTHON, which has PyTorch (default: python3). Programs and results are in build/gpu/.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/common.sh"
help_if_asked "$@"

only_build=false
sanitize=false
folders=()
for argument in "$@"; do
  case $argument in
    --only_build) only_build=true ;;
    --sanitize) sanitize=true ;;
    -*) die "unknown argument $argument." "See: $0 --help" ;;
    *) folders+=("$argument") ;;
  esac
done

cd "$root"
export NVCC=${NVCC:-nvcc} arch=native out=build/gpu
[[ -z ${ARCH-} ]] || arch=sm_$ARCH
processor=-O1
[[ $(uname -m) != x86_64 ]] || processor=-mavx
export processor
command -v "$NVCC" >/dev/null || die "$NVCC is not a program." "Install CUDA's toolkit, or set NVCC to its compiler."
mkdir -p "$out/objects"

mapfile -t kernels < <(find tensorflow_ops/*/cc/kernels -name '*.cc' ! -name '*_op.cc')
if ((${#folders[@]} > 0)); then
  pattern=$(IFS='|' && printf '%s' "${folders[*]}")
  mapfile -t kernels < <(printf '%s\n' "${kernels[@]}" | grep -E "/($pattern)/([^/]*|cc/kernels/[^/]*)$")
fi
mapfile -t tests < <(grep -lE 'TFO_(CUDA_TEST|BENCHMARK)' "${kernels[@]}" /dev/null)
((${#tests[@]} > 0)) || die "no tests in ${folders[*]}." "See: $0 --help"
mapfile -t sources < <(printf '%s\n' tensorflow_ops/core/cc/{cpu_dispatch,testing,*_simd,*_gpu.cu}.cc \
  "${kernels[@]}" | grep -v '_test\.cc$')

object_of() { printf '%s/objects/%s.o' "$out" "$(basename "$1" .cc)"; }

# Compiles file $1, unless its object is newer than all files. The CPU's loops are built for one instruction set.
compile() {
  local object
  object=$(object_of "$1")
  [[ $object -ot $newest ]] || return 0
  local common=(-std=c++17 -DNDEBUG -I. -c "$1" -o "$object.new")
  case $1 in
    *.cu.cc) "$NVCC" -O3 "-arch=$arch" -x cu "${common[@]}" ;;
    *)
      g++ -O1 "$processor" -ffp-contract=off \
        -DTFO_CPU_NAMESPACE=cpu_baseline -DTFO_WITHOUT_CPU_AVX2 -DTFO_WITHOUT_CPU_AVX512 "${common[@]}"
      ;;
  esac && mv "$object.new" "$object"
}
newest=$(find tensorflow_ops \( -name '*.h' -o -name '*.cc' \) -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
export newest
export -f compile object_of

say "compiling ${#sources[@]} files and ${#tests[@]} tests"
# CUDA files first: they take longest.
printf '%s\n' "${sources[@]}" "${tests[@]}" | sort -r -t. -k2 |
  xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'compile {}' || die "a file does not compile; the message is above."
rm -f "$out/libkernels.a"
for source in "${sources[@]}"; do object_of "$source" && echo; done | xargs ar qc "$out/libkernels.a"
programs=()
for test in "${tests[@]}"; do
  programs+=("$out/$(basename "$test" .cc)")
  "$NVCC" -cudadevrt none -o "${programs[-1]}" "$(object_of "$test")" "$out/libkernels.a"
done
! "$only_build" || exit 0

nvidia-smi -L || die "this machine has no GPU." "nvidia-smi comes with the driver."
failed=()
# Runs a test, alone or under a tool of compute-sanitizer ($2), and reports the result; no test stops the others.
run_test() {
  local log=$1${2:+.$2}.log
  if timeout 300 ${2:+compute-sanitizer --tool "$2" --error-exitcode 1} "$1" >"$log" 2>&1; then
    say "passed: ${1##*/}${2:+ under $2}"
  else
    failed+=("$log")
    say "FAILED: ${1##*/}${2:+ under $2}" && tail -n 5 "$log" >&2
  fi
}
for program in "${programs[@]}"; do run_test "$program"; done
# Times even if a test failed.
"${PYTHON:-python3}" tools/gpu/peers.py "${programs[@]}" | tee "$out/times.md" || failed+=("$out/times.md")
if "$sanitize"; then
  for program in "${programs[@]}"; do
    for tool in memcheck racecheck initcheck synccheck; do run_test "$program" "$tool"; done
  done
fi
((${#failed[@]} == 0)) || die "${#failed[@]} failed:" "${failed[@]}"
