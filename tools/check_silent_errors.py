"""Finds what is wrong without an error: == of tensors, and casts that wrap a user's integers.

usage: python tools/check_silent_errors.py
In a graph of TensorFlow 1, == and != compare the identities of tensors, without an error. A tensor cannot be a
condition in a graph, so in conditions both are fine. Elsewhere one side must be a string, a len, a dtype or a rank.

A cast to integers wraps those that the dtype does not hold, and drops fractions. arguments.whole_numbers checks them.
Other casts are of bools or of sizes, or a comment says why the numbers fit: "# fits: ...". Compositions (export/) have
no errors, and take what the ops have checked.
"""

import ast
import pathlib
import re
import sys

_ROOT = pathlib.Path(__file__).resolve().parent.parent


def _conditions(node):
    """Returns the expressions in a node whose truth it tests."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            return [test]
        case ast.BoolOp(values=values) | ast.comprehension(ifs=values):
            return values
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [operand]
        case ast.Call(func=ast.Name(id="all" | "any"), args=[ast.GeneratorExp(elt=element)]):
            return [element]
    return []


def _is_static(side):
    match side:
        case (
            ast.Constant(value=str() | bytes())
            | ast.Call(func=ast.Name(id="len"))
            | ast.Attribute(attr="dtype" | "rank")
        ):
            return True
    return False


def _is_bool_or_size(node):
    """Returns whether a cast's operand is, by its form or name, a tensor of bools or a size."""
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Invert()) | ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.startswith(("is_", "are_", "has_")) or name in ("mask", "row_splits")
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name in ("reduce_any", "reduce_all", "logical_not", "nrows", "row_lengths", "checked")
    return False


def _wrapping_casts(nodes, lines):
    """Returns the casts to integers that may wrap."""
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr="saturate_cast")):
                yield node
            case ast.Call(
                func=ast.Attribute(attr="cast") | ast.Name(id="cast"), args=[operand, *dtype], keywords=others
            ):
                dtypes = " ".join(
                    map(ast.unparse, [*dtype, *(other.value for other in others if other.arg == "dtype")])
                )
                is_int = re.search(r"\btf\.u?int\d+|'u?int\d+'", dtypes)
                before = lines[max(node.lineno - 2, 0)]
                text = "".join(lines[node.lineno - 1 : node.end_lineno])
                text += before if before.lstrip().startswith("#") else ""
                if is_int and not _is_bool_or_size(operand) and "# fits: " not in text:
                    yield node


def main():
    """Exits with a message if a comparison may be one of tensors, or a cast may wrap."""
    found = []
    for path in sorted((_ROOT / "tensorflow_ops").glob("**/*.py")):
        # Tests, and opcheck, compare arrays of NumPy.
        if path.stem.endswith(("_test", "_testing")) or "testing" in path.relative_to(_ROOT).parts:
            continue
        source, place = path.read_text(), path.relative_to(_ROOT)
        nodes = list(ast.walk(ast.parse(source)))
        conditions = {id(condition) for node in nodes for condition in _conditions(node)}
        for node in nodes:
            if isinstance(node, ast.Compare) and id(node) not in conditions:
                equal = any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
                if equal and not any(map(_is_static, (node.left, *node.comparators))):
                    text = f"{ast.unparse(node)}: for tensors call tf.equal or tf.not_equal; else make it a condition"
                    found.append(f"{place}:{node.lineno}: {text}")
        if "export" not in place.parts:
            text = "call arguments.whole_numbers, or say why the numbers fit: # fits: ..."
            casts = _wrapping_casts(nodes, source.splitlines())
            found += [f"{place}:{node.lineno}: {ast.unparse(node)}: {text}" for node in casts]
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
