"""Tests of make_parallel on three logical CPU devices."""

import functools
import inspect
import threading

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

# Logical devices must be configured before anything runs.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 3
)
_DEVICES = ("CPU:0", "CPU:1", "CPU:2")
_BATCHES = (0, 1, 2, 3, 5, 7)


def _data(batch, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=[batch, 4]), rng.normal(size=[batch, 2]), rng.normal(size=[4, 2])


def _call(fn, mode):
    """Returns fn for eager calls, or in a tf.function with known ("static") or unknown ("dynamic") batch size."""
    if mode == "eager":
        return fn
    if mode == "static":
        return tf.function(fn)

    def dynamic(*args):
        specs = [tf.TensorSpec([None, *a.shape[1:]], a.dtype) for a in map(tf.convert_to_tensor, args)]
        return tf.function(fn, input_signature=specs)(*args)

    return dynamic


def _operations(fn, *specs):
    return tf.function(fn).get_concrete_function(*specs).graph.get_operations()


# Each takes make_parallel or the identity, and returns a function of a tensor [5, 4].


def _second_order(wrap):
    variable = tf.Variable(_data(0)[2])
    fn = wrap(lambda x: tf.tanh(x @ variable) ** 2)

    def run(x):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_mean(fn(x))
            gradient = inner.gradient(loss, variable)
        return outer.jacobian(gradient, variable)

    return run


def _tape_outside(wrap):
    """Differentiates a tf.function."""
    variable = tf.Variable(_data(0)[2])
    fn = tf.function(wrap(lambda x: tf.tanh(x @ variable)))

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(fn(x) ** 3)
        to_x, to_variable = tape.gradient(loss, [x, variable])
        return tf.concat([to_x, tf.transpose(to_variable)], 0)

    return run


def _forward_mode(wrap):
    tangent = tf.constant(_data(0)[2])
    variable = tf.Variable(tangent)
    fn = wrap(lambda x: tf.tanh(x @ variable))

    @tf.function
    def run(x):
        with tf.autodiff.ForwardAccumulator(variable, tangent) as accumulator:
            y = fn(x)
        return accumulator.jvp(y)

    return run


