"""Edits of the two tests that name every op of the package."""

import ast

import edits

LIBRARY_TEST = "tensorflow_ops/core/python/library_test.py"
SAMPLES_TEST = "tensorflow_ops/testing/python/op_samples_test.py"


def edit_library_test(edit, family, op, python, values, is_new):
    """The op's lines in the test of the whole package's names."""

    def in_assignment(text, name, element, key, path=()):
        node = edits.assignment(text, name)
        for step in path:
            node = next((v for k, v in zip(node.keys, node.values, strict=True) if edits.constant(k) == step), None)
            if node is None:
                raise edits.NoPlaceError(f"{name} has no {step!r}")
        if not isinstance(node, ast.Dict):
            order = edits.in_order_of_all if path else str
            keys = [order(str(edits.constant(value))) for value in node.elts]
            return edits.insert_element(text, node, element, order(key), keys)
        # Behind the last of its family, else at the end.
        mine = [i for i, k in enumerate(node.keys) if str(edits.constant(k)).startswith(key.rpartition(".")[0] + ".")]
        at = mine[-1] + 1 if mine and name == "_SIGNATURES" else len(node.keys)
        keys = [(i < at and -1) or 1 for i in range(len(node.keys))]
        if key in [edits.constant(k) for k in node.keys]:
            raise edits.NoPlaceError(f"{name} has {key!r} already")
        return edits.insert_element(text, node, element, 0, keys)

    test = LIBRARY_TEST
    if is_new:
        edit(test, in_assignment, "_NAMES", f'"{family}"', family, ("tensorflow_ops",))
        edit(test, in_assignment, "_NAMES", f'"tensorflow_ops.{family}": ["{python}"]', f"tensorflow_ops.{family}")
    else:
        edit(test, in_assignment, "_NAMES", f'"{python}"', python, (f"tensorflow_ops.{family}",))
    key = f"{family}.{python}"
    edit(test, in_assignment, "_SIGNATURES", f'"{key}": "{values["plain_signature"]}"', key)
    for name in (f"TensorflowOps>{op}", f"TensorflowOps>{op}Grad"):
        edit(test, in_assignment, "_OPS", f'"{name}"', name)


def add_sample(text, family, sample):
    """Adds the op to the table of what goes through opcheck."""
    table = f"_{family.upper()}"
    samples = edits.assignment(text, "_SAMPLES")
    if not isinstance(samples, ast.Dict):
        raise edits.NoPlaceError("_SAMPLES is no dict")
    tables = set(map(ast.unparse, samples.values))
    if table not in tables and f"\n{table} = " in text:  # a name that the file has for something else
        table += "_FAMILY"
    if table not in tables:
        begin, end = edits.span(text, samples)
        start = text.rindex("_SAMPLES", 0, begin)
        inside = text[begin + 1 : end - 1].rstrip().rstrip(",")
        text = (
            f"{text[:start]}# tfo.{family}.\n\n{table} = {{\n    {sample},\n}}\n\n"
            f"{text[start : begin + 1]}{inside}, **{table}}}{text[end:]}"
        )
        return text
    node = edits.assignment(text, table)
    return edits.insert_element(text, node, sample, 1, [0] * len(node.keys))
