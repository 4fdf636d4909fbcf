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
# Usage: tools/setup/bazel.sh [PYTHON]
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

python=${1-}
[[ -n $python ]] || python=$(bash "$root/tools/setup/python_env.sh")
[[ $python == /* || $python != */* ]] || python=$(realpath -s "$python")

bazel_version=$(<"$root/.bazelversion")

# Increment this when debian_bazel.sh changes what it installs, so that clones of
# different revisions do not break each other's Bazel.
recipe=3

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

# Sets `bazel` from PATH if a program there has the right version. The timeout limits waits for the network.
choose_from_path() {
  local program version
  for program in bazelisk bazel; do
    bazel=$(command -v "$program") || continue
    version=$(cd "$root" && timeout 300 "$bazel" --version 2>&1 </dev/null | sed -n 's/^bazel \([^ ]*\).*/\1/p') || true
    [[ $version != "$bazel_version" ]] || return 0
    say "$program on PATH gives Bazel ${version:-of an unknown version (is the internet reachable?)}, not $bazel_version: looking further"
  done
  return 1
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
  if folder=$(clang_folder 2>/dev/null) && [[ -f $folder/.complete ]]; then
    text+=$'\n'"build:clang \"--repo_env=CC=$folder/usr/bin/clang-16\""
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
if ! choose_from_path; then
  on_debian ||
    die "Bazel $bazel_version was not found." \
      "Put Bazelisk on PATH, as bazelisk or bazel: npm install -g @bazel/bazelisk, or see bazel.build/install/bazelisk." \
      "Or put Bazel $bazel_version itself on PATH."
  choose_private
fi
write_machine_rc
printf '%s\n' "$bazel"
