"""Runs benchmark scripts and stores their tables and plots.

usage: python benchmarks/run.py --all [--out FOLDER]
       python benchmarks/run.py [--out FOLDER] SCRIPT...
       python benchmarks/run.py --list

in an environment as described in benchmarks/README.md. SCRIPT is a path or a part of one:
"detection", "detection/speed". Each script writes DATE-FAMILY-SCRIPT.md with its tables,
and its plots, to FOLDER. If a script fails, the others still run, and the exit status
is 1. Run it on an idle machine; all scripts take an hour or more.
"""

import argparse
import datetime
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def scripts() -> list[pathlib.Path]:
    """Returns the scripts of all families, without the modules that they import."""
    return [path for path in sorted(HERE.glob("*/*.py")) if '__name__ == "__main__"' in path.read_text()]


def run(script: pathlib.Path, out: pathlib.Path) -> int:
    """Runs a script, whose progress goes to stderr; returns its exit status."""
    name = script.relative_to(HERE).with_suffix("")
    command = [sys.executable, str(script)]
    # Scripts that plot accept a folder.
    if '"--out"' in script.read_text():
        command += ["--out", str(out)]
    start = time.monotonic()
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    today = datetime.date.today().isoformat()
    minutes = (time.monotonic() - start) / 60
    if result.returncode == 0:
        heading = f"# {name}, {today}\n\n`python benchmarks/{name}.py`, {minutes:.0f} minutes.\n\n"
        (out / f"{today}-{str(name).replace('/', '-')}.md").write_text(heading + result.stdout)
    print(f"{name}: exit status {result.returncode}, {minutes:.1f} minutes", file=sys.stderr, flush=True)
    return result.returncode


def main() -> None:
    """Runs the scripts from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="run every script")
    parser.add_argument("--list", action="store_true", help="print the scripts' names")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results", help="the folder for results")
    parser.add_argument("script", nargs="*")
    args = parser.parse_args()
    found = scripts()
    for wanted in args.script:
        if not any(wanted in str(path) for path in found):
            parser.error(f"no script matches {wanted!r}; --list prints the names")
    chosen = found if args.all else [path for path in found if any(wanted in str(path) for wanted in args.script)]
    if args.list:
        print(*(path.relative_to(HERE) for path in found), sep="\n")
        return
    if not chosen:
        parser.error("name a script, or --all")
    args.out.mkdir(parents=True, exist_ok=True)
    failed = [path for path in chosen if run(path, args.out.resolve())]
    if failed:
        raise SystemExit(f"FAILED: {', '.join(str(path.relative_to(HERE)) for path in failed)}")


if __name__ == "__main__":
    main()
