#!/usr/bin/env bash
# Sets up what is missing and runs the tests: `bazel test //...`.
#
# Usage: tools/test.sh [ARGUMENT]...
#
# Arguments go to `bazel test`. Targets among them (//tensorflow_ops/zero_out/...)
# replace //... .
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

python=$(bash "$root/tools/setup/python_env.sh" --and_bazel)
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")

# Any word but an option names targets; after `--` a word that starts with `-`
# names some to leave out.
targets=(//...)
for argument in "$@"; do
  [[ $argument == -* ]] || targets=()
done

cd "$root"
if [[ " $* " == *" -- "* && ${#targets[@]} -gt 0 ]]; then
  # Bazel reads targets in order: first all, then what is left out.
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
