#!/usr/bin/env bash
# Builds, with Bazel, what a machine with a GPU runs: the tests of the CUDA kernels
# and a library of all kernels, in build/gpu/. Copy the repository with that folder
# there and run tools/gpu/run.sh.
#
# Usage: tools/gpu/build.sh [--archs "80 90"]
#
#   --archs LIST  compute capabilities to build for (default: those of --config=cuda)
#
# The programs need a driver for CUDA 13 and a C library as new as this machine's, but
# no CUDA toolkit, Bazel or TensorFlow.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/common.sh"
help_if_asked "$@"

options=(--config=cuda)
while (($# > 0)); do
  case $1 in
    --archs)
      (($# > 1)) || die "--archs needs a list." "See: $0 --help"
      options+=("--repo_env=TFO_CUDA_ARCHITECTURES=$2")
      shift
      ;;
    *) die "unknown argument $1." "See: $0 --help" ;;
  esac
  shift
done

python=$(bash "$root/tools/setup/python_env.sh" --and_bazel)
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")
cd "$root"
programs="filter('_on_gpu$', kind(cc_binary, //tensorflow_ops/...)) + //tools/gpu:kernels.so"
mapfile -t files < <(run_bazel "$bazel" cquery "${options[@]}" --output=files "$programs" 2>/dev/null)
((${#files[@]} > 1)) || die "Bazel lists no programs." "Run: $bazel cquery ${options[*]} \"$programs\""
mapfile -t targets < <(run_bazel "$bazel" cquery "${options[@]}" "$programs" 2>/dev/null | cut -d' ' -f1)

say "building ${#targets[@]} programs"
run_bazel "$bazel" build "${options[@]}" "${targets[@]}" >&2
rm -rf build/gpu
mkdir -p build/gpu
cp -f "${files[@]}" build/gpu/
say "build/gpu has $(du -sh build/gpu | cut -f1)"
