"""The nn functions: values against NumPy in float64, gradients of both orders against differences, arguments, modes."""

import pathlib
import subprocess
import sys
import tempfile
import textwrap

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
# What separates a result from the exact one: a few roundings of its dtype.
_ROUNDING = {tf.float16: 2e-3, tf.bfloat16: 1.6e-2, tf.float32: 2e-6, tf.float64: 1e-14}
_INF = float("inf")


def _log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _kl(q_mean, q_log, p_mean, p_log):
    ratio = q_log - p_log
    return 0.5 * np.sum(np.expm1(ratio) - ratio + (q_mean - p_mean) ** 2 * np.exp(-p_log), -1)


def _logits(shape, dtype, seed=0):
    """Logits that the dtype holds, and the same in float64."""
    x = tf.cast(np.random.default_rng(seed).normal(size=shape) * 3, dtype)
    return x, tf.cast(x, tf.float64).numpy()


def _differences(function, args, step=1e-5):
    """The gradients of the sum of a function's squares-of-a-kind, by central differences in float64."""
    args = [np.array(arg, np.float64) for arg in args]
    gradients = []
    for arg in args:
        gradient = np.zeros_like(arg)
        for index in np.ndindex(arg.shape):
            value = arg[index]
            ends = []
            for end in (value + step, value - step):
                arg[index] = end
                ends.append(float(tf.reduce_sum(function(*map(tf.constant, args)))))
            arg[index] = value
            gradient[index] = (ends[0] - ends[1]) / (2 * step)
        gradients.append(gradient)
    return gradients


_LABELS = np.array([[1, 0, 4], [2, 3, -1]])
_TARGETS = np.random.default_rng(5).dirichlet(np.ones(5), (2, 3))
_WEIGHTS = np.random.default_rng(6).normal(size=(2, 3, 5))
# name: (function of float64 tensors, their shapes), each with a result that the weights make a scalar of.
_DIFFERENTIABLE = {
    "softmax": (tfo.nn.softmax, [(2, 3, 5)]),
    "log_prob_from_logits": (tfo.nn.log_prob_from_logits, [(2, 3, 5)]),
    "softmax_entropy": (tfo.nn.softmax_entropy, [(2, 3, 5)]),
    "softmax_cross_entropy": (lambda t, x: tfo.nn.softmax_cross_entropy(t, x, label_smoothing=0.1), [(2, 3, 5)] * 2),
    "sparse_softmax_cross_entropy": (
        lambda x: tfo.nn.sparse_softmax_cross_entropy(_LABELS, x, ignore_index=-1, label_smoothing=0.1, z_loss=0.01),
        [(2, 3, 5)],
    ),
    "label_log_prob": (lambda x: tfo.nn.label_log_prob(abs(_LABELS), x), [(2, 3, 5)]),
    "gaussian_kl": (lambda a, b, c, d: tfo.nn.gaussian_kl((a, b), (c, d)), [(2, 3, 5)] * 4),
    "gaussian_kl of the unit Gaussian": (lambda a, b: tfo.nn.gaussian_kl((a, b)), [(2, 3, 5)] * 2),
}


def _weighted(function):
    def scalar(*args):
        result = function(*args)
        return tf.reduce_sum(result * _WEIGHTS.reshape(-1)[: tf.size(result)].reshape(result.shape))

    return scalar