def _control_flow_and_gathers(wrap):
    table = tf.Variable(np.random.default_rng(0).normal(size=[6, 3]))

    def fn(x):
        rows = tf.nn.embedding_lookup(table, tf.cast(x[:, 0] > 0, tf.int32))
        total = tf.zeros_like(rows)
        for _ in tf.range(3):  # AutoGraph converts it to a tf.while_loop
            total = tf.tanh(total + rows @ tf.transpose(table[:3]))
        if tf.reduce_sum(total) > 1000:
            total = -total
        return total

    fn = wrap(fn)

    def run(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(fn(x) ** 2)
        return tf.convert_to_tensor(tape.gradient(loss, table))

    return run


def _off_the_path(wrap):
    """Has an op without gradient off the differentiated path."""
    weight = tf.Variable(tf.constant(2.0, tf.float64))

    def fn(x):
        order = tf.raw_ops.ListDiff(x=x[:, 0], y=x[:1, 0]).idx  # has no registered gradient
        return weight * tf.cast(0 * tf.size(order) + 1, x.dtype) * x

    fn = wrap(fn)

    def run(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(fn(x))
        return tape.gradient(loss, weight)

    return run


def _op_of_this_library(wrap):
    labels = tf.constant([0, 1, 2, 3, 0])
    fn = wrap(tfo.nn.sparse_softmax_cross_entropy)

    def run(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = fn(labels, logits)
        return tf.concat([loss[:, tf.newaxis], tape.gradient(loss, logits)], 1)

    return run


_DERIVATIVES = [
    _second_order, _tape_outside, _forward_mode, _control_flow_and_gathers, _off_the_path, _op_of_this_library
]  # fmt: skip
_NOT_TRACED = (_forward_mode, "dynamic")


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(batch=_BATCHES, mode=("eager", "static", "dynamic"), devices=(1, 3))
    def test_values_and_gradients_equal_those_of_the_whole_batch(self, batch, mode, devices):
        x, y, w = _data(batch)
        variable, closed_over = tf.Variable(w), tf.constant(w)
        weights = tf.constant(np.random.default_rng(1).normal(size=[batch, 2]))

        def fn(x, y):
            z = tf.tanh(x @ variable) * tf.sin(x @ closed_over)
            return {"rows": z, "mean": tf.reduce_mean((z - y) ** 2), "nest": (tf.reduce_sum(z, 1), [x])}

        def step(fn):
            def run(x, y, weights):
                with tf.GradientTape() as tape:
                    tape.watch([x, y, closed_over])
                    result = fn(x, y)
                    loss = result["mean"] + tf.reduce_sum(weights * result["rows"]) + tf.reduce_sum(result["nest"][0])
                return result, tape.gradient(loss, [x, y, variable, closed_over])

            return run

        parallel = tfo.distribute.make_parallel(fn, devices=_DEVICES[:devices])
        args = [tf.constant(a) for a in (x, y)]
        result, gradients = _call(step(parallel), mode)(*args, weights)
        expected, expected_gradients = step(fn)(*args, weights)
        tf.nest.assert_same_structure(result, expected)
        for got, want in zip(tf.nest.flatten(result), tf.nest.flatten(expected), strict=True):
            self.assertEqual(got.dtype, want.dtype)
            self.assertAllClose(got, want, rtol=1e-13, atol=1e-13)
        for got, want in zip(gradients, expected_gradients, strict=True):
            self.assertAllClose(got, want, rtol=1e-12, atol=1e-12)

    @parameterized.product(batch=(0, 1, 2, 3, 5), mode=("eager", "static", "dynamic"))
    def test_split_of_a_batch(self, batch, mode):
        seen = []

        def note(x):
            seen.append(x.numpy().tolist())
            return x

        def fn(x):
            return tf.ensure_shape(tf.py_function(note, [x], tf.int32), x.shape)

        x = np.arange(batch, dtype=np.int32)
        result = _call(tfo.distribute.make_parallel(fn, devices=_DEVICES), mode)(x)
        self.assertAllEqual(result, x)
        parts = {0: [[]], 1: [[0]], 2: [[0], [1]], 3: [[0], [1], [2]], 5: [[0, 1], [2, 3], [4]]}[batch]
        if mode == "dynamic":  # every device runs
            parts = parts + [parts[-1]] * (3 - len(parts))
        self.assertCountEqual(seen, parts)

    @parameterized.parameters("float16", "bfloat16", "float32", "float64")
    def test_mean_of_uneven_parts(self, dtype):
        x = tf.cast([1.0, 2.0, 4.0, 8.0, 16.0], dtype)
        mean = tfo.distribute.make_parallel(tf.reduce_mean, devices=_DEVICES[:2])(x)
        self.assertEqual(mean.dtype, dtype)
        self.assertAllClose(mean, tf.reduce_mean(x), rtol=1e-2 if "16" in dtype else 1e-6)

    def test_static_shapes(self):
        parallel = tfo.distribute.make_parallel(lambda x: (x, tf.reduce_mean(x)), devices=_DEVICES)
        for n in (None, 2, 7):
            traced = tf.function(parallel).get_concrete_function(tf.TensorSpec([n, 4]))
            self.assertEqual(traced.output_shapes[0].as_list(), [n, 4])
            self.assertEqual(traced.output_shapes[1], [])

    def test_arguments_that_are_not_split(self):
        variable = tf.Variable([1.0, 2.0, 3.0])

        def fn(batch, scalar, power=2, *, shared, name):
            self.assertIs(shared, variable)
            self.assertEqual((power, name), (3, "a name"))
            return batch["x"] ** power * scalar + tf.reduce_sum(shared), batch["none"]

        parallel = tfo.distribute.make_parallel(fn, devices=_DEVICES[:2])
        batch = {"x": np.arange(3.0, dtype=np.float32), "none": None}
        result, nothing = parallel(batch, tf.constant(2.0), 3, shared=variable, name="a name")
        self.assertAllEqual(result, [6, 8, 22])
        self.assertIsNone(nothing)

    @parameterized.parameters("eager", "static", "dynamic")
    def test_other_dtypes(self, mode):
        parallel = tfo.distribute.make_parallel(lambda *x: x, devices=_DEVICES[:2])
        strings, flags = _call(parallel, mode)(tf.constant(["a", "b", "c"]), tf.constant([True, False, True]))
        self.assertAllEqual(strings, [b"a", b"b", b"c"])
        self.assertAllEqual(flags, [True, False, True])

    def test_results_other_than_tensors(self):
        parallel = tfo.distribute.make_parallel(lambda x: {"x": x, "rate": 0.1, "name": "a", "none": None})
        result = parallel(np.arange(5))
        self.assertEqual((result["rate"], result["name"], result["none"]), (0.1, "a", None))
        # tf.constant in a graph reads the bytes of arrays as they are.
        self.assertAllEqual(tf.function(lambda: parallel(np.arange(5, dtype=">i4"))["x"])(), np.arange(5))

    # TensorFlow's forward mode does not trace unknown shapes.
    @parameterized.parameters(
        (of, mode) for of in _DERIVATIVES for mode in ("eager", "static", "dynamic") if (of, mode) != _NOT_TRACED
    )
    def test_derivatives_equal_those_of_the_whole_batch(self, of, mode):
        x = tf.constant(_data(5)[0])
        expected = of(lambda fn: fn)(x)
        found = _call(of(functools.partial(tfo.distribute.make_parallel, devices=_DEVICES)), mode)(x)
        self.assertGreater(np.abs(expected).max(), 0.01)
        self.assertAllClose(found, expected, rtol=1e-12, atol=1e-12)


class PlacementTest(parameterized.TestCase, tf.test.TestCase):
    def test_parts_and_their_gradients_run_on_their_devices(self):
        w, v = tf.Variable(tf.ones([4, 3])), tf.Variable(tf.ones([3, 1]))
        parallel = tfo.distribute.make_parallel(lambda x: tf.tanh(tf.tanh(x @ w) @ v), devices=_DEVICES)

        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(parallel(x) ** 2)
            return tape.gradient(loss, [w, v])

        for batch in (8, None):
            operations = _operations(step, tf.TensorSpec([batch, 4]))
            self.assertNotEmpty([op for op in operations if op.type == "TanhGrad"])
            for kind, count in (("MatMul", 6), ("Tanh", 2), ("TanhGrad", 2)):
                devices = [op.device[-5:] for op in operations if op.type == kind and op.device]
                self.assertCountEqual(devices, _DEVICES * count, kind)
            unplaced = [op.type for op in operations if op.type in ("MatMul", "Tanh", "TanhGrad") and not op.device]
            self.assertEmpty(unplaced)

    def test_parts_do_not_wait_for_each_other(self):
        barrier = threading.Barrier(2, timeout=300)

        def wait(x):
            barrier.wait()  # raises unless the other part runs concurrently
            return x

        def fn(x):
            return tf.ensure_shape(tf.numpy_function(wait, [x], tf.float32, stateful=False), x.shape)

        parallel = tf.function(tfo.distribute.make_parallel(fn, devices=_DEVICES[:2]))
        self.assertAllEqual(parallel(tf.range(4.0)), [0, 1, 2, 3])

    def test_default_is_all_devices(self):
        operations = _operations(tfo.distribute.make_parallel(tf.tanh), tf.TensorSpec([6]))
        self.assertCountEqual([op.device[-5:] for op in operations if op.type == "Tanh"], _DEVICES)

    def test_device_names(self):
        names = ("CPU:1", "cpu:1", "/cpu:1", "/device:CPU:1", "/job:localhost/replica:0/task:0/device:CPU:1")
        for device in (*names, tf.config.list_logical_devices("CPU")[1]):
            self.assertEndsWith(tfo.distribute.make_parallel(tf.tanh, devices=[device])(np.ones(2)).device, "CPU:1")

    def test_device_named_twice_gets_two_parts(self):
        parallel = tfo.distribute.make_parallel(tf.tanh, devices=["CPU:1", "CPU:1"])
        operations = _operations(parallel, tf.TensorSpec([6]))
        self.assertEqual([op.device[-5:] for op in operations if op.type == "Tanh"], ["CPU:1", "CPU:1"])

    @parameterized.parameters("CPU:3", "GPU:0", "CPU", "", "nonsense", 7, "/job:worker/device:CPU:9")
    def test_unknown_device(self, name):
        parallel = tfo.distribute.make_parallel(tf.tanh, devices=["CPU:0", name])
        with self.assertRaisesRegex(ValueError, rf"devices\[1\] is {name!r}, expected one of /device:CPU:0, "):
            parallel(np.ones(2))

    def test_bad_devices(self):
        for devices in ([], "CPU:0"):
            with self.assertRaisesRegex(ValueError, "expected a list of at least one name"):
                tfo.distribute.make_parallel(tf.tanh, devices=devices)
        with self.assertRaisesRegex(ValueError, "fn is 3, expected a function"):
            tfo.distribute.make_parallel(3)


class BadArgumentsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.named_parameters(
        ("no_batch", lambda x: x, (3,), "no argument is a tensor with a batch"),
        ("only_scalars", lambda x: x, (tf.constant(3.0),), "no argument is a tensor with a batch"),
        ("sizes", lambda x, y: x, (np.ones(3), np.ones([4, 2])), r"shapes \(3,\), \(4, 2\), expected the same batch"),
        ("ragged", lambda x: x, (tf.ragged.constant([[1], [2, 3]]),), "an argument is a RaggedTensor"),
        ("sparse_result", lambda x: tf.sparse.from_dense(x), (np.eye(4),), "fn returns a SparseTensor"),
        (
            "not_the_batch",
            lambda x: tf.ones([3, 3]),
            (np.ones(4),),
            r"a tensor \(3, 3\) for 2 examples, expected the number of examples in its part",
        ),
        ("int_scalar", lambda x: tf.size(x), (np.ones(4),), "scalar of int32, which has no mean"),
        ("bool_scalar", lambda x: tf.reduce_all(x > 0), (np.ones(4),), "scalar of bool"),
        ("no_tensors", lambda x: len(x), (np.ones(3),), "returns 2, 1 from its parts, expected the same"),
    )
    def test_raises(self, fn, args, message):
        with self.assertRaisesRegex(ValueError, message):
            tfo.distribute.make_parallel(fn, devices=_DEVICES[:2])(*args)

    def test_mismatched_shapes_at_run_time(self):
        vector = tf.TensorSpec([None])
        parallel = tfo.distribute.make_parallel(lambda x, y: x, devices=_DEVICES[:2])
        for compiled in {False, library.xla_error is None}:
            traced = tf.function(parallel, input_signature=[vector, vector], jit_compile=compiled)
            self.assertAllEqual(traced(tf.ones(5), tf.ones(5)), tf.ones(5))
            message = "dim 0 of the arguments is .*, expected the same batch size in all of them"
            if compiled:  # tf.split may find it first
                message += "|Determined shape must"
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                traced(tf.ones(5), tf.ones(4))
            traced = tf.function(parallel, input_signature=[vector, tf.TensorSpec([5])], jit_compile=compiled)
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                traced(tf.ones(4), tf.ones(5))

        first = tfo.distribute.make_parallel(lambda x: tf.boolean_mask(x, x > 1), devices=_DEVICES[:2])
        for spec in (vector, tf.TensorSpec([4])):
            traced = tf.function(first, input_signature=[spec])
            self.assertAllEqual(traced(tf.constant([2.0, 3, 4, 5])), [2, 3, 4, 5])
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, r"fn's result is .*, expected the number of examples in its part"
            ):
                traced(tf.constant([2.0, 3, 0, 5]))

    def test_unknown_rank(self):
        parallel = tfo.distribute.make_parallel(lambda x: x, devices=_DEVICES[:2])
        with self.assertRaisesRegex(ValueError, "unknown rank, expected a known one"):
            tf.function(parallel, input_signature=[tf.TensorSpec(None)])(tf.ones(3))
        parallel = tfo.distribute.make_parallel(
            lambda x: tf.numpy_function(lambda x: x, [x], tf.float32), devices=_DEVICES[:2]
        )
        with self.assertRaisesRegex(ValueError, "fn returns a tensor of unknown rank"):
            tf.function(parallel)(tf.ones(3))


class ModelTest(parameterized.TestCase, tf.test.TestCase):
    def test_keras_model(self):
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
        parallel = tfo.distribute.make_parallel(model, devices=_DEVICES)
        x = np.random.default_rng(0).normal(size=[7, 4]).astype(np.float32)
        self.assertAllClose(parallel(x, training=False), model(x), rtol=1e-6)
        self.assertAllClose(tf.function(parallel)(x), model(x), rtol=1e-6)

    def test_keeps_name_and_signature(self):
        def loss(x, *, scale=1.0):
            """A docstring."""
            return x * scale

        parallel = tfo.distribute.make_parallel(loss)
        self.assertEqual((parallel.__name__, parallel.__doc__), ("loss", "A docstring."))
        self.assertEqual(inspect.signature(parallel), inspect.signature(loss))


if __name__ == "__main__":
    tf.test.main()
