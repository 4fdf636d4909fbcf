#!/usr/bin/env bash
# Sets up the Python that builds, tests and runs this project, and prints its
# path.
#
# Usage: tools/setup/python_env.sh [bazel] [build] [demo] [lint] [docs]
#
# With bazel, which goes first, also installs Bazel if it makes an environment, in the
# background: that takes as long. tools/setup/bazel.sh waits for it.
#
# Each argument is a file in tools/requirements/ with packages to install (default:
# build). They are installed into .venv in the repository's root, which is created
# from $PYTHON, else from the first of python3, python3.13 ... python3.10 on PATH that
# is Python 3.10 to 3.13.
#
# If PYTHON_BIN_PATH is set, the script uses that interpreter without changes and
# requires that it has the packages. (tools/demo.sh installs the wheel there.)
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"

with_bazel=
if [[ ${1-} == bazel ]]; then
  with_bazel=yes
  # A Bazel that is not on PATH goes to the cache folder: if that is none, ends before anything is installed.
  command -v bazelisk >/dev/null || command -v bazel >/dev/null || cache_folder >/dev/null
  shift
fi
(($# > 0)) || set -- build
for name in "$@"; do
  [[ -f $root/tools/requirements/$name.txt ]] || die "no file tools/requirements/$name.txt." "See: $0 --help"
done

venv=$root/.venv
work=$root/.venv.work
python=$venv/bin/python

# Prints the version of interpreter $1 as "3.11", or nothing if it does not run.
version_of() {
  "$1" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

fits() { [[ $1 =~ ^3\.1[0-3]$ ]]; }

# ---------------------------------------------------------------------------
# The caller's own interpreter.

# Prints the packages of the given files that interpreter $1 lacks, one requirement per
# line. TensorFlow 2.21 may be tensorflow or tensorflow-cpu. Other packages may have any
# version.
missing_packages() {
  local interpreter=$1
  shift
  "$interpreter" -I - "${@/#/$root/tools/requirements/}" <<'PYTHON'
import importlib.metadata as metadata
import pathlib
import sys

found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in metadata.distributions()}
for file in sys.argv[1:]:
    for requirement in pathlib.Path(f"{file}.txt").read_text(encoding="utf-8").splitlines():
        package = requirement.partition("==")[0]
        if package == "tensorflow-cpu":
            package = "tensorflow" if "tensorflow" in found else package
            if not found.get(package, "none").startswith("2.21."):
                print(f"found TensorFlow {found.get(package, 'none')}", file=sys.stderr)
                print(f"{package}==2.21.0")
        elif package[0].isalpha() and package not in found:
            print(requirement)
PYTHON
}

use_callers_python() {
  local interpreter version missing quoted
  interpreter=$(command -v "$PYTHON_BIN_PATH" || true)
  [[ -n $interpreter ]] ||
    die "PYTHON_BIN_PATH is $PYTHON_BIN_PATH, which is not a program." \
      "Set it to a Python 3.10 to 3.13 that has TensorFlow 2.21, or unset it: then .venv is set up and used."
  [[ $interpreter == /* ]] || interpreter=$PWD/$interpreter
  version=$(version_of "$interpreter")
  fits "$version" ||
    die "PYTHON_BIN_PATH is $interpreter, which is Python ${version:-of an unknown version}; 3.10 to 3.13 is needed." \
      "Set it to such an interpreter, or unset it: then .venv is set up and used."
  missing=$(missing_packages "$interpreter" "$@") ||
    die "cannot read the packages of $interpreter (PYTHON_BIN_PATH)." "Unset PYTHON_BIN_PATH: then .venv is set up and used."
  if [[ -n $missing ]]; then
    quoted=$(printf '%q' "$interpreter")
    die "$interpreter (PYTHON_BIN_PATH) lacks packages that this project needs." \
      "Run: $quoted -m pip install ${missing//$'\n'/ }" \
      "or unset PYTHON_BIN_PATH: then .venv is set up and used."
  fi
  printf '%s\n' "$interpreter"
}

if [[ -n ${PYTHON_BIN_PATH-} ]]; then
  use_callers_python "$@"
  exit
fi

# ---------------------------------------------------------------------------
# The project's environment.

# Prints the interpreter for creating .venv.
find_base_python() {
  local candidates=(python3 python3.13 python3.12 python3.11 python3.10) candidate version seen=()
  [[ -z ${PYTHON-} ]] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    version=$(version_of "$candidate")
    if fits "$version"; then
      command -v "$candidate"
      return
    fi
    [[ -z $version ]] || seen+=("$candidate is Python $version")
  done
  local found="none was found"
  ((${#seen[@]} == 0)) || found=$(printf '%s; ' "${seen[@]}")
  die "Python 3.10 to 3.13 is needed (TensorFlow 2.21 has no other): ${found%; }." \
    "Install one (Debian, Ubuntu: sudo apt-get install python3 python3-venv)" \
    "or name one that is not on PATH: PYTHON=/path/to/python3.11"
}

# Creates .venv and installs pip without ensurepip, which is a separate package on
# Debian.
make_venv_without_ensurepip() {
  local base=$1 wheel
  local advice=("Run: sudo apt-get install python3-venv" "or name another Python 3.10 to 3.13: PYTHON=/path/to/python3.11")
  "$base" -I -m venv --without-pip "$venv" 2>/dev/null ||
    die "$base cannot make virtual environments." "${advice[@]}"
  if "$base" -m pip --python "$python" --version >/dev/null 2>&1; then
    PIP_USER=0 TMPDIR=$work "$base" -m pip --python "$python" -qq --disable-pip-version-check install pip && return
  fi
  has_apt || die "$base has neither ensurepip nor pip." "${advice[@]}"
  say "Python has no pip: taking it from Debian's package python3-pip-whl"
  if ! {
    private_apt apt-get "$work/apt" -qq update &&
      (cd "$work" && private_apt apt-get "$work/apt" -qq download python3-pip-whl)
  } >&2; then
    die "$base has no pip, and Debian's package python3-pip-whl cannot be downloaded." \
      "Check the network and the package sources (apt-get update), or:" "${advice[@]}"
  fi
  dpkg-deb -x "$work"/python3-pip-whl_*.deb "$work/pip"
  wheel=$(printf '%s\n' "$work"/pip/usr/share/python-wheels/pip-*.whl | head -n 1)
  # A wheel is a zip file, and Python can run modules in one.
  TMPDIR=$work "$python" -I "$wheel/pip" -qq --disable-pip-version-check install pip ||
    die "pip cannot be installed into $venv." "Check the network and pip's configuration ($python -m pip config list), then run this again."
}

make_venv() {
  local base
  base=$(find_base_python)
  say "making the virtual environment .venv with $base (Python $(version_of "$base"))"
  rm -rf "$venv"
  if "$base" -I -c 'import ensurepip, venv' 2>/dev/null; then
    TMPDIR=$work "$base" -I -m venv "$venv" >&2 ||
      die "$base cannot make the virtual environment $venv." \
        "Run: sudo apt-get install python3-venv   (on Debian and Ubuntu)" "or name another interpreter: PYTHON=/path/to/python3.11"
  else
    make_venv_without_ensurepip "$base"
  fi
}

# Prints the text that marks .venv as complete. It contains the path, because a virtual
# environment cannot be moved, and the version, because an upgrade of the system's
# Python breaks it.
complete_text() { printf 'Python %s in %s\n' "$(version_of "$python")" "$venv"; }

is_complete() { [[ -x $python && -f $venv/.complete && $(<"$venv/.complete") == "$(complete_text)" ]]; }

# Returns whether .venv was created from $PYTHON, if that is set.
is_from_wanted_python() {
  [[ -n ${PYTHON-} ]] || return 0
  local identity='import sys; print(sys.base_prefix, sys.version)'
  [[ $("$PYTHON" -I -c "$identity" 2>&1) == "$("$python" -I -c "$identity" 2>&1)" ]]
}

# Returns whether the current packages of file $1 are installed.
is_installed() { cmp -s "$root/tools/requirements/$1.txt" "$venv/.installed/$1.txt"; }

all_installed() {
  local name
  for name in "$@"; do is_installed "$name" || return 1; done
}

# Writes the bytecode of modules that tests import. Tests cannot write it, because .venv
# is read-only in Bazel's sandbox, and would each compile for 7 s. Runs while Bazel is
# set up. -I ignores PYTHONDONTWRITEBYTECODE.
compile_modules() {
  exec >/dev/null 2>&1 9>&-
  exec "$python" -I -c 'import keras, pytest, tensorflow, hypothesis, matplotlib.pyplot'
}

set_up() {
  local name requirements
  make_folder "$root" "Clone the repository to a folder of yours."
  hold_lock "$root/.venv.lock" "the virtual environment .venv"
  trap 'rm -rf "$work"' EXIT
  rm -rf "$work"
  mkdir -p "$work"
  if ! is_complete || ! is_from_wanted_python; then
    [[ ! -d $venv ]] || say "the virtual environment .venv is not complete, or of another Python: making it again"
    make_venv
    mkdir "$venv/.installed"
    [[ -z $with_bazel ]] || bash "$root/tools/setup/bazel.sh" "$python" >/dev/null 2>&1 9>&- &
  fi
  for name in "$@"; do
    ! is_installed "$name" || continue
    rm -f "$venv/.complete"
    case $name in
      build)
        say "installing tools/requirements/build.txt (TensorFlow: about 300 MB, a minute or more)"
        requirements=(--requirement "$root/tools/requirements/build.txt")
        ;;
      *)
        say "installing tools/requirements/$name.txt"
        requirements=(--requirement "$root/tools/requirements/$name.txt" --constraint "$root/tools/requirements/build.txt")
        ;;
    esac
    run_pip "$python" "$work" install --no-compile --only-binary=:all: "${requirements[@]}" >&2 ||
      die "pip could not install tools/requirements/$name.txt; its message is above." \
        "Check the network, pip's configuration ($python -m pip config list) and the free space on the disk, then run this again."
    cp "$root/tools/requirements/$name.txt" "$venv/.installed/"
    complete_text >"$venv/.complete"
    [[ $name != build ]] || compile_modules &
  done
}

if ! { is_complete && is_from_wanted_python && all_installed "$@"; }; then set_up "$@"; fi
printf '%s\n' "$python"
