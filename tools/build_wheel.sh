#!/usr/bin/env bash
# Sets up missing prerequisites and builds the wheel. The last line printed is its path.
#
# Usage: tools/build_wheel.sh [--out DIR] [--cuda | --aarch64] [--native] [--only MINOR]...
#
#   --out DIR   the folder for the wheel (default: dist/ in the repository's root;
#               build/native/ with --native)
#   --cuda      includes CUDA kernels
#   --aarch64   a wheel for Linux on aarch64, by a cross compiler
#   --native    compiles for this processor's instruction set and for the configured
#               TensorFlow only: takes a third of the time, but the wheel may not run on
#               other machines
#   --only 2.20 serves this minor release of TensorFlow besides the configured one, not
#               all since 2.18; --only 2.21, the configured one, downloads nothing
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

out=
only=
options=()
while (($# > 0)); do
  case $1 in
    --out)
      (($# > 1)) || die "--out needs a folder." "See: $0 --help"
      out=$2
      shift
      ;;
    --out=*) out=${1#--out=} ;;
    --cuda) options+=(--config=cuda) ;;
    --aarch64) options+=(--config=aarch64_wheel) ;;
    --native)
      options+=(--config=native)
      only+=" configured"
      ;;
    --only)
      (($# > 1)) || die "--only needs a release of TensorFlow, such as 2.20." "See: $0 --help"
      only+=" $2"
      shift
      ;;
    --only=*) only+=" ${1#--only=}" ;;
    *) die "unknown argument $1." "See: $0 --help" ;;
  esac
  shift
done
[[ -z $only ]] || options+=("--repo_env=TFO_TENSORFLOW_RELEASES=${only# }")
if [[ -z $out ]]; then
  out=$root/dist
  [[ " ${options[*]} " != *native* ]] || out=$root/build/native
fi
make_folder "$out" "Name a folder that you may write to: --out DIR"
out=$(cd "$out" && pwd -P)

python=$(bash "$root/tools/setup/python_env.sh" bazel)
[[ " ${options[*]} " != *aarch64* ]] || bash "$root/tools/setup/aarch64.sh"
bazel=$(bash "$root/tools/setup/bazel.sh" "$python")

cd "$root"
say "building //:wheel${options[*]:+ ${options[*]}}"
run_bazel "$bazel" build "${options[@]}" //:wheel >&2
built=("$("$bazel" info "${options[@]}" bazel-bin 2>/dev/null)"/wheel/*.whl)
[[ ${#built[@]} == 1 && -f ${built[0]} ]] || die "bazel built no wheel, or several: ${built[*]}" "Run: $bazel clean"

# auditwheel determines the oldest glibc that the wheel supports. TensorFlow's libraries
# are found at run time. The work folder is on the same disk as the wheel, so that mv
# is atomic.
say "repairing the wheel"
work=$(mktemp -d -p "$out" .build_wheel.XXXXXX)
trap 'rm -rf "$work"' EXIT
scripts=$("$python" -I -c 'import sysconfig; print(sysconfig.get_path("scripts"))')
if ! PATH=$scripts:$PATH TMPDIR=$work SOURCE_DATE_EPOCH=315532800 "$python" -I -m auditwheel repair \
  --exclude "libtensorflow_ops_kernels*" --exclude libtensorflow_framework.so.2 --exclude libtensorflow_cc.so.2 -w "$work/repaired" "${built[0]}" >"$work/log" 2>&1; then
  cat "$work/log" >&2
  die "auditwheel could not repair ${built[0]}; its message is above." \
    "A library that it may not use was linked in: see the linker options in tools/build_defs/."
fi
repaired=("$work"/repaired/*.whl)
wheel=$out/${repaired[0]##*/}
mv -f "${repaired[0]}" "$wheel"
printf '%s\n' "$wheel"
