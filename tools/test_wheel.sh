#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh environment with the TensorFlow that it
# requires, and runs the whole Python test suite against it with pytest.
#
# Usage: tools/test_wheel.sh [--quick] [PYTEST ARGUMENT]...
#
# --quick runs only tests of what packing can break and `bazel test` does not check:
# versions, dependencies of the shared object, an op, Keras layers and losses.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"

tests=('tensorflow_ops/*_test.py')
if [[ ${1-} == --quick ]]; then
  tests=(tensorflow_ops/core/python/{library,versions}_test.py tensorflow_ops/zero_out/python/ops/zero_out_ops_test.py
    tensorflow_ops/layers/python/roi_layers_model_test.py tensorflow_ops/losses/python/softmax_losses_test.py)
  shift
fi

python=$(bash "$root/tools/setup/python_env.sh" --and_bazel)
wheel=$(bash "$root/tools/build_wheel.sh" | tail -n 1)

# manylinux_2_N: the wheel must run wherever TensorFlow's wheel (2_27) does. Newer
# symbols of the C++ library, say from a copied std::vector, would silently raise N.
glibc=${wheel##*manylinux_2_}
((${glibc%%_*} <= 27)) || die "$(basename "$wheel") needs a newer system than TensorFlow's wheel." \
  "Find the symbol: objdump -T of its _tensorflow_ops.so names versions, nm of the objects the file."

folder=$root/build/wheel_test
rm -rf "$folder"
mkdir -p "$folder/tests"
say "installing $(basename "$wheel") into a fresh environment"
"$python" -m venv "$folder/venv"
fresh=$folder/venv/bin/python
# The wheel's extra determines TensorFlow; the pins apply to the other packages.
install_packages "$fresh" "$folder/tmp" "${wheel}[cpu]" \
  pytest absl-py pyelftools hypothesis matplotlib pillow -c "$root/tools/requirements/build.txt"

# Checks that pip also finds the extra's requirements satisfied.
run_pip "$fresh" "$folder/tmp" install --no-index "${wheel}[cpu]"

# Leaves the source tree, whose package would hide the installed one.
cd "$root"
git ls-files --cached --others --exclude-standard -z -- "${tests[@]}" 'tensorflow_ops/*_testing.py' |
  while IFS= read -r -d '' file; do
    [[ ! -e $folder/tests/${file##*/} ]] || die "two files are named ${file##*/}." "Rename one: here tests share a folder."
    cp "$file" "$folder/tests/"
  done
cd "$folder/tests"
say "running the tests against the wheel"
# One process per file, because some configure TensorFlow's devices, which works only
# once per process. The first process writes the bytecode for all.
printf '%s\0' *_test.py |
  xargs -0 -n 1 -P "$(nproc)" env -u PYTHONDONTWRITEBYTECODE "$fresh" -m pytest -q -p no:cacheprovider "$@" ||
  die "some tests failed against the wheel; see pytest's output above."
