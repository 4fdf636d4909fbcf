"""Tests of tfo.layers.use_fused_ops: beside the functions of Keras that it replaces."""

import contextlib
import functools
import itertools
import os
import sys
import threading
import types
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from keras.src import backend

import tensorflow_ops as tfo

_MINOR = int(keras.__version__.split(".")[1])
_RNG = np.random.default_rng(0)


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


_QUERY, _KEY, _VALUE = _normal(2, 5, 4, 3), _normal(2, 7, 4, 3), _normal(2, 7, 4, 3)
_MASK = _RNG.uniform(size=[2, 1, 5, 7]) < 0.5
_MASK[..., 0] = True


def _ops(function, *args):
    """Returns the types of the ops that a call runs."""
    graph = tf.function(function).get_concrete_function(*map(tf.constant, args)).graph
    return [op.type for op in graph.get_operations()]


class AttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        {},
        {"is_causal": True},
        {"mask": _MASK},
        {"mask": _MASK[0, 0], "is_causal": True},
        {"bias": _normal(1, 4, 5, 7)},
        {"bias": _normal(5, 7).astype(np.float64), "scale": 0.1},
        {"scale": np.float32(2), "flash_attention": False},
    )
    def test_is_keras_function(self, **options):
        tensors = [tf.constant(x) for x in (_QUERY, _KEY, _VALUE)]

        def with_gradients():
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = keras.ops.dot_product_attention(*tensors, **options)
                loss = tf.reduce_sum(result * result)
            return [result, *tape.gradient(loss, tensors)]

        expected = with_gradients()
        with tfo.layers.use_fused_ops():
            actual = with_gradients()
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-4)

    @parameterized.product(
        case=(
            ("rows", np.arange(5)[:, np.newaxis] * np.ones(7) >= 2, {}),
            ("queries", np.array([5, 2]).reshape(2, 1, 1, 1) > np.arange(5)[:, np.newaxis], {}),
            ("examples", np.array([True, False])[:, np.newaxis, np.newaxis, np.newaxis], {}),
            ("heads", np.arange(4)[:, np.newaxis, np.newaxis] > 1, {"bias": _normal(5, 7)}),
            ("left padding", np.arange(7) > 2, {"is_causal": True}),
            ("left padding of examples", np.arange(7) > np.array([6, 1])[:, np.newaxis, np.newaxis, np.newaxis],
             {"is_causal": True, "bias": _normal(2, 4, 5, 7)}),
        ),
        queries=(5, 1),
        wrap=("eager", "graph", "jit"),
    )  # fmt: skip
    def test_queries_without_keys(self, case, queries, wrap):
        _, mask, options = case
        mask = np.broadcast_to(mask, np.broadcast_shapes(mask.shape, (5, 1)))[..., :queries, :]
        options = {key: x[..., :queries, :] if key == "bias" else x for key, x in options.items()}
        tensors = [tf.constant(x) for x in (_QUERY[:, :queries], _KEY, _VALUE)]

        def with_gradients(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = keras.ops.dot_product_attention(*tensors, mask=mask, **options)
                loss = tf.reduce_sum(tf.sin(result))
            return [result, *tape.gradient(loss, tensors)]

        expected = with_gradients(*tensors)
        if wrap != "eager":
            spec = [tf.TensorSpec([None, queries if queries == 1 else None, 4, 3]), *[tf.TensorSpec([None] * 4)] * 2]
            with_gradients = tf.function(with_gradients, spec, jit_compile=wrap == "jit")
        with tfo.layers.use_fused_ops(["dot_product_attention"]):
            actual = with_gradients(*tensors)
            self.assertEqual(tfo.layers.fused_ops()["dot_product_attention"]["fused"], 1)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, 1e-5, 1e-5)

    def test_means_of_shared_and_narrow_values(self):
        mask = np.zeros([5, 7], bool)
        for dtype, tolerance in (("float16", 1e-3), ("bfloat16", 1e-2), ("float64", 1e-12)):
            query, key, value = (tf.cast(x, dtype) for x in (_QUERY, _KEY[:, :, :2], _VALUE[:, :, :2]))
            with tfo.layers.use_fused_ops(["dot_product_attention"]):
                actual = keras.ops.dot_product_attention(query, key, value, mask=mask)
            mean = tf.cast(value, tf.float64).numpy().mean(1, keepdims=True).repeat(2, 2)
            self.assertEqual(actual.dtype, dtype)
            self.assertAllClose(tf.cast(actual, tf.float64), np.broadcast_to(mean, actual.shape), tolerance, tolerance)

    def test_heads_share_keys(self):
        with tfo.layers.use_fused_ops():
            actual = keras.ops.dot_product_attention(_QUERY, _KEY[:, :, :2], _VALUE[:, :, :2])
        repeated = (np.repeat(x[:, :, :2], 2, axis=2) for x in (_KEY, _VALUE))
        self.assertAllClose(actual, keras.ops.dot_product_attention(_QUERY, *repeated), 1e-5, 1e-5)

    def test_calls_of_keras_are_fused(self):
        function = keras.ops.dot_product_attention
        layer = keras.layers.MultiHeadAttention(4, 3)
        args = _QUERY, _KEY, _VALUE
        self.assertNotIn("TensorflowOps>Attention", _ops(function, *args))
        with tfo.layers.use_fused_ops():
            self.assertIn("TensorflowOps>Attention", _ops(function, *args))
            self.assertIn("TensorflowOps>Attention", _ops(layer, _QUERY[:, 0], _VALUE[:, 0]))
            with tfo.layers.use_fused_ops():
                pass
            self.assertIn("TensorflowOps>Attention", _ops(function, *args))
        self.assertNotIn("TensorflowOps>Attention", _ops(function, *args))
        switch = tfo.layers.use_fused_ops()
        self.assertIn("TensorflowOps>Attention", _ops(function, *args))
        switch.close()
        self.assertNotIn("TensorflowOps>Attention", _ops(function, *args))

    def _calls(self, call):
        """Returns results without the switch and with it, and whether calls were fused."""
        expected = call()
        with tfo.layers.use_fused_ops(["dot_product_attention"]):
            actual = call()
            calls = tfo.layers.fused_ops().get("dot_product_attention", {"fused": 0})
            return expected, actual, calls["fused"] > 0

    @parameterized.product(
        kind=("MultiHeadAttention", "GroupQueryAttention"),
        options=(
            {},
            {"use_causal_mask": True},
            {"attention_mask": np.tril(np.ones([6, 6], int), -1)},  # the first query has no key
            {"query_mask": np.arange(6) < [[6], [3]], "value_mask": np.arange(6) < [[6], [3]]},
        ),
        in_graph=(False, True),
    )
    def test_dropout_of_no_training(self, kind, options, in_graph):
        sizes = (4, 3) if kind == "MultiHeadAttention" else (3, 4, 2)
        layer = getattr(keras.layers, kind)(*sizes, dropout=0.5, seed=1)
        x = _normal(2, 6, 5)
        layer(x, x)
        wrap = (lambda f: tf.function(f, [tf.TensorSpec([None, None, 5])])) if in_graph else lambda f: f
        expected, actual, is_fused = self._calls(lambda: wrap(lambda x: layer(x, x, **options))(tf.constant(x)))
        self.assertEqual(is_fused, _MINOR >= 10 or not options)
        self.assertAllClose(actual, expected, 1e-5, 1e-5)

    def test_dropout_in_training(self):
        x = tf.constant(_normal(2, 6, 5))
        layer = keras.layers.MultiHeadAttention(4, 3, dropout=0.5, seed=1)
        layer(x, x)

        class Outer(keras.layers.Layer):  # without an argument, the training of the model is that of all layers
            def call(self, x):
                return layer._compute_attention(*[x[:, :, tf.newaxis]] * 3)[0]

        outer = Outer()
        model = keras.Sequential([outer])
        model(x)

        def dropped(call):
            layer._dropout_layer.seed_generator.state.assign([1, 0])
            return call()

        for call in (lambda: layer(x, x, training=True), lambda: model(x, training=True)):
            expected, actual, is_fused = self._calls(functools.partial(dropped, call))
            self.assertFalse(is_fused)
            self.assertAllEqual(actual, expected)
        _, _, is_fused = self._calls(lambda: outer(x))
        self.assertTrue(is_fused)

    def test_scores_of_layers_with_dropout(self):
        x = _normal(2, 6, 5)
        layer = keras.layers.MultiHeadAttention(4, 3, dropout=0.5)
        layer(x, x)
        expected, actual, is_fused = self._calls(lambda: layer(x, x, return_attention_scores=True))
        self.assertFalse(is_fused)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllEqual(one, other)

        class Probe(keras.layers.MultiHeadAttention):
            def _compute_attention(self, *args, **kwargs):
                output, self.scores = super()._compute_attention(*args, **kwargs)
                return output, self.scores

        probe = Probe(4, 3, dropout=0.5)
        probe(x, x)
        expected, actual, is_fused = self._calls(lambda: (probe(x, x), probe.scores)[1])
        self.assertFalse(is_fused)
        self.assertAllEqual(actual, expected)

    def test_flash_attention(self):
        layer = keras.layers.MultiHeadAttention(2, 3, flash_attention=True)
        x = _normal(2, 5, 4)
        with self.assertRaisesRegex(ValueError, "Flash attention is not supported"):
            layer(x, x)
        with tfo.layers.use_fused_ops():
            self.assertEqual(layer(x, x).shape, [2, 5, 4])

    def test_falls_back_to_keras(self):
        wide = tf.constant(_QUERY, tf.float64), tf.constant(_KEY, tf.float64), tf.constant(_VALUE, tf.float64)
        half = [tf.cast(x, tf.float16) for x in wide]
        scale = tf.constant(0.5)
        expected = keras.ops.dot_product_attention(*half, scale=scale)
        with tfo.layers.use_fused_ops():
            self.assertAllEqual(keras.ops.dot_product_attention(*half, scale=scale), expected)
            with self.assertRaisesRegex(ValueError, "only supports 4D inputs"):
                keras.ops.dot_product_attention(_QUERY[0], _KEY[0], _VALUE[0])


