#!/usr/bin/env bash
# Builds and tests this repository with the enclosing tensorflow_ops.
#
# Usage: examples/external_repo/test.sh [ARGUMENT]...
#
# Arguments go to `bazel test`.
set -euo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
# shellcheck source=tools/setup/common.sh
source "$here/../../tools/setup/common.sh"
help_if_asked "$@"

# shellcheck disable=SC2154  # common.sh sets root
python=$(bash "$root/tools/setup/python_env.sh")
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")
cd "$here"
run_bazel "$bazel" test "$@" //...
