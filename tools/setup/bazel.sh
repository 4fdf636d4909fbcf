#!/usr/bin/env bash
# Chooses the Bazel for this repository, installs it if necessary, and prints the
# path of the program to run:
#
#   "$(bash tools/setup/bazel.sh)" build //...
#
# Bazel is chosen in this order: bazelisk on PATH; a bazel on PATH with the version in
# .bazelversion; on Debian, a private installation in the cache folder
# ($TENSORFLOW_OPS_CACHE, default ~/.cache/tensorflow_ops) that all clones share.
#
# Usage: tools/setup/bazel.sh [--ahead] [PYTHON]
#
# --ahead installs Bazel, starts its server, and prints nothing. It can run while
# packages are being installed into PYTHON, which then needs only pip.
#
# The cache folder also contains build outputs for all clones: up to 5 GB, or the
# limit in TENSORFLOW_OPS_DISK_CACHE (such as 800M; 0 for none).
#
# PYTHON is the interpreter that tools/setup/python_env.sh prints (default: runs it).
# The script writes it and other settings of this machine to .bazelrc.machine, which
# .bazelrc imports.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"

ahead=
if [[ ${1-} == --ahead ]]; then
  ahead=yes
  shift
fi
python=${1-}
[[ -n $python ]] || python=$(bash "$root/tools/setup/python_env.sh")
[[ $python == /* || $python != */* ]] || python=$(realpath -s "$python")

bazel_version=$(<"$root/.bazelversion")

# Increment this when debian_bazel.sh changes what it installs, so that clones of
# different revisions do not break each other's Bazel.
recipe=3

get_bazel=(
  "Put Bazelisk on PATH, as bazelisk or bazel: npm install -g @bazel/bazelisk, or see bazel.build/install/bazelisk."
  "Or put Bazel $bazel_version itself on PATH."
)

check_compiler() {
  [[ -z ${CC-} ]] || return 0
  local version
  if ! command -v g++ >/dev/null || ! command -v gcc >/dev/null; then
    die "no C++ compiler was found." "Run: sudo apt-get install g++   (12 or newer; or set CC to another compiler)"
  fi
  version=$(g++ -dumpversion)
  ((${version%%.*} >= 12)) ||
    die "g++ is version $version; 12 or newer is needed." "Install a newer one, or set CC to it: CC=gcc-12"
}

# Prints the version that the Bazel program $1 reports in this repository. The timeout
# limits waits for the network.
version_of() {
  (cd "$root" && timeout 300 "$1" --version 2>&1 </dev/null | sed -n 's/^bazel \([^ ]*\).*/\1/p') || true
}

# Sets `bazel` from PATH if a program there has the right version.
choose_from_path() {
  local program version
  for program in bazelisk bazel; do
    command -v "$program" >/dev/null || continue
    version=$(version_of "$program")
    if [[ $version == "$bazel_version" ]]; then
      bazel=$(command -v "$program")
      return
    fi
    if [[ $program == bazelisk ]]; then
      say "bazelisk on PATH does not give Bazel $bazel_version (is the internet reachable?): looking further"
    else
      say "bazel on PATH is ${version:-of an unknown version}, not $bazel_version: looking further"
    fi
  done
  return 1
}

# Ends the script if `bazel` cannot handle the characters of this folder's name. Java
# preserves non-ASCII characters only in a locale that few machines have
# (debian_bazel.sh creates it). Uses a separate server, because an affected server has
# to be killed.
check_folder() {
  local probe answer
  [[ $root == *[![:ascii:]]* && ! -e $root/.bazelrc.machine ]] || return 0
  probe=$(mktemp -d)
  answer=$(cd "$root" && "$bazel" --output_base="$probe" --max_idle_secs=5 info workspace 2>&1 </dev/null 9>&-) || true
  rm -rf "$probe"
  [[ $answer != *"is not inside workspace"* ]] ||
    die "the name of this folder has letters that $bazel cannot read on this machine: $root" \
      "Clone the repository to a folder with a name in ASCII, or give the machine the locale that Bazel asks for:" \
      "sudo localedef -i en_US -f ISO-8859-1 en_US.ISO-8859-1   (where it lacks files: sudo apt-get install locales)"
}