_LOGITS = _normal(4, 9, 5)
_LABELS = np.array([[1, 2, 2, 0], [3, 0, 0, 0], [4, 1, 2, 3], [0, 0, 0, 0]])
_LENGTHS = np.array([3, 1, 4, 0]), np.array([9, 8, 7, 3])


class CTCTest(tf.test.TestCase, parameterized.TestCase):
    """Compares losses and gradients."""

    def _is_keras(self, labels, logits, label_lengths, logit_lengths, mask_index=0, wrap=lambda f: f, rtol=1e-5):
        def run(logits, labels, label_lengths, logit_lengths):
            with tf.GradientTape() as tape:
                tape.watch(logits)
                loss = keras.ops.ctc_loss(labels, logits, label_lengths, logit_lengths, mask_index)
            return loss, tape.gradient(loss, logits)

        args = [tf.constant(np.array(x)) for x in (labels, label_lengths, logit_lengths)]
        expected = run(logits, *args)
        with tfo.layers.use_fused_ops(["ctc_loss"]):
            actual = wrap(run)(logits, *args)
            self.assertEqual(tfo.layers.fused_ops(), {"ctc_loss": {"fused": 1, "original": 0}})
        for one, other in zip(actual, expected, strict=True):
            self.assertEqual(one.dtype, other.dtype)
            self.assertAllClose(one, other, rtol, rtol)
        return expected[0]

    @parameterized.parameters(
        (tf.float32, "float32"), (tf.float64, "float64"), (tf.float16, "float32"), (tf.bfloat16, "float32")
    )
    def test_is_keras_function(self, dtype, expected):
        rtol = 1e-2 if dtype.size == 2 else 1e-5
        loss = self._is_keras(_LABELS, tf.cast(_LOGITS, dtype), *_LENGTHS, rtol=rtol)
        self.assertEqual(loss.dtype, expected)
        self._is_keras(_LABELS + 0.0, tf.cast(_LOGITS, dtype), *_LENGTHS, rtol=rtol)
        self._is_keras(np.maximum(_LABELS - 1, 0), tf.cast(_LOGITS, dtype), *_LENGTHS, -1, rtol=rtol)

    @parameterized.parameters(False, True)
    def test_in_graphs(self, jit_compile):
        def wrap(function):
            shapes = [None, None, 5], [None, None], [None], [None]
            dtypes = tf.float32, tf.int64, tf.int64, tf.int64
            signature = None if jit_compile else [tf.TensorSpec(*spec) for spec in zip(shapes, dtypes, strict=True)]
            return tf.function(function, signature, jit_compile=jit_compile)

        self._is_keras(_LABELS, tf.constant(_LOGITS), *_LENGTHS, wrap=wrap)
        self._is_keras([[1, 0, 2, 9]], tf.constant(_LOGITS[:1]), [4], [9], wrap=wrap)

    def test_labels_that_are_no_classes(self):
        for labels in ([1, -1, 0, 0], [1, 0, 2, 0], [1, 9, 2, 0]):
            self._is_keras([labels], tf.constant(_LOGITS[:1]), [3], [9])
        self._is_keras(_LABELS[:1] * 0, tf.constant(_LOGITS[:1]), [0], [9])

    def test_integers_and_other_blanks(self):
        args = _LABELS, np.arange(4 * 9 * 5).reshape(4, 9, 5) // 7, *_LENGTHS
        expected = [keras.ops.ctc_loss(*args, 0), keras.ops.ctc_loss(*args, -2)]
        with tfo.layers.use_fused_ops():
            self.assertAllClose([keras.ops.ctc_loss(*args, 0), keras.ops.ctc_loss(*args, -2)], expected, 1e-5)
            calls = {"fused": 1, "original": 1, "reasons": {"mask_index=-2": 1}}
            self.assertEqual(tfo.layers.fused_ops()["ctc_loss"], calls)

    def test_labels_of_one_row(self):
        lengths = np.array([2, 1, 2, 2]), np.array([9, 8, 7, 3])
        args = [tf.constant(x) for x in (_LABELS[2:3, :2], _LOGITS, *lengths)]
        expected = keras.ops.ctc_loss(*args)
        specs = [None, None], [None, None, 5], [None], [None]
        specs = [tf.TensorSpec(shape, x.dtype) for shape, x in zip(specs, args, strict=True)]
        with tfo.layers.use_fused_ops(["ctc_loss"]):
            self.assertAllClose(keras.ops.ctc_loss(*args), expected)
            self.assertAllClose(tf.function(keras.ops.ctc_loss, specs)(*args), expected)

    def test_too_few_frames_have_a_finite_loss_and_no_gradient(self):
        logits = tf.constant(_LOGITS)
        with tfo.layers.use_fused_ops(), tf.GradientTape() as tape:
            tape.watch(logits)
            losses = keras.ops.ctc_loss(_LABELS, logits, [3, 1, 4, 0], [3, 8, 3, 3])
        # tf.nn.ctc_loss takes log(1e-307) for log(0), and adds the other steps.
        self.assertAllClose(losses.numpy()[[0, 2]], [706.8936] * 2, 1e-6)
        gradient = tape.gradient(losses, logits).numpy()
        self.assertAllEqual(gradient[[0, 2]], np.zeros([2, 9, 5]))
        self.assertGreater(np.abs(gradient[1]).max(), 0.1)


