"""Checks with pyright what an editor shows to users of the package, and the annotations of core/python/.

    python tools/types/check.py

- The examples in public docstrings and the programs in examples/ have no error.
- A generated call of every public function has no error in strict mode: all types are known; nor has strict.py, with
  values of many types.
- A word that is not in an option's Literal is an error, for every option of words.
- The modules of core/python/ have no error. Ruff's ANN checks that their annotations are complete.

Types of TensorFlow and Keras are those of the packages beside pyright: neither has stubs. Needs no built package.
"""

import ast
import collections
import doctest
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tensorflow_ops"
# In errors of tf.Tensor's own annotations, for correct code: x[..., 0], x - tape.gradient(y, x); of a generated file.
IGNORED = ('in function "__getitem__"', "IndexedSlices", '"build_info" is unknown import symbol')
WRONG = '"no_such_word"'
# For core/python/. TensorFlow's stubs leave out too much for strict mode.
CORE = "# pyright: standard, reportUnknownParameterType=true, reportMissingTypeArgument=true\n"
CORE += "# pyright: reportPrivateImportUsage=false\n"
STRICT = pathlib.Path(__file__).with_name("strict.py")
sys.path.insert(0, str(ROOT / "tools/docs"))

import public_names  # noqa: E402


def public_functions() -> dict[str, public_names.Name]:
    """Returns the functions, layers and losses by name, "tfo.nn.softmax"; processors also by theirs."""
    names = [name for names in public_names.public_names(PACKAGE).values() for name in names if not name.is_result]
    found = {}
    for name in names:
        if name.name:
            found[name.public] = name
        else:
            for inner in public_names.exports(name.file):
                public = f"{name.public}.{inner}"
                found[public] = public_names.Name(
                    public, name.file, inner, public_names.definition(name.file, inner), False
                )
    return found


def signature(name: public_names.Name) -> ast.arguments:
    """Returns the parameters of a function, or of the constructor of a class."""
    if isinstance(name.node, ast.FunctionDef):
        return name.node.args
    return next(node for node in name.node.body if getattr(node, "name", "") == "__init__").args


def is_literal(annotation: ast.AST | None, file: pathlib.Path) -> bool:
    """Returns whether an annotation, or an alias in it, has a Literal of words."""
    for node in ast.walk(annotation) if annotation else ():
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
            return True
        if isinstance(node, ast.Name) and is_literal(*alias(file, node.id)):
            return True
    return False


def alias(file: pathlib.Path, name: str) -> tuple[ast.AST | None, pathlib.Path]:
    """Returns the value of a type alias that a file defines or imports, and the file that defines it."""
    for node in public_names.tree(file).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if name in [getattr(target, "id", "") for target in targets]:
            return node.value, file
        if isinstance(node, ast.ImportFrom) and any(imported.name == name for imported in node.names):
            there = public_names.module_file(file, node.module or "")
            return alias(there, name) if there else (None, file)
    return None, file


def calls(functions: dict[str, public_names.Name]) -> list[str]:
    """Returns a call of each function, and for each of its options one with a word that the option does not have."""
    found = []
    for public, name in functions.items():
        parameters = signature(name)
        positional = [parameter for parameter in parameters.args if parameter.arg != "self"]
        required = {p.arg: "any_value" for p in positional[: len(positional) - len(parameters.defaults)]}
        keywords = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
        required |= {p.arg: "any_value" for p, default in keywords if default is None}
        options = [p.arg for p in (*positional, *parameters.kwonlyargs) if is_literal(p.annotation, name.file)]
        for given in (required, *({**required, option: WRONG} for option in options)):
            found.append(f"{public}({', '.join(f'{k}={v}' for k, v in given.items())})")
    return found


def example(name: public_names.Name) -> str:
    """Returns the code of a docstring's examples."""
    return "".join(example.source for example in doctest.DocTestParser().get_examples(name.doc))


def errors_of(folder: pathlib.Path, environments: list[dict]) -> dict[pathlib.Path, list[dict]]:
    """Runs pyright in a folder with execution environments; returns its errors by file."""
    (folder / "pyrightconfig.json").write_text(json.dumps({"executionEnvironments": environments}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    # Here, not in pyright's own paths: for pyright a package that is installed, as for users.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    try:
        report = json.loads(result.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"pyright failed:\n{result.stdout}\n{result.stderr}") from None
    found = collections.defaultdict(list)
    for diagnostic in report["generalDiagnostics"]:
        if diagnostic["severity"] == "error":
            found[pathlib.Path(diagnostic["file"]).relative_to(folder)].append(diagnostic)
    return found


def place(error: dict) -> tuple:
    """Returns what an error has in common with one at the same place."""
    return error.get("rule"), error["range"]["start"]["line"], error["range"]["start"]["character"]


def check(folder: pathlib.Path, functions: dict[str, public_names.Name]) -> list[str]:
    """Writes the programs into a folder and checks them; returns the problems."""
    # Twice: with this package's types, and with an untyped package in its place. Errors that both have are of other
    # packages, whose types are wrong in places: Keras's `fit(verbose=2)`.
    (folder / "untyped/tensorflow_ops").mkdir(parents=True)
    (folder / "untyped/tensorflow_ops/__init__.pyi").write_text(
        "from typing import Any\ndef __getattr__(name: str) -> Any: ..."
    )
    (folder / "core").mkdir()
    for module in (PACKAGE / "core/python").glob("*.py"):
        if not module.stem.endswith("_test"):
            (folder / "core" / module.name).write_text(module.read_text() + CORE)
    environments = [{"root": "strict"}, {"root": "core"}]
    for kind, paths in (("typed", []), ("any", ["untyped"])):
        shutil.copytree(ROOT / "examples", folder / kind, ignore=shutil.ignore_patterns("external_repo"))
        docstrings = folder / kind / "docstrings"
        docstrings.mkdir()
        for public, name in functions.items():
            (docstrings / f"{public}.py").write_text(example(name))
        roots = sorted(path for path in (folder / kind).iterdir() if path.is_dir())
        environments += [
            {"root": str(path.relative_to(folder)), "extraPaths": [*paths, kind]} for path in (*roots, folder / kind)
        ]
    (folder / "strict").mkdir()
    shutil.copy(STRICT, folder / "strict")
    generated = folder / "strict/generated.py"
    head = ["# pyright: strict", "from typing import Any", "import tensorflow_ops as tfo", "any_value: Any = None"]
    lines = head + calls(functions)
    generated.write_text("\n".join(lines))

    found, problems = errors_of(folder, environments), []
    wrong = {error["range"]["start"]["line"]: error for error in found.pop(generated.relative_to(folder), [])}
    for i, line in enumerate(lines):
        if (i in wrong) != (WRONG in line):
            problems.append(f"{line}: {wrong[i]['message'] if i in wrong else 'no error'}")
    for path, errors in found.items():
        kind, *rest = path.parts
        known = {place(error) for error in found.get(pathlib.Path("any", *rest), []) if kind != "any"}
        for error in errors if kind != "any" else ():
            if place(error) not in known and not any(text in error["message"] for text in IGNORED):
                problems.append(f"{pathlib.Path(*rest)}:{error['range']['start']['line'] + 1}: {error['message']}")
    return problems


def main() -> None:
    """Prints the problems, and exits with 1 if there are any."""
    functions = public_functions()
    with tempfile.TemporaryDirectory() as folder:
        problems = check(pathlib.Path(folder).resolve(), functions)
    print("\n".join([*problems, f"{len(functions)} public functions: {len(problems)} problems"]))
    raise SystemExit(min(len(problems), 1))


if __name__ == "__main__":
    main()
