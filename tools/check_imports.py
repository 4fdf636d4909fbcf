"""Checks that each folder of tensorflow_ops/ imports only from lower floors, and that none imports the whole package.

usage: python tools/check_imports.py
Reads all modules but tests. Those of tests, *_testing.py, import each other by file name.
"""

import ast
import importlib.util
import pathlib
import sys

_ROOT = pathlib.Path(__file__).resolve().parent.parent
# The other folders, ops and small utilities, are on floor 1.
_FLOORS = {"core": 0, "onnx": 2, "seq2seq": 2, "summary": 2, "layers": 3, "losses": 3, "metrics": 3, "testing": 4}


def _imports(path):
    """Yields the full names that a module imports: "tensorflow_ops.nn.python.ops.softmax"."""
    package = ".".join(path.relative_to(_ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def main():
    """Exits with a message if an import points upward."""
    package = _ROOT / "tensorflow_ops"
    paths = [path for path in package.glob("*/**/*.py") if not path.name.endswith("_test.py")]
    folders = {path: path.relative_to(package).parts[0] for path in paths}
    helpers = {path.stem: folder for path, folder in folders.items() if path.stem.endswith("_testing")}
    upward = []
    for path, folder in folders.items():
        for name in _imports(path):
            first, *rest = name.split(".")
            if first != package.name and first not in helpers:
                continue
            imported = helpers.get(first) or "".join(rest[:1])
            # A name that is no folder, such as __version__, is of __init__.py, which is above all.
            floor = _FLOORS.get(imported, 1) if imported in folders.values() else 5
            if imported != folder and floor >= _FLOORS.get(folder, 1):
                upward.append(f"{path.relative_to(_ROOT)} imports {name}")
    if upward:
        sys.exit("\n".join(upward))


if __name__ == "__main__":
    main()
