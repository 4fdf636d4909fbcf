#!/usr/bin/env bash
# Sets up missing prerequisites and runs the tests: `bazel test //...`.
#
# Usage: tools/test.sh [ARGUMENT]...
#
# Passes the arguments to `bazel test`. Targets among them, such as
# //tensorflow_ops/zero_out/..., replace //... .
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

python=$(bash "$root/tools/setup/python_env.sh" --and_bazel)
[[ " $* " != *" --config=aarch64 "* ]] || bash "$root/tools/setup/aarch64.sh"
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")

# Arguments other than options are targets; after `--`, those that start with `-`
# are excluded targets.
targets=(//...)
for argument in "$@"; do
  [[ $argument == -* ]] || targets=()
done

cd "$root"
if [[ " $* " == *" -- "* && ${#targets[@]} -gt 0 ]]; then
  # Bazel evaluates targets in order: all first, then the exclusions.
  options=()
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  run_bazel "$bazel" test "${options[@]}" -- "${targets[@]}" "$@"
else
  run_bazel "$bazel" test "$@" "${targets[@]}"
fi
