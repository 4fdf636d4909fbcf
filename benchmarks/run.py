"""Runs benchmark scripts and keeps what they print and draw.

usage: python benchmarks/run.py --all [--out FOLDER]
       python benchmarks/run.py [--out FOLDER] SCRIPT...
       python benchmarks/run.py --list

in an environment as benchmarks/README.md describes. SCRIPT is a path or the part of one:
"detection", "detection/speed". Of each script FOLDER gets DATE-FAMILY-SCRIPT.md with its
tables, and its plots if it draws some. A script that fails does not end the others; the
exit status is then 1. Run it on an idle machine: all of it takes an hour or more.
"""

import argparse
import datetime
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def scripts() -> list[pathlib.Path]:
    """The scripts of all families: files that run, not those that others import."""
    return [path for path in sorted(HERE.glob("*/*.py")) if '__name__ == "__main__"' in path.read_text()]


def run(script: pathlib.Path, out: pathlib.Path) -> int:
    """Runs a script, which shows its progress on stderr; returns its exit status."""
    name = script.relative_to(HERE).with_suffix("")
    command = [sys.executable, str(script)]
    # Those that draw take a folder for it.
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
    """Runs the scripts that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="run every script")
    parser.add_argument("--list", action="store_true", help="print the scripts' names")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results", help="where results go")
    parser.add_argument("script", nargs="*")
    args = parser.parse_args()
    found = scripts()
    for wanted in args.script:
        if not any(wanted in str(path) for path in found):
            parser.error(f"no script is called {wanted!r}; --list prints their names")
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
