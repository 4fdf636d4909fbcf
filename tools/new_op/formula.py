"""Formulas of one element: read from NumPy, written as C++, evaluated.

An expression is a nested tuple whose first item says what it is:

    ("number", value)             ("name", name)
    ("+" or "-" or "*" or "/", a, b)              ("-", a)
    ("call", C++ function, arguments...)          ("where", condition, a, b)

A condition is ("<", a, b) and its like, ("&&", a, b), ("||", a, b), ("!", a) or ("flag", name of a bool).
"""

import ast
import math
from typing import NamedTuple

import numpy as np

ZERO, ONE = ("number", 0), ("number", 1)
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
# NumPy's functions of one argument that core/cc/elementwise.h has.
_FUNCTIONS = {
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "tanh": "tanh",
    "sinh": "sinh",
    "cosh": "cosh",
    "sin": "sin",
    "cos": "cos",
    "arctan": "atan",
    "abs": "abs",
    "absolute": "abs",
    "fabs": "abs",
}
# About what a call takes for each element of a vector; those that are not here take 2.
_CYCLES = {"abs": 0.1, "sqrt": 1, "sin": 5, "cos": 5, "pow": 10}
_NUMPY = {"pow": "power", **{cc: name for name, cc in _FUNCTIONS.items()}}


class NotElementwiseError(Exception):
    """Says which part of a function is no formula of one element."""


class Formula(NamedTuple):
    """`names[i] = values[i]` in turn; the last value is the result."""

    names: tuple[str, ...]
    values: tuple[tuple, ...]


# ----------------------------------------------------------------- construction


def _value(e):
    return e[1] if e[0] == "number" else None


def number(value):
    return ("number", int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e9 else value)


def add(a, b):
    if _value(a) is not None and _value(b) is not None:
        return number(_value(a) + _value(b))
    if a == ZERO:
        return b
    if b == ZERO:
        return a
    if a == b:
        return multiply(("number", 2), a)
    return ("-", a, b[1]) if b[0] == "-" and len(b) == 2 else ("+", a, b)


def subtract(a, b):
    if _value(a) is not None and _value(b) is not None:
        return number(_value(a) - _value(b))
    if b == ZERO:
        return a
    return negate(b) if a == ZERO else ("-", a, b)


def negate(a):
    if _value(a) is not None:
        return number(-_value(a))
    return a[1] if a[0] == "-" and len(a) == 2 else ("-", a)


def multiply(a, b):
    if _value(a) is not None and _value(b) is not None:
        return number(_value(a) * _value(b))
    if ZERO in (a, b):
        return ZERO
    if a == ONE:
        return b
    if b == ONE:
        return a
    if ("number", -1) in (a, b):
        return negate(b if a[0] == "number" else a)
    a, b = (b, a) if b[0] == "number" else (a, b)
    if a[0] == b[0] == "number" or (a[0] == "number" and b[0] == "*" and b[1][0] == "number"):
        return multiply(number(a[1] * b[1][1]), b[2])
    return ("*", a, b)


def divide(a, b):
    if _value(a) is not None and _value(b):
        return number(_value(a) / _value(b))
    if a == ZERO or b == ONE:
        return a
    return ("/", a, b)


def call(function, *arguments):
    return ("call", function, *arguments)


def where(condition, a, b):
    return a if a == b else ("where", condition, a, b)


def power(a, exponent):
    whole = _value(exponent)
    if whole is not None and whole == int(whole) and 0 <= whole <= 4 and a[0] == "name":
        result = ONE
        for _ in range(int(whole)):
            result = multiply(result, a)
        return result
    if whole == 0.5:
        return call("sqrt", a)
    if whole == -1:
        return divide(ONE, a)
    return call("pow", a, exponent)


def parts(e):
    return [part for part in e[1:] if isinstance(part, tuple)]


def unused(taken):
    count = 1
    while f"t{count}" in taken:
        count += 1
    return f"t{count}"


# ------------------------------------------------------------- reading Python


