"""Differentiates formulas of one element, and shares what their derivatives compute twice."""

from formula import ONE, ZERO, add, call, divide, multiply, names_in, negate, parts, power, subtract, unused, where


def gradients(given, inputs, taken=()):
    """Differentiates a formula, forward, statement by statement.

    Args:
      given: the Formula.
      inputs: the names to differentiate by.
      taken: other names that a new one may not have.

    Returns:
      (steps, results): pairs (name, expression), the formula's own without those that are not needed and
      `name_input` (if need be with a _) for derivatives of them; and {input: the result's derivative, an expression}.
    """
    names, values = [], []
    of = {("name", x): {y: ONE if x == y else ZERO for y in inputs} for x in inputs}
    *steps, result = given.values
    for name, value in zip(given.names, steps, strict=True):
        names.append(name)
        values.append(value)
        of["name", name] = {}
        for x in inputs:
            derivative = _derivative(value, x, of)
            if derivative[0] not in ("number", "name"):
                new = f"{name}_{x}"
                while new in (*given.names, *names, *taken):
                    new += "_"
                names.append(new)
                values.append(derivative)
                derivative = ("name", new)
            of["name", name][x] = derivative
    results = {x: _derivative(result, x, of) for x in inputs}
    steps = [*zip(names, values, strict=True), *((("to", x), e) for x, e in results.items())]
    steps = _share(steps, {*given.names, *names, *taken})
    results = {name[1]: e for name, e in steps if isinstance(name, tuple)}
    needed, kept = set().union(*map(names_in, results.values())), []
    for name, value in reversed(steps):
        if name in needed:
            kept.append((name, value))
            needed |= names_in(value)
    return kept[::-1], results


def _share(steps, taken):
    """Gives functions and choices that are computed twice a name of their own, before the first use."""
    counts, names = {}, {}

    def count(e):
        counts[e] = counts.get(e, 0) + 1
        if counts[e] == 1 or e[0] not in ("call", "where"):
            for part in parts(e):
                count(part)

    def is_shared(e):
        to_choose = e[0] == "where" and any(part[0] != "number" for part in e[2:])
        return counts[e] > 1 and (e[0] == "call" or to_choose)

    def replace(e, name=None):
        if e in names:
            return ("name", names[e])
        replaced = (e[0], *(replace(part) if isinstance(part, tuple) else part for part in e[1:]))
        if not is_shared(e):
            return replaced
        names[e] = name or unused(taken)
        if name is None:
            taken.add(names[e])
            result.append((names[e], replaced))
        return replaced if name else ("name", names[e])

    for _, value in steps:
        count(value)
    result = []
    for name, value in steps:
        # A result is an input's, not a name of the function.
        value = replace(value, name if isinstance(name, str) else None)
        result.append((name, value))
    return result


def _derivative(e, x, of):
    kind = e[0]
    if kind == "number":
        return ZERO
    if kind == "name":
        return of.get(e, {}).get(x, ZERO)
    if kind == "where":
        return where(e[1], _derivative(e[2], x, of), _derivative(e[3], x, of))
    if kind == "call":
        return _call_derivative(e, x, of)
    a, da = e[1], _derivative(e[1], x, of)
    if len(e) == 2:
        return negate(da)
    b, db = e[2], _derivative(e[2], x, of)
    if kind == "+":
        return add(da, db)
    if kind == "-":
        return subtract(da, db)
    if kind == "*":
        return add(multiply(da, b), multiply(a, db))
    return subtract(divide(da, b), divide(multiply(e, db), b))


def _call_derivative(e, x, of):
    function, a = e[1:3]
    da = _derivative(a, x, of)
    if function == "pow":
        exponent, d_exponent = e[3], _derivative(e[3], x, of)
        of_base = multiply(multiply(exponent, power(a, subtract(exponent, ONE))), da)
        return add(of_base, multiply(multiply(e, call("log", a)), d_exponent))
    if da == ZERO:
        return ZERO
    outer = {
        "exp": lambda: e,
        "expm1": lambda: call("exp", a),
        "log": lambda: divide(ONE, a),
        "log1p": lambda: divide(ONE, add(ONE, a)),
        "sqrt": lambda: divide(("number", 0.5), e),
        "tanh": lambda: subtract(ONE, multiply(e, e)),
        "sinh": lambda: call("cosh", a),
        "cosh": lambda: call("sinh", a),
        "sin": lambda: call("cos", a),
        "cos": lambda: negate(call("sin", a)),
        "atan": lambda: divide(ONE, add(ONE, multiply(a, a))),
        "abs": lambda: where((">", a, ZERO), ONE, where(("<", a, ZERO), ("number", -1), ZERO)),
    }[function]()
    return divide(da, outer[2]) if outer[:2] == ("/", ONE) else multiply(outer, da)
