"""Makes an op's files and edits from templates, and writes all of them or none."""

import ast
import pathlib
import re
import string

import derivative
import edits
import formula
import names
import numpy as np
import package_tests
import prototype
import writing
from writing import CannotWriteError

TEMPLATES = pathlib.Path(__file__).parent / "templates"
MACROS = "//tools/build_defs:op_family.bzl"
# Family folders that hold no ops.
_NO_FAMILIES = ("core",)


def families(root):
    """The folders that are op families."""
    return sorted(path.parent.parent.name for path in root.glob("tensorflow_ops/*/cc/ops"))


def check_free(root, family, op):
    """Raises where the family or the op cannot be called that, or something there is already."""
    names.check_family(family)
    names.check_op(op)
    python = names.snake_case(op)
    package = root / "tensorflow_ops"
    if not (package / "__init__.py").is_file():
        raise CannotWriteError(f"{root} is no clone of tensorflow_ops: it has no tensorflow_ops/__init__.py")
    public = _read(package / "__init__.py")
    exported = ast.literal_eval(edits.assignment(public, "__all__"))
    folder = package / family
    if family in _NO_FAMILIES:
        raise CannotWriteError(f"tensorflow_ops/{family} is no op family")
    if not folder.exists():
        if family in exported or (package / f"{family}.py").exists():
            raise CannotWriteError(f"tensorflow_ops has {family!r} already, and it is no family")
    else:
        if not (folder / "BUILD").is_file() or family not in edits.target_names(_read(folder / "BUILD")):
            raise CannotWriteError(f"tensorflow_ops/{family} is no op family: its BUILD has no target {family!r}")
        if family not in exported or not re.search(rf"from tensorflow_ops import .*\b{family}\b", public):
            raise CannotWriteError(f"tensorflow_ops/{family} is not public as a module, so its ops would not be found")
        module = _read(folder / "__init__.py")
        if python in (ast.literal_eval(edits.assignment(module, "__all__")) if "__all__" in module else ()):
            raise CannotWriteError(f"tfo.{family}.{python} exists already")
        clash = _new_targets(family, python) & edits.target_names(_read(folder / "BUILD"))
        if clash:
            raise CannotWriteError(f"tensorflow_ops/{family}/BUILD has a target {sorted(clash)[0]!r} already")
    _check_sources(package, family, op, python)


def _new_targets(family, python):
    endings = ("_cuda", "_ops", "_test", "_ops_test")
    return {_algorithm(family, python), *(python + ending for ending in endings)}


def _algorithm(family, python):
    """The algorithm's target; the Python library has the family's name."""
    return f"{python}_algorithm" if python == family else python


def _check_sources(package, family, op, python):
    """Raises where a name that the op brings is in the sources already."""
    registered = re.compile(rf'REGISTER_OP\(\s*"TensorflowOps>({op}(?:Grad)?)"')
    declared = re.compile(rf"\b({op}(?:Grad)?(?:Args|Value|Range|Op|OpBase|Kernel|Shape)?)\s*[({{:<]")
    for path in [*package.rglob("*.cc"), *package.rglob("*.h")]:
        text = _read(path)
        found = registered.search(text)
        if found:
            raise CannotWriteError(
                f"the op TensorflowOps>{found[1]} exists already: {path.relative_to(package.parent)}"
            )
        # core's *_simd.h are in namespaces of their own: there may be a Sinh besides.
        found = None if path.match("core/cc/*_simd.h") else declared.search(text)
        if found:
            raise CannotWriteError(f"C++ has a {found[1]} already: {path.relative_to(package.parent)}")
    # tools/test_wheel.sh puts all tests into one folder.
    for path in package.rglob(f"{python}_test.py"):
        raise CannotWriteError(f"there is a test of that name already: {path.relative_to(package.parent)}")
    for path in sorted((package / family).rglob(f"{python}.*")) + sorted((package / family).rglob(f"{python}_*")):
        if path.suffix in (".py", ".h", ".cc") and path.stem in _stems(python):
            raise CannotWriteError(f"there is a file of that name already: {path.relative_to(package.parent)}")


def _stems(python):
    endings = ("", "_formula", "_simd", "_cpu", "_gpu.cu", "_op", "_ops", "_test", "_grad", "_pfor", "_prototype")
    return {python + ending for ending in endings}


