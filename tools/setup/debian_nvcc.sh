#!/usr/bin/env bash
# Unpacks CUDA 12.4's compiler from Debian's packages, because PyPI has nvcc from CUDA 13 on only.
# Changes nothing outside of the folder and needs no root.
#
# Usage: tools/setup/debian_nvcc.sh FOLDER
#
# third_party/cuda/describe_cuda.py calls it, and adds headers and the run time from PyPI.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"

[[ $# == 1 ]] || die "one argument is needed." "See: $0 --help"
folder=$1
package=nvidia-cuda-toolkit
version=12.4.131
suite=trixie
other_way="Set CUDA_HOME to a CUDA 12 toolkit, or TFO_CUDA_MAJOR=13, whose compiler PyPI has."

has_apt || die "this machine has no CUDA 12 toolkit, and is not Debian, whose packages have one." "$other_way"
[[ -r $debian_keyring ]] ||
  die "$debian_keyring is missing, so Debian's packages cannot be checked." "Run: sudo apt-get install debian-archive-keyring" "$other_way"
offered=$(version_in_debian "$folder/apt" "$package" "$suite" non-free)
[[ $offered == "$version"* ]] ||
  die "Debian $suite has ${offered:-no} $package, expected $version; apt's messages are above." "$other_way"
say "downloading $package $version (90 MB)"
cd "$folder"
private_apt apt-get "$folder/apt" -qq download "$package" >&2 ||
  die "$package could not be downloaded; apt's messages are above." "Check the network and the free space in $folder." "$other_way"
dpkg-deb -x "$package"_*.deb "$folder/debian"
rm -rf "$folder/apt" "$package"_*.deb
