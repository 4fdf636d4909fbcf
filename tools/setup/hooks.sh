#!/usr/bin/env bash
# Makes git check the files of each commit by tools/lint.sh.
set -euo pipefail
hook=$(cd "$(dirname "$0")" && git rev-parse --path-format=absolute --git-path hooks/pre-commit)
printf '#!/bin/sh\ngit diff --cached --name-only --diff-filter=d -z | xargs -0 -r bash tools/lint.sh\n' >"$hook"
chmod +x "$hook"
