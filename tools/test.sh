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

python=$(bash "$root/tools/setup/python_env.sh")
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")

targets=(//...)
for argument in "$@"; do
  case $argument in
    //* | :* | @* | -//*) targets=() ;;
  esac
done

cd "$root"
# After `--` a word that starts with `-` is a target to leave out.
exec "$bazel" test "$@" "${targets[@]}"
