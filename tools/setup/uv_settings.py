"""Prints pip's configuration as uv's environment variables, one NAME=VALUE per line.

usage: PYTHON -I uv_settings.py
Exits with 1 if pip has an option without an equivalent in uv; then pip has to install.
PYTHON is an interpreter with pip.
"""

import ast
import subprocess
import sys

# Options that change pip's output or timeouts, but not what it installs.
_HARMLESS = {
    "break-system-packages",
    "cache-dir",
    "config-file",
    "default-timeout",
    "disable-pip-version-check",
    "keyring-provider",
    "no-cache-dir",
    "no-input",
    "no-warn-script-location",
    "prefer-binary",
    "progress-bar",
    "quiet",
    "require-virtualenv",
    "retries",
    "root-user-action",
    "timeout",
    "user",
    "verbose",
}

# pip's option -> (uv's variables, separator of several values).
_VARIABLES = {
    "cert": (["SSL_CERT_FILE"], None),
    "extra-index-url": (["UV_INDEX"], " "),
    "find-links": (["UV_FIND_LINKS"], ","),
    "index-url": (["UV_DEFAULT_INDEX"], None),
    "no-index": (["UV_NO_INDEX"], None),
    "proxy": (["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"], None),
    "trusted-host": (["UV_INSECURE_HOST"], " "),
}


def options(listing):
    """Parses the output of `pip config list` to option -> value. Later sections win, as for `pip install`."""
    order = {"global": 0, "install": 1, ":env:": 2}
    found = {}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in order:
            found.setdefault(option, []).append((order[section], ast.literal_eval(value)))
    return {option: max(values)[1] for option, values in found.items()}


def settings(configured):
    """Returns uv's variables; raises KeyError for an option without an equivalent."""
    variables = {}
    for option, value in configured.items():
        if option in _HARMLESS:
            continue
        names, separator = _VARIABLES[option]
        if option == "no-index":
            value = "1" if value.lower() in ("1", "y", "yes", "t", "true", "on") else "0"
        elif separator:
            value = separator.join(value.split())
        variables.update((name, value) for name in names)
    return variables


def main():
    listing = subprocess.run(
        [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "config", "list"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    try:
        for name, value in settings(options(listing)).items():
            print(f"{name}={value}")
    except KeyError as error:
        sys.exit(f"uv has no equivalent of pip's option {error}")


if __name__ == "__main__":
    main()
