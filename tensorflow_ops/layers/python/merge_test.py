"""Tests of the Merge layer against a Dense layer over tiled and concatenated inputs."""

import json
import os

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_UNITS = 6
# Shapes of inputs that broadcast except in their last dims.
_SHAPES = (
    ([4, 3],),
    ([5],),
    ([5], [2]),
    ([4, 3], [4, 2]),
    ([4, 3], [1, 2]),
    ([4, 7, 3], [4, 1, 2]),
    ([4, 1, 2], [4, 7, 3], [5]),
    ([4, 7, 1, 3], [4, 1, 5, 2]),
    ([4, 1, 1, 3], [7, 1, 2], [5, 3], [1], [4, 7, 5, 1]),
    ([4, 2], [3, 4, 2], [1, 1, 3], [3, 1, 2], [4, 3]),
    ([0, 7, 3], [1, 1, 2]),
    ([4, 0], [4, 3]),
)
_TOLERANCES = {"float64": 1e-13, "float32": 2e-6, "mixed_float16": 4e-3, "mixed_bfloat16": 3e-2, "bfloat16": 3e-2}


def _inputs(shapes, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def _tile_and_concatenate(inputs):
    leading = np.broadcast_shapes(*[tuple(x.shape[:-1]) for x in inputs])
    return tf.concat([tf.broadcast_to(x, [*leading, x.shape[-1]]) for x in inputs], -1)


def _apply(dense, inputs):
    """Applies a Dense layer to the tiled and concatenated inputs. Keras's Dense does not accept vectors."""
    x = _tile_and_concatenate(inputs)
    return dense(x[tf.newaxis])[0] if x.shape.rank == 1 else dense(x)


def _pair(shapes, dtype="float32", **options):
    """Returns a Merge and a Dense layer with the same weights."""
    merge = tfo.layers.Merge(_UNITS, dtype=dtype, **options)
    merge.build(shapes)
    rng = np.random.default_rng(1)
    merge.set_weights([rng.normal(size=w.shape) for w in merge.weights])
    dense = keras.layers.Dense(_UNITS, dtype=dtype, **options)
    dense.build([None, sum(shape[-1] for shape in shapes)])
    dense.set_weights(merge.get_weights())
    return merge, dense


def _gradients(function, upstream, tensors, weights):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        result = function(tensors)
        loss = tf.reduce_sum(tf.cast(result, tf.float64) * upstream)
    return tape.gradient(loss, [*tensors, *[w.value for w in weights]])


class EqualsDenseTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        *((shapes, "float64", True) for shapes in _SHAPES),
        *((shapes, dtype, True) for shapes in _SHAPES[2:9:3] for dtype in _TOLERANCES if dtype != "float64"),
        *((shapes, "float64", False) for shapes in _SHAPES[1:9:3]),
    )
    def test_values_and_gradients(self, shapes, dtype, use_bias):
        # The reference is float64; results are within the tolerance of their dtype.
        merge, dense = _pair(shapes, dtype, use_bias=use_bias, activation="tanh")
        exact = keras.layers.Dense(_UNITS, dtype="float64", use_bias=use_bias, activation="tanh")
        exact.build([None, sum(shape[-1] for shape in shapes)])
        exact.set_weights(dense.get_weights())
        inputs = [tf.constant(x, exact.variable_dtype) for x in _inputs(shapes)]
        scale = 1 + np.abs(_tile_and_concatenate(inputs)).sum(-1, initial=0.0).max(initial=0.0)
        tolerance = _TOLERANCES[dtype] * scale

        merged = merge([tf.cast(x, merge.variable_dtype) for x in inputs])
        expected = _apply(exact, inputs)
        self.assertEqual(merged.dtype, merge.compute_dtype)
        self.assertEqual(merged.shape, expected.shape)
        self.assertEqual(merge.compute_output_shape(shapes), expected.shape)
        self.assertAllClose(tf.cast(merged, tf.float64), expected, rtol=0, atol=tolerance)

        upstream = np.random.default_rng(2).normal(size=expected.shape)
        got = _gradients(merge, upstream, [tf.cast(x, merge.variable_dtype) for x in inputs], merge.weights)
        want = _gradients(lambda x: _apply(exact, x), upstream, inputs, exact.weights)
        for gradient, wanted in zip(got, want, strict=True):
            self.assertEqual(gradient.shape, wanted.shape)
            self.assertAllClose(
                tf.cast(gradient, tf.float64), wanted, rtol=0, atol=tolerance * (1 + np.abs(wanted).max(initial=0.0))
            )

    @parameterized.parameters(*((shapes,) for shapes in _SHAPES[2:9:3]))
    def test_unknown_dims(self, shapes):
        merge, dense = _pair(shapes, "float64")
        inputs = _inputs(shapes, "float64")
        # Dims of 1 stay static, because they determine what broadcasts.
        specs = [tf.TensorSpec([*(1 if n == 1 else None for n in s[:-1]), s[-1]], tf.float64) for s in shapes]
        traced = tf.function(lambda *x: merge(list(x)), input_signature=specs)
        self.assertAllClose(traced(*inputs), _apply(dense, inputs), rtol=1e-13, atol=1e-13)

    def test_no_tensor_has_the_size_of_the_concatenation(self):
        merge, _ = _pair([[4, 100, 1, 16], [4, 1, 100, 16]])

        @tf.function
        def gradients(a, b):
            with tf.GradientTape() as tape:
                tape.watch([a, b])
                loss = tf.reduce_sum(merge([a, b]) ** 2)
            return tape.gradient(loss, [a, b, merge.kernel.value])

        graph = gradients.get_concrete_function(tf.zeros([4, 100, 1, 16]), tf.zeros([4, 1, 100, 16])).graph
        sizes = [t.shape.num_elements() or 0 for op in graph.get_operations() for t in op.outputs]
        self.assertEqual(max(sizes), 4 * 100 * 100 * _UNITS)

    def test_small_inputs_are_added_first(self):
        merge, _ = _pair([[64, 32, 3], [64, 1, 3], [3], [64, 1, 2], [1, 1, 2]])
        specs = [tf.TensorSpec([None, 32, 3]), tf.TensorSpec([None, 1, 3]), tf.TensorSpec([3])]
        specs += [tf.TensorSpec([None, 1, 2]), tf.TensorSpec([1, 1, 2])]
        graph = tf.function(lambda *x: merge(list(x)), input_signature=specs).get_concrete_function().graph
        sums = [op.outputs[0].shape for op in graph.get_operations() if op.type in ("AddV2", "BiasAdd")]
        self.assertLen(sums, 5)
        self.assertEqual(sums.count([None, 32, _UNITS]), 1)
        self.assertEqual(sums[0], [_UNITS])  # the bias is added to the smallest product

    def test_at_most_one_shape_op_per_input(self):
        merge, _ = _pair([[4, 7, 3], [4, 1, 2]])
        for specs, max_count in (
            ([tf.TensorSpec([4, 7, 3]), tf.TensorSpec([4, 1, 2])], 0),
            ([tf.TensorSpec([None, None, 3]), tf.TensorSpec([None, 1, 2])], 2),
        ):
            graph = tf.function(lambda *x: merge(list(x)), input_signature=specs).get_concrete_function().graph
            self.assertLessEqual([op.type for op in graph.get_operations()].count("Shape"), max_count)

    def test_kernel_rows_are_in_the_order_of_the_inputs(self):
        merge = tfo.layers.Merge(1, use_bias=False)
        merge.build([[1], [2]])
        merge.set_weights([np.array([[1.0], [10.0], [100.0]])])
        self.assertAllEqual(merge([tf.constant([2.0]), tf.constant([3.0, 4.0])]), [432.0])

    def test_under_xla(self):
        merge, dense = _pair([[4, 7, 3], [4, 1, 2]])
        inputs = _inputs([[4, 7, 3], [4, 1, 2]])
        compiled = tf.function(lambda *x: merge(list(x)), jit_compile=True)
        self.assertAllClose(compiled(*inputs), _apply(dense, inputs), rtol=1e-5, atol=1e-5)

    def test_integer_inputs(self):
        merge, dense = _pair([[4, 3], [4, 2]])
        a, b = np.arange(12).reshape([4, 3]), np.eye(4, dtype=np.float32)[:, :2]
        self.assertAllClose(merge([a, b]), dense(tf.concat([a.astype(np.float32), b], 1)))


