#!/usr/bin/env bash
# Compares the speed of this tree's wheel with that of an earlier commit, on this machine and in turns.
#
# Usage: tools/compare_speed.sh [COMMIT] [TABLE...]
#
# COMMIT is by default the newest one that is a week older than HEAD. TABLE is one of benchmarks/run.py:
# by default a few of each kind of kernel, of which one that takes over 1.15 times as long is an error. What
# the earlier commit lacks is not compared.
# Run it on an idle machine.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

cd "$root"
week=$(($(git log -1 --format=%ct) - 7 * 24 * 3600))
commit=$(git rev-parse --verify "${1:-$(git rev-list -1 --before=$week HEAD)}^{commit}") ||
  die "no commit '${1-}'." "In a shallow clone, fetch the history first: git fetch --unshallow"
tables=("${@:2}")
((${#tables[@]})) || tables=(
  nn/rows/softmax_cross_entropy nn/sequences/ctc nn/sequences/crf nn/recurrent/lstm_training nn/attention/sizes
  nn/deformable/convolution nn/quantized/products detection/nms/cases detection/regions/roi_align image/sampling/grid
  seq2seq/beam_search/step
)

earlier=$root/build/earlier
git worktree remove --force "$earlier" 2>/dev/null || rm -rf "$earlier"
git worktree prune
git worktree add --detach "$earlier" "$commit" >&2
trap 'git worktree remove --force "$earlier"' EXIT
theirs=$(bash "$earlier/tools/setup/installed_wheel.sh")
ours=$(bash tools/setup/installed_wheel.sh)
cd build # whose packages do not hide the installed ones
"$ours" "$root/benchmarks/run.py" --quick --against "$theirs" "${tables[@]}"
