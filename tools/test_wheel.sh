#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh environment with the TensorFlow that it
# requires, and runs the whole Python test suite against it with pytest.
#
# Usage: tools/test_wheel.sh [--quick] [--tensorflow MINOR]... [PYTEST ARGUMENT]...
#
# --quick runs only tests of what packing can break and `bazel test` does not check:
# versions, dependencies of the shared object, headers, an op of each family, Keras layers, the demo.
#
# --tensorflow 2.18 installs that release instead of the newest one; --quick then runs
# an op of each family. Several of them share a folder of SavedModels, which each loads.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

quick=
releases=()
while [[ ${1-} == --quick || ${1-} == --tensorflow ]]; do
  if [[ $1 == --quick ]]; then
    quick=yes
  else
    releases+=("${2:?"--tensorflow needs a release, such as 2.18"}")
    shift
  fi
  shift
done
pytest_arguments=("$@")

# Each process takes files: one, because some configure TensorFlow's devices, which works only once; all of a quick set.
files_of_process=1
if [[ -z $quick ]]; then
  tests=('tensorflow_ops/*_test.py')
else
  files_of_process=100
  tests=(tensorflow_ops/testing/python/release_test.py)
  ((${#releases[@]} > 0)) || tests+=(tensorflow_ops/core/python/{library,versions}_test.py
    tensorflow_ops/layers/python/roi_layers_test.py tensorflow_ops/sysconfig/python/paths_test.py)
fi

python=$(bash "$root/tools/setup/python_env.sh")
wheel=$(bash "$root/tools/build_wheel.sh" | tail -n 1)

# manylinux_2_N: the wheel must run wherever TensorFlow's wheel (2_27) does. Newer
# symbols of the C++ library, say from a copied std::vector, would silently raise N.
glibc=${wheel##*manylinux_2_}
((${glibc%%_*} <= 27)) || die "$(basename "$wheel") needs a newer system than TensorFlow's wheel." \
  "Find the symbol: objdump -T of its shared objects names versions, nm of the objects the file."

folder=$root/build/wheel_test${releases:+_releases}
rm -rf "$folder"
mkdir -p "$folder/tests" "$folder/models"
export TENSORFLOW_OPS_MODELS=$folder/models

# The tests leave the source tree, whose package would hide the installed one.
cd "$root"
git ls-files --cached --others --exclude-standard -z -- "${tests[@]}" 'tensorflow_ops/*_testing.py' tensorflow_ops/core/python/api.txt |
  while IFS= read -r -d '' file; do
    [[ ! -e $folder/tests/${file##*/} ]] || die "two files are named ${file##*/}." "Rename one: here tests share a folder."
    cp "$file" "$folder/tests/"
  done
cd "$folder/tests"

# Creates the environment $1 with the wheel and the packages named after it.
install_wheel() {
  local environment=$folder/$1
  shift
  say "installing $(basename "$wheel") into a fresh environment"
  "$python" -m venv "$environment"
  run_pip "$environment/bin/python" "$folder/tmp" install --no-compile "$@" \
    pytest absl-py pyelftools hypothesis matplotlib pillow pycocotools
}

# Runs pytest in the environment $1. The first process writes the bytecode for all.
run_tests() {
  local fresh=$folder/$1/bin/python
  shift
  say "running the tests against the wheel"
  printf '%s\0' *_test.py |
    xargs -0 -n "$files_of_process" -P "$(nproc)" env -u PYTHONDONTWRITEBYTECODE "$fresh" -m pytest -q -p no:cacheprovider "$@" ||
    die "some tests failed against the wheel; see pytest's output above."
}

if ((${#releases[@]} == 0)); then
  # The wheel's extra determines TensorFlow; the pins apply to the other packages.
  install_wheel venv "${wheel}[cpu,onnx]" onnxruntime -c "$root/tools/requirements/build.txt"
  # Checks that pip also finds the extras' requirements satisfied.
  run_pip "$folder/venv/bin/python" "$folder/tmp" install --no-index "${wheel}[cpu,onnx]"
  run_tests venv "${pytest_arguments[@]}"
  say "running the demo"
  "$folder/venv/bin/python" -m tensorflow_ops.demo "$folder/demo.png"
  rm -rf "$folder"
  exit
fi
# An environment takes 2 GB. The models need the first again.
for release in "${releases[@]}"; do
  install_wheel "tensorflow-$release" "$wheel" "tensorflow-cpu==$release.*"
  run_tests "tensorflow-$release" "${pytest_arguments[@]}"
  [[ $release == "${releases[0]}" ]] || rm -rf "$folder/tensorflow-$release"
done
if ((${#releases[@]} > 1)); then
  say "loading models of newer releases"
  "$folder/tensorflow-${releases[0]}/bin/python" -m pytest -q -s -p no:cacheprovider release_test.py -k saved_models
fi
rm -rf "$folder"
