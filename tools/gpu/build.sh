#!/usr/bin/env bash
# Builds the tests of the CUDA kernels for a GPU and packs them, with the script that runs them, into build/gpu.tar.xz: a
# file for machines that have a GPU, but neither a compiler, TensorFlow nor this repository.
#
# Usage: tools/gpu/build.sh [TEST]...
#
#   TEST  a test of CUDA kernels, such as //tensorflow_ops/nn:softmax_test (default: all)
#
# On the machine with the GPU: python3 -m tarfile -e gpu.tar.xz && bash gpu/first_run.sh correctness
#
# Environment: ARCH, a compute capability such as 90 (default: that of this machine's GPU).
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/common.sh"
help_if_asked "$@"
[[ ${1-} != -* ]] || die "unknown argument $1." "See: $0 --help"

ARCH=${ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)} ||
  die "this machine has no GPU." "Set ARCH to the compute capability of the one to build for, such as 90."
python=$(bash "$root/tools/setup/python_env.sh" bazel)
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")

cd "$root"
# --config=cuda, which queries do not have; one instruction set suffices for the programs' CPU part.
options=(--repo_env=TFO_CUDA=1 "--repo_env=TFO_CUDA_ARCHITECTURES=$ARCH" --repo_env=TFO_CPU_LEVELS=baseline)
programs=("${@/%/_on_gpu}")
(($# > 0)) ||
  mapfile -t programs < <("$bazel" query "${options[@]}" --noshow_progress 'filter("_on_gpu$", //tensorflow_ops/...)')
((${#programs[@]} > 0)) || die "Bazel found no programs; its message is above."
run_bazel "$bazel" build "${options[@]}" "${programs[@]}"

bin=$("$bazel" info "${options[@]}" bazel-bin 2>/dev/null)
rm -rf build/gpu
mkdir -p build/gpu
for program in "${programs[@]}"; do
  file=${program#//} name=${program#*:}
  # Some test only what runs on the CPU.
  [[ ! $("$bin/${file/://}" --gpu --list) ]] || cp "$bin/${file/://}" "build/gpu/${name%_on_gpu}"
done
cp tools/gpu/{first_run.sh,first_run.py,peers.py} build/gpu/
# Programs have kernels in common, which a dictionary of the size of several finds: a third of gzip's size.
"$python" - <<'EOF'
import lzma
import tarfile

filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}]
with lzma.open("build/gpu.tar.xz", "wb", filters=filters) as file, tarfile.open(fileobj=file, mode="w|") as archive:
    archive.add("build/gpu", "gpu")
EOF
size=$(stat -c %s build/gpu.tar.xz)
say "build/gpu.tar.xz has $((size >> 20)) MB"
# Some ways to a machine carry 64 MiB, the repository included.
((size < 52 << 20)) || die "build/gpu.tar.xz has more than 52 MB." "Name fewer tests."