class OptionsTest(parameterized.TestCase, tf.test.TestCase):
    def test_initializers_regularizers_constraints(self):
        options = {
            "kernel_initializer": keras.initializers.HeNormal(seed=3),
            "bias_initializer": "ones",
            "kernel_regularizer": keras.regularizers.L2(0.1),
            "bias_regularizer": "l1",
            "activity_regularizer": keras.regularizers.L2(0.01),
            "kernel_constraint": keras.constraints.MaxNorm(0.5, axis=0),
            "bias_constraint": "non_neg",
        }
        merge, dense = tfo.layers.Merge(_UNITS, "relu", **options), keras.layers.Dense(_UNITS, "relu", **options)
        inputs = _inputs([[4, 7, 3], [4, 7, 2]])
        merged, expected = merge(inputs), _apply(dense, inputs)
        for ours, theirs in zip(merge.weights, dense.weights, strict=True):
            self.assertEqual(ours.name, theirs.name)
            self.assertAllEqual(ours, theirs)  # equal fans give equal random weights
            self.assertEqual(type(ours.constraint), type(theirs.constraint))
            self.assertAllClose(ours.constraint(ours), theirs.constraint(theirs))
        self.assertAllClose(merged, expected, rtol=1e-5)
        self.assertLen(merge.losses, 3)
        self.assertAllClose(sorted(merge.losses), sorted(dense.losses), rtol=1e-5)

    def test_config(self):
        options = {
            "units": 5,
            "activation": "gelu",
            "use_bias": False,
            "kernel_initializer": "he_uniform",
            "bias_initializer": "ones",
            "kernel_regularizer": "l2",
            "bias_regularizer": "l1",
            "activity_regularizer": "l1",
            "kernel_constraint": "max_norm",
            "bias_constraint": "non_neg",
            "name": "joined",
            "dtype": "float64",
        }
        layer = tfo.layers.Merge(**options)
        config = layer.get_config()
        again = tfo.layers.Merge.from_config(json.loads(json.dumps(config)))
        self.assertEqual(again.get_config(), config)
        for name, default in tfo.layers.Merge(5).get_config().items():
            if name not in ("units", "trainable"):
                self.assertNotEqual(config[name], default, name)

    @parameterized.parameters(0, -1, 2.0, "3", True, None)
    def test_bad_units(self, units):
        with self.assertRaisesRegex(ValueError, rf"units is {units!r}, expected an int in \[1, 2147483647\]"):
            tfo.layers.Merge(units)

    @parameterized.parameters(
        (([4, 3], [5, 2]), r"inputs are \(4, 3\), \(5, 2\), expected shapes that broadcast"),
        (([4, 7, 3], [4, 2]), r"inputs are \(4, 7, 3\), \(4, 2\), expected shapes that broadcast"),
        (([4, 3], []), r"inputs are \(4, 3\), \(\), expected at least one dim"),
    )
    def test_mismatched_shapes(self, shapes, message):
        with self.assertRaisesRegex(ValueError, message):
            tfo.layers.Merge(2)([tf.zeros(s) for s in shapes])

    def test_bad_inputs(self):
        with self.assertRaisesRegex(ValueError, "expected a list of at least one tensor"):
            tfo.layers.Merge(2)(tf.zeros([4, 3]))
        with self.assertRaisesRegex(ValueError, "expected known last dims"):
            tfo.layers.Merge(2)([keras.Input([3]), keras.Input([None])])
        layer = tfo.layers.Merge(2)
        layer([tf.zeros([4, 3]), tf.zeros([4, 2])])
        for bad in ([tf.zeros([4, 2]), tf.zeros([4, 3])], [tf.zeros([4, 3])]):
            with self.assertRaisesRegex(ValueError, r"expected 2 with the last dims \[3, 2\]"):
                layer(bad)
        with self.assertRaisesRegex(ValueError, "expected shapes that broadcast"):
            layer([tf.zeros([4, 3]), tf.zeros([6, 2])])

    def test_mismatched_shapes_at_run_time(self):
        layer = tfo.layers.Merge(2)
        traced = tf.function(lambda a, b: layer([a, b]))
        traced = traced.get_concrete_function(tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2]))
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "Incompatible|broadcastable"):
            traced(tf.zeros([4, 3]), tf.zeros([5, 2]))

    def test_follows_keras_build_protocol(self):
        x = _inputs([[2, 5, 8], [2, 1, 4]])
        called, built = tfo.layers.Merge(3), tfo.layers.Merge(3)
        expected = called(x)
        built.build(input_shape=[(2, 5, 8), (2, 1, 4)])
        for layer in (called, built):
            again = tfo.layers.Merge.from_config(layer.get_config())
            again.build_from_config(json.loads(json.dumps(layer.get_build_config())))
            again.set_weights(called.get_weights())
            self.assertAllEqual(again(x), expected)