def generate(root, family, op, prototype_argument=None, here=None):
    """Writes the op.

    Args:
      root: the repository.
      family: the family's name.
      op: the op's name in CamelCase.
      prototype_argument: "module:function" or "file.py:function", or None.
      here: where the former is looked for.

    Returns:
      What to tell the user.

    Raises:
      BadNameError, BadPrototypeError, CannotWriteError: nothing is written.
    """
    root = pathlib.Path(root).resolve()
    check_free(root, family, op)
    python = names.snake_case(op)
    if prototype_argument:
        given = prototype.read(*prototype.find(prototype_argument, pathlib.Path(here or root)))
    else:
        source = _template("prototype.py", {"op": op, "python": python})
        given = prototype.read(TEMPLATES / "prototype.py.in", python, source)
    values = _values(family, op, python, given)
    try:
        new = _new_files(family, python, values, given)
        changed = _changed_files(root, family, op, python, values)
    except edits.NoPlaceError as error:
        raise CannotWriteError(f"a file is not as expected: {error}") from error
    for path in new:
        if (root / path).exists():
            raise CannotWriteError(f"{path} exists already")
    notes = writing.write(root, {**new, **changed})
    return _message(family, op, python, new, changed, notes)


def _read(path):
    return path.read_text(encoding="utf-8")


def _template(name, values):
    return string.Template(_read(TEMPLATES / f"{name}.in")).substitute(values)


# ------------------------------------------------------------------ what the templates need


def _declarations(given, used):
    """The attrs that a function body reads, as V or bool."""
    lines = []
    for attr in given.attrs:
        if attr.name in used:
            kind = "bool" if attr.type == "bool" else "V"
            value = f"args.{attr.name}" if attr.type == "bool" else f"Number<V>(args.{attr.name})"
            lines.append(f"const {kind} {attr.name} = {value};")
    return lines


def _bodies(op, given):
    """Parameters and statements of the two functions of an element."""
    attrs = {attr.name for attr in given.attrs}

    def parameters(used, first, last):
        args = f"const {op}Args& " + ("args" if used & attrs else "/*args*/")
        inputs = (f"V {x if x in used else f'/*{x}*/'}" for x in given.inputs)
        return ", ".join([args, *first, *inputs, *last])

    *steps, result = zip([*given.formula.names, None], given.formula.values, strict=True)
    used = set().union(*(formula.names_in(e) for e in given.formula.values))
    lines = _declarations(given, used)
    lines += [f"const V {name} = {formula.to_cc(e)};" for name, e in steps]
    lines.append(f"return {formula.to_cc(result[1])};")
    value_parameters = parameters(used, [], [])

    results_of = [f"d_{x}" for x in given.inputs]
    taken = {"d_output", *results_of, *attrs, *given.inputs}
    steps, results = derivative.gradients(given.formula, given.inputs, taken)
    upstream = {x: formula.multiply(("name", "d_output"), e) for x, e in results.items()}
    read = [e for _, e in steps] + list(upstream.values())
    used = set().union(*map(formula.names_in, read))
    grad_lines = _declarations(given, used)
    grad_lines += [f"const V {name} = {formula.to_cc(e)};" for name, e in steps]
    grad_lines += [f"*d_{x} = {formula.to_cc(e)};" for x, e in upstream.items()]
    d_output = "V " + ("d_output" if "d_output" in used else "/*d_output*/")
    grad_parameters = parameters(used, [d_output], [f"V* {name}" for name in results_of])
    cost = formula.cycles(formula.Formula((), tuple(read)))
    return {
        "value_parameters": value_parameters,
        "value_body": "\n".join(lines),
        "grad_parameters": grad_parameters,
        "grad_body": "\n".join(grad_lines),
        "cycles": formula.cycles(given.formula),
        "grad_cycles": cost,
    }


def _tried(attr):
    """The value of an attr in tests: its default, else one that hardly any formula minds."""
    return attr.default if attr.default is not None else {"bool": True, "int": 2, "float": 0.5}[attr.type]


def _sample(family, python, given, tried):
    """The op's entry in the table of what goes through opcheck."""
    places = [
        formula.evaluate(given.formula, {**dict.fromkeys(given.inputs, x), **tried}) for x in (-1.5, -0.25, 0.25, 1.5)
    ]
    # Where it is a number for positive inputs only, as a logarithm is.
    values = "_normal(2, 3)" if np.isfinite(places).all() else "tf.exp(_normal(2, 3))"
    required = "".join(f", {a.name}={_tried(a)!r}" for a in given.attrs if a.default is None)
    function = f"tfo.{family}.{python}"
    function = f"_with({function}{required})" if required else function
    return f"_sample({function}, {', '.join([values] * len(given.inputs))}, second_order=False)"


