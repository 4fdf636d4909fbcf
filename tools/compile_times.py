"""Lists the slowest compilations of a Bazel profile; fails if one is too slow.

usage: python tools/compile_times.py PROFILE [--max_seconds SECONDS]
`bazel build --profile=FILE` writes PROFILE. It contains only actions that ran: all of
them after a cold build. Files in _SLOW_HEADERS may take twice the limit.
"""

import argparse
import gzip
import json
import sys

# The headers of TensorFlow's bridge to XLA take almost all of the time.
_SLOW_HEADERS = ("xla_compile.cc",)


def main():
    """Prints the ten slowest compilations; exits with 1 if one took more than --max_seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("profile")
    parser.add_argument("--max_seconds", type=float, default=30.0, help="limit for one of our C++ files")
    options = parser.parse_args()
    with gzip.open(options.profile, "rt") as file:
        events = json.load(file)["traceEvents"]
    compilations = sorted(
        ((event["dur"] / 1e6, event["name"]) for event in events if event.get("name", "").startswith("Compiling ")),
        reverse=True,
    )
    print(f"{len(compilations)} compilations; the slowest:")
    for seconds, name in compilations[:10]:
        print(f"{seconds:6.1f} s  {name.removeprefix('Compiling ')}")
    for seconds, name in compilations:
        limit = options.max_seconds * (2 if name.endswith(_SLOW_HEADERS) else 1)
        if seconds > limit:
            sys.exit(f"{name} took {seconds:.1f} s, more than {limit:.0f} s.")


if __name__ == "__main__":
    main()
