#!/usr/bin/env bash
# Generates ops in a copy of this repository, builds and tests them, and throws
# the copy away: one in an existing family, and the one of
# docs/from_prototype_to_kernel.md, whose commands are run, in a new family.
#
# Usage: tools/new_op/smoke_test.sh
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/common.sh"
help_if_asked "$@"

python=$(bash "$root/tools/setup/python_env.sh" build lint)
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")
cd "$root"
# The copy builds where this repository does, so only what is new is compiled.
output_base=$("$bazel" info output_base)
copy=$root/build/new_op
rm -rf "$copy"
mkdir -p "$copy"
trap 'rm -rf "$copy"' EXIT
tar -cf - --exclude=./.git --exclude='./bazel-*' --exclude=./build --exclude='./.venv*' --exclude=./dist . |
  tar -xf - -C "$copy"
printf '\nstartup --output_base=%s\n' "$output_base" >>"$copy/.bazelrc.user"
ln -s "$(dirname "$(dirname "$python")")" "$copy/.venv"
export PYTHON_BIN_PATH=$python
cd "$copy"

say "an op in an existing family"
"$bazel" run --noshow_progress //tools/new_op -- --family detection --name SmokeTestOp
say "docs/from_prototype_to_kernel.md"
"$python" tools/new_op/run_tutorial.py docs/from_prototype_to_kernel.md
say "tests of the op in the existing family, and of the whole package's names"
"$bazel" test --noshow_progress //tensorflow_ops/detection:smoke_test_op_test \
  //tensorflow_ops/detection:smoke_test_op_ops_test //tensorflow_ops/core:library_test
say "formats"
bin=$(dirname "$python")
families=(tensorflow_ops/activations tensorflow_ops/detection)
find "${families[@]}" \( -name '*.cc' -o -name '*.h' \) -print0 | xargs -0 "$bin/clang-format" --dry-run --Werror
python_files=("${families[@]}" benchmarks/activations benchmarks/detection tensorflow_ops/__init__.py
  tensorflow_ops/core tensorflow_ops/testing)
"$bin/ruff" check --quiet "${python_files[@]}"
"$bin/ruff" format --quiet --check "${python_files[@]}"
