#!/usr/bin/env bash
# Copies living ops by new_op in a copy of this repository, builds and tests them,
# and throws the copy away: one like hinge_loss, one for the CPU only, one like
# zero_out, and that of the tutorial in docs/writing_an_op.md, whose commands are run.
#
# Usage: tools/new_op/smoke_test.sh [--quick]
#
# --quick makes the one like hinge_loss only.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/common.sh"
help_if_asked "$@"

python=$(bash "$root/tools/setup/python_env.sh" build lint)
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")
cd "$root"
copy=$root/build/new_op
rm -rf "$copy"
mkdir -p "$copy"
# The copy has outputs of its own: two workspaces that share them stop each other's servers. What is not new comes from
# the disk cache.
trap 'cd "$copy" && "$bazel" clean --expunge >/dev/null 2>&1; cd "$root" && rm -rf "$copy"' EXIT
tar -cf - --exclude=./.git --exclude='./bazel-*' --exclude=./build --exclude='./.venv*' --exclude=./dist \
  --exclude=__pycache__ . |
  tar -xf - -C "$copy"
ln -s "$(dirname "$(dirname "$python")")" "$copy/.venv"
export PYTHON_BIN_PATH=$python
cd "$copy"
# For git apply on the page, and for lint.sh, which checks what git status lists.
git init --quiet
git add --all
git -c user.name=smoke -c user.email=smoke@test commit --quiet --message="Before new_op"

say "an op like hinge_loss"
"$python" tools/new_op/new_op.py nn.SmokeLoss
edited=$(git diff --name-only)
[[ $edited == tensorflow_ops/nn/__init__.py ]] || die "new_op edits more than the public names: $edited"
if [[ $* != --quick ]]; then
  say "one for the CPU only, and one like zero_out"
  "$python" tools/new_op/new_op.py nn.SmokeCpu --cpu_only
  "$python" tools/new_op/new_op.py metrics.SmokeCopy --like zero_out
  "$bazel" test --noshow_progress //tensorflow_ops/nn:smoke_cpu_test //tensorflow_ops/metrics:smoke_copy_test
  "$bazel" test --noshow_progress //tensorflow_ops/metrics:ops_test --test_filter=smoke
  "$bazel" build --config=cuda --noshow_progress --repo_env=TFO_CUDA_ARCHITECTURES="90" \
    //tensorflow_ops/nn:smoke_loss_cuda //tensorflow_ops/metrics:smoke_copy_cuda
  say "samples and compositions of all ops"
  "$bazel" test --noshow_progress //tensorflow_ops/testing:op_samples_test --test_filter=ArgumentsTest
  "$bazel" test --noshow_progress //tensorflow_ops/onnx:python_test --test_filter=samples_test
  "$bazel" test --noshow_progress //tensorflow_ops/export:compositions_test --test_filter=SamplesTest
  say "docs/writing_an_op.md"
  "$python" tools/new_op/run_tutorial.py docs/writing_an_op.md
fi
say "tests of the loss, and of lists of all public names and ops"
"$bazel" test --noshow_progress //tensorflow_ops/nn:smoke_loss_test
"$bazel" test --noshow_progress //tensorflow_ops/nn:ops_test --test_filter=smoke
"$bazel" test --noshow_progress //tensorflow_ops/core:python_test --test_filter=api_test
"$bazel" test --noshow_progress //tensorflow_ops/export:python_test --test_filter=test_every_op
say "formats"
mapfile -t files < <(git ls-files --modified --others --exclude-standard)
bash tools/lint.sh "${files[@]}"
