"""Formats files and writes all of them or none."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile


class CannotWriteError(Exception):
    """Says why the op cannot be written."""


def tools(root):
    """{name: path} of the formatters that are installed."""
    folders = [root / ".venv" / "bin", pathlib.Path(sys.executable).parent]
    cache = os.environ.get("TENSORFLOW_OPS_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tensorflow_ops"
    )
    folders += sorted(pathlib.Path(cache).glob("buildifier-*/node_modules/.bin"))
    found = {}
    for tool in ("clang-format", "ruff", "buildifier"):
        places = [*(str(f / tool) for f in folders if (f / tool).exists()), shutil.which(tool)]
        if places[0]:
            found[tool] = places[0]
    return found


def _format(root, stage, paths):
    """Formats the staged files; returns what to tell the user."""
    found = tools(root)
    notes = []

    def run(tool, *arguments):
        done = subprocess.run([found[tool], *arguments], cwd=stage, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            notes.append(f"{tool} says:\n{(done.stdout + done.stderr).strip()}")

    for config in (".clang-format", "pyproject.toml"):
        shutil.copyfile(root / config, stage / config)
    # Or ruff would not know the packages for ours, and sort imports otherwise.
    for package in {pathlib.Path("tensorflow_ops/core/python"), *(pathlib.Path(p).parent for p in paths)}:
        for folder in (package, *package.parents):
            if folder.parts[:1] == ("tensorflow_ops",):
                (stage / folder).mkdir(parents=True, exist_ok=True)
                (stage / folder / "__init__.py").touch()
    cc = [path for path in paths if path.endswith((".cc", ".h"))]
    py = [path for path in paths if path.endswith(".py")]
    builds = [path for path in paths if path.endswith("BUILD")]
    if "clang-format" in found:
        run("clang-format", "-i", *cc)
    if "ruff" in found:
        # Twice: a fix may want another format, and a long line is an error before the first.
        run("ruff", "format", "--quiet", "--no-cache", *py)
        run("ruff", "check", "--quiet", "--fix", "--no-cache", *py)
        run("ruff", "format", "--quiet", "--no-cache", *py)
    if "buildifier" in found:
        run("buildifier", "-mode=fix", *builds)
    missing = sorted({"clang-format", "ruff", "buildifier"} - found.keys())
    if missing:
        notes.append(f"not formatted, for want of {', '.join(missing)}: run bash tools/lint.sh --fix")
    return notes


def write(root, files):
    """Writes all files or, where one cannot be, none. Returns the formatters' notes."""
    with tempfile.TemporaryDirectory(prefix="new_op.") as folder:
        stage = pathlib.Path(folder)
        for path, text in files.items():
            (stage / path).parent.mkdir(parents=True, exist_ok=True)
            (stage / path).write_text(text, encoding="utf-8")
        notes = _format(root, stage, list(files))
        before, made = {}, []
        try:
            for path in files:
                target = root / path
                for parent in reversed(target.parents):
                    if not parent.exists():
                        parent.mkdir()
                        made.append(parent)
                mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
                before[path] = target.read_bytes() if target.exists() else None
                beside = target.with_name(f".{target.name}.new_op")
                try:
                    if mode is not None and not os.access(target, os.W_OK):
                        raise PermissionError(f"{path} is not writable")
                    shutil.copyfile(stage / path, beside)
                    if mode is not None:
                        beside.chmod(mode)
                    beside.replace(target)
                except BaseException:
                    del before[path]
                    beside.unlink(missing_ok=True)
                    raise
        except BaseException as error:
            for path, content in before.items():
                if content is None:
                    (root / path).unlink()
                else:
                    (root / path).write_bytes(content)
            for parent in reversed(made):
                parent.rmdir()
            if isinstance(error, OSError):
                raise CannotWriteError(f"cannot write: {error}") from error
            raise
    return notes
