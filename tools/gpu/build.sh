#!/usr/bin/env bash
# Compiles the tests of the CUDA kernels with nvcc and packs them, with the script that runs them, into
# build/gpu.tgz: a file for machines that have a GPU, but neither a compiler nor this repository. Needs CUDA's toolkit
# and g++, but neither Bazel nor TensorFlow.
#
# Usage: tools/gpu/build.sh [FOLDER]...
#
#   FOLDER  a folder of kernels, such as softmax (default: all); name those that it includes, too
#
# On the machine with the GPU: tar -xzf gpu.tgz && bash gpu/first_run.sh
#
# Environment: NVCC (default: nvcc), ARCH (a compute capability such as 90; default: that of this machine's GPU), JOBS
# (default: all processors).
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/common.sh"
help_if_asked "$@"
[[ ${1-} != -* ]] || die "unknown argument $1." "See: $0 --help"

cd "$root"
export NVCC=${NVCC:-nvcc} arch=native objects=build/gpu_objects
[[ -z ${ARCH-} ]] || arch=sm_$ARCH
processor=-O1
[[ $(uname -m) != x86_64 ]] || processor=-mavx
export processor
command -v "$NVCC" >/dev/null || die "$NVCC is not a program." "Install CUDA's toolkit, or set NVCC to its compiler."
rm -rf build/gpu
mkdir -p "$objects" build/gpu

mapfile -t kernels < <(find tensorflow_ops -path '*/cc/kernels/*.cc' ! -name '*_op.cc' -o -path '*/core/cc/*_test.cc')
if (($# > 0)); then
  pattern=$(IFS='|' && printf '%s' "$*")
  mapfile -t kernels < <(printf '%s\n' "${kernels[@]}" | grep -E "/($pattern)/([^/]*|cc/(kernels/)?[^/]*)$")
fi
mapfile -t tests < <(grep -lE 'TFO_(CUDA_TEST|BENCHMARK)' "${kernels[@]}" /dev/null)
((${#tests[@]} > 0)) || die "no tests in $*." "See: $0 --help"
mapfile -t sources < <(printf '%s\n' tensorflow_ops/core/cc/{cpu_dispatch,testing,*_simd,*_gpu.cu}.cc \
  "${kernels[@]}" | grep -v '_test\.cc$')

object_of() { printf '%s/%s.o' "$objects" "$(basename "$1" .cc)"; }

# Compiles file $1, unless its object is newer than all files. The CPU's loops are built for one instruction set.
compile() {
  local object
  object=$(object_of "$1")
  [[ $object -ot $newest ]] || return 0
  local command=(g++ -O1 -ffp-contract=off "$processor" -DTFO_WITHOUT_CPU_AVX2 -DTFO_WITHOUT_CPU_AVX512)
  case $1 in
    *.cu.cc) command=("$NVCC" -O3 "-arch=$arch" -x cu) ;;
    *_simd.cc) command+=(-DTFO_CPU_NAMESPACE=cpu_baseline) ;;
  esac
  "${command[@]}" -std=c++17 -DNDEBUG -I. -c "$1" -o "$object.new" && mv "$object.new" "$object"
}
newest=$(find tensorflow_ops \( -name '*.h' -o -name '*.cc' \) -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
export newest
export -f compile object_of

say "compiling ${#sources[@]} files and ${#tests[@]} tests"
# CUDA files first: they take longest.
printf '%s\n' "${sources[@]}" "${tests[@]}" | sort -r -t. -k2 |
  xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'compile {}' || die "a file does not compile; the message is above."
rm -f "$objects/libkernels.a"
for source in "${sources[@]}"; do object_of "$source" && echo; done | xargs ar qc "$objects/libkernels.a"
# With the shared C++ library: the static one needs a newer glibc than CUDA does.
for test in "${tests[@]}"; do
  "$NVCC" -cudadevrt none -Xlinker -s -o "build/gpu/$(basename "$test" .cc)" "$(object_of "$test")" "$objects/libkernels.a"
done
cp tools/gpu/{first_run.sh,peers.py} build/gpu/
tar -czf build/gpu.tgz -C build gpu
size=$(stat -c %s build/gpu.tgz)
say "build/gpu.tgz has $((size >> 20)) MB"
((size < 40 << 20)) || die "build/gpu.tgz has more than the 40 MB that are easy to carry." "Name fewer folders."
