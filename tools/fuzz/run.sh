#!/usr/bin/env bash
# Fuzzes ops and public functions (tools/fuzz/fuzz.py): each hostile call must return
# a value or raise a clear error, within seconds and 3 GB. Eager calls, graphs, XLA,
# sessions, loops, 1 and 3 threads, and any bytes in fresh memory must give the same
# bits or the same error. Calls must keep the relations of relations.py.
#
# Usage: tools/fuzz/run.sh [--minutes N | --cases N] [--seed N] [--surface NAME]... [--only wheel | --only sanitizers]
#        tools/fuzz/run.sh --program FILE [--only ...]
#
# Fuzzes first the installed wheel, then a shared object with the address and
# undefined behaviour sanitizers, each for half of the minutes (default: 60). The
# programs of findings are in build/fuzz.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/common.sh"
help_if_asked "$@"

arguments=() minutes=60 cases='' only=''
while (($#)); do
  case $1 in
    --minutes) minutes=$2 && shift ;;
    --cases) cases=$2 && shift ;;
    --only) only=$2 && shift ;;
    --program) cases=1 && arguments+=(--program "$(realpath "$2")") && shift ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
case $only in
  '') minutes=$(((minutes + 1) / 2)) ;;
  wheel | sanitizers) ;;
  *) die "--only is '$only', expected wheel or sanitizers" ;;
esac
if [[ -n $cases ]]; then arguments+=(--cases "$cases"); else arguments+=(--minutes "$minutes"); fi

python=$(bash "$root/tools/setup/installed_wheel.sh")
folder=$root/build/fuzz
mkdir -p "$folder"
status=0
# Leaves the source tree, whose package would hide the installed one.
cd "$folder"
if [[ $only != sanitizers ]]; then
  say "fuzzing the installed wheel"
  "$python" "$root/tools/fuzz/fuzz.py" --out "$folder" "${arguments[@]}" || status=1
fi

if [[ $only != wheel ]]; then
  say "building the shared object with sanitizers"
  bazel=$(bash "$root/tools/setup/bazel.sh" "$python")
  options=(--config=asan_ubsan --nobuild_tests_only --repo_env=TFO_CPU_LEVELS=native)
  cd "$root"
  run_bazel "$bazel" build "${options[@]}" //tensorflow_ops:_tensorflow_ops.so >&2
  built=$("$bazel" info "${options[@]}" bazel-bin 2>/dev/null)/tensorflow_ops/_tensorflow_ops.so
  package=$("$python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tensorflow_ops
  rm -rf "$folder/sanitized"
  mkdir "$folder/sanitized"
  cp -r "$package" "$folder/sanitized/"
  cp -f "$built" "${built%/*}"/libtensorflow_ops_kernels-*.so "$folder/sanitized/tensorflow_ops/"
  cd "$folder"
  say "fuzzing with sanitizers"
  # Python is not instrumented, so the libraries are preloaded. Leak detection is off,
  # because TensorFlow and Python keep memory until the process ends.
  LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=3000:quarantine_size_mb=64 \
    UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=$folder/sanitized \
    "$python" "$root/tools/fuzz/fuzz.py" --out "$folder" "${arguments[@]}" || status=1
fi
exit "$status"
