"""Tests of tfo.layers.MultiHeadAttention and GroupQueryAttention: beside Keras's layers."""

import inspect
import os

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_BATCH, _QUERIES, _KEYS, _FEATURES = 2, 5, 7, 6
_LAYERS = {
    "MultiHeadAttention": {"num_heads": 4, "key_dim": 3},
    "GroupQueryAttention": {"num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 3},
}
_EACH_LAYER = parameterized.named_parameters((name, name) for name in _LAYERS)


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


def _mask(*shape):
    """Returns bools; each query has the first key."""
    mask = _RNG.uniform(size=shape) < 0.5
    mask[..., 0] = True
    return mask


_QUERY, _KEY, _VALUE = (_normal(_BATCH, length, _FEATURES) for length in (_QUERIES, _KEYS, _KEYS))
_QUERY_MASK = np.arange(_QUERIES) < [[3], [5]]
_VALUE_MASK = _mask(_BATCH, _KEYS)  # no prefix

_CALLS = {
    "plain": {},
    "key": {"key": _KEY},
    "causal": {"use_causal_mask": True},
    "not_causal": {"use_causal_mask": 0},
    "mask_of_rank_2": {"attention_mask": _mask(_QUERIES, _KEYS)},
    "mask_of_rank_3": {"attention_mask": _mask(_BATCH, _QUERIES, _KEYS)},
    "mask_of_rank_4": {"attention_mask": _mask(_BATCH, 4, _QUERIES, _KEYS)},
    "mask_for_all_queries": {"attention_mask": _mask(_BATCH, 1, _KEYS)},
    "mask_for_all_heads": {"attention_mask": _mask(_BATCH, 1, 1, _KEYS)},
    "mask_of_floats": {"attention_mask": _mask(_QUERIES, _KEYS).astype(np.float32)},
    "causal_mask_of_rank_4": {"attention_mask": _mask(1, 4, _QUERIES, _KEYS), "use_causal_mask": True},
    "padded_values": {"value_mask": _VALUE_MASK},
    "padded_keys": {"key": _KEY, "value_mask": _mask(_BATCH, _KEYS), "key_mask": _mask(_BATCH, _KEYS)},
    "all": {
        "key": _KEY,
        "value_mask": _VALUE_MASK,
        "key_mask": _VALUE_MASK,
        "attention_mask": _mask(_BATCH, _QUERIES, _KEYS),
        "use_causal_mask": True,
    },
}


def _layers(name, value=_VALUE, **options):
    """Returns our layer and Keras's, of the same weights."""
    ours, keras_layer = (getattr(module.layers, name)(**_LAYERS[name], **options) for module in (tfo, keras))
    for layer in (ours, keras_layer):
        layer.build(_QUERY.shape, value.shape)
    for variable in ours.trainable_variables:
        variable.assign(_normal(*variable.shape) / 2)
    keras_layer.set_weights(ours.get_weights())
    return ours, keras_layer


def _with_gradients(layer, weights, query=_QUERY, value=_VALUE, key=None, **options):
    """Returns the layer's result, and the gradients of its weighted sum."""
    inputs = [tf.constant(x) for x in (query, value, key) if x is not None]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = layer(*inputs, **options)
        loss = tf.reduce_sum(tf.cast(result, tf.float32) * weights)
    return [result, *tape.gradient(loss, [*inputs, *layer.trainable_variables])]


class AttentionTest(tf.test.TestCase, parameterized.TestCase):
    def _assert_equal(self, actual, expected, tolerance=1e-4):
        self.assertLen(actual, len(expected))
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, tolerance, tolerance)

    @_EACH_LAYER
    def test_sliding_window(self, name):
        ours, keras_layer = _layers(name)
        ours.sliding_window = 3  # an attribute, also where Keras has no such argument
        mask = np.abs(np.arange(_QUERIES)[:, np.newaxis] - np.arange(_KEYS)) < 3
        self._assert_equal([ours(_QUERY, _VALUE)], [keras_layer(_QUERY, _VALUE, attention_mask=mask)])

    @_EACH_LAYER
    def test_ragged_tensors_are_refused(self, name):
        x = tf.RaggedTensor.from_tensor(_QUERY, [3, 5])
        text = "Attention got a RaggedTensor, expected dense tensors and a mask; tfo.nn.attention takes RaggedTensors"
        for call in ({"query": x, "value": _VALUE}, {"query": _QUERY, "value": x}):
            with self.assertRaisesRegex(ValueError, text):
                getattr(tfo.layers, name)(**_LAYERS[name])(**call)

    @_EACH_LAYER
    def test_mask_of_wrong_shape(self, name):
        ours, _ = _layers(name)
        with self.assertRaisesRegex(ValueError, r"attention_mask is \(7,\), expected"):
            ours(_QUERY, _VALUE, attention_mask=np.ones([_KEYS], bool))
        of_padding = r"\(2, 7\), expected .*: for padding of keys pass attention_mask\[:, None, None\] or key_mask"
        with self.assertRaisesRegex(ValueError, of_padding):
            ours(_QUERY, _VALUE, attention_mask=_VALUE_MASK)

    @_EACH_LAYER
    def test_dropout_of_all(self, name):
        for rate in (1.0, 0.999999):
            with self.assertRaisesRegex(ValueError, f"dropout is {rate}, expected a number in"):
                _layers(name, dropout=rate)

    @parameterized.product(name=[*_LAYERS], call=[*_CALLS])
    def test_is_keras_layer(self, name, call):
        weights = _normal(_BATCH, _QUERIES, _FEATURES)
        layers = _layers(name)
        self._assert_equal(*(_with_gradients(layer, weights, **_CALLS[call]) for layer in layers))
        self._assert_equal(*(layer(_QUERY, _VALUE, return_attention_scores=True, **_CALLS[call]) for layer in layers))

    @parameterized.product(
        name=[*_LAYERS],
        options=[
            {"use_bias": False},
            {"dropout": 0.5},
            {"sliding_window": 2},
            {"use_gate": True},
            {"dtype": "float64"},
            {"value_dim": 5},
        ],
    )
    def test_options(self, name, options):
        if not options.keys() <= {"dtype", *inspect.signature(getattr(keras.layers, name)).parameters}:
            self.skipTest(f"Keras {keras.__version__} has no {options}")
        weights = _normal(_BATCH, _QUERIES, _FEATURES)
        layers = _layers(name, **options)
        self._assert_equal(*(_with_gradients(layer, weights, use_causal_mask=True) for layer in layers))

    @parameterized.product(name=[*_LAYERS], dtype=["float16", "bfloat16"])
    def test_mixed_precision(self, name, dtype):
        half, keras_layer = _layers(name, dtype=f"mixed_{dtype}")[0], _layers(name)[1]
        keras_layer.set_weights(half.get_weights())
        options = {"value_mask": _VALUE_MASK, "use_causal_mask": True}
        weights = _normal(_BATCH, _QUERIES, _FEATURES)
        actual, expected = (_with_gradients(layer, weights, **options) for layer in (half, keras_layer))
        self.assertEqual(actual[0].dtype, dtype)
        for one, other in zip(actual, expected, strict=True):
            # The gradient of a bias of keys is 0: scores then differ by the same number.
            error = np.abs(tf.cast(one, tf.float32) - other).max() / max(np.abs(other).max(), 1)
            self.assertLess(error, 0.01 if dtype == "float16" else 0.05)

    @_EACH_LAYER
    def test_masks_of_keras(self, name):
        x = [np.where(_QUERY_MASK, 3, 0), np.where(_VALUE_MASK, np.arange(2, 9), 0)]
        y = _normal(_BATCH, _QUERIES, _FEATURES)
        results, weights = [], []
        layers = _layers(name)
        output_bias = layers[0].get_weights()[-1]
        for layer in layers:
            query, value = keras.Input([_QUERIES], dtype="int32"), keras.Input([_KEYS], dtype="int32")
            embedding = keras.layers.Embedding(9, _FEATURES, mask_zero=True)
            model = keras.Model([query, value], layer(embedding(query), embedding(value)))
            embedding.set_weights([np.sin(np.arange(9 * _FEATURES).reshape([9, _FEATURES]))])
            results.append(model(x))
            model.compile(keras.optimizers.SGD(0.1), "mse")
            model.fit(x, y, epochs=2, verbose=0)
            weights.append(model.get_weights())
        actual, expected = results
        self.assertAllEqual(actual._keras_mask, _QUERY_MASK)
        self.assertAllClose(actual[_QUERY_MASK], expected[_QUERY_MASK], 1e-5, 1e-5)
        self.assertAllClose(actual[~_QUERY_MASK], np.tile(output_bias, [2, 1]))  # attention is 0
        self._assert_equal(*weights)

    @_EACH_LAYER
    def test_neither_masks_nor_keys_are_expanded(self, name):
        layer, _ = _layers(name)

        @tf.function
        def call(query, value):
            return layer(query, value, value_mask=_VALUE_MASK, use_causal_mask=True)

        graph = call.get_concrete_function(_QUERY, _VALUE).graph
        (op,) = [op for op in graph.get_operations() if op.type == "TensorflowOps>Attention"]
        shapes = [x.shape for x in op.inputs]
        self.assertEqual(shapes[1], [_BATCH, _KEYS, 2 if name == "GroupQueryAttention" else 4, 3])
        self.assertEqual(shapes[3], [_BATCH, 1, 1, _KEYS])

    @_EACH_LAYER
    def test_padding_may_be_nan(self, name):
        layer, _ = _layers(name)
        value = np.where(_VALUE_MASK[..., np.newaxis], _VALUE, np.float32(np.nan))
        result = layer(_QUERY, value, value_mask=_VALUE_MASK)
        self.assertAllEqual(result, layer(_QUERY, _VALUE, value_mask=_VALUE_MASK))

    @parameterized.parameters([(1,), (2,), ([1, 2],)])
    def test_more_axes_are_those_of_keras(self, axes):
        query = _normal(_BATCH, 3, 4, _FEATURES)
        ours = tfo.layers.MultiHeadAttention(4, 3, attention_axes=axes)
        keras_layer = keras.layers.MultiHeadAttention(4, 3, attention_axes=axes)
        for layer in (ours, keras_layer):
            layer.build(query.shape, query.shape)
        keras_layer.set_weights(ours.get_weights())
        self.assertAllEqual(ours(query, query), keras_layer(query, query))

    @_EACH_LAYER
    def test_dropout(self, name):
        size, rate = 64, 0.25
        options = {"num_heads": 1, "key_dim": size}
        if name == "GroupQueryAttention":
            options = {"num_query_heads": 1, "num_key_value_heads": 1, "head_dim": size}
        layers = [getattr(tfo.layers, name)(**options, dropout=rate, use_bias=False, seed=3) for _ in range(2)]
        identity = np.eye(size, dtype=np.float32)
        query, key, value = _normal(1, 50, size), _normal(1, size, size), identity[np.newaxis]
        for layer in layers:
            layer.build(query.shape, value.shape)
            layer.set_weights([identity.reshape(w.shape) for w in layer.get_weights()[:4]] + layer.get_weights()[4:])
        first, second = layers
        # Values and projections are identities: results are weights.
        attention_weights, again = (first(query, value, key=key) for _ in range(2))
        self.assertAllEqual(attention_weights, again)
        dropped = first(query, value, key=key, training=True)
        kept = dropped != 0
        self.assertAllClose(dropped, tf.where(kept, attention_weights / (1 - rate), 0), 1e-4, 1e-6)
        self.assertNear(np.mean(kept), 1 - rate, 0.04)
        self.assertNotAllEqual(first(query, value, key=key, training=True) != 0, kept)
        # Another layer of the same seed drops the same weights.
        self.assertAllEqual(second(query, value, key=key, training=True), dropped)

    @_EACH_LAYER
    def test_config_and_weights_are_those_of_keras(self, name):
        ours, keras_layer = _layers(name, dropout=0.1, seed=1, kernel_regularizer="l2")
        config = {**ours.get_config(), "name": ""}
        self.assertEqual(config, {**keras_layer.get_config(), "name": ""})
        for layer, kind in (ours, type(keras_layer)), (keras_layer, type(ours)):
            copy = kind.from_config(layer.get_config())
            copy.build(_QUERY.shape, _VALUE.shape)
            copy.set_weights(layer.get_weights())
            self._assert_equal([copy(_QUERY, _VALUE)], [layer(_QUERY, _VALUE)])
            self.assertLen(copy.losses, 4)

    @_EACH_LAYER
    def test_files_are_those_of_keras(self, name):
        layers = _layers(name)
        kinds = [type(layer) for layer in layers]
        models = []
        for layer in layers:
            query, value = keras.Input([None, _FEATURES]), keras.Input([None, _FEATURES])
            models.append(keras.Model([query, value], layer(query, value, use_causal_mask=True)))
        expected = models[0]([_QUERY, _VALUE])
        for model, other, kind in zip(models, models[::-1], kinds, strict=True):
            path = os.path.join(self.get_temp_dir(), f"{name}.{kind.__module__}.keras")
            model.save(path)
            copy = keras.saving.load_model(path)
            self.assertIs(type(copy.layers[-1]), kind)
            self._assert_equal([copy([_QUERY, _VALUE])], [expected])
            path = path.replace(".keras", ".weights.h5")
            model.save_weights(path)
            other.set_weights([0 * w for w in other.get_weights()])
            other.load_weights(path)
            self._assert_equal([other([_QUERY, _VALUE])], [expected])

    def test_files_load_without_us(self):
        folder = self.get_temp_dir()
        x = _normal(2, 5, _FEATURES)
        np.save(os.path.join(folder, "x.npy"), x)
        inputs = keras.Input([None, _FEATURES])
        result = inputs
        for name, options in _LAYERS.items():
            result = getattr(tfo.layers, name)(**options)(result, result, use_causal_mask=True)
        model = keras.Model(inputs, result)
        model.save(os.path.join(folder, "model.keras"))
        script = """
            import sys, keras, numpy as np
            kinds = keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention
            objects = {"tensorflow_ops>" + kind.__name__: kind for kind in kinds}
            model = keras.saving.load_model("model.keras", custom_objects=objects)
            np.save("y.npy", model(np.load("x.npy")))
            assert "tensorflow_ops" not in sys.modules
        """
        process_testing.output(folder, script)
        self._assert_equal([np.load(os.path.join(folder, "y.npy"))], [model(x)])


if __name__ == "__main__":
    tf.test.main()
