#!/usr/bin/env bash
# Builds the documentation site in build/docs/site: pages, API reference, index of
# ops. Fails on broken links, and on Python blocks of README.md or docs/ that raise
# or whose output differs from the page.
#
# Usage: tools/docs.sh [--pages]
#
# --pages skips the Python blocks and the wheel, and takes seconds.
#
# It needs no network once its packages are installed (tools/requirements/). Neither
# does the site: open build/docs/site/index.html.
set -euo pipefail
# shellcheck source=tools/setup/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup/common.sh"
help_if_asked "$@"
base=$(bash "$root/tools/setup/python_env.sh")
"$base" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  die "the site's generator needs Python 3.11 or newer, and $base is older." \
    "Remove .venv and name another: PYTHON=/path/to/python3.11"
case $* in
  '') python=$(bash "$root/tools/setup/installed_wheel.sh" build demo lint docs) ;;
  --pages) python=$(bash "$root/tools/setup/python_env.sh" build demo lint docs) ;;
  *) die "unknown argument $*." "See: $0 --help" ;;
esac
folder=$root/build/docs

if (($# == 0)); then
  say "running the Python blocks of the pages"
  mkdir -p "$folder"
  # Leaves the source tree, whose package would hide the installed one.
  (cd "$folder" && "$python" -E -s "$root/tools/docs/run_examples.py" "$root/README.md" "$root"/docs/*.md)
fi
say "testing the site's tools"
"$python" -E -s -m pytest -q -p no:cacheprovider "$root/tools/docs"
say "building the site"
mkdir -p "$folder/pages"
# The packages' programs, such as ruff for signatures, are in Python's folder.
PATH=$(dirname "$python"):$PATH NO_MKDOCS_2_WARNING=1 \
  "$python" -E -s -m mkdocs build --strict --clean --config-file "$root/tools/docs/mkdocs.yml"
printf 'The site: %s\n' "$folder/site/index.html"
