#!/usr/bin/env bash
# Installs Debian's cross compiler for aarch64 and an emulator into the cache folder
# (120 MB to download), unless they are there. Needs Debian 12 or a system with its
# versions of g++'s libraries, but no root. --config=aarch64 then uses them.
#
# Usage: tools/setup/aarch64.sh
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"

prefix=$(aarch64_folder)
# The C library and C++ library of this machine serve the compiler, too.
unpack_compiler "$prefix" "a cross compiler for aarch64 and an emulator" \
  'libc6|libstdc\+\+6|libgcc-s1|zlib1g|gcc-12-base|binutils-common' \
  "Or install g++-12-aarch64-linux-gnu and qemu-user yourself, and run Bazel with --config=aarch64 and --repo_env=TFO_AARCH64_ROOT= ." \
  g++-12-aarch64-linux-gnu qemu-user-static
find "$prefix/usr/bin" -name 'qemu-*' ! -name qemu-aarch64-static -delete
finish_compiler "$prefix" "$prefix"/usr/bin/aarch64-linux-gnu-* \
  "$prefix"/usr/lib/gcc-cross/aarch64-linux-gnu/12/{cc1plus,collect2,lto-wrapper,lto1}
