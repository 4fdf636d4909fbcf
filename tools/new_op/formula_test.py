"""Tests of formulas: read from NumPy, written as C++, differentiated."""

import ast
import textwrap

import derivative
import formula
import numpy as np
from absl.testing import absltest, parameterized

_MISH = '''
    import numpy as np


    def mish(x, *, beta: float = 1.0):
        """Mish, x tanh(log(1 + e^(beta x)))."""
        softplus = np.log1p(np.exp(beta * x))
        return x * np.tanh(softplus)
    '''
_EVERYTHING = '''
    import numpy as np

    _HALF = 0.5


    def blend(x, weight, *, limit: float, negate: bool = False, order=3):
        """All that a formula may have."""
        a = np.maximum(x, weight) ** order
        b = np.clip(a, -limit, limit)
        c = np.where((x > 0) & ~(weight > _HALF) | np.isnan(x), np.sqrt(np.abs(b) + 1), np.sign(weight) * b)
        d = c / (1 + np.square(x)) if negate else -c + weight**2 - np.sin(x) * 2.5 + np.arctan(weight)
        e = np.minimum(np.expm1(d / 4), np.cosh(x) - np.sinh(weight)) * np.cos(x).astype(x.dtype) + np.reciprocal(x)
        f = e + np.power(np.abs(x) + x.dtype.type(1), weight) - np.log(np.abs(x) + np.pi) + np.negative(x) ** -1
        return f * 2 + f**0.5 if negate else f
    '''


def _function(text):
    """The first function of a source, as it runs."""
    names_ = {}
    exec(textwrap.dedent(text), names_)
    return next(value for value in names_.values() if callable(value))


class FormulaTest(parameterized.TestCase):
    def read(self, source, inputs, values=(), flags=()):
        (function,) = (node for node in ast.parse(textwrap.dedent(source)).body if isinstance(node, ast.FunctionDef))
        return formula.read(function, [*inputs, *values], flags, {"_HALF": 0.5})

    @parameterized.product(negate=(False, True), seed=tuple(range(20)))
    def test_is_what_numpy_computes(self, negate, seed):
        read = self.read(_EVERYTHING, ["x", "weight"], ["limit", "order"], ["negate"])
        x, weight = np.random.default_rng(seed).normal(size=2)
        attrs = {"limit": 0.7, "negate": negate, "order": 3}
        with np.errstate(all="ignore"):
            expected = _function(_EVERYTHING)(x, weight, **attrs)
        np.testing.assert_allclose(formula.evaluate(read, {"x": x, "weight": weight, **attrs}), expected, 1e-12)

    @parameterized.parameters(
        ("np.maximum(x, 1)",),
        ("np.minimum(1, x)",),
        ("np.clip(x, -1, 1)",),
        ("np.sign(x)",),
        ("np.where(np.isnan(x), 7, x)",),
        ("np.log(x) + np.sqrt(x) + 1 / x",),
    )
    def test_special_values_are_numpys(self, python):
        source = f"import numpy as np\n\ndef f(x): return {python}"
        for x in map(np.float64, (np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0)):
            with np.errstate(all="ignore"):
                expected = _function(source)(x)
            np.testing.assert_array_equal(formula.evaluate(self.read(source, ["x"]), {"x": x}), expected)

    @parameterized.product(negate=(False, True), seed=tuple(range(20)))
    def test_gradients_are_numeric_ones(self, negate, seed):
        inputs = ["x", "weight"]
        read = self.read(_EVERYTHING, inputs, ["limit", "order"], ["negate"])
        at = dict(zip(inputs, np.random.default_rng(seed).normal(size=2), strict=True))
        attrs = {"limit": 0.7, "negate": negate, "order": 3}
        if not np.isfinite(formula.evaluate(read, {**at, **attrs})):
            return
        steps, results = derivative.gradients(read, inputs, {"limit", "negate", "order"})
        for x in inputs:
            function = formula.Formula(tuple(name for name, _ in steps), (*(e for _, e in steps), results[x]))
            moved = [formula.evaluate(read, {**at, **attrs, x: at[x] + step}) for step in (1e-6, -1e-6)]
            numeric = (moved[0] - moved[1]) / 2e-6
            np.testing.assert_allclose(formula.evaluate(function, {**at, **attrs}), numeric, 1e-5, 1e-6)

    @parameterized.parameters(
        ("x * 2.0 + 0.5", "2 * x + Number<V>(0.5)"),
        ("(x + 1) * (x - 1)", "(x + 1) * (x - 1)"),
        ("x - (x - 1)", "x - (x - 1)"),
        ("x / (x * x)", "x / (x * x)"),
        ("-(x + 1) ** 2", "-Pow(x + 1, Number<V>(2))"),
        ("x ** 3", "x * x * x"),
        ("2 ** x", "Pow(Number<V>(2), x)"),
        ("np.where(x > 0, 1, x) + 1", "(x > 0 ? Number<V>(1) : x) + 1"),
        ("np.where((x > 0) & (x < 1) | (x == 2), x, 0)", "(x > 0 && x < 1) || x == 2 ? x : Number<V>(0)"),
        ("3 * 4 * x - 0 * x", "12 * x"),
        ("np.log1p(np.expm1(np.arctan(np.fabs(x))))", "Log1p(Expm1(Atan(Abs(x))))"),
        ("2 - 1", "Number<V>(1)"),
        ("1 / 0", "Number<V>(1) / 0"),
        ("np.where(1 < 2, x, -3)", "Number<V>(1) < 2 ? x : Number<V>(-3)"),
        ("x + 16777216", "x + 16777216"),
        ("x + 16777217", "x + Number<V>(16777217)"),
    )
    def test_cc(self, python, cc):
        read = self.read(f"def f(x): return {python}", ["x"])
        self.assertEqual(formula.to_cc(read.values[-1]), cc)

    def test_shares_what_is_computed_twice(self):
        read = self.read(_MISH.split("\n\n\n")[1], ["x"], ["beta"])
        steps, results = derivative.gradients(read, ["x"])
        text = " ".join(formula.to_cc(e) for e in [*(e for _, e in steps), *results.values()])
        self.assertEqual(text.count("Exp("), 1)
        self.assertEqual(text.count("Tanh("), 1)

    def test_a_derivative_has_no_name_that_is_taken(self):
        read = self.read("def f(x):\n  d = x * x\n  d_x_ = d * x\n  return d * d_x_", ["x"])
        steps, results = derivative.gradients(read, ["x"], {"d_x"})
        names = [name for name, _ in steps]
        self.assertCountEqual(set(names), names)
        self.assertNoCommonElements(names, ["d_x", "x"])
        function = formula.Formula(tuple(names), (*(e for _, e in steps), results["x"]))
        self.assertEqual(formula.evaluate(function, {"x": 2.0}), 80)

    def test_cycles_count_functions_and_divisions(self):
        counts = [
            formula.cycles(self.read(f"def f(x): return {python}", ["x"]))
            for python in ("x", "x + 1", "1 / x", "np.exp(x)", "np.sin(x)", "x ** 2.5")
        ]
        self.assertEqual(counts, sorted(counts))
        self.assertGreaterEqual(counts[0], 1)
        self.assertLess(counts[-1], 20)


if __name__ == "__main__":
    absltest.main()
