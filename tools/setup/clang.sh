#!/usr/bin/env bash
# Installs Debian's clang 16 and its sanitizers into the cache folder (60 MB to download),
# unless they are there. Needs Debian 12 with g++, whose headers and libraries clang uses, but no root.
# --config=clang then uses it.
#
# Usage: tools/setup/clang.sh
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"

prefix=$(clang_folder)
unpack_compiler "$prefix" "clang" \
  '(libc6|libstdc|libgcc|lib[a-z]*san|binutils|libbinutils|libobjc).*|gcc-12-base|linux-libc-dev|zlib1g' \
  "Or install clang yourself, and run this with CC=clang instead of --config=clang." \
  clang-16 libclang-rt-16-dev
finish_compiler "$prefix" "$prefix/usr/lib/llvm-16/bin/clang"