_MODES = ("nearest", "wrap") + ("constant",) * (_MINOR > 10)  # the one of earlier releases fails


class WarpsTest(tf.test.TestCase, parameterized.TestCase):
    def _is_keras(self, function, *args, tolerance=1e-5, **options):
        """Compares values and gradients; returns the values."""
        # Keras adds gradients in 16 bits.
        floats = [x for x in args if tf.is_tensor(x) and x.dtype.is_floating and x.dtype.size > 2]

        def run():
            with tf.GradientTape() as tape:
                tape.watch(floats)
                y = function(*args, **options)
            gradients = tape.gradient(y, floats, unconnected_gradients="zero")
            return [y, *map(tf.convert_to_tensor, gradients)]

        expected = run()
        with tfo.layers.use_fused_ops():
            actual = run()
            self.assertEqual(tfo.layers.fused_ops()[function.__name__], {"fused": 1, "original": 0})
        self.assertEqual((actual[0].dtype, actual[0].shape), (expected[0].dtype, expected[0].shape))
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(tf.cast(one, tf.float32), tf.cast(other, tf.float32), tolerance, tolerance)
        return actual[0]

    @parameterized.parameters(*itertools.product(_MODES, (0, 1)))
    def test_map_coordinates(self, fill_mode, order):
        places = _RNG.uniform(-4, 11, [2, 3, 50])
        for dtype, other in (("float32", "float32"), ("float16", "float32"), ("float32", "float64"),
                             ("float64", "float64"), ("uint8", "float32"), ("bfloat16", "float32")):  # fmt: skip
            args = tf.cast(_RNG.uniform(0, 8, [7, 5]), dtype), tf.constant(places, other), order
            tolerance = {"bfloat16": 1e-2, "float16": 1e-3}.get(dtype, 1e-5)
            options = {"fill_mode": fill_mode, "fill_value": 3}
            self._is_keras(keras.ops.image.map_coordinates, *args, tolerance=tolerance, **options)

    def test_modes_that_keras_computes_wrongly(self):
        line, places = np.array([[1.0, 2, 3, 4]], np.float32), [[0.0] * 4, [-2.0, -1.0, 4.0, 5.0]]
        with tfo.layers.use_fused_ops():
            for mode, expected in (("reflect", [2, 1, 4, 3]), ("mirror", [3, 2, 3, 2])):
                self.assertAllEqual(keras.ops.image.map_coordinates(line, places, 1, mode), expected)

    def test_falls_back_to_keras(self):
        volume, places = _normal(3, 4, 5), _RNG.uniform(0, 2, [3, 6])
        plane = volume[0]
        calls = (
            (volume, places, 1),
            (plane, places[:2].astype(int), 0),
            (plane.astype(int), places[:2], 1, "constant", 7),
            (plane, places[:2], 1, "constant", tf.constant(0.5)),
            (plane.astype(int), places[:2] - 1, 1, "constant", 7.5),
        )
        expected = [keras.ops.image.map_coordinates(*args) for args in calls]
        with tfo.layers.use_fused_ops():
            actual = [keras.ops.image.map_coordinates(*args) for args in calls]
            calls = tfo.layers.fused_ops()["map_coordinates"]
            self.assertEqual((calls["fused"], calls["original"], sum(calls["reasons"].values())), (1, 4, 4))
            for args in ((plane, places[:2], 2), (plane, places[:2], 1, "grid-wrap"), (plane, places, 1)):
                with self.assertRaises((NotImplementedError, ValueError, AttributeError)):
                    keras.ops.image.map_coordinates(*args)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, 1e-6, 1e-6)

    def test_elastic_transform(self):
        if _MINOR < 10:
            with self.assertRaisesRegex(ValueError, "'elastic_transform', which Keras 3.* does not have"):
                tfo.layers.use_fused_ops(["elastic_transform"])
            return
        function = keras.ops.image.elastic_transform
        images = tf.constant(_RNG.uniform(size=[2, 20, 30, 3]).astype(np.float32))
        for mode in _MODES:
            for options in ({"alpha": 5.0, "sigma": 2.5}, {"alpha": tf.constant(9.0), "sigma": tf.constant(1.5)}):
                options |= {"fill_mode": mode, "fill_value": 0.3}
                self._is_keras(function, images, tolerance=2e-4, seed=7, **options)
        self._is_keras(function, images[0], tolerance=2e-4, seed=7, fill_mode="nearest")
        planes = tf.transpose(images, [0, 3, 1, 2])
        channels_first = {"fill_mode": "nearest", "data_format": "channels_first"}
        y = self._is_keras(function, planes, tolerance=2e-4, seed=7, **channels_first)
        # Keras computes places in 16 bits.
        with tfo.layers.use_fused_ops():
            half = function(tf.cast(planes, tf.bfloat16), seed=7, **channels_first)
            self.assertEqual((half.dtype, half.shape), ("bfloat16", y.shape))
            nearest = function(images, seed=7, interpolation="nearest")
            self.assertAllInSet(nearest, images.numpy().ravel())
            self.assertAllClose(function(images, sigma=tf.constant(0.0)), images)

    def test_random_elastic_transform(self):
        if _MINOR < 10:
            self.skipTest("since Keras 3.10")
        layer = keras.layers.RandomElasticTransform(factor=1.0, scale=(0.5, 0.5), fill_mode="nearest", seed=3)
        images = _RNG.uniform(0, 255, [4, 24, 24, 3]).astype(np.float32)
        layer(images)
        with tfo.layers.use_fused_ops(["elastic_transform"]):
            batches = tf.data.Dataset.from_tensor_slices(images).batch(3).map(layer)
            self.assertEqual([batch.shape[0] for batch in batches], [3, 1])
            self.assertEqual(tfo.layers.fused_ops(), {"elastic_transform": {"fused": 1, "original": 0}})


