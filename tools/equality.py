"""Checks that tensorflow_ops/ calls tf.equal and tf.not_equal where == and != would compare tensors.

usage: python tools/equality.py
In a graph of TensorFlow 1, == and != compare the identities of tensors, without an error. A tensor cannot be a
condition in a graph, so in conditions both are fine. Elsewhere one side must be a string, a len, a dtype or a rank.
"""

import ast
import pathlib
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


def main():
    """Exits with a message if a comparison may be one of tensors."""
    found = []
    for path in sorted((_ROOT / "tensorflow_ops").glob("**/*.py")):
        # Tests, and opcheck, compare arrays of NumPy.
        if path.stem.endswith(("_test", "_testing")) or "testing" in path.relative_to(_ROOT).parts:
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        conditions = {id(condition) for node in nodes for condition in _conditions(node)}
        for node in nodes:
            if isinstance(node, ast.Compare) and id(node) not in conditions:
                equal = any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
                if equal and not any(map(_is_static, (node.left, *node.comparators))):
                    text = f"{ast.unparse(node)}: for tensors call tf.equal or tf.not_equal; else make it a condition"
                    found.append(f"{path.relative_to(_ROOT)}:{node.lineno}: {text}")
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
