#!/usr/bin/env bash
# Generates an op of each kind in a copy of this repository, builds and tests
# them, and throws the copy away: a gather, a reduction, and the map of the
# tutorial in docs/writing_an_op.md, whose commands are run.
#
# Usage: tools/new_op/smoke_test.sh [--quick]
#
# --quick generates the gather only.
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
# For git apply on the page, and for lint.sh, which checks what git status lists.
git init --quiet
git add --all
git -c user.name=smoke -c user.email=smoke@test commit --quiet --message="Before new_op"

say "a gather in an existing family"
"$python" tools/new_op/new_op.py --family detection --name SmokePick --kind gather \
  --attr shift:int=0 --attr wrap:bool=true --attr scale:float=0.1 --attr "mode:string=soft|hard"
if [[ $* != --quick ]]; then
  say "a reduction"
  "$python" tools/new_op/new_op.py --family nn --name SmokeSums --kind reduction --outputs 2 --attr shift:float=0.0
  "$bazel" test --noshow_progress //tensorflow_ops/nn:smoke_sums_test
  "$bazel" test --noshow_progress //tensorflow_ops/nn:ops_test --test_filter=smoke_sums_test
  "$bazel" build --config=cuda --noshow_progress --repo_env=TFO_CUDA_ARCHITECTURES="90" \
    //tensorflow_ops/nn:smoke_sums_cuda
  say "docs/writing_an_op.md"
  "$python" tools/new_op/run_tutorial.py docs/writing_an_op.md
fi
say "tests of the gather, and of lists of all public names and ops"
"$bazel" test --noshow_progress //tensorflow_ops/detection:smoke_pick_test
"$bazel" test --noshow_progress //tensorflow_ops/detection:ops_test --test_filter=smoke
"$bazel" test --noshow_progress //tensorflow_ops/core:python_test --test_filter=api_test
"$bazel" test --noshow_progress //tensorflow_ops/export:python_test --test_filter=test_every_op
say "formats"
mapfile -t files < <(git ls-files --modified --others --exclude-standard)
bash tools/lint.sh "${files[@]}"
