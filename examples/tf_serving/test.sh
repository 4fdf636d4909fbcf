#!/usr/bin/env bash
# Builds the program that stands for TF Serving's model server, and runs it on a model.
#
# Usage: examples/tf_serving/test.sh [--here]
#
# --here links objects that tools/test.sh has built, in place of compiling all for this
# workspace.
set -euo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
# shellcheck source=tools/setup/common.sh
source "$here/../../tools/setup/common.sh"
help_if_asked "$@"

# shellcheck disable=SC2154  # common.sh sets root
python=$(bash "$root/tools/setup/python_env.sh")
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")
case $* in
  '')
    cd "$here"
    target=(--config=native //:model_server)
    program=$PWD/bazel-bin/model_server
    ;;
  --here)
    cd "$root"
    target=(@tf_serving//:model_server)
    program=$PWD/bazel-bin/external/tf_serving/model_server
    ;;
  *) die "unknown argument $*." "See: $0 --help" ;;
esac
run_bazel "$bazel" build "${target[@]}"

# Every op of the Python package is linked, and the softmax of (0, 1, 2) and (3, 0, 1) is right.
ops=$(grep -c '^TensorflowOps>' "$root/tensorflow_ops/core/python/api.txt")
expected="$ops ops
0.090031 0.244728 0.665241
0.843795 0.042010 0.114195"
printed=$(TF_CPP_MIN_LOG_LEVEL=2 "$program" "$here/model")
[[ $printed == "$expected" ]] || die "the model server printed" "$printed" "and not" "$expected"
say "the model server serves: $ops ops"