def _float32_text(value):
    """Python for the value that an attr has."""
    same = not isinstance(value, float) or np.float32(value) == value
    return repr(value) if same else f"float(np.float32({value!r}))"


def _cc_literal(attr):
    value = _tried(attr)
    return str(value).lower() if attr.type == "bool" else f"{value!r}f" if attr.type == "float" else str(value)


def _values(family, op, python, given):
    """All that the templates ask for."""
    folder = f"tensorflow_ops/{family}"
    inputs, attrs = given.inputs, given.attrs

    def each(pattern, separator=", "):
        return separator.join(pattern.replace("@", x) for x in inputs)

    tried = {attr.name: _tried(attr) for attr in attrs}
    floats = [v for v in tried.values() if isinstance(v, float) and _float32_text(v) != repr(v)]
    signature = [*inputs]
    if attrs:
        signature.append("*")
        signature += [f"{a.name}: {a.type}" + ("" if a.default is None else f" = {a.default!r}") for a in attrs]
    signature.append("name=None")
    plain = re.sub(r": (bool|int|float)\b", "", ", ".join(signature)).replace(" = ", "=")
    values = {
        "family": family,
        "op": op,
        "python": python,
        "function": given.function,
        "folder": folder,
        "algorithm": _algorithm(family, python),
        "summary": given.summary,
        "num_inputs": len(inputs),
        "first_input": inputs[0],
        "last_input": inputs[-1],
        "attr_members": "\n".join(f"  {'int64_t' if a.type == 'int' else a.type} {a.name};" for a in attrs),
        "const_inputs": each("const T* @"),
        "gradients": each("T* d_@"),
        "input_types": each("const T*"),
        "gradient_types": each("T*"),
        "inputs": each("@"),
        "gradient_names": each("d_@"),
        "widened_inputs": each("Widen(@[i])"),
        "element_gradients": each("element_d_@"),
        "gradient_addresses": each("&element_d_@"),
        "vector_inputs": each("part.Load(@ + i, 0)"),
        "store_vectors": each("part.Store(element_d_@, d_@ + i);", "\n"),
        "load_packs": each("const Pack<T, N> @_pack = LoadPack<N>(@ + i);", "\n"),
        "widened_packs": each("Widen(@_pack.values[n])"),
        "gradient_packs": each("d_@_pack"),
        "narrow_gradients": each("d_@_pack.values[n] = Narrow<T>(element_d_@);", "\n"),
        "store_packs": each("StorePack(d_@_pack, d_@ + i);", "\n"),
        "quoted_inputs": each('"@"'),
        "input_data": ", ".join(f"Data<T>(ctx->input({i}))" for i in range(len(inputs))),
        "grad_input_data": ", ".join(f"Data<T>(ctx->input({i + 1}))" for i in range(len(inputs))),
        "gradient_data": each("Data<T>(d_@)"),
        "null_gradients": each("*d_@ = nullptr"),
        "allocate_gradients": "\n".join(
            f"OP_REQUIRES_OK(ctx, ctx->allocate_output({i}, ctx->input(0).shape(), &d_{x}));"
            for i, x in enumerate(inputs)
        ),
        "op_inputs": each('.Input("@: T")', "\n"),
        "op_gradients": each('.Output("d_@: T")', "\n"),
        "op_attrs": "\n".join(_op_attr(attr) for attr in attrs),
        "test_inputs": "\n".join(f"const auto {x} = Inputs<T>(n, {i + 2});" for i, x in enumerate(inputs)),
        "test_gradients": each("d_@(n + kBehind, kUntouched)"),
        "input_pointers": each("@.data()"),
        "gradient_pointers": each("d_@.data()"),
        "expected_gradients": each("expected_d_@"),
        "expected_addresses": each("&expected_d_@"),
        "exact_gradients": each("exact_d_@"),
        "exact_addresses": each("&exact_d_@"),
        "expect_gradients": each("TFO_EXPECT(IsFormula(device, d_@[i], expected_d_@, exact_d_@));", "\n"),
        "expect_untouched": each("TFO_EXPECT(Same(d_@[i], kUntouched));", "\n"),
        "signature": ", ".join(signature),
        "plain_signature": f"({plain})",
        "arguments": each("@"),
        "call_arguments": ", ".join(f"{n}={n}" for n in (*inputs, *tried)),
        "attr_names": "".join(f'"{name}", ' for name in tried),
        "doc_arguments": "\n".join(_doc_arguments(given)),
        "doc_shape_of": f"{inputs[0]}'s" if len(inputs) == 1 else "the inputs'",
        "doc_in": f" in {inputs[0]}" if len(inputs) == 1 else " in all inputs",
        "doc_shapes_error": ""
        if len(inputs) == 1
        else ".\n      ValueError: inputs of different shapes; InvalidArgumentError if\n        found at run time",
        "sample": _sample(family, python, given, tried),
        **_example(family, python, given, tried),
        **_bodies(op, given),
    }
    values["attrs_comment"] = "# An attr of type float is a float32.\n" if floats else ""
    values["test_attrs"] = "{" + ", ".join(f'"{k}": {_float32_text(v)}' for k, v in tried.items()) + "}"
    if attrs:
        reads = "\n".join(f'OP_REQUIRES_OK(ctx, ctx->GetAttr("{a.name}", &attrs_.{a.name}));' for a in attrs)
        values["constructor"] = f"explicit {op}OpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {{\n{reads}\n}}"
        values["copy_attrs"] = "*args = attrs_;"
        values["attrs_member"] = f"\n private:\n  {op}Args attrs_ = {{}};  // num_elements is each call's"
    else:
        values |= {"constructor": "using OpKernel::OpKernel;", "copy_attrs": "", "attrs_member": ""}
    values["cc_test_attrs"] = ", ".join(f"/*{a.name}=*/{_cc_literal(a)}" for a in attrs)
    values["shapes_test"] = _template("shapes_test.py", values) if len(inputs) > 1 else ""
    has_gradient = given.is_python_op and given.has_gradient
    values["prototype_gradient_test"] = _template("prototype_gradient_test.py", values) if has_gradient else ""
    return values