class ValuesTest(tf.test.TestCase, parameterized.TestCase):
    """Of rows that go each way through the kernels: short ones, long ones."""

    @parameterized.product(dtype=_DTYPES, classes=[1, 2, 10, 300])
    def test_equal_the_definitions(self, dtype, classes):
        x, wide = _logits((3, 7, classes), dtype)
        labels = np.random.default_rng(1).integers(0, classes, (3, 7))
        targets, wide_targets = _logits((3, 7, classes), dtype, seed=2)
        log_p = _log_softmax(wide)
        rounding, of_rows = _ROUNDING[dtype], _ROUNDING[tf.float64 if dtype == tf.float64 else tf.float32]
        of_labels = np.take_along_axis(log_p, labels[..., np.newaxis], -1)[..., 0]
        lse = (wide - log_p)[..., 0]

        def check(actual, expected, tolerance):
            self.assertEqual(actual.shape, expected.shape)
            self.assertAllClose(tf.cast(actual, tf.float64), expected, rtol=tolerance, atol=tolerance)

        check(tfo.nn.softmax(x), np.exp(log_p), rounding)
        check(tfo.nn.log_prob_from_logits(x), log_p, rounding)
        check(tfo.nn.softmax_entropy(x), -np.sum(np.exp(log_p) * log_p, -1), of_rows)
        check(tfo.nn.softmax_cross_entropy(targets, x), -np.sum(wide_targets * log_p, -1), of_rows * classes)
        for integer in (np.int32, np.int64):
            check(tfo.nn.label_log_prob(labels.astype(integer), x), of_labels, of_rows)
            loss = tfo.nn.sparse_softmax_cross_entropy(labels.astype(integer), x, label_smoothing=0.1, z_loss=0.01)
            smooth = -(0.9 * of_labels + 0.1 * log_p.mean(-1)) + 0.01 * lse**2
            check(loss, smooth, 4 * of_rows)
        row_dtype = tf.float64 if dtype == tf.float64 else tf.float32
        self.assertEqual(loss.dtype, row_dtype)

    @parameterized.parameters(*_DTYPES)
    def test_gaussian_kl(self, dtype):
        tensors = [_logits((4, 9), dtype, seed)[0] / 3 for seed in range(4)]
        wide = [tf.cast(t, tf.float64).numpy() for t in tensors]
        rounding = 1e-13 if dtype == tf.float64 else 4e-6
        self.assertAllClose(
            tf.cast(tfo.nn.gaussian_kl(tensors[:2], tensors[2:]), tf.float64), _kl(*wide), rtol=rounding, atol=0
        )
        unit = _kl(*wide[:2], np.zeros((4, 9)), np.zeros((4, 9)))
        self.assertAllClose(tf.cast(tfo.nn.gaussian_kl(tensors[:2]), tf.float64), unit, rtol=rounding, atol=0)

    @parameterized.parameters(0, 1, -2, 2)
    def test_any_axis(self, axis):
        x, wide = _logits((4, 5, 6), tf.float64)
        log_p = np.moveaxis(_log_softmax(np.moveaxis(wide, axis, -1)), -1, axis)
        self.assertAllClose(tfo.nn.softmax(x, axis=axis), np.exp(log_p), rtol=1e-13)
        self.assertAllClose(tfo.nn.softmax_entropy(x, axis=axis), -np.sum(np.exp(log_p) * log_p, axis), rtol=1e-13)
        self.assertAllClose(
            tfo.nn.softmax_cross_entropy(np.exp(log_p), x, axis=axis), -np.sum(np.exp(log_p) * log_p, axis)
        )
        self.assertAllClose(tfo.nn.gaussian_kl((x, x), axis=axis), 0.5 * np.sum(np.expm1(wide) - wide + wide**2, axis))

    def test_small_and_large(self):
        self.assertAllClose(
            tfo.nn.sparse_softmax_cross_entropy([0], [[20.0, 0.0]]), [2.0611536203e-09], rtol=3e-7, atol=0
        )
        self.assertAllClose(tfo.nn.gaussian_kl(([[0.0]], [[1e-4]])), [2.5000833354e-09], rtol=3e-7, atol=0)
        for log in (-110.0, 110.0):
            self.assertAllEqual(tfo.nn.gaussian_kl(([[1.0]], [[log]]), ([[1.0]], [[log]])), [0.0])
        half = tf.constant([[65504, -65504]], tf.float16)
        self.assertAllEqual(tfo.nn.softmax_entropy(half), [0.0])
        self.assertAllEqual(tfo.nn.sparse_softmax_cross_entropy([1], half), [131008.0])


