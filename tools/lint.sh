#!/usr/bin/env bash
# Checks formatting and common mistakes with clang-format, buildifier, ruff and shellcheck,
# that excerpts of files in docs/ are up to date, that folders import only from lower floors, and that == compares no
# tensors, and that casts do not wrap integers.
#
# Usage: tools/lint.sh [--fix] [FILE]...
#
# Reads the given files, or all. --fix applies the tools' automatic fixes. Their versions
# are pinned in tools/requirements/lint.txt; buildifier comes from npm and is skipped
# with a message where there is no npm.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

clang_format=(--dry-run --Werror) ruff_check=() ruff_format=(--check) buildifier_mode=(-mode=check -lint=warn)
case ${1-} in
  --fix)
    clang_format=(-i) ruff_check=(--fix) ruff_format=() buildifier_mode=(-mode=fix -lint=fix)
    shift
    ;;
  -*) die "unknown argument: $1" "See: $0 --help" ;;
esac
only=("$@")

python=$(bash "$root/tools/setup/python_env.sh" build lint)
# shellcheck disable=SC2329  # called through check
tool() {
  local program=$1
  shift
  "$(dirname "$python")/$program" "$@"
}
cd "$root"
status=0
check() {
  say "$1"
  shift
  "$@" || status=1
}
# Prints the given files that match a pattern. Without any, prints all files that git tracks or would add, except for
# deleted ones.
files() {
  local file pattern
  if ((${#only[@]} == 0)); then
    git ls-files --cached --others --exclude-standard -z -- "$@" | xargs -0 -r ls -d 2>/dev/null || true
    return
  fi
  for file in "${only[@]}"; do
    for pattern; do
      # shellcheck disable=SC2053  # a pattern
      [[ $file != $pattern ]] || printf '%s\n' "$file"
    done
  done
}

mapfile -t cc < <(files '*.cc' '*.h')
mapfile -t starlark < <(files '*.bzl' '*BUILD' '*WORKSPACE' '*MODULE.bazel')
mapfile -t shell < <(files '*.sh' .ci/run)
mapfile -t py < <(files '*.py')
((${#only[@]} > 0)) || py=(.)

((${#cc[@]} == 0)) || check "clang-format" tool clang-format "${clang_format[@]}" "${cc[@]}"
# No adding to a zero vector: compilers keep the addition. Broadcast in core/cc/simd/simd.h says why.
# shellcheck disable=SC2329  # called through check
broadcasts() { ! grep -nE '\{\} \+( |$)' "${cc[@]}" /dev/null; }
((${#cc[@]} == 0)) || check "broadcasts" broadcasts
if ((${#py[@]} > 0)); then
  # Formats first, which wraps lines that are too long for the check.
  check "ruff format" tool ruff format "${ruff_format[@]}" "${py[@]}"
  check "ruff check" tool ruff check "${ruff_check[@]}" "${py[@]}"
fi
((${#shell[@]} == 0)) || check "shellcheck" tool shellcheck -x "${shell[@]}"
if ((${#only[@]} == 0)); then
  check "excerpts of files in docs" "$python" -E -s tools/docs/run_examples.py --excerpts README.md CONTRIBUTING.md docs/*.md
  check "imports between folders" "$python" -E -s tools/check_imports.py
  check "comparisons and casts of tensors" "$python" -E -s tools/check_silent_errors.py
fi

buildifier_version=$(sed -n 's/.*@bazel\/buildifier@\([0-9.]*\).*/\1/p' tools/requirements/lint.txt)
buildifier_folder=$(cache_folder)/buildifier-$buildifier_version
buildifier=$buildifier_folder/node_modules/.bin/buildifier
if [[ ! -x $buildifier ]] && command -v npm >/dev/null; then
  say "installing buildifier $buildifier_version"
  npm install --silent --no-fund --no-audit --prefix "$buildifier_folder" "@bazel/buildifier@$buildifier_version"
fi
if ((${#starlark[@]} == 0)); then
  :
elif [[ -x $buildifier ]]; then
  # Bazel 7.7.1's rules are native; loading them would need more rule sets. Macros of one argument or ten explain
  # those that their names do not.
  check "buildifier" "$buildifier" "${buildifier_mode[@]}" \
    -warnings=-native-cc,-native-py,-native-cc-binary,-native-cc-library,-native-cc-test,-native-py-binary,-native-py-library,-native-py-test,-function-docstring-args \
    "${starlark[@]}"
else
  say "no npm: skipping buildifier"
fi
((status == 0)) || say "run tools/lint.sh --fix to apply automatic fixes"
exit "$status"