def numpy_name(node):
    """The `exp` of np.exp or numpy.exp, else None."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy"):
        return node.attr
    return None


def read(function, values, flags, constants):
    """Reads a function's body.

    Args:
      function: an ast.FunctionDef.
      values: names of its arguments that are numbers.
      flags: names of those that are bools.
      constants: {name: number} of its module.

    Returns:
      A Formula.

    Raises:
      NotElementwiseError: it is none.
    """
    return _Reader(values, flags, constants).read(function)


class _Reader:
    def __init__(self, values, flags, constants):
        self.values, self.flags, self.constants = set(values), set(flags), constants
        self.arguments = set(values) | set(flags)
        self.names, self.formulas = [], []

    def read(self, function):
        for statement in function.body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # the docstring
            if isinstance(statement, ast.Return) and statement.value is not None:
                self.formulas.append(self.expression(statement.value))
                return Formula(tuple(self.names), tuple(self.formulas))
            if not (
                isinstance(statement, ast.Assign)
                and len(statement.targets) == 1
                and isinstance(statement.targets[0], ast.Name)
            ):
                self.refuse(statement, "only `name = expression` and `return expression` are")
            self.assign(statement.targets[0].id, self.expression(statement.value))
        self.refuse(function, "it returns nothing")

    def refuse(self, node, why):
        raise NotElementwiseError(f"line {node.lineno}, `{ast.unparse(node).splitlines()[0]}`: {why}")

    def assign(self, name, value):
        # Assigned twice: C++ has a const for each.
        if name in self.names or name in self.arguments:
            raise NotElementwiseError(f"{name} is assigned twice; give each value a name of its own")
        self.names.append(name)
        self.formulas.append(value)
        self.values.add(name)

    def named(self, e):
        """The expression as a name or a number, which may be written twice."""
        if e[0] in ("name", "number"):
            return e
        name = unused(self.values | self.flags)
        self.assign(name, e)
        return ("name", name)

    def expression(self, node):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return number(node.value)
        if isinstance(node, ast.Name):
            if node.id in self.values:
                return ("name", node.id)
            if node.id in self.constants:
                return number(self.constants[node.id])
            self.refuse(node, "is no input, float or int attr, or number of the module")
        if numpy_name(node) in ("pi", "e"):
            return number(getattr(math, node.attr))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            operand = self.expression(node.operand)
            return negate(operand) if isinstance(node.op, ast.USub) else operand
        if isinstance(node, ast.BinOp):
            makers = {ast.Add: add, ast.Sub: subtract, ast.Mult: multiply, ast.Div: divide, ast.Pow: power}
            if type(node.op) in makers:
                return makers[type(node.op)](self.expression(node.left), self.expression(node.right))
        if isinstance(node, ast.IfExp):
            return where(self.condition(node.test), self.expression(node.body), self.expression(node.orelse))
        if isinstance(node, ast.Call) and not node.keywords:
            return self.call(node)
        self.refuse(node, "is not an operation on each element by itself that new_op knows")

    def call(self, node):
        function, arguments = numpy_name(node.func), node.args
        # x.dtype.type(2) and a.astype(x.dtype): all is computed in one dtype.
        method = node.func.attr if isinstance(node.func, ast.Attribute) else None
        if method == "type" and isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "dtype":
            if len(arguments) == 1:
                return self.expression(arguments[0])
        if method == "astype" and len(arguments) == 1 and ast.unparse(arguments[0]).endswith(".dtype"):
            return self.expression(node.func.value)
        if isinstance(node.func, ast.Name) and node.func.id == "abs":
            function = "abs"
        if function == "where" and len(arguments) == 3:
            return where(self.condition(arguments[0]), *map(self.expression, arguments[1:]))
        given = None if function is None else [self.expression(a) for a in arguments]
        if function in _FUNCTIONS and len(given) == 1:
            return call(_FUNCTIONS[function], *given)
        if function == "square" and len(given) == 1:
            return power(self.named(given[0]), ("number", 2))
        if function == "negative" and len(given) == 1:
            return negate(given[0])
        if function == "reciprocal" and len(given) == 1:
            return divide(ONE, given[0])
        if function == "power" and len(given) == 2:
            return power(*given)
        if function == "sign" and len(given) == 1:
            a = self.named(given[0])
            return where((">", a, ZERO), ONE, where(("<", a, ZERO), ("number", -1), ("*", a, ZERO)))  # NaN: NaN
        if function in ("maximum", "minimum") and len(given) == 2:
            return self.extreme(">" if function == "maximum" else "<", *given)
        if function == "clip" and len(given) == 3:
            return self.extreme("<", self.extreme(">", given[0], given[1]), given[2])
        self.refuse(node, "is not a function of each element by itself that new_op knows")

    def extreme(self, comparison, a, b):
        """The larger or smaller; NaN where one of them is, as in NumPy."""
        a, b = self.named(a), self.named(b)
        chosen = (comparison, a, b)
        if a[0] != "number":
            chosen = ("||", chosen, ("!=", a, a))
        return where(chosen, a, b)

    def condition(self, node):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
            sides = self.expression(node.left), self.expression(node.comparators[0])
            return (_COMPARISONS[type(node.ops[0])], *sides)
        if isinstance(node, ast.Name) and node.id in self.flags:
            return ("flag", node.id)
        both = None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            both = ("&&" if isinstance(node.op, ast.BitAnd) else "||", [node.left, node.right])
        elif isinstance(node, ast.BoolOp):
            both = ("&&" if isinstance(node.op, ast.And) else "||", node.values)
        elif isinstance(node, ast.Call) and numpy_name(node.func) in ("logical_and", "logical_or"):
            both = ("&&" if node.func.attr == "logical_and" else "||", node.args)
        if both and len(both[1]) == 2:
            return (both[0], *map(self.condition, both[1]))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert | ast.Not):
            return ("!", self.condition(node.operand))
        if isinstance(node, ast.Call) and numpy_name(node.func) == "logical_not" and len(node.args) == 1:
            return ("!", self.condition(node.args[0]))
        if isinstance(node, ast.Call) and numpy_name(node.func) == "isnan" and len(node.args) == 1:
            a = self.named(self.expression(node.args[0]))
            return ("!=", a, a)
        self.refuse(node, "is not a condition that new_op knows")


# ------------------------------------------------------------------ as C++, as a value

_RANK = {"+": 4, "-": 4, "*": 5, "/": 5}


def to_cc(e):
    """The expression in C++, of type V; a condition is a bool or a mask."""
    return _whole(e)


# Up to it a float has every integer, so that C++ lets an int stand beside a vector of them.
_LARGEST_INT = 2**24
# Where a bare 2 would not be a V.
_NUMBER = "Number<V>({!r})"


def _literal(value):
    if not isinstance(value, int) or abs(value) > _LARGEST_INT:
        return _NUMBER.format(value)
    return f"({value})" if value < 0 else str(value)


def _whole(e, least=0):
    """The text of an expression that has nothing of type V beside it."""
    return _NUMBER.format(e[1]) if e[0] == "number" else _operand(e, least)


def _to_cc(e):
    """Returns the text and how tightly its outermost operator binds."""
    kind = e[0]
    if kind == "number":
        return _literal(e[1]), 9
    if kind in ("name", "flag"):
        return e[1], 9
    if kind == "call":
        return f"{e[1].capitalize()}({', '.join(map(to_cc, e[2:]))})", 9
    if kind == "where":
        return f"{_operand(e[1], 1)} ? {_whole(e[2], 1)} : {_whole(e[3], 1)}", 0
    if kind == "!":
        return f"!({to_cc(e[1])})", 8
    if len(e) == 2:
        return f"-{_operand(e[1], 8)}", 8
    if kind in ("&&", "||"):
        return f"{_side(e[1], kind)} {kind} {_side(e[2], kind)}", 2
    rank = _RANK.get(kind, 3)
    if e[1][0] == e[2][0] == "number":
        return f"{_whole(e[1])} {kind} {_operand(e[2], rank + 1)}", rank
    return f"{_operand(e[1], rank)} {kind} {_operand(e[2], rank + 1)}", rank


def _operand(e, least):
    text, rank = _to_cc(e)
    return text if rank >= least else f"({text})"


def _side(e, other):
    """Of && or ||, which compilers want parentheses around within the other."""
    return f"({to_cc(e)})" if e[0] in ("&&", "||") and e[0] != other else _operand(e, 2)


def names_in(e):
    """The names that an expression or a condition reads."""
    if e[0] in ("name", "flag"):
        return {e[1]}
    return set().union(*map(names_in, parts(e)))


def cycles(formula):
    """A rough count of the cycles that an element takes, of those in a vector of floats."""

    def count(e):
        inner = sum(map(count, parts(e)))
        if e[0] == "call":
            return inner + _CYCLES.get(e[1], 2)
        return inner + (0 if e[0] in ("number", "name", "flag") else 0.5 if e[0] == "/" else 0.1)

    return round(1 + sum(map(count, formula.values)), 1)


def evaluate(formula, arguments):
    """The result for {argument: number or bool}, in float64."""

    def value(e):
        kind = e[0]
        if kind == "number":
            return np.float64(e[1])
        if kind in ("name", "flag"):
            return known[e[1]]
        if kind == "call":
            return getattr(np, _NUMPY[e[1]])(*map(value, e[2:]))
        if kind == "where":
            return value(e[2]) if value(e[1]) else value(e[3])
        if kind == "!":
            return not value(e[1])
        if len(e) == 2:
            return -value(e[1])
        if kind in ("&&", "||"):
            return (value(e[1]) and value(e[2])) if kind == "&&" else (value(e[1]) or value(e[2]))
        a, b = value(e[1]), value(e[2])
        return {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "/": lambda: a / b,
            "<": lambda: a < b,
            "<=": lambda: a <= b,
            ">": lambda: a > b,
            ">=": lambda: a >= b,
            "==": lambda: a == b,
            "!=": lambda: a != b,
        }[kind]()

    known = {name: v if isinstance(v, bool) else np.float64(v) for name, v in arguments.items()}
    with np.errstate(all="ignore"):
        for name, e in zip(formula.names, formula.values, strict=False):
            known[name] = value(e)
        return float(value(formula.values[-1]))