class MaskTest(tf.test.TestCase, parameterized.TestCase):
    """Logits of -inf, rows of nothing else, NaN."""

    _X = np.array([[0.0, -_INF, 1.0, -_INF], [-_INF] * 4, [0.0, np.nan, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0]])

    def _gradient(self, function):
        x = tf.constant(self._X, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y.numpy(), tape.gradient(y, x).numpy()

    @parameterized.parameters("softmax", "softmax_entropy", "sparse", "dense")
    def test_rows(self, name):
        functions = {
            "softmax": lambda x: tfo.nn.softmax(x)[:, :1],
            "softmax_entropy": tfo.nn.softmax_entropy,
            "sparse": lambda x: tfo.nn.sparse_softmax_cross_entropy([0, 0, 0, 0], x),
            "dense": lambda x: tfo.nn.softmax_cross_entropy([[1.0, 0.0, 0.0, 0.0]] * 4, x),
        }
        y, gradient = self._gradient(functions[name])
        self.assertTrue(np.isfinite(y[0]).all())
        self.assertTrue(np.isfinite(gradient[0]).all())
        self.assertAllEqual(gradient[0, [1, 3]], [0, 0])
        self.assertGreater(abs(gradient[0, 0]), 0.1)
        self.assertAllEqual(y[1].reshape(()), {"softmax": 0.0, "softmax_entropy": 0.0}.get(name, _INF))
        self.assertAllEqual(gradient[1], np.zeros(4))
        self.assertTrue(np.isnan(y[2]).all())
        self.assertTrue(np.isfinite(gradient[3]).all() and np.abs(gradient[3]).max() > 0)

    def test_log_probabilities(self):
        self.assertAllEqual(tfo.nn.log_prob_from_logits(self._X)[1], [-_INF] * 4)
        self.assertAllEqual(tfo.nn.label_log_prob([1, 0, 0, 0], self._X)[:2], [-_INF] * 2)

    def test_gradient_to_labels(self):
        labels = tf.constant([[1.0, 0.0]])
        with tf.GradientTape() as tape:
            tape.watch(labels)
            y = tfo.nn.softmax_cross_entropy(labels, [[3.0, -_INF]])
        self.assertAllEqual(tape.gradient(y, labels), [[0.0, 0.0]])


class GradientTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*_DIFFERENTIABLE)
    def test_both_orders(self, name):
        function, shapes = _DIFFERENTIABLE[name]
        scalar = _weighted(function)
        args = [np.random.default_rng(i).normal(size=shape) for i, shape in enumerate(shapes)]
        if name == "softmax_cross_entropy":
            args[0] = _TARGETS

        def gradients(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                y = scalar(*tensors)
            return tape.gradient(y, tensors)

        tensors = [tf.constant(arg) for arg in args]
        for actual, expected in zip(gradients(*tensors), _differences(scalar, args), strict=True):
            self.assertAllClose(actual, expected, rtol=1e-7, atol=1e-8)

        def mixed(*tensors):
            return tf.add_n([tf.reduce_sum(g * (i + 1) * _WEIGHTS) for i, g in enumerate(gradients(*tensors))])

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = mixed(*tensors)
        seconds = tape.gradient(y, tensors, unconnected_gradients="zero")
        for actual, expected in zip(seconds, _differences(mixed, args), strict=True):
            self.assertAllClose(actual, expected, rtol=1e-6, atol=1e-7)

    def test_ignored_rows_have_none(self):
        x = tf.constant([[1.0, np.nan], [1.0, 2.0]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tfo.nn.sparse_softmax_cross_entropy([-100, 1], x, ignore_index=-100)
        self.assertEqual(y[0], 0)
        gradient = tape.gradient(y, x)
        self.assertAllEqual(gradient[0], [0, 0])
        self.assertNotAllEqual(gradient[1], [0, 0])

    @parameterized.parameters("softmax", "softmax_entropy", "sparse")
    def test_vectorized_map_and_jacobian(self, name):
        function = {
            "softmax": tfo.nn.softmax,
            "softmax_entropy": tfo.nn.softmax_entropy,
            "sparse": lambda x: tfo.nn.sparse_softmax_cross_entropy([1, 0], x),
        }[name]
        x, _ = _logits((3, 2, 4), tf.float64)
        self.assertAllClose(tf.vectorized_map(function, x, fallback_to_while_loop=False), function_of_each(function, x))
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = function(x[0])
        fast = tape.jacobian(y, x)
        self.assertAllClose(fast, tape.jacobian(y, x, experimental_use_pfor=False))


def function_of_each(function, xs):
    """What vectorized_map should give."""
    return tf.stack([function(x) for x in xs])


class ArgumentsTest(tf.test.TestCase, parameterized.TestCase):
    def test_bad_labels_are_named(self):
        for bad in (3, -1):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, rf"labels\[1\] is {bad}, expected \[0, 3\)"):
                tfo.nn.sparse_softmax_cross_entropy([0, bad], [[1.0, 2.0, 3.0]] * 2)

    @parameterized.parameters(
        (lambda: tfo.nn.softmax([1, 2]), "int32"),
        (lambda: tfo.nn.softmax(1.0), "scalar"),
        (lambda: tfo.nn.softmax([[1.0]], axis=2), "axis is 2"),
        (lambda: tfo.nn.softmax(tf.zeros([2, 0])), "at least one class"),
        (lambda: tfo.nn.sparse_softmax_cross_entropy([0.5], [[1.0]]), "labels are float32"),
        (lambda: tfo.nn.sparse_softmax_cross_entropy([0, 0], [[1.0]]), r"labels are \[2\]"),
        (lambda: tfo.nn.sparse_softmax_cross_entropy([0], [[1.0]], label_smoothing=1.5), "1.5"),
        (lambda: tfo.nn.sparse_softmax_cross_entropy([0], [[1.0]], z_loss=-1.0), "-1.0"),
        (lambda: tfo.nn.softmax_cross_entropy([[1.0]], [[1.0, 2.0]]), r"labels are \[1,1\]"),
        (lambda: tfo.nn.gaussian_kl([1.0]), "pair"),
        (lambda: tfo.nn.gaussian_kl((tf.zeros(2), tf.zeros(3))), "broadcast"),
    )
    def test_errors(self, call, message):
        with self.assertRaisesRegex(ValueError, message):
            call()

    def test_run_time_errors(self):
        @tf.function(input_signature=[tf.TensorSpec(None, tf.float32), tf.TensorSpec(None, tf.int32)])
        def loss(x, labels):
            return tfo.nn.sparse_softmax_cross_entropy(labels, x)

        self.assertAllClose(loss([[0.0, 0.0]], [1]), [np.log(2)])
        for x, labels, message in (
            ([[0.0]], [0, 0], r"labels must be \[1\], got \[2\]"),
            (tf.zeros([2, 0]), [0, 0], "at least one class"),
            (1.0, 0, "at least one dim"),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                loss(x, labels)
        self.assertEqual(loss.experimental_get_tracing_count(), 1)

    def test_empty_batches(self):
        x = tf.zeros([0, 3])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tfo.nn.sparse_softmax_cross_entropy(tf.zeros([0], tf.int32), x) + tfo.nn.softmax_entropy(x)
        self.assertEqual(y.shape, [0])
        self.assertEqual(tape.gradient(y, x).shape, [0, 3])
        self.assertAllEqual(tfo.nn.gaussian_kl((tf.zeros([2, 0]), tf.zeros([2, 0]))), [0, 0])

    def test_static_shapes(self):
        shapes = []

        @tf.function
        def trace(x, labels):
            losses = tfo.nn.sparse_softmax_cross_entropy(labels, x)
            shapes.extend(t.shape.as_list() for t in (tfo.nn.softmax(x), tfo.nn.softmax_entropy(x), losses))

        trace.get_concrete_function(tf.TensorSpec([None, 3, 7]), tf.TensorSpec([2, None], tf.int32))
        self.assertEqual(shapes, [[None, 3, 7], [None, 3], [2, 3]])

    def test_saved_model_in_a_new_process(self):
        class Model(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([None, None])])
            def entropy(self, x):
                return tfo.nn.softmax_entropy(x)

        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(Model(), folder)
            program = f"""
                import tensorflow as tf, tensorflow_ops
                model = tf.saved_model.load({folder!r})
                print("entropy", float(model.entropy([[0.0, 0.0]])[0]))
            """
            paths = [str(pathlib.Path(p).absolute()) for p in sys.path if p]
            setup = f"import sys; sys.path[:0] = {paths!r}\n"
            run = subprocess.run(
                [sys.executable, "-c", setup + textwrap.dedent(program)], capture_output=True, text=True, check=True
            )
        self.assertIn("entropy 0.693147", run.stdout)


if __name__ == "__main__":
    tf.test.main()
