#!/usr/bin/env bash
# Sets up missing prerequisites, builds the wheel, installs it into the project's
# environment (.venv, or the interpreter that PYTHON_BIN_PATH names) and runs
# tensorflow_ops.demo, which writes demo.png to the repository's root.
#
# Usage: tools/demo.sh [--steps=10] [detection | image_classifier | seq2seq | spatial_transformer |
#                       optical_flow | tagger | digit_lines | language_model | recommender | several_machines |
#                       basics]...
#
# With names, runs the programs of these folders of examples/ instead, which train for a
# minute or two and write to build/NAME, and then the folders' tests. With --steps=10, the
# programs make ten steps of training: this checks in seconds that they run, save and load,
# and not that they learn.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

# What each example must write.
declare -A writes=(
  [detection]='detections.png detector/saved_model.pb set_prediction.png set_predictor/saved_model.pb'
  [image_classifier]=""
  [seq2seq]=decoder/saved_model.pb
  [spatial_transformer]=straightened.png
  [optical_flow]=flow.png
  [tagger]=seasons.png
  [digit_lines]='digit_lines.png reader/saved_model.pb'
  [language_model]='lengths.png writer/saved_model.pb'
  [recommender]='recommender.keras films.txt'
  [several_machines]=""
  [basics]=""
)
steps=()
if [[ ${1-} == --steps=* ]]; then
  steps=("$1")
  shift
fi
for name; do
  [[ -v writes[$name] ]] || die "unknown argument $name." "See: $0 --help"
done

python=$(bash "$root/tools/setup/installed_wheel.sh" build demo)

# Leaves the source tree; -E and -s exclude PYTHONPATH and user packages, so that Python
# imports the wheel.
cd /
(($#)) || "$python" -E -s -m tensorflow_ops.demo "$root/demo.png"
run() {
  say "running examples/$*"
  "$python" -E -s "$root/examples/$1" "${@:2}"
}

for name; do
  output=$root/build/$name
  rm -rf "$output"
  case $name in
    image_classifier)
      # Its tests run the commands, but not until the model has learnt.
      if ((!${#steps[@]})); then
        main=(image_classifier/main.py "--run=$output")
        run "${main[@]}" train
        run "${main[@]}" evaluate --at_least=0.98
        run "${main[@]}" export
        run "${main[@]}" predict --at_least=0.98
      fi
      ;;
    basics) ;;
    *)
      run "$name/train.py" "${steps[@]}" --output "$output"
      [[ $name != detection ]] || run detection/set_prediction.py "${steps[@]}" --output "$output"
      ;;
  esac
  for file in ${writes[$name]}; do
    [[ -s $output/$file ]] || die "examples/$name wrote no $output/$file."
    [[ $file != *.png ]] || printf 'The picture: %s\n' "$output/$file"
  done
  if compgen -G "$root/examples/$name/*_test.py" >/dev/null; then
    say "testing examples/$name"
    "$python" -E -s -m pytest -q -p no:cacheprovider "$root/examples/$name"
  fi
done
