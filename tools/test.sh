#!/usr/bin/env bash
# Sets up missing prerequisites and runs the tests: `bazel test //...`.
#
# Usage: tools/test.sh [ARGUMENT]...
#
# Passes the arguments to `bazel test`. Targets among them, such as
# //tensorflow_ops/zero_out/..., replace //... . After `--`, they may be exclusions:
# -- //... -//tensorflow_ops/nn/...
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

python=$(bash "$root/tools/setup/python_env.sh")
for compiler in aarch64 clang; do
  [[ " $* " != *" --config=$compiler"* ]] || bash "$root/tools/setup/$compiler.sh"
done
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")

# Arguments other than options are targets.
targets=(//...)
for argument in "$@"; do
  [[ $argument == -* && $argument != -- ]] || targets=()
done

cd "$root"
run_bazel "$bazel" test "$@" "${targets[@]}"