class ModelTest(parameterized.TestCase, tf.test.TestCase):
    def test_fit_save_load_in_a_new_process(self):
        frames, speaker = keras.Input([None, 8], name="frames"), keras.Input([1, 4], name="speaker")
        hidden = tfo.layers.Merge(16, "relu", dtype="mixed_bfloat16")([frames, speaker])
        self.assertEqual(hidden.shape, (None, None, 16))
        model = keras.Model([frames, speaker], keras.layers.Dense(1, dtype="float32")(hidden))
        x = _inputs([[32, 5, 8], [32, 1, 4]])
        y = x[0][..., :1] * x[1][..., :1]
        model.compile(keras.optimizers.Adam(0.03), "mse")
        losses = model.fit(x, y, epochs=30, verbose=0).history["loss"]
        self.assertLess(losses[-1], 0.3 * losses[0])

        directory = self.get_temp_dir()
        model.save(os.path.join(directory, "model.keras"))
        np.savez(os.path.join(directory, "x.npz"), *x)
        script = """
            import keras, numpy as np
            import tensorflow_ops
            with np.load("x.npz") as x:
                np.save("y.npy", keras.saving.load_model("model.keras")([x["arr_0"], x["arr_1"]]))
        """
        process_testing.output(directory, script)
        self.assertAllClose(np.load(os.path.join(directory, "y.npy")), model(x), rtol=1e-6, atol=1e-6)

    def test_masks(self):
        words, topics = keras.Input([None], dtype="int32"), keras.Input([None], dtype="int32")
        embedded = keras.layers.Embedding(10, 3, mask_zero=True)(words)
        topic = keras.layers.Embedding(10, 2, mask_zero=True)(topics)
        layer = tfo.layers.Merge(4)
        merged = layer([embedded, topic])
        model = keras.Model([words, topics], [merged, keras.layers.GlobalAveragePooling1D()(merged)])
        values, mean = model([np.array([[1, 2, 0], [3, 0, 0]]), np.array([[5], [6]])])
        self.assertAllClose(mean[0], tf.reduce_mean(values[0, :2], 0))
        self.assertAllClose(mean[1], values[1, 0])

        word_mask, topic_mask = tf.constant([[True, True, False], [True, False, False]]), tf.constant([[True], [False]])
        inputs = [tf.zeros([2, 3, 3]), tf.zeros([2, 1, 2])]
        self.assertAllEqual(layer.compute_mask(inputs, [word_mask, None]), word_mask)
        self.assertAllEqual(layer.compute_mask(inputs, [None, topic_mask]), [[True] * 3, [False] * 3])
        self.assertAllEqual(layer.compute_mask(inputs, [word_mask, topic_mask]), word_mask & topic_mask)
        self.assertIsNone(layer.compute_mask(inputs, [None, None]))
        pairs = [tf.zeros([2, 3, 1, 3]), tf.zeros([2, 1, 5, 2])]
        both = layer.compute_mask(pairs, [word_mask, None])
        self.assertAllEqual(both, tf.broadcast_to(word_mask[:, :, tf.newaxis], [2, 3, 5]))


if __name__ == "__main__":
    tf.test.main()