class SliceUpdateTest(tf.test.TestCase, parameterized.TestCase):
    def _is_keras(self, calls, original=0, free=0):
        expected = [keras.ops.slice_update(*args) for args in calls]
        with tfo.layers.use_fused_ops(["slice_update"]):
            actual = [keras.ops.slice_update(*args) for args in calls]
            counts = tfo.layers.fused_ops()["slice_update"]
            self.assertEqual((counts["fused"], counts["original"]), (len(calls) - original - free, original))
        for one, other in zip(actual, expected, strict=True):
            self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
            self.assertAllEqual(one, other)

    def test_is_keras_function(self):
        cache = _normal(3, 5, 4, 2)
        at = tf.constant(2)
        self._is_keras(
            [
                (cache, [0, at, 0, 0], _normal(3, 2, 4, 2)),
                (cache, (0, 0, tf.constant(1, tf.int64), tf.constant(0, tf.int64)), _normal(3, 5, 1, 2)),
                (cache, [at, 0, 0, 0], _normal(1, 5, 4, 2)),
                (cache, [0, 0, 0, 1], _normal(3, 5, 4, 1)),
                (cache, [0, tf.constant(9), 0, 0], _normal(3, 2, 4, 2)),
                (cache, [0, -7, 0, 0], _normal(3, 2, 4, 2)),
                (cache, [0, at, 0, 0], _normal(3, 0, 4, 2)),
                (np.arange(12).reshape(2, 6), [0, at], np.full([2, 3], 7)),
                (np.ones(6, bool), [at], np.zeros(3, bool)),
            ]
        )

    def test_falls_back_to_keras(self):
        cache = _normal(3, 5, 4)
        calls = [
            (cache, [0, 1, 1], _normal(3, 2, 2)),
            (cache, tf.constant([0, 1, 0]), _normal(3, 2, 4)),
            (cache, [tf.constant(1), tf.constant(2), 0], _normal(2, 1, 4)),
            (cache, [0, 0, 0], _normal(3, 5, 4)),
        ]
        self._is_keras(calls, original=3, free=1)

    def test_in_a_graph_with_a_gradient(self):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 5, 2, 3]),
                tf.TensorSpec([None, 1, 2, 3]),
                tf.TensorSpec([], tf.int32),
            ]
        )
        def gradients(cache, rows, at):
            with tf.GradientTape() as tape:
                tape.watch([cache, rows])
                y = keras.ops.slice_update(cache, [0, at, 0, 0], rows)
            self.assertEqual(y.shape.as_list(), [None, 5, 2, 3])
            return y, tape.gradient(y, [cache, rows])

        cache, rows = _normal(2, 5, 2, 3), _normal(2, 1, 2, 3)
        with tfo.layers.use_fused_ops():
            y, (d_cache, d_rows) = gradients(cache, rows, 3)
        expected = cache.copy()
        expected[:, 3:4] = rows
        self.assertAllEqual(y, expected)
        self.assertAllEqual(d_rows, np.ones_like(rows))
        self.assertAllEqual(d_cache, np.repeat([1, 1, 1, 0, 1], 6).reshape(1, 5, 2, 3) * np.ones_like(cache))

    @parameterized.parameters(None, True)
    def test_batches_of_unknown_sizes(self, jit_compile):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 5, 3]),
                tf.TensorSpec([None, 2, 3]),
                tf.TensorSpec([None, 5, 1]),
                tf.TensorSpec([], tf.int32),
            ],
            jit_compile=jit_compile,
        )
        def updated(cache, rows, columns, at):
            with tf.GradientTape() as tape:
                tape.watch([cache, rows])
                y = keras.ops.slice_update(cache, [0, at, 0], rows)
                y = keras.ops.slice_update(y, [0, 0, 2], columns)
                loss = tf.reduce_sum(y * y)
            return y, *tape.gradient(loss, [cache, rows])

        cache = _normal(4, 5, 3)
        with tfo.layers.use_fused_ops(["slice_update"]):
            for examples, columns in ((4, 4), (2, 4), (4, 1), (0, 0)):
                rows, columns = _normal(examples, 2, 3), _normal(columns, 5, 1)
                for at, place in ((1, 1), (9, 3), (-2, 0)):
                    y, d_cache, d_rows = updated(cache, rows, columns, at)
                    expected = cache.copy()
                    expected[:examples, place : place + 2] = rows
                    expected[: len(columns), :, 2:] = columns
                    self.assertAllEqual(y, expected)
                    is_kept = np.ones_like(cache)
                    is_kept[:examples, place : place + 2] = 0
                    is_kept[: len(columns), :, 2:] = 0
                    self.assertAllClose(d_cache, 2 * cache * is_kept)
                    is_kept = np.ones_like(rows)
                    is_kept[: len(columns), :, 2:] = 0
                    self.assertAllClose(d_rows, 2 * rows * is_kept)
            self.assertEqual(tfo.layers.fused_ops(), {"slice_update": {"fused": 2, "original": 0}})

    @parameterized.parameters(None, True)
    def test_in_a_loop_of_batches_of_unknown_sizes(self, jit_compile):
        @tf.function(input_signature=[tf.TensorSpec([None, 5]), tf.TensorSpec([None, 1])], jit_compile=jit_compile)
        def filled(cache, rows):
            step = lambda i, cache: (i + 1, keras.ops.slice_update(cache, [0, i], rows))  # noqa: E731
            return tf.while_loop(lambda i, _: i < 4, step, [1, cache])[1]

        with tfo.layers.use_fused_ops(["slice_update"]):
            for examples in (2, 1):
                expected = np.zeros([2, 5])
                expected[:examples, 1:4] = 1
                self.assertAllEqual(filled(tf.zeros([2, 5]), tf.ones([examples, 1])), expected)


