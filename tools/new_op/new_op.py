"""Writes the files of a new op, which builds, passes its tests and is in the wheel at once.

usage: bazel run //tools/new_op -- --family FAMILY --name NAME --kind map|reduction|gather
           [--outputs N] [--attr NAME:TYPE=DEFAULT]...
"""

import argparse
import builtins
import keyword
import os
import pathlib
import re
import string
import struct
import subprocess
import sys
from typing import NamedTuple

KINDS = ("map", "reduction", "gather")
_TEMPLATES = pathlib.Path(__file__).parent / "templates"
_SAMPLES_TEST = "tensorflow_ops/testing/python/op_samples_test.py"
_EXPORT_TEST = "tensorflow_ops/export/python/standard_ops_test.py"
# Per kind, the texts that several templates share.
_MAP = {
    "inputs": "const T* x",
    "op_inputs": '.Input("x: T")',
    "grad": "d_x",
    "grad_size": "args.num_elements",
    "output_size": "args.num_elements",
    "blocks": "(args.num_elements + kThreads - 1) / kThreads",
    "row": "i",
}
_REDUCTION = _MAP | {
    "grad_size": "args.rows * args.columns",
    "output_size": "args.rows",
    "blocks": "args.rows",
    "row": "i / args.columns",
}
_GATHER = {
    "inputs": "const T* params, const int64_t* indices",
    "op_inputs": '.Input("params: T")\n.Input("indices: int64")',
    "grad": "d_params",
    "grad_size": "args.rows * args.columns",
    "output_size": "args.num_indices * args.columns",
    "blocks": "(args.num_indices * args.columns + kThreads - 1) / kThreads",
}
_VALUES = {"map": _MAP, "reduction": _REDUCTION, "gather": _GATHER}
# Names that the generated Python files already use.
_RESERVED = frozenset("arguments autograph axes gradients np ops pfor tensorflow tensorflow_ops tf tfo".split())
# Names of attrs that the generated files have for other things, and words of C++.
_NO_ATTRS = _RESERVED | frozenset(
    """axis columns curvature indices name num_elements num_indices options output params row rows shape x
    auto case catch char const default delete do double enum explicit export extern friend goto inline long mutable
    namespace new operator private protected public register short signed sizeof static struct switch template this
    throw typedef typename union unsigned using virtual void volatile""".split()
)


class CannotWriteError(Exception):
    """Says why the op cannot be written."""


def snake_case(op_name):
    """The Python name that TensorFlow makes of an op's: CropPool, crop_pool."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", op_name).lower()


class Attr(NamedTuple):
    """An attr of an op: `default` is a value of the type; a string's is the first of `words`."""

    name: str
    type: str  # int, float, bool or string
    default: int | float | bool | str
    words: tuple[str, ...] = ()


def parse_attr(text):
    """Returns the Attr of NAME:TYPE=DEFAULT. Raises CannotWriteError."""
    found = re.fullmatch(r"(\w*):(\w*)=(.*)", text)
    if not found:
        raise CannotWriteError(f"--attr is {text!r}, expected NAME:TYPE=DEFAULT, such as scale:float=1.0")
    name, kind, default = found.groups()
    if (
        not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)
        or _is_taken(name, _NO_ATTRS)
        or re.match(r"output_\d", name)
    ):
        raise CannotWriteError(
            f"the attr's name is {name!r}, expected small letters, digits and _, and no other meaning"
        )
    words = tuple(default.split("|"))
    if kind == "int" and re.fullmatch(r"-?\d+", default) and abs(int(default)) < 2**31:
        return Attr(name, kind, int(default))
    if kind == "float" and re.fullmatch(r"-?\d+(\.\d*)?(e[-+]?\d+)?", default) and abs(float(default)) < 3.4e38:
        return Attr(name, kind, float(default))
    if kind == "bool" and default in ("true", "false"):
        return Attr(name, kind, default == "true")
    if kind == "string" and len({*words}) == len(words) > 1 and all(re.fullmatch(r"[a-z][a-z0-9_]*", w) for w in words):
        return Attr(name, kind, words[0], words)
    expected = {"int": "an int below 2^31", "float": "a finite float32", "bool": "true or false"}
    expected["string"] = "its values, the default first: soft|hard"
    if kind not in expected:
        raise CannotWriteError(f"{name}'s type is {kind!r}, expected one of {', '.join(expected)}")
    raise CannotWriteError(f"{name}'s default is {default!r}, expected {expected[kind]}")


