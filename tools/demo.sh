#!/usr/bin/env bash
# From a clone to a picture: sets up what is missing, builds the wheel, installs
# it into the project's environment (.venv, or the interpreter that
# PYTHON_BIN_PATH names) and runs examples/pool_photo.py, which writes demo.png
# into the repository's root.
#
# Usage: tools/demo.sh [detection]
#
# With "detection" it runs examples/detection/train.py instead: a minute or two
# of training, and build/detection/detections.png.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"
[[ $# == 0 || $* == detection ]] || die "unknown argument $*." "See: $0 --help"

python=$(bash "$root/tools/setup/python_env.sh" build demo)
wheel=$(bash "$root/tools/build_wheel.sh" | tail -n 1)

# Prints the hash of the wheel that was installed last; pip keeps it.
installed_hash() {
  "$python" -I - <<'PYTHON'
import importlib.metadata
import json

try:
    text = importlib.metadata.distribution("tensorflow-ops").read_text("direct_url.json")
    print(json.loads(text)["archive_info"]["hashes"]["sha256"])
except (importlib.metadata.PackageNotFoundError, TypeError, KeyError):
    print("none")
PYTHON
}

work=$root/.venv.work

install_wheel() {
  hold_lock "$root/.venv.lock" "the virtual environment .venv"
  local hash
  hash=$(sha256sum <"$wheel")
  [[ ${hash%% *} != "$(installed_hash)" ]] || return 0
  say "installing ${wheel##*/}"
  trap 'rm -rf "$work"' EXIT
  run_pip "$python" "$work" install --force-reinstall --no-deps "$wheel" >&2 ||
    die "pip could not install $wheel; its message is above." "If .venv is broken, remove it and run this again: rm -rf $root/.venv"
}

# In a subshell, so that the lock is not held while the demo runs.
(install_wheel)

if (($# == 0)); then
  example=pool_photo.py picture=$root/demo.png output=$root/demo.png
else
  example=detection/train.py picture=$root/build/detection/detections.png output=$root/build/detection
fi
# Neither the folder of the sources nor PYTHONPATH is where Python looks for
# modules: what runs is the wheel.
say "running examples/$example"
cd /
"$python" -E -s "$root/examples/$example" --output "$output"
[[ -s $picture ]] || die "examples/$example wrote no $picture."
printf 'The picture: %s\n' "$picture"