class RecurrentTest(tf.test.TestCase, parameterized.TestCase):
    def _results(self, layer, x, mask, **options):
        """Returns results of the layer and gradients to inputs and weights."""
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = tf.nest.flatten(layer(x, mask=mask, **options))
            loss = sum(tf.reduce_sum(tf.sin(tf.cast(y, tf.float32) + i)) for i, y in enumerate(results))
        return results, tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])

    @parameterized.product(
        kind_and_options=(
            *(
                (kind, options)
                for kind in ("LSTM", "GRU")
                for options in (
                    {},
                    {"return_sequences": True},
                    {"return_sequences": True, "return_state": True, "go_backwards": True},
                    {"stateful": True, "return_state": True, "use_bias": False},
                    {"activation": "relu", "recurrent_activation": "hard_sigmoid"},
                    {"activation": "linear", "dtype": "mixed_bfloat16"},
                )
            ),
            ("GRU", {"reset_after": False, "return_sequences": True}),
        ),
        has_mask=(False, True),
        is_bidirectional=(False, True),
    )
    def test_is_keras_layer(self, kind_and_options, has_mask, is_bidirectional):
        kind, options = kind_and_options
        x = tf.constant(_normal(4, 6, 3))
        steps = [1, 1, 0, 1, 1, 0], [0, 0, 1, 1, 0, 0], [0] * 6, [1] * 6
        mask = tf.constant(steps) > 0 if has_mask else None
        layer = getattr(keras.layers, kind)(5, bias_initializer="random_normal", **options)
        if is_bidirectional:
            if layer.go_backwards or layer.stateful:
                self.skipTest("Keras refuses a layer that goes backward, and needs a batch size for states")
            layer = keras.layers.Bidirectional(layer)
        layer.build(x.shape)
        is_narrow = "dtype" in options
        op = kind.lower()
        calls = []
        for switch in (contextlib.nullcontext, lambda: tfo.layers.use_fused_ops([op])):
            with switch():
                if not is_bidirectional and layer.stateful:
                    layer.reset_states()
                # Twice: a stateful layer goes on.
                calls.append([self._results(layer, x, mask), self._results(layer, x, mask)])
        self.assertEqual(tfo.layers.fused_ops(), {op: {"fused": 4 if is_bidirectional else 2, "original": 0}})
        for expected, actual in zip(*(tf.nest.flatten(c) for c in calls), strict=True):
            self.assertEqual((actual.dtype, actual.shape), (expected.dtype, expected.shape))
            self.assertAllClose(actual, expected, *([0.1, 0.1] if is_narrow else [1e-4, 1e-5]))

    @parameterized.product(kind=("LSTM", "GRU"), in_graph=(False, True))
    def test_masks_and_states_of_one_row(self, kind, in_graph):
        x, mask = tf.constant(_normal(3, 6, 2)), tf.constant([[True, False, True, True, False, True]])
        layer = getattr(keras.layers, kind)(4, return_sequences=True, return_state=True)
        states = [tf.constant(_normal(1, 4)) for _ in range(2 if kind == "LSTM" else 1)]
        all_states = [tf.repeat(state, 3, axis=0) for state in states]
        expected = self._results(layer, x, tf.repeat(mask, 3, axis=0), initial_state=all_states)

        def call(x, mask, states):
            return self._results(layer, x, mask, initial_state=states)

        if in_graph:
            specs = tf.TensorSpec([None, None, 2]), tf.TensorSpec([None, None], tf.bool)
            call = tf.function(call, [*specs, [tf.TensorSpec([None, 4])] * len(states)])
        op = kind.lower()
        with tfo.layers.use_fused_ops([op]):
            for masks, of_states in ((mask, states), (tf.repeat(mask, 3, 0), states), (mask, all_states)):
                actual = call(x, masks, of_states)
                for one, other in zip(*map(tf.nest.flatten, (actual, expected)), strict=True):
                    self.assertAllClose(one, other, 1e-5, 1e-5)
            self.assertEqual(tfo.layers.fused_ops(), {op: {"fused": 1 if in_graph else 3, "original": 0}})

    @parameterized.parameters("LSTM", "GRU")
    def test_more_states_than_inputs_are_those_of_keras(self, kind):
        layer = getattr(keras.layers, kind)(4)
        states = [tf.constant(_normal(3, 4)) for _ in range(2 if kind == "LSTM" else 1)]
        x = _normal(1, 6, 2)
        expected = layer(x, initial_state=states)
        with tfo.layers.use_fused_ops([kind.lower()]):
            self.assertAllClose(layer(x, initial_state=states), expected)
            with self.assertRaises(tf.errors.InvalidArgumentError):
                layer(_normal(2, 6, 2), initial_state=states)

    @parameterized.parameters("LSTM", "GRU")
    def test_falls_back_to_keras(self, kind):
        x, create = _normal(2, 4, 3), getattr(keras.layers, kind)
        options = (
            {"activation": "gelu"},
            {"recurrent_activation": tf.tanh},
            {"unroll": True},
            {"recurrent_dropout": 0.5},
        )
        calls = [(create(5, **more), x) for more in options]
        calls.append((create(5), np.arange(24).reshape(2, 4, 3)))
        expected = [layer(inputs) for layer, inputs in calls]
        op = kind.lower()
        with tfo.layers.use_fused_ops([op]):
            actual = [layer(inputs) for layer, inputs in calls]
            # A mask of dropout for each gate.
            create(5, dropout=0.5, implementation=1, use_cudnn=False)(x, training=True)
            calls = tfo.layers.fused_ops()[op]
            self.assertEqual((calls["fused"], calls["original"]), (0, 6))
            self.assertEqual(calls["reasons"]["recurrent_dropout"], 1)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other)

    def test_a_model_trains_and_is_saved_without_us(self):
        x, y = _normal(8, 6, 3), _normal(8, 2)

        def trained():
            keras.utils.clear_session()
            keras.utils.set_random_seed(1)
            inputs = keras.Input([None, 3])
            masked = keras.layers.Masking()(inputs)
            states = keras.layers.Bidirectional(keras.layers.LSTM(4, return_sequences=True, dropout=0.3))(masked)
            states = keras.layers.GRU(3, return_sequences=True, dropout=0.3)(states)
            model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.LSTM(5)(states)))
            model.compile("sgd", "mse")
            model.fit(x, y, epochs=2, verbose=0, shuffle=False)
            return model

        expected = trained()
        with tfo.layers.use_fused_ops():
            model = trained()
            for op in ("lstm", "gru"):
                self.assertGreater(tfo.layers.fused_ops()[op]["fused"], 0)
            path = os.path.join(self.get_temp_dir(), "recurrent.keras")
            model.save(path)
        for one, other in zip(model.trainable_variables, expected.trainable_variables, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-5)
        self.assertEqual(model.to_json(), expected.to_json())
        self.assertAllClose(keras.saving.load_model(path)(x), expected(x), 1e-4, 1e-5)

    def test_stack_of_both_directions_with_masks(self):
        x = _normal(4, 6, 3)
        x[0, 4:] = x[1, ::2] = x[2] = 0
        inputs = keras.Input([None, 3])
        outputs = keras.layers.Masking()(inputs)
        for units in (4, 5):
            outputs = keras.layers.Bidirectional(keras.layers.LSTM(units, return_sequences=True))(outputs)
        model = keras.Model(inputs, outputs)
        expected = self._results(model, tf.constant(x), None)
        with tfo.layers.use_fused_ops(["lstm"]):
            actual = self._results(model, tf.constant(x), None)
            self.assertEqual(tfo.layers.fused_ops(), {"lstm": {"fused": 4, "original": 0}})
        for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-5)


