#!/usr/bin/env bash
# Sets up missing prerequisites, builds the wheel, installs it into the project's
# environment (.venv, or the interpreter that PYTHON_BIN_PATH names) and runs
# examples/pool_photo.py, which writes demo.png to the repository's root.
#
# Usage: tools/demo.sh [detection | image_classifier | seq2seq | spatial_transformer |
#                       optical_flow | tagger | digit_lines | basics]
#
# "detection" runs examples/detection/train.py instead, which trains for a minute or
# two, writes build/detection/detections.png and serves the exported detector from a new
# process, and then runs that example's tests.
#
# "image_classifier" trains, evaluates, exports and uses the network of
# examples/image_classifier in build/image_classifier, which takes a minute, and then
# runs that example's tests, which stop and resume it.
#
# "seq2seq" trains examples/seq2seq for about a minute, compares searches, and serves
# the exported decoder from a new process. "basics" runs the programs of
# examples/basics.
#
# "spatial_transformer" and "optical_flow" each train two networks for a minute, compare
# them, write a picture to build/, and run the example's tests.
#
# "tagger" trains examples/tagger for half a minute, which writes
# build/tagger/seasons.png and tags with the saved model in a new process, and then runs
# that example's tests. "digit_lines" trains examples/digit_lines for less than a minute,
# writes build/digit_lines/digit_lines.png, and runs that example's tests.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"
case $* in
  '' | detection | image_classifier | seq2seq | spatial_transformer | optical_flow | tagger | digit_lines | basics) ;;
  *) die "unknown argument $*." "See: $0 --help" ;;
esac

python=$(bash "$root/tools/setup/installed_wheel.sh" build demo)

# Leaves the source tree; -E and -s below exclude PYTHONPATH and user packages, so that
# Python imports the wheel.
cd /

# Runs a program of examples/ with arguments; it must write the file $1.
picture() {
  local picture=$1 example=$2
  shift 2
  say "running examples/$example"
  "$python" -E -s "$root/examples/$example" "$@"
  [[ -s $picture ]] || die "examples/$example wrote no $picture."
  printf 'The picture: %s\n' "$picture"
}

classifier() {
  say "running examples/image_classifier/main.py $*"
  "$python" -E -s "$root/examples/image_classifier/main.py" "$@" "--run=$root/build/image_classifier"
}

case $* in
  '') picture "$root/demo.png" pool_photo.py --output "$root/demo.png" ;;
  detection)
    picture "$root/build/detection/detections.png" detection/train.py --output "$root/build/detection"
    [[ -s $root/build/detection/detector/saved_model.pb ]] || die "examples/detection/train.py exported no detector."
    say "testing examples/detection"
    "$python" -E -s -m pytest -q -p no:cacheprovider "$root/examples/detection"
    ;;
  image_classifier)
    rm -rf "$root/build/image_classifier"
    classifier train
    classifier evaluate --at_least=0.98
    classifier export
    classifier predict --at_least=0.98
    say "testing examples/image_classifier"
    "$python" -E -s -m pytest -q -p no:cacheprovider "$root/examples/image_classifier"
    ;;
  seq2seq)
    say "running examples/seq2seq/train.py"
    "$python" -E -s "$root/examples/seq2seq/train.py" --output "$root/build/seq2seq"
    [[ -s $root/build/seq2seq/decoder/saved_model.pb ]] || die "examples/seq2seq/train.py exported no decoder."
    ;;
  spatial_transformer)
    picture "$root/build/spatial_transformer/straightened.png" \
      spatial_transformer/train.py --at_least=0.95 --output "$root/build/spatial_transformer"
    say "testing examples/spatial_transformer"
    "$python" -E -s -m pytest -q -p no:cacheprovider "$root/examples/spatial_transformer"
    ;;
  optical_flow)
    picture "$root/build/optical_flow/flow.png" \
      optical_flow/train.py --at_most=2 --output "$root/build/optical_flow"
    say "testing examples/optical_flow"
    "$python" -E -s -m pytest -q -p no:cacheprovider "$root/examples/optical_flow"
    ;;
  tagger)
    picture "$root/build/tagger/seasons.png" tagger/train.py --output "$root/build/tagger"
    say "testing examples/tagger"
    "$python" -E -s -m pytest -q -p no:cacheprovider "$root/examples/tagger"
    ;;
  digit_lines)
    picture "$root/build/digit_lines/digit_lines.png" digit_lines/train.py --output "$root/build/digit_lines"
    say "testing examples/digit_lines"
    "$python" -E -s -m pytest -q -p no:cacheprovider "$root/examples/digit_lines"
    ;;
  basics)
    say "testing examples/basics"
    "$python" -E -s -m pytest -q -p no:cacheprovider "$root/examples/basics"
    ;;
esac
