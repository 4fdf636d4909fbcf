#!/usr/bin/env bash
# Builds a wheel for this machine, installs it into the Python of tools/setup/python_env.sh, and
# prints that Python's path.
#
# Usage: tools/setup/installed_wheel.sh [build] [demo] [lint] [docs]
#
# The arguments are those of python_env.sh: files in tools/requirements/ with further
# packages to install. Does not reinstall the same wheel.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"

python=$(bash "$root/tools/setup/python_env.sh" bazel "$@")
wheel=$(bash "$root/tools/build_wheel.sh" --native | tail -n 1)

# Prints the hash of the installed wheel, which pip records.
installed_hash() {
  "$python" -I - <<'PYTHON'
import importlib.metadata
import json

try:
    text = importlib.metadata.distribution("tensorflow-extra-ops").read_text("direct_url.json")
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
