#!/usr/bin/env bash
# Builds the wheel for aarch64 and tests an op of each family with the newest TensorFlow
# under an emulator. Takes 10 minutes and 2 GB in build/aarch64_test, where Debian's
# Python for arm64 and its libraries are unpacked.
#
# Usage: tools/test_aarch64_wheel.sh
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

wheel=$(bash "$root/tools/build_wheel.sh" --aarch64 --out "$root/build/aarch64" | tail -n 1)
python=$(bash "$root/tools/setup/python_env.sh")
tensorflow=$("$python" -c 'from importlib import metadata as m; print(m.version("tensorflow-cpu"))')

folder=$root/build/aarch64_test
rm -rf "$folder"
mkdir -p "$folder"/{debs,system,packages,models}

say "downloading Python for aarch64"
arm64=(-o APT::Architecture=arm64 -o APT::Architectures=arm64)
private_apt apt-get "$folder/apt" "${arm64[@]}" -qq update >&2
packages=$(private_apt apt-cache "$folder/apt" "${arm64[@]}" depends --recurse --no-recommends --no-suggests \
  --no-conflicts --no-breaks --no-replaces --no-enhances python3.11 libstdc++6 |
  grep -E '^[a-z]' | grep -vE '^(dpkg|perl|tar|debconf|media-types|netbase)' | sort -u)
# shellcheck disable=SC2086 # one word per package
(cd "$folder/debs" && private_apt apt-get "$folder/apt" "${arm64[@]}" -qq download $packages >&2)
for package in "$folder"/debs/*.deb; do dpkg-deb -x "$package" "$folder/system"; done

say "downloading TensorFlow $tensorflow for aarch64"
platforms=(--platform manylinux2014_aarch64)
for glibc in {17..28}; do platforms+=(--platform "manylinux_2_${glibc}_aarch64"); done
run_pip "$python" "$folder/tmp" install --no-compile --target "$folder/packages" --only-binary=:all: \
  --implementation cp --python-version 3.11 --abi cp311 --abi abi3 --abi none "${platforms[@]}" \
  "tensorflow==$tensorflow" pytest absl-py "$wheel"

say "testing $(basename "$wheel") under an emulator"
cp "$root/tensorflow_ops/testing/python/release_test.py" "$folder/"
cd "$folder"
TENSORFLOW_OPS_MODELS=$folder/models PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$folder/packages TF_CPP_MIN_LOG_LEVEL=2 \
  "$(aarch64_folder)/usr/bin/qemu-aarch64-static" -L "$folder/system" "$folder/system/usr/bin/python3.11" \
  -m pytest -q -p no:cacheprovider release_test.py
