#!/usr/bin/env bash
# Builds a wheel for this machine, installs it into the Python of tools/setup/python_env.sh, and
# prints that Python's path.
#
# Usage: tools/setup/installed_wheel.sh [build] [demo] [lint] [docs]
#
# The words are python_env.sh's: which packages of tools/requirements/ are
# wanted beside. A wheel that is installed already is left as it is.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"

python=$(bash "$root/tools/setup/python_env.sh" --and_bazel "$@")
wheel=$(bash "$root/tools/build_wheel.sh" --native | tail -n 1)

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

hold_lock "$root/.venv.lock" "the virtual environment .venv"
hash=$(sha256sum <"$wheel")
if [[ ${hash%% *} != "$(installed_hash)" ]]; then
  say "installing ${wheel##*/}"
  work=$root/.venv.work
  trap 'rm -rf "$work"' EXIT
  run_pip "$python" "$work" install --force-reinstall --no-deps "$wheel" >&2 ||
    die "pip could not install $wheel; its message is above." "If .venv is broken, remove it and run this again: rm -rf $root/.venv"
fi
printf '%s\n' "$python"