def _op_attr(attr):
    default = ""
    if attr.default is not None:
        default = f" = {str(attr.default).lower() if attr.type == 'bool' else repr(attr.default)}"
    return f'.Attr("{attr.name}: {attr.type}{default}")'


def _doc_arguments(given):
    for i, name in enumerate(given.inputs):
        shape = (
            f"of {given.inputs[0]}'s shape and dtype" if i else "of any shape: float16, bfloat16, float32 or float64"
        )
        yield f"      {name}: a tensor {shape}."
    for attr in given.attrs:
        kind = {
            "bool": "a Python bool",
            "int": "a Python integer",
            "float": "a Python number; the kernel has it as float32",
        }
        yield f"      {attr.name}: {kind[attr.type]}."


def _example(family, python, given, tried):
    """A call of the function on a few numbers, and what it prints."""
    columns = [[0.5, 1.0, 2.0], [1.5, 0.25, 1.0], [0.75, 1.25, 0.5], [1.0, 2.0, 1.5]]
    columns = [columns[i % len(columns)] for i in range(len(given.inputs))]
    attrs = {k: np.float32(v).item() if isinstance(v, float) else v for k, v in tried.items()}
    results = [
        formula.evaluate(given.formula, {**dict(zip(given.inputs, row, strict=True)), **attrs})
        for row in zip(*columns, strict=True)
    ]
    required = [f"{a.name}={_tried(a)!r}" for a in given.attrs if a.default is None]
    arguments = ", ".join([*map(str, columns), *required])
    line = f"    >>> tfo.{family}.{python}({arguments}).numpy().round(3)"
    if len(line) > 120:
        line = f"    >>> tfo.{family}.{python}(\n    ...     {arguments}\n    ... ).numpy().round(3)"
    return {
        "example_call": line,
        "example_result": repr(np.array(results, np.float32).round(3)),
    }


# -------------------------------------------------------------------------- files