class SwitchTest(tf.test.TestCase):
    def test_a_model_trains_and_is_saved_without_us(self):
        x = _normal(4, 9, 8)

        def trained():
            keras.utils.set_random_seed(0)
            inputs = keras.Input([9, 8])
            attended = keras.layers.MultiHeadAttention(2, 4)(inputs, inputs, use_causal_mask=True)
            heads = keras.ops.reshape(attended, [-1, 9, 2, 4])
            heads = keras.ops.dot_product_attention(heads, heads, heads)
            model = keras.Model(inputs, keras.layers.Dense(5)(keras.ops.reshape(heads, [-1, 9, 8])))
            model.compile(keras.optimizers.SGD(0.1), keras.losses.CTC())
            model.fit(x, _LABELS, epochs=3, verbose=0)
            return model

        expected = trained()
        with tfo.layers.use_fused_ops():
            model = trained()
            for name in ("ctc_loss", "dot_product_attention"):
                calls = tfo.layers.fused_ops()[name]
                self.assertTrue(calls["fused"] and not calls["original"], name)
            path = os.path.join(self.get_temp_dir(), "model.keras")
            model.save(path)
        for one, other in zip(model.weights, expected.weights, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-4)
        self.assertNotIn("tensorflow_ops", model.to_json())
        loaded = keras.saving.load_model(path)
        self.assertAllClose(loaded.predict(x, verbose=0), expected(x), 1e-4, 1e-4)
        self.assertAllClose(loaded.evaluate(x, _LABELS, verbose=0), expected.evaluate(x, _LABELS, verbose=0), 1e-4)

    def test_is_on_while_any_switch_is_open(self):
        original = backend.nn.ctc_loss, backend.nn.dot_product_attention
        first, second = tfo.layers.use_fused_ops(), tfo.layers.use_fused_ops(["ctc_loss"])
        first.close()
        self.assertIsNot(backend.nn.ctc_loss, original[0])
        self.assertIs(backend.nn.dot_product_attention, original[1])
        second.close()
        second.close()
        with self.assertRaisesRegex(KeyError, "mine"), tfo.layers.use_fused_ops():
            raise KeyError("mine")
        self.assertEqual((backend.nn.ctc_loss, backend.nn.dot_product_attention), original)

        failures, start = [], threading.Barrier(8)

        def switch_often():
            start.wait()
            for _ in range(200):
                with tfo.layers.use_fused_ops():
                    failures.extend([1] * (backend.nn.ctc_loss is original[0]))

        threads = [threading.Thread(target=switch_often) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEmpty(failures)
        self.assertEqual((backend.nn.ctc_loss, backend.nn.dot_product_attention), original)

    def test_only(self):
        for only in (["ctc_loss", "rnn"], "ctc_loss"):
            with self.assertRaisesRegex(
                ValueError, "among ctc_loss, dot_product_attention, slice_update, map_.*, lstm, gru, .*, roi_align$"
            ):
                tfo.layers.use_fused_ops(only)
        with self.assertRaisesRegex(ValueError, "'roi_align' of keras_hub, which is not imported: import keras_hub"):
            tfo.layers.use_fused_ops(["ctc_loss", "roi_align"])
        original = backend.nn.ctc_loss
        with tfo.layers.use_fused_ops(only=("dot_product_attention",)):
            self.assertIs(backend.nn.ctc_loss, original)
            self.assertEqual(tfo.layers.fused_ops(), {})
            keras.ops.dot_product_attention(_QUERY, _KEY, _VALUE)
            self.assertEqual(list(tfo.layers.fused_ops()), ["dot_product_attention"])

    def test_functions_of_later_backends(self):
        nn = types.SimpleNamespace(ctc_loss=lambda *args: "original", dot_product_attention=lambda *args: "original")
        with mock.patch.object(backend, "ops", types.SimpleNamespace(nn=nn), create=True):
            with tfo.layers.use_fused_ops():
                self.assertEqual(nn.ctc_loss(_LABELS, _LOGITS, *_LENGTHS).shape, [4])
                self.assertEqual(nn.ctc_loss(_LABELS, _LOGITS, *_LENGTHS, -9), "original")
            self.assertEqual(nn.ctc_loss(_LABELS, _LOGITS, *_LENGTHS), "original")

    def test_unknown_keras(self):
        with mock.patch.object(keras, "__version__", "3.99.1"):
            for call in (
                tfo.layers.use_fused_ops,
                lambda: tfo.layers.MultiHeadAttention(2, 3),
                lambda: tfo.layers.GroupQueryAttention(3, 4, 2),
            ):
                message = r'Keras 3.7 to 3.15, and Keras 3.99.1 is installed.*"keras>=3.7,<3.16", or .* Keras 3.99'
                with self.assertRaisesRegex(ImportError, message):
                    call()
        with (
            mock.patch.object(keras.backend, "backend", lambda: "jax"),
            self.assertRaisesRegex(ValueError, "backend is 'jax', expected 'tensorflow'"),
        ):
            tfo.layers.use_fused_ops()


def _modules(version="0.32.0", **models):
    """Returns modules of keras-hub, with these attributes, by name."""
    modules = {"keras_hub": types.ModuleType("keras_hub")}
    modules["keras_hub"].__version__ = version
    for name, members in models.items():
        name = f"keras_hub.src.models.{name.replace('__', '.')}"
        modules[name] = types.ModuleType(name)
        vars(modules[name]).update(members)
    return mock.patch.dict(sys.modules, modules), *list(modules.values())[1:]


class KerasHubTest(tf.test.TestCase):
    """Uses modules with keras-hub's names: its package is not installed for tests."""

    def test_attention(self):
        names = "fused_attention_op_available", "running_on_gpu", "gpu_supports_fused_attention_op"
        members = dict.fromkeys(names, lambda: False)
        modules, llama, mixtral, qwen = _modules(
            llama__llama_attention={names[0]: members[names[0]]},
            mixtral__mixtral_attention=members,
            qwen__qwen_attention=members,
        )
        with modules:
            with tfo.layers.use_fused_ops():
                self.assertTrue(llama.fused_attention_op_available())
                self.assertTrue(mixtral.running_on_gpu() and mixtral.gpu_supports_fused_attention_op())
                self.assertFalse(qwen.fused_attention_op_available())
            self.assertFalse(llama.fused_attention_op_available() or mixtral.running_on_gpu())

    def test_deformable_attention(self):
        class Attention(keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.ms_deformable_attn_core = lambda *args: "original"

        modules, _ = _modules(d_fine__d_fine_attention={"DFineMultiscaleDeformableAttention": Attention})
        values = _normal(1, 14, 2, 3)  # maps of 3 x 4 and 1 x 2 pixels
        x, y = np.array([3, 0, 1]), np.array([2, 1, 0])  # two points on the first map, one on the second
        places = np.stack([(x + 0.5) / [4, 4, 2], (y + 0.5) / [3, 3, 1]], -1)
        locations = np.broadcast_to(places, [1, 5, 2, 3, 2]).astype(np.float32)
        weights = _normal(1, 5, 2, 3)
        shapes = [(3, 4), (1, 2)]
        args = values, tf.constant(shapes), locations, weights, [2, 1], [12, 2], shapes, 2, 5
        before = Attention()
        pixels = values[0, [11, 4, 13]]
        expected = np.einsum("nqhp,phd->nqhd", weights, pixels).reshape(1, 5, 6)
        with modules, tfo.layers.use_fused_ops(["multi_scale_deformable_attention_v2"]):
            for layer in (before, Attention()):
                self.assertAllClose(layer.ms_deformable_attn_core(*args), expected, 1e-5, 1e-5)
                self.assertEqual(layer.ms_deformable_attn_core(*args, "discrete"), "original")
        self.assertEqual([layer.ms_deformable_attn_core(*args) for layer in (before, layer)], ["original"] * 2)
        self.assertNotIn("ms_deformable_attn_core", vars(Attention))

    def test_assignment(self):
        modules, module = _modules(d_fine__d_fine_loss={"hungarian_assignment": lambda *args: "original"})
        costs = np.full([6, 6], 1e9, np.float32)
        costs[:, :3] = _normal(6, 3)
        best = min(itertools.permutations(range(6), 3), key=lambda rows: costs[list(rows), range(3)].sum())
        with modules, tfo.layers.use_fused_ops(["hungarian_assignment"]):
            rows, columns, valid = (x.numpy() for x in module.hungarian_assignment(costs, 6))
            self.assertEqual(module.hungarian_assignment(costs, 7), "original")
        self.assertAllEqual(rows, range(6))
        self.assertEqual(columns.dtype, np.int32)
        self.assertEqual({columns[i]: i for i in np.flatnonzero(valid)}, dict(enumerate(best)))

    def test_roi_align(self):
        modules, module = _modules(sam3__sam3_geometry_encoder={"roi_align": lambda *args, **options: "original"})
        y, x = np.mgrid[:9, :8]
        plane = (10.0 * y + x).astype(np.float32)
        features = np.stack([plane, plane + 100])[..., np.newaxis]
        with modules:
            with tfo.layers.use_fused_ops():
                pooled = module.roi_align(features, [[1.0, 2, 1, 6, 5]], (2, 2), spatial_scale=1.0, height=9, width=8,
                                          hidden_dim=1)  # fmt: skip
                half = module.roi_align(features.astype(np.float16), [[1.0, 2, 1, 6, 5]], (2, 2), 9, 8, 1)
                self.assertEqual(module.roi_align(features.astype(int), [[0] * 5], (2, 2), 9, 8, 1), "original")
            self.assertEqual(module.roi_align(), "original")
        self.assertAllClose(pooled[0, ..., 0], [[123, 125], [143, 145]])
        self.assertEqual(half.dtype, "float16")

    def test_unknown_version(self):
        modules, module = _modules("0.99.1", sam3__sam3_geometry_encoder={"roi_align": "original"})
        with modules, self.assertWarnsRegex(RuntimeWarning, "keras-hub 0.25 to 0.32, and 0.99.1 is imported"):
            with tfo.layers.use_fused_ops():
                self.assertEqual(module.roi_align, "original")
                self.assertNotIn("roi_align", tfo.layers.fused_ops())


if __name__ == "__main__":
    tf.test.main()