def _is_taken(name, reserved):
    return keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in dir(builtins) or name in reserved


def _read(path):
    return path.read_text(encoding="utf-8")


def check_free(root, family, op):
    """Raises if the family or the op has a bad name or exists already."""
    python, package = snake_case(op), root / "tensorflow_ops"
    folder, public = package / family, package / "__init__.py"
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", op) or op.endswith("Grad"):
        raise CannotWriteError(f"the op's name is {op!r}, expected CamelCase such as CropPool, without Grad at its end")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", family):
        raise CannotWriteError(f"the family is {family!r}, expected small letters, digits and _, such as detection")
    for name in (python, family):
        if _is_taken(name, _RESERVED):
            raise CannotWriteError(f"{name!r} has another meaning in Python, or in the generated files")
    if not public.is_file():
        raise CannotWriteError(f"{root} is no clone of tensorflow_ops: it has no tensorflow_ops/__init__.py")
    if folder.exists() or f'"{family}"' in _read(public):
        build = _read(folder / "BUILD") if (folder / "BUILD").is_file() else ""
        if "tfo_namespace(" not in build:
            raise CannotWriteError(f"tensorflow_ops has {family!r} already, and it is no family with a tfo_namespace")
        if f'"{python}"' in _read(folder / "__init__.py") or f'name = "{python}"' in build:
            raise CannotWriteError(f"tfo.{family}.{python} exists already, or a target of that name")
    taken = re.compile(rf'TensorflowOps>{op}(Grad)?"|\b{op}(Grad)?(Args|(Value|Slope|Curvature)\d?|Row)?\s*[({{:<]')
    for path in [*package.rglob("*.cc"), *package.rglob("*.h")]:
        # The functions of core's *_simd.h are in namespaces of their own.
        if not path.match("core/cc/*_simd.h") and (found := taken.search(_read(path))):
            raise CannotWriteError(f"C++ has {found[0][:-1].strip()} already: {path.relative_to(root)}")
    # tools/test_wheel.sh copies all tests to one folder.
    for path in package.rglob(f"{python}_test.py"):
        raise CannotWriteError(f"there is a test of that name already: {path.relative_to(root)}")


def _template(name, kind, values, lists):
    """Fills in a template.

    Lines after `@@ KIND...` are for these kinds, lines after `@@` for all. After `@@ KIND... : LIST` they are repeated
    for each member of the list, of values; a condition is a list of one member or none.
    """
    kinds, each, text = KINDS, [{}], ""
    blocks = re.split(r"^@@(.*)\n", _read(_TEMPLATES / f"{name}.in"), flags=re.MULTILINE)
    for header, block in zip(["", *blocks[1::2]], blocks[::2], strict=True):
        words, _, member = header.partition(":")
        kinds, each = words.split() or KINDS, lists[member.strip()] if member else [{}]
        if kind in kinds:
            text += "".join(string.Template(block).substitute(values | more) for more in each)
    return text


def _output_values(number, count):
    """Returns the values of an output in templates."""
    suffix = str(number) if count > 1 else ""
    blank = f"{number + 1} * x" if number else "x"
    return {
        "output": f"output_{number}" if count > 1 else "output",
        "n": suffix,
        "i": number,
        "seed": number + 2,
        "blank_value": blank,
        "blank_slope": number + 1,
        "factor": f"{number + 1} * " if number else "",
    }


