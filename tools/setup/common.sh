# shellcheck shell=bash
# Sourced by every script of tools/ and tools/setup/: messages, locks, paths.
#
# A set-up script prints its result (a path) on stdout, everything else on
# stderr, and ends with `die` when something is missing.

# The repository's root, without symbolic links.
# shellcheck disable=SC2034 # used by what sources this
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")

# Prints a line of progress.
say() { printf '==> %s\n' "$*" >&2; }

# Ends the script: the first argument says what is wrong, each further one is a
# line that says what to do about it.
die() {
  printf '\nERROR: %s\n' "$1" >&2
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit 1
}

# Prints the comment that heads the calling script and ends it, when the first
# argument asks for help.
help_if_asked() {
  case ${1-} in
    -h | --help)
      sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
  esac
}

# Makes folder $1, or says how to choose another place ($2).
make_folder() {
  mkdir -p "$1" 2>/dev/null && [[ -w $1 ]] ||
    die "cannot write to $1." "$2"
}

# Holds the lock file $1 until this script and all it started have ended, so
# that what a killed set-up left running is waited for, too. $2 names the work.
hold_lock() {
  exec 9>"$1" || die "cannot write the lock file $1."
  flock --nonblock 9 && return
  say "waiting for another run that is busy with $2"
  flock 9
}

# Folder shared by all clones of this repository.
cache_folder() {
  local folder=${TENSORFLOW_OPS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/tensorflow_ops}
  local choose="Set TENSORFLOW_OPS_CACHE to a folder of yours that is not under /tmp."
  folder=$(realpath --canonicalize-missing -- "$folder")
  # Bazel's sandbox has a /tmp of its own.
  [[ $folder != /tmp && $folder != /tmp/* ]] ||
    die "the cache folder $folder is under /tmp, where Bazel cannot use it." "$choose"
  make_folder "$folder" "$choose"
  printf '%s\n' "$folder"
}

# Runs apt-get or apt-cache ($1) with lists, cache and state in folder $2, so
# that no system folder is read or written and no root is needed. A file
# $2/sources.list replaces the machine's own package sources.
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

# Whether this machine has Debian's tools and package sources.
has_apt() {
  command -v apt-get >/dev/null && command -v apt-cache >/dev/null && command -v dpkg-deb >/dev/null
}

# pip in interpreter $1, quiet, with its temporary files in folder $2. -I keeps
# the caller's PYTHONPATH and user packages out.
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