# Sets `bazel` to the private installation, which it creates if necessary.
choose_private() {
  local prefix
  prefix=$(cache_folder)/bazel-$bazel_version-$recipe
  bazel=$prefix/bazel
  is_complete "$prefix" && return
  hold_lock "$prefix.lock" "the Bazel installation in $prefix"
  is_complete "$prefix" && return
  [[ ! -e $prefix ]] || say "the Bazel installation in $prefix is not complete: making it again"
  bash "$root/tools/setup/debian_bazel.sh" "$prefix" "$python"
  # Written last, to mark the installation as complete. The content detects whether the
  # folder was moved.
  printf '%s\n' "$prefix" >"$prefix/.complete"
}

is_complete() { [[ -x $1/bazel && -f $1/.complete && $(<"$1/.complete") == "$1" ]]; }

on_debian() { has_apt && [[ $(uname -m) == x86_64 && $(dpkg --print-architecture) == amd64 ]] && grep -qsE '^ID=debian' /etc/os-release; }

# Prints the interpreter's folders under /tmp, which Bazel's sandbox would hide. (A
# clone under /tmp with its .venv works.)
hidden_folders() {
  local folder
  "$python" -I -c 'import sys; print(sys.prefix, sys.base_prefix, sep="\n")' | sort -u | while read -r folder; do
    [[ $folder != /tmp/* || $folder == "$root"/* ]] || printf '%s\n' "$folder"
  done
}

# Writes .bazelrc.machine if its content has changed.
write_machine_rc() {
  local file=$root/.bazelrc.machine text folder cache limit=${TENSORFLOW_OPS_DISK_CACHE:-5G}
  [[ $limit =~ ^(0|[1-9][0-9]*[MGT])$ ]] ||
    die "TENSORFLOW_OPS_DISK_CACHE is '$limit'." "Set it to a size such as 5G or 800M, or to 0 for no cache, or unset it."
  text="# Written by tools/setup/bazel.sh; your own lines go to .bazelrc.user."
  text+=$'\n'"common \"--repo_env=PYTHON_BIN_PATH=$python\""
  while read -r folder; do
    text+=$'\n'"build \"--sandbox_add_mount_pair=$folder\""
  done < <(hidden_folders)
  if cache=$(cache_folder 2>/dev/null) && [[ $limit != 0 ]]; then
    # Downloads all outputs into this clone. Otherwise Bazel fails (39) if the cache has
    # lost or damaged an output that it relies on.
    text+=$'\n'"build \"--disk_cache=$cache/disk\" --experimental_disk_cache_gc_max_size=$limit"
    text+=" --remote_download_outputs=all"
  fi
  if folder=$(aarch64_folder 2>/dev/null) && [[ -f $folder/.complete ]]; then
    text+=$'\n'"build:cross_aarch64 \"--repo_env=TFO_AARCH64_ROOT=$folder\""
  fi
  # Tests do not see HOME. If the user has no name either, as in some containers,
  # Keras finds no home folder and cannot be imported.
  if ! getent passwd "$(id -u)" >/dev/null; then
    text+=$'\n'"build \"--action_env=HOME=${HOME-}\" \"--test_env=HOME=${HOME-}\""
  fi
  [[ ! -f $file || $(<"$file") != "$text" ]] || return 0
  make_folder "$root" "Clone the repository to a folder of yours."
  printf '%s\n' "$text" >"$file.$$"
  mv "$file.$$" "$file"
}

check_compiler
if choose_from_path; then
  check_folder
elif on_debian; then
  choose_private
else
  die "Bazel $bazel_version was not found." "${get_bazel[@]}"
fi
if [[ -n $ahead ]]; then
  (cd "$root" && "$bazel" info server_pid >/dev/null 2>&1 9>&-) || true
  exit
fi
write_machine_rc
printf '%s\n' "$bazel"
