#!/usr/bin/env bash
# Sets up missing prerequisites and runs the fast tests, for this processor's instruction set: `bazel test --config=fast //...`
#
# Usage: tools/test.sh [--all] [ARGUMENT]...
#
# --all runs all tests, at all instruction sets and with CUDA kernels emulated: `bazel test //...`
#
# Passes other arguments to `bazel test`. Targets among them, such as
# //tensorflow_ops/zero_out/..., replace //... and are tested in full, as with a --config. After `--`, they may be
# exclusions: -- //... -//tensorflow_ops/nn/...
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

arguments=(--config=fast)
targets=(//...)
for argument in "$@"; do
  case $argument in
    --all | --config=*) arguments=() ;;
    -*) ;;
    *) arguments=() targets=() ;;
  esac
done
fast=${arguments[*]}
for argument in "$@"; do
  [[ $argument == --all ]] || arguments+=("$argument")
done

python=$(bash "$root/tools/setup/python_env.sh" bazel)
for compiler in aarch64 clang; do
  [[ " $* " != *" --config=$compiler"* ]] || bash "$root/tools/setup/$compiler.sh"
done
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")

cd "$root"
run_bazel "$bazel" test "${arguments[@]}" "${targets[@]}"
[[ -z $fast ]] || say "fast tests passed; bash tools/test.sh --all takes 12 minutes more on two cores"
