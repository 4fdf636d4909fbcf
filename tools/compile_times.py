"""Lists the slowest compilations of a Bazel profile; fails where one is too slow.

usage: python tools/compile_times.py PROFILE [--most SECONDS]
PROFILE is what `bazel build --profile=FILE` wrote. Only actions that ran are in
it: after a cold build, all of them.
"""

import argparse
import gzip
import json
import sys


def main():
    """Prints the ten slowest; exits with 1 where one took more than --most."""
    parser = argparse.ArgumentParser()
    parser.add_argument("profile")
    parser.add_argument("--most", type=float, default=30.0, help="seconds a C++ file of ours may take")
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
    if compilations and compilations[0][0] > options.most:
        sys.exit(f"{compilations[0][1]} took {compilations[0][0]:.1f} s; at most {options.most:.0f} s are wanted.")


if __name__ == "__main__":
    main()