def _attr_values(op, attr):
    """Returns the values of an attr in templates; `other` is a value for tests that is not the default."""
    name, kind, default, words = attr
    enum = op + name.title().replace("_", "")
    alias = name.title().replace("_", "")
    values = {"attr": name, "kind": kind, "default": repr(default), "enum": enum, "alias": alias}
    if kind == "string":
        constants = {word: "k" + word.title().replace("_", "") for word in words}
        quoted = [f'"{word}"' for word in words]
        pairs = ", ".join(f'{{"{word}", {enum}::{constant}}}' for word, constant in constants.items())
        return values | {
            "op_attr": f"{{{', '.join(map(repr, words))}}} = '{default}'",
            "type": enum,
            "constants": ", ".join(constants.values()),
            "words": ", ".join(quoted),
            "read": f'ReadEnum(ctx, "{name}", {{{pairs}}}, &args_.{name})',
            "cc_default": f"{enum}::{constants[default]}",
            "cc_other": f"{enum}::{constants[words[-1]]}",
            "shown": f"static_cast<int>(args.{name})",
            "python": alias,
            "default": quoted[0],
            "reference": quoted[0],
            "other": quoted[-1],
            "check": f'arguments.one_of("{name}", {name}, get_args({alias}))',
            "meaning": " or ".join(quoted),
        }
    other = {"int": default + 1, "float": 0.25 if default == 0.5 else 0.5, "bool": not default}[kind]
    checks = {
        "int": f'arguments.static_int("{name}", {name}, -arguments.MAX_INT32)',
        "float": f'arguments.static_number("{name}", {name}, "a finite float32", '
        "lambda value: abs(value) <= arguments.MAX_FLOAT32)",
        "bool": f'arguments.static_bool("{name}", {name})',
    }
    # The op rounds a float to 32 bits.
    rounded = struct.unpack("f", struct.pack("f", default))[0] if kind == "float" else default
    return values | {
        "op_attr": f"{kind} = {str(default).lower()}",
        "type": {"int": "int64_t"}.get(kind, kind),
        "read": f'ctx->GetAttr("{name}", &args_.{name})',
        "cc_default": str(default).lower(),
        "cc_other": str(other).lower(),
        "shown": f"args.{name}",
        "python": kind,
        "reference": repr(rounded),
        "other": repr(other),
        "check": checks[kind],
        "meaning": {"int": "A Python integer", "float": "A finite number", "bool": "True or False"}[kind],
    }


def _new_files(family, op, kind, num_outputs, attrs):
    """{path: text} of the op's own files."""
    python, shared = snake_case(op), _VALUES[kind]
    folder = f"tensorflow_ops/{family}"
    cc, py = f"{folder}/cc/kernels/{python}/{python}", f"{folder}/python/ops/{python}"
    outputs = [_output_values(i, num_outputs) for i in range(num_outputs)]
    options = [_attr_values(op, attr) for attr in attrs]
    inputs = shared["inputs"].split(", ")
    # The gradient's algorithm does not read params.
    grad_inputs = [f"const T* d_{o['output']}" for o in outputs] + [i for i in inputs if not i.endswith("params")]
    parameters = {"input": inputs, "grad_input": grad_inputs, "output": [f"T* {o['output']}" for o in outputs]}

    def joined(pattern, declarations):
        """Fills in @P, @T, @N for each of "const T* x": "const T*", "T", "x"."""
        parts = [(d.partition("*")[0] + "*", d.split()[-2].rstrip("*"), d.split()[-1]) for d in declarations]
        return ", ".join(pattern.replace("@P", p).replace("@T", t).replace("@N", n) for p, t, n in parts)

    def each_attr(pattern, separator=""):
        return separator.join(string.Template(pattern).substitute(option) for option in options)

    values = {"family": family, "Op": op, "op": python, "num_outputs": num_outputs, **shared}
    values["guard"] = re.sub(r"\W", "_", f"{cc}.h").upper() + "_"
    for prefix, declarations in parameters.items():
        values[f"{prefix}s"] = ", ".join(declarations)
        values[f"{prefix}_names"] = joined("@N", declarations)
        values[f"{prefix}_types"] = joined("@P", declarations)
        values[f"{prefix}_data"] = joined("Data<@T>(@N)", declarations)
        values[f"{prefix}_pointers"] = joined("@N.data()", declarations)
    values["output_addresses"] = joined("&@N", parameters["output"])
    values["again_pointers"] = joined("@N_again.data()", parameters["output"])
    values["definition_args"] = ", args" if attrs else ""
    values["definition_parameter"] = f", [[maybe_unused]] const {op}Args& args" if attrs else ""
    derivatives = "(args.curvature ? {op}Curvature{n}(v{a}) : {op}Slope{n}(v{a}))"
    terms = [
        f"Widen(d_{o['output']}[{shared.get('row')}]) * "
        + derivatives.format(op=op, n=o["n"], a=values["definition_args"])
        for o in outputs
    ]
    values["gradient"] = " + ".join(terms)
    values["defaults"], values["others"] = each_attr("$cc_default, "), each_attr("$cc_other, ")
    values["signature"], values["checks"] = each_attr("$attr: $python = $default, "), each_attr("$attr=$check, ")
    values["reference_options"] = each_attr(", $attr=$reference")
    values["other_options"] = "{" + each_attr('"$attr": $other', ", ") + "}"
    values["options_product"] = f", options=[{{}}, {values['other_options']}]" if attrs else ""
    values["options_parameter"], values["options"] = (", options", ", **options") if attrs else ("", "")
    values["or_option"] = "; an option is not as described" if attrs else ""
    values["precision"] = ", of attrs in 32 bits" if any(attr.type == "float" for attr in attrs) else ""
    several = num_outputs > 1
    values["result"] = op if several else "tf.Tensor"
    values["first"] = "[0]" if several else ""
    names = ", ".join(o["output"] for o in outputs)
    values["returned"] = f"`({names})`, tensors" if several else "A tensor"
    values["result_of"] = f"tfo.{family}.{op}" if several else ""
    x = {"map": 'arguments.dense_tensor("x", x)', "reduction": "axes.move_axis_last(x, axis)[0]"}.get(kind)
    call = f"ops.tensorflow_ops_{python}(x={x}, {values['checks']}name=name)"
    values["call_result"] = f"{op}(*{call})" if several else call
    for of, first in {"map": "x", "reduction": "x.sum(axis)"}.items():
        references = ", ".join(o["factor"] + first for o in outputs)
        values[f"{of}_reference"] = f"({references})" if several else references
    lists = {
        "output": outputs,
        "outputs": [{}] * several,
        "one output": [{}] * (not several),
        "output_of_several": outputs * several,
        "attr": options,
        "attrs": [{}] * bool(attrs),
        "no attrs": [{}] * (not attrs),
        "string": [option for option in options if option["kind"] == "string"],
        "strings": [{}] * any(attr.type == "string" for attr in attrs),
    }
    paths = {
        f"{cc}.h": "algorithm.h",
        f"{cc}_cpu.cc": "cpu.cc",
        f"{cc}_gpu.cu.cc": "gpu.cu.cc",
        f"{cc}_op.cc": "op.cc",
        f"{cc}_test.cc": "test.cc",
        f"{folder}/cc/ops/{python}_ops.cc": "ops.cc",
        f"{py}.py": "wrapper.py",
        f"{py}_test.py": "test.py",
        f"benchmarks/{family}/{python}.py": "benchmark.py",
    }
    return {path: _template(name, kind, values, lists) for path, name in paths.items()}


