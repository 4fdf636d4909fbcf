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

# Runs a command, and says each half minute what it is busy with ($1) and how much
# of $3 MB has come into folder $2.
with_progress() {
  local what=$1 folder=$2 megabytes=$3 job status=0
  shift 3
  "$@" &
  job=$!
  # The sleep outlives the job by up to half a minute: it may hold neither the lock
  # nor the caller's pipes.
  while sleep "${progress_seconds-30}" >/dev/null 2>&1 9>&- && kill -0 "$job" 2>/dev/null; do
    say "$what: $(du -sm "$folder" 2>/dev/null | cut -f 1) of about $megabytes MB"
  done >/dev/null 9>&- &
  wait "$job" || status=$?
  kill $! 2>/dev/null || true
  return "$status"
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

# Installs packages into interpreter $1, with temporary files in folder $2; the rest
# is what `pip install` takes. uv does it in a fifth of pip's time, and links what
# it has in its cache; pip itself does where uv cannot be had, or fails.
install_packages() {
  local python=$1 folder=$2 settings
  shift 2
  if settings=$(get_uv "$python" "$folder"); then
    mapfile -t settings <<<"$settings"
    env -u VIRTUAL_ENV TMPDIR="$folder" UV_INDEX_STRATEGY=unsafe-best-match "${settings[@]}" \
      "$python" -I -m uv --quiet pip install --python "$python" "$@" && return
    say "uv could not install the packages (its message is above): trying pip"
  fi
  run_pip "$python" "$folder" install "$@"
}

# Puts uv into interpreter $1 where it is missing, and prints pip's configuration
# as uv's variables, one a line. Fails where pip has to install.
get_uv() {
  local python=$1 folder=$2
  env -u PIP_TARGET -u PIP_PREFIX "$python" -I "$root/tools/setup/uv_settings.py" 2>/dev/null || return
  "$python" -I -m uv --version >/dev/null 2>&1 ||
    run_pip "$python" "$folder" install --no-deps --only-binary=:all: -r "$root/tools/requirements/uv.txt" >/dev/null 2>&1
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

# Runs the command $2 of the Bazel program $1 with the rest as its arguments.
# Without a terminal it says twice a minute how far it is. Where the machine is what
# failed, and not the build, it ends with what to do.
run_bazel() {
  local bazel=$1 command=$2 base status=0 progress=()
  shift 2
  # Before the command, whose log this would overwrite.
  base=$("$bazel" info output_base </dev/null) || base=${HOME-}/.cache/bazel
  [[ -t 2 ]] || progress=(--curses=no --show_progress_rate_limit=30)
  "$bazel" "$command" "${progress[@]}" "$@" || status=$?
  ((status == 0)) || explain_bazel "$base" "$status"
  return "$status"
}

# Says what to do about a Bazel that ended with status $2, where the machine is the
# cause. $1 is its output base, or a folder that has it.
explain_bazel() {
  local base=$1 status=$2 log=$1/command.log cache
  local kept="What was built is kept: the next run goes on from there."
  cache=$(cache_folder 2>/dev/null) || cache=
  if grep -qsF "No space left on device" "$log" || is_full "$base" || is_full "$root" || is_full "$cache"; then
    die "a disk is full." "Make room (a build needs 2 GB) and run this again. $kept" "These may be removed; they are made again:" \
      "$(du -sh "$base" "$root/build" "$root/dist" "$cache/disk" 2>/dev/null)" \
      "The last is what all clones have built; TENSORFLOW_OPS_DISK_CACHE=1G limits it."
  fi
  if ((status == 33)) || grep -qs "fatal error: Killed" "$log"; then
    die "the machine's memory did not suffice: a compiler takes up to 1 GB." \
      "Run this again with fewer at a time: echo 'build --jobs=1' >>$(printf %q "$root")/.bazelrc.user" "$kept"
  fi
  if ((status == 37)); then
    die "Bazel's server was ended from outside (by the machine, where memory is short)." "Run this again. $kept"
  fi
}

# Whether the disk of folder $1 has less than 100 MB left.
is_full() { [[ -d $1 ]] && (($(df --output=avail -BM "$1" | tail -n 1 | tr -dc 0-9) < 100)); }
