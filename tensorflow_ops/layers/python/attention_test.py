"""Tests of tfo.layers.MultiHeadAttention and GroupQueryAttention: beside Keras's layers."""

import os
from unittest import mock

import keras
import numpy as np
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
_SINCE_315 = tuple(map(int, keras.__version__.split(".")[:2])) >= (3, 15)


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
        variable.assign(_normal(*variable.shape))
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

    @parameterized.product(name=_LAYERS, call=_CALLS)
    def test_is_keras_layer(self, name, call):
        weights = _normal(_BATCH, _QUERIES, _FEATURES)
        actual, expected = (_with_gradients(layer, weights, **_CALLS[call]) for layer in _layers(name))
        self._assert_equal(actual, expected)

    @parameterized.product(
        name=_LAYERS,
        options=[{"use_bias": False}, {"dropout": 0.5}, {"sliding_window": 2}, {"use_gate": True}, {"dtype": "float64"}],
    )
    def test_options(self, name, options):
        if not options.keys() <= getattr(keras.layers, name).__init__.__code__.co_varnames[:99] + ("dtype",):
            self.skipTest("a newer option")
        weights = _normal(_BATCH, _QUERIES, _FEATURES)
        actual, expected = (
            _with_gradients(layer, weights, use_causal_mask=True) for layer in _layers(name, **options)
        )
        self._assert_equal(actual, expected)