def _changed_files(root, family, op, has_result):
    """{path: text} of the files that list the op, and its NamedTuple, and of those that a new family needs."""
    folder, python = f"tensorflow_ops/{family}", snake_case(op)
    files = {}

    def insert(path, after, text):
        """Inserts text at the end of the first match of a pattern; formatters sort and wrap the list."""
        content = files.get(path) or _read(root / path)
        found = re.search(after, content, re.MULTILINE)
        if not found:
            raise CannotWriteError(f"a file is not as expected: {path} has no match of {after!r}")
        files[path] = content[: found.end()] + text + content[found.end() :]

    if not (root / folder).exists():
        values = {"family": family}
        files[f"{folder}/BUILD"] = _template("family_build", KINDS[0], values, {})
        files[f"{folder}/__init__.py"] = _template("family_init.py", KINDS[0], values, {})
        files |= {f"{folder}/{package}/__init__.py": "" for package in ("python", "python/ops")}
        insert("tensorflow_ops/BUILD", r"^OP_FAMILIES = \[\n", f'    "{family}",\n')
        insert("tensorflow_ops/__init__.py", r"^from tensorflow_ops import \(\s*", f"{family}, ")
        insert("tensorflow_ops/__init__.py", r"^__all__ = \[", f'"{family}", ')
    insert(f"{folder}/BUILD", r"(?=^tfo_namespace\()", f'tfo_op(name = "{python}")\n\n')
    names = [op, python] if has_result else [python]
    module = f"tensorflow_ops.{family}.python.ops.{python}"
    insert(f"{folder}/__init__.py", r'^"""(.|\n)*?"""\n\n', f"from {module} import {', '.join(names)}\n")
    insert(f"{folder}/__init__.py", r"^__all__ = \[", "".join(f'"{name}", ' for name in names))
    insert(_SAMPLES_TEST, r"^_OWN_TESTS = \[", f'"{family}.{python}", ')
    insert(_EXPORT_TEST, r"^_NO_COMPOSITIONS = \{", f'"{op}", ')
    return files