def _new_files(family, python, values, given):
    """{path: text} of the op's own files."""
    folder, kernels = f"tensorflow_ops/{family}", f"tensorflow_ops/{family}/cc/kernels"

    def guarded(name, header):
        guard = re.sub(r"\W", "_", header).upper() + "_"
        return {header: _template(name, {**values, "guard": guard})}

    cc = {**values, "test_attrs": values["cc_test_attrs"]}
    return {
        **guarded("algorithm.h", f"{kernels}/{python}.h"),
        **guarded("formula.h", f"{kernels}/{python}_formula.h"),
        **guarded("simd.h", f"{kernels}/{python}_simd.h"),
        f"{kernels}/{python}_simd.cc": _template("simd.cc", values),
        f"{kernels}/{python}_cpu.cc": _template("cpu.cc", values),
        f"{kernels}/{python}_gpu.cu.cc": _template("gpu.cu.cc", values),
        f"{kernels}/{python}_op.cc": _template("op.cc", values),
        f"{kernels}/{python}_test.cc": _template("test.cc", cc),
        f"{folder}/cc/ops/{python}_ops.cc": _template("ops.cc", values),
        f"{folder}/python/ops/{python}.py": _template("wrapper.py", values),
        f"{folder}/python/ops/{python}_grad.py": _template("grad.py", values),
        f"{folder}/python/ops/{python}_pfor.py": _template("pfor.py", values),
        f"{folder}/python/ops/{python}_prototype.py": _copied(family, python, given),
        f"{folder}/python/ops/{python}_test.py": _template("test.py", values),
        f"benchmarks/{family}/{python}.py": _template("benchmark.py", values),
    }


def _copied(family, python, given):
    """The prototype's file. A python_op in it has a name of its own, so that both can be imported."""
    if given.op_name is None:
        return given.source
    begin, end = edits.span(given.source, given.op_name)
    return f'{given.source[:begin]}"{family}::{python}"{given.source[end:]}'


def _changed_files(root, family, op, python, values):
    """{path: text} of the files that get lines, and of a new family's."""
    folder = f"tensorflow_ops/{family}"
    is_new = not (root / folder).exists()
    files = {}

    def edit(path, change, *arguments):
        text = files[path] if path in files else _read(root / path)
        try:
            files[path] = change(text, *arguments)
        except edits.NoPlaceError as error:
            raise edits.NoPlaceError(f"{path}: {error}") from error

    if is_new:
        files[f"{folder}/BUILD"] = _template("family_build", values)
        files[f"{folder}/__init__.py"] = _template("family_init.py", values)
        edit("tensorflow_ops/BUILD", edits.add_to_rule, "tensorflow_ops", "deps", f"//{folder}")
        edit("tensorflow_ops/__init__.py", edits.add_import, "tensorflow_ops", family)
        edit("tensorflow_ops/__init__.py", edits.add_to_all, family)
    build = f"{folder}/BUILD"
    for package in ("python", "python/ops"):
        path = f"{folder}/{package}/__init__.py"
        if not (root / path).exists():
            files[path] = ""
            if not is_new:
                edit(build, edits.add_to_rule, family, "srcs", f"{package}/__init__.py")
    for ending in ("", "_grad", "_pfor", "_prototype"):
        edit(build, edits.add_to_rule, family, "srcs", f"python/ops/{python}{ending}.py")
    rules = _template("build", values)
    edit(build, edits.add_loads, MACROS, set(re.findall(r"^(tfo_\w+)\(", rules, re.MULTILINE)))
    files[build] = files[build].rstrip("\n") + "\n" + rules
    edit("tensorflow_ops/BUILD", edits.add_to_rule, "_tensorflow_ops.so", "deps", f"//{folder}:{python}_ops")

    module = f"{folder}/__init__.py"
    if "__all__" not in (files.get(module) or _read(root / module)):
        files[module] = _read(root / module).rstrip("\n") + "\n\n__all__ = []\n"
    edit(module, edits.add_import, f"tensorflow_ops.{family}.python.ops.{python}", python)
    edit(module, edits.add_to_all, python)
    package_tests.edit_library_test(edit, family, op, python, values, is_new)
    edit(package_tests.SAMPLES_TEST, package_tests.add_sample, family, f'"{family}.{python}": {values["sample"]}')
    return files


def _message(family, op, python, new, changed, notes):
    lines = [f"TensorflowOps>{op} is tfo.{family}.{python}.", "", "New:", *(f"  {path}" for path in new)]
    lines += ["Changed:", *(f"  {path}" for path in changed)]
    lines += notes and ["", *notes]
    lines += [
        "",
        "Next:",
        f"  bash tools/test.sh //tensorflow_ops/{family}/... //tensorflow_ops/core:library_test",
        f"  its formula:    tensorflow_ops/{family}/cc/kernels/{python}_formula.h",
        f"  its reference:  tensorflow_ops/{family}/python/ops/{python}_prototype.py",
        "  then a row in README's table and one in docs/op_index.md.",
        "  docs/writing_an_op.md says what else an op may need.",
    ]
    return "\n".join(lines)
