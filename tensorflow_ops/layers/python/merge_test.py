"""Tests of the Merge layer against a Dense layer over tiled and concatenated inputs."""

import json

import keras
import numpy as np
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

_OPTIONS = {
    "kernel_initializer": keras.initializers.HeNormal(seed=3),
    "bias_initializer": "ones",
    "kernel_regularizer": keras.regularizers.L2(0.1),
    "bias_regularizer": "l1",
    "activity_regularizer": keras.regularizers.L2(0.01),
    "kernel_constraint": keras.constraints.MaxNorm(0.5, axis=0),
    "bias_constraint": "non_neg",
}


def _inputs(shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def _tile_and_concatenate(inputs):
    leading = np.broadcast_shapes(*[tuple(x.shape[:-1]) for x in inputs])
    return tf.concat([tf.broadcast_to(x, [*leading, x.shape[-1]]) for x in inputs], -1)


def _apply(dense, inputs):
    """Applies a Dense layer to the tiled and concatenated inputs. Keras's Dense does not accept vectors."""
    x = _tile_and_concatenate(inputs)
    return dense(x[tf.newaxis])[0] if x.shape.rank == 1 else dense(x)


def _pair(shapes, dtype="float32", **options):
    """Returns a Merge layer, and a float64 Dense layer with the same weights."""
    merge = tfo.layers.Merge(_UNITS, dtype=dtype, **options)
    merge.build(shapes)
    rng = np.random.default_rng(1)
    merge.set_weights([rng.normal(size=w.shape) for w in merge.weights])
    dense = keras.layers.Dense(_UNITS, dtype="float64", **options)
    dense.build([None, sum(shape[-1] for shape in shapes)])
    dense.set_weights(merge.get_weights())
    return merge, dense


def _with_gradients(function, tensors, weights):
    """Returns the result, and the gradients of its weighted sum."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        result = function(tensors)
        upstream = np.random.default_rng(2).normal(size=result.shape)
        loss = tf.reduce_sum(tf.cast(result, tf.float64) * upstream)
    return [result, *tape.gradient(loss, [*tensors, *[w.value for w in weights]])]


def _ops(merge, *shapes):
    """Returns the ops of a call with inputs of these shapes."""
    specs = [tf.TensorSpec(shape) for shape in shapes]
    return tf.function(lambda *x: merge(list(x))).get_concrete_function(*specs).graph.get_operations()


class MergeTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        *((shapes, "float64", True) for shapes in _SHAPES),
        *((shapes, dtype, True) for shapes in _SHAPES[2:9:3] for dtype in _TOLERANCES if dtype != "float64"),
        *((shapes, "float64", False) for shapes in _SHAPES[1:9:3]),
    )
    def test_values_and_gradients(self, shapes, dtype, use_bias):
        # The reference is float64; results are within the tolerance of their dtype.
        merge, exact = _pair(shapes, dtype, use_bias=use_bias, activation="tanh")
        inputs = [tf.constant(x, tf.float64) for x in _inputs(shapes)]
        cast = [tf.cast(x, merge.variable_dtype) for x in inputs]
        scale = 1 + np.abs(_tile_and_concatenate(inputs)).sum(-1, initial=0.0).max(initial=0.0)
        tolerance = _TOLERANCES[dtype] * scale
        got = _with_gradients(merge, cast, merge.weights)
        want = _with_gradients(lambda x: _apply(exact, x), inputs, exact.weights)
        self.assertEqual(got[0].dtype, merge.compute_dtype)
        self.assertEqual(merge.compute_output_shape(shapes), want[0].shape)
        for actual, expected in zip(got, want, strict=True):
            self.assertEqual(actual.shape, expected.shape)
            atol = tolerance * (1 + np.abs(expected).max(initial=0.0))
            self.assertAllClose(tf.cast(actual, tf.float64), expected, rtol=0, atol=atol)

    @parameterized.product(shapes=_SHAPES[2:9:3], jit_compile=(False, True))
    def test_unknown_dims(self, shapes, jit_compile):
        merge, dense = _pair(shapes, "float64")
        inputs = _inputs(shapes, "float64")
        # Dims of 1 stay static, because they determine what broadcasts.
        specs = [tf.TensorSpec([*(1 if n == 1 else None for n in s[:-1]), s[-1]], tf.float64) for s in shapes]
        traced = tf.function(lambda *x: merge(list(x)), input_signature=specs, jit_compile=jit_compile)
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
        ops = _ops(merge, [None, 32, 3], [None, 1, 3], [3], [None, 1, 2], [1, 1, 2])
        sums = [op.outputs[0].shape for op in ops if op.type in ("AddV2", "BiasAdd")]
        self.assertLen(sums, 5)
        self.assertEqual(sums.count([None, 32, _UNITS]), 1)
        self.assertEqual(sums[0], [_UNITS])  # the bias is added to the smallest product

    def test_at_most_one_shape_op_per_input(self):
        merge, _ = _pair([[4, 7, 3], [4, 1, 2]])
        for shapes, count in ((([4, 7, 3], [4, 1, 2]), 0), (([None, None, 3], [None, 1, 2]), 2)):
            self.assertLessEqual([op.type for op in _ops(merge, *shapes)].count("Shape"), count)

    def test_integer_inputs(self):
        merge, dense = _pair([[4, 3], [4, 2]])
        a, b = np.arange(12).reshape([4, 3]), np.eye(4, dtype=np.float32)[:, :2]
        self.assertAllClose(merge([a, b]), dense(np.concatenate([a, b], 1)))

    def test_initializers_regularizers_constraints(self):
        merge, dense = (layer(_UNITS, "relu", **_OPTIONS) for layer in (tfo.layers.Merge, keras.layers.Dense))
        inputs = _inputs([[4, 7, 3], [4, 7, 2]])
        self.assertAllClose(merge(inputs), _apply(dense, inputs), rtol=1e-5)
        for ours, theirs in zip(merge.weights, dense.weights, strict=True):
            self.assertEqual(ours.name, theirs.name)
            self.assertAllEqual(ours, theirs)  # equal fans give equal random weights
            self.assertEqual(type(ours.constraint), type(theirs.constraint))
            self.assertAllClose(ours.constraint(ours), theirs.constraint(theirs))
        self.assertLen(merge.losses, 3)
        self.assertAllClose(sorted(merge.losses), sorted(dense.losses), rtol=1e-5)

    def test_config(self):
        layer = tfo.layers.Merge(5, "gelu", use_bias=False, name="joined", dtype="float64", **_OPTIONS)
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

    def test_bad_inputs(self):
        built = tfo.layers.Merge(2)
        built([tf.zeros([4, 3]), tf.zeros([4, 2])])
        broadcast = "expected shapes that broadcast"
        for layer, shapes, message in (
            (tfo.layers.Merge(2), [[4, 3], [5, 2]], rf"inputs are \(4, 3\), \(5, 2\), {broadcast}"),
            (tfo.layers.Merge(2), [[4, 7, 3], [4, 2]], rf"inputs are \(4, 7, 3\), \(4, 2\), {broadcast}"),
            (tfo.layers.Merge(2), [[4, 3], []], r"inputs are \(4, 3\), \(\), expected at least one dim"),
            (built, [[4, 2], [4, 3]], r"expected 2 with the last dims \[3, 2\]"),
            (built, [[4, 3]], r"expected 2 with the last dims \[3, 2\]"),
            (built, [[4, 3], [6, 2]], broadcast),
        ):
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                layer([tf.zeros(shape) for shape in shapes])
        with self.assertRaisesRegex(ValueError, "expected a list of at least one tensor"):
            tfo.layers.Merge(2)(tf.zeros([4, 3]))
        with self.assertRaisesRegex(ValueError, "expected known last dims"):
            tfo.layers.Merge(2)([keras.Input([3]), keras.Input([None])])

    def test_fit_save_load(self):
        frames, speaker = keras.Input([None, 8], name="frames"), keras.Input([1, 4], name="speaker")
        hidden = tfo.layers.Merge(16, "relu", dtype="mixed_bfloat16")([frames, speaker])
        self.assertEqual(hidden.shape, (None, None, 16))
        model = keras.Model([frames, speaker], keras.layers.Dense(1, dtype="float32")(hidden))
        x = _inputs([[32, 5, 8], [32, 1, 4]])
        model.compile("adam", "mse")
        before = model.get_weights()
        model.fit(x, x[0][..., :1] * x[1][..., :1], verbose=0)
        for old, new in zip(before, model.get_weights(), strict=True):
            self.assertNotAllEqual(old, new)
        path = f"{self.get_temp_dir()}/model.keras"
        model.save(path)
        self.assertAllEqual(keras.saving.load_model(path)(x), model(x))

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
        for masks, expected in (
            ([word_mask, None], word_mask),
            ([None, topic_mask], [[True] * 3, [False] * 3]),
            ([word_mask, topic_mask], word_mask & topic_mask),
        ):
            self.assertAllEqual(layer.compute_mask(inputs, masks), expected)
        self.assertIsNone(layer.compute_mask(inputs, [None, None]))
        pairs = [tf.zeros([2, 3, 1, 3]), tf.zeros([2, 1, 5, 2])]
        both = layer.compute_mask(pairs, [word_mask, None])
        self.assertAllEqual(both, tf.broadcast_to(word_mask[:, :, tf.newaxis], [2, 3, 5]))


if __name__ == "__main__":
    tf.test.main()