def _check_kind(kind, num_outputs, attrs):
    """Raises if the kind cannot have these outputs, or attrs are not distinct."""
    if not 1 <= num_outputs <= 9:
        raise CannotWriteError(f"--outputs is {num_outputs}, expected a number from 1 to 9")
    if kind == "gather" and num_outputs > 1:
        raise CannotWriteError("a gather has one output: several rows for an index are one gather with more indices")
    names = [attr.name for attr in attrs]
    for name in names:
        if names.count(name) > 1:
            raise CannotWriteError(f"there are {names.count(name)} attrs {name!r}")


def generate(root, family, op, kind, num_outputs=1, attrs=()):
    """Writes the op, not formatted yet. Returns the paths of new files, and of changed ones and those of a new family.

    Raises CannotWriteError before it writes.
    """
    _check_kind(kind, num_outputs, attrs)
    check_free(root, family, op)
    new, changed = _new_files(family, op, kind, num_outputs, attrs), _changed_files(root, family, op, num_outputs > 1)
    for path in new:
        if (root / path).exists():
            raise CannotWriteError(f"{path} exists already")
    for path, text in {**new, **changed}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return list(new), list(changed)


_EPILOG = """
KINDS
  map        output[i] = value(x[i]). At first the value is x[i].
  reduction  output[r] = the sum over an axis of value(x[r, c]). At first the sum of x.
  gather     output[k] = params[row(indices[k])]. At first the row is indices[k].

A map or a reduction with --outputs 2 has two values, output_0 and output_1; at first the second is 2 * x.
An --attr is a keyword of the function and a field of the arguments that the definition takes:
  --attr scale:float=1.0   int, float (32 bits), bool (true or false)
  --attr mode:string=soft|hard   one of these words, at first "soft"; an enum in C++

Writes the header, CPU loops, CUDA kernels, OpKernels, op definitions, the Python function with gradients of two
orders, both tests, and a benchmark; then lists the op in the family's BUILD and __init__.py, in
testing/python/op_samples_test.py and export/python/standard_ops_test.py. A new family
is also listed in tensorflow_ops/BUILD and __init__.py. If a name is taken or a list is not as expected, nothing is
written.

The comments FILL IN mark what is yours to write: the definition (NAME.h), the docstring (NAME.py), the NumPy reference
(NAME_test.py). If only one of definition and reference changes, the test fails.
"""


def main():
    """Writes the op, or prints an error and exits with 1."""
    root = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY") or pathlib.Path(__file__).resolve().parents[2])
    parser = argparse.ArgumentParser(
        prog="new_op", description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", required=True, help="a folder of tensorflow_ops/, or a new one")
    parser.add_argument("--name", required=True, help="the op's name in CamelCase, such as CropPool")
    parser.add_argument("--kind", required=True, choices=KINDS, help="the shape of its loops, see below")
    parser.add_argument("--outputs", type=int, default=1, metavar="N", help="the number of outputs, 1 if not given")
    parser.add_argument(
        "--attr", action="append", default=[], metavar="NAME:TYPE=DEFAULT", help="an attr, see below; may be repeated"
    )
    options = parser.parse_args()
    family, name = options.family, options.name
    try:
        attrs = [parse_attr(text) for text in options.attr]
        new, changed = generate(root, family, name, options.kind, options.outputs, attrs)
    except CannotWriteError as error:
        sys.exit(f"ERROR: {error}\nNothing is written.")
    python = snake_case(name)
    print(f"TensorflowOps>{name} is tfo.{family}.{python}.", "New:", *(f"  {path}" for path in new), sep="\n")
    print(
        "Changed, or new with the family:",
        *(f"  {path}" for path in changed),
        sep="\n",
        flush=True,
    )
    done = subprocess.run(["bash", "tools/lint.sh", "--fix", *new, *changed], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"Not all files are formatted: bash tools/lint.sh --fix prints\n{done.stdout}{done.stderr}")
    print("Next, search the new files for FILL IN and write the definition. Then run")
    print(f"  bash tools/test.sh //tensorflow_ops/{family}:{python}_test")
    print(f"  bash tools/test.sh //tensorflow_ops/{family}:ops_test --test_filter={python}_test")


if __name__ == "__main__":
    main()
