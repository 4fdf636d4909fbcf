"""Samples of attention and of a decoder's."""

import keras
import numpy as np
import tensorflow as tf
from sample_testing import RNG, normal, sample, seed, without_gradient

from tensorflow_ops import nn

seed("nn.attention")
_QUERY, _KEY, _VALUE = normal(2, 3, 4, 5), normal(2, 6, 2, 5), normal(2, 6, 2, 3)
_MASK, _BIAS = tf.constant(RNG.random([2, 1, 3, 6]) < 0.7), normal(4, 3, 6)
_SINKS, _QUERY_LENGTHS, _KEY_LENGTHS = normal(4), tf.constant([3, 2]), tf.constant([4, 6])
_SLOPES = tf.constant([0.5, 0.25, 0.125, 0.0])
_ALL_OPTIONS = {
    **{"mask": _MASK, "bias": _BIAS, "softcap": 2.0, "sinks": _SINKS},
    **{"lengths": _QUERY_LENGTHS, "key_lengths": _KEY_LENGTHS},
}
_FINITE = ["query", "key", "bias", "alibi_slopes", "sinks"]
_NONE = dict.fromkeys(_ALL_OPTIONS)
_BOTH = {**_NONE, "return_log_sum_exp": True}


def _attention_of_one_dtype(query, key, value, **options):
    output, log_sum_exp = nn.attention(query, key, value, **options)
    return output, keras.ops.cast(log_sum_exp, output.dtype)


SAMPLES = {
    "nn.attention": sample(
        nn.attention,
        _QUERY,
        _KEY,
        _VALUE,
        kwargs=_ALL_OPTIONS,
        variants=[
            _BOTH,
            {**_BOTH, "causal": True, "bias": tf.where(_MASK, 0.0, -np.inf), "key_lengths": _KEY_LENGTHS},
            {**_BOTH, "causal": True, "window": (None, 2), "mask": tf.constant(RNG.random([4, 3, 1]) < 0.7)},
            {**_BOTH, "causal": True, "lengths": tf.constant([1, 3]), "key_lengths": tf.constant([0, 5])},
            {**_BOTH, "window": 4, "query_offset": 1, "mask": _MASK},
            {**_BOTH, "window": (3, 1), "query_offset": tf.constant([2, -1]), "key_lengths": _KEY_LENGTHS},
            {**_BOTH, "scale": -0.7, "softcap": 1.5, "alibi_slopes": _SLOPES, "sinks": _SINKS},
            {**_BOTH, "scale": 1.0, "sinks": tf.constant([1e4, -1e4, -np.inf, 8192.0]), "query": 64 * tf.sign(_QUERY)},
            {**_BOTH, "alibi_slopes": tf.random.stateless_uniform([2, 4], [1, 2]), "mask": _MASK},
            {**_BOTH, "dropout": 0.3, "seed": [7, -16], "mask": _MASK, "key_lengths": tf.constant([6, 0])},
            {**_BOTH, "dropout": 0.5, "seed": tf.constant([1, -2])},
            {**_BOTH, "query": _QUERY[:, :1], "key": _KEY[:, :, :1], "value": _VALUE[:, :, :1]},
        ],
        edge=[
            {
                **{"query": _QUERY[:0], "key": _KEY[:0], "value": _VALUE[:0], "mask": _MASK[:0]},
                **{"lengths": _QUERY_LENGTHS[:0], "key_lengths": _KEY_LENGTHS[:0]},
            },
            {"lengths": 0 * _QUERY_LENGTHS, "key_lengths": 0 * _KEY_LENGTHS},
        ],
        bad=[
            ({"query": _QUERY[0]}, r"query must be \[B, T, heads, D\]"),
            ({"query": tf.zeros([2, 3, 4, 5], tf.int64)}, "query are int64, expected float16"),
            ({"key": _KEY[..., :4]}, "key must be .*D"),
            ({"key": tf.cast(_KEY, tf.float64)}, "key is float64, expected float32"),
            ({"key": normal(2, 6, 3, 5), "value": normal(2, 6, 3, 3)}, "query has 4 heads and key 3, expected"),
            ({"value": _VALUE[:, :5]}, "value must be .*S"),
            ({"value": tf.ragged.constant([[1.0]])}, "query is dense, expected a RaggedTensor, as value is"),
            ({"mask": normal(3, 6)}, "mask are float32, expected bool"),
            ({"mask": _MASK[..., :5]}, r"mask must broadcast to \[B, heads, T, S\]"),
            ({"mask": np.ones([2, 6], bool)}, r"for padding of keys pass mask\[:, None, None\] or key_lengths"),
            ({"mask": _MASK[:, tf.newaxis]}, "mask has 5 dims, expected at most 4|mask must broadcast"),
            ({"bias": normal(3, 3, 6)}, r"bias must broadcast to \[B, heads, T, S\]"),
            ({"causal": 1}, "causal is 1, expected True or False"),
            ({"window": 0}, "window is 0, expected an int in"),
            ({"window": (1, -1)}, "window is -1, expected an int in"),
            ({"window": (1, 2, 3)}, r"window is \(1, 2, 3\), expected None, a positive int"),
            ({"query_offset": [1, 2, 3]}, r"query_offset must be \[B\]"),
            ({"query_offset": 1.5}, "query_offset cannot be int32"),
            ({"query_offset": True}, "query_offset are bool, expected int32"),
            ({"scale": np.nan}, r"scale is nan, expected a number in \[-3.4e38, 3.4e38\]"),
            ({"scale": 1e39}, r"scale is 1e\+39, expected a number in \[-3.4e38, 3.4e38\]"),
            ({"softcap": 0.0}, "softcap is 0.0, expected a number above 0"),
            ({"softcap": 1e38}, r"softcap is 1e\+38, expected a number above 0, from 1e-30 to 1e30"),
            ({"softcap": 1e-38}, "softcap is 1e-38, expected a number above 0, from 1e-30 to 1e30"),
            ({"alibi_slopes": np.zeros([3, 4], "f")}, r"alibi_slopes must be \[1, heads\] or \[B, heads\]"),
            ({"sinks": _SINKS[:3]}, r"sinks must be \[heads\]"),
            ({"lengths": [1]}, r"lengths must be \[B\]"),
            ({"lengths": [2, True]}, "lengths are bool, expected int32"),
            ({"lengths": _QUERY_LENGTHS + 1}, r"lengths\[0\] is 4, expected \[0, 3\]"),
            ({"lengths": _QUERY_LENGTHS - 4}, r"lengths\[0\] is -1, expected \[0, 3\]"),
            ({"lengths": 2**40}, "lengths is 1099511627776, expected a whole number of 32 bits"),
            ({"key_lengths": np.array([2**32 + 2] * 2)}, r"key_lengths\[0\] is 4294967298, expected a whole number"),
            ({"key_lengths": _KEY_LENGTHS + 1}, r"key_lengths\[1\] is 7, expected \[0, 6\]"),
            ({"dropout": 1.0, "seed": [1, 2]}, r"dropout is 1.0, expected a number in \[0, 1\)"),
            ({"dropout": 0.999993, "seed": [1, 2]}, r"dropout is 0.999993, expected a number .*does not round to 1"),
            ({"dropout": 0.1}, "seed is None, expected two integers"),
            ({"dropout": 0.1, "seed": [1, 2, 3]}, r"seed has shape \[3\], expected \[2\]: two integers"),
            ({"dropout": 0.1, "seed": [1.0, 2.0]}, "seed is float32, expected two integers"),
            ({"return_log_sum_exp": "yes"}, "return_log_sum_exp is 'yes', expected True or False"),
        ],
        ragged=True,
        finite=_FINITE,
        second_order=False,
        forward_mode=False,
    ),
    "nn.attention (by place, log-sum-exp)": sample(
        _attention_of_one_dtype,
        _QUERY,
        _KEY,
        _VALUE,
        kwargs={
            **{"window": (4, 1), "query_offset": tf.constant([3, 1]), "alibi_slopes": _SLOPES},
            **{"dropout": 0.25, "seed": [1, 2], "return_log_sum_exp": True},
        },
        non_differentiable=4,  # alibi_slopes
        ragged=True,
        finite=_FINITE,
        second_order=False,
        forward_mode=False,
    ),
}

seed("nn.decode_attention")
_BEAM_QUERY, _CACHE, _CACHED = normal(4, 2, 4, 5), normal(4, 6, 2, 5), normal(4, 6, 2, 3)
_CACHE_LENGTHS, _ANCESTORS = tf.constant([6, 4, 3, 0]), tf.constant(RNG.integers(0, 2, [2, 2, 6]), tf.int32)

SAMPLES["nn.decode_attention"] = sample(
    without_gradient(nn.decode_attention),
    _BEAM_QUERY,
    _CACHE,
    _CACHED,
    _CACHE_LENGTHS,
    kwargs={"ancestors": _ANCESTORS},
    variants=[
        {"ancestors": None, "lengths": 5},
        {"scale": -0.7, "softcap": 1.5, "alibi_slopes": [0.5, 0.25, 0.125, 0.0], "sinks": [0.5, -1.0, 2.0, 0.0]},
        {"window": 3, "alibi_slopes": tf.random.stateless_uniform([4, 4], [1, 2])},
        {"window": (2, None), "ancestors": tf.cast(_ANCESTORS, tf.int64)},
        {"ancestors": tf.reshape(_ANCESTORS, [1, 4, 6]) + tf.constant([0, 2, 1, 0])[:, tf.newaxis]},
    ],
    edge=[{"lengths": 0 * _CACHE_LENGTHS}],
    bad=[
        ({"query": _BEAM_QUERY[0]}, r"query must be \[R, T, heads, D\]"),
        ({"keys": _CACHE[..., :4]}, "keys must be .*D"),
        ({"keys": tf.cast(_CACHE, tf.float64)}, "keys is float64, expected float32, as query is"),
        ({"keys": normal(4, 6, 3, 5), "values": normal(4, 6, 3, 3)}, "query has 4 heads and keys 3, expected"),
        ({"values": _CACHED[:, :5]}, "values must be .*S"),
        ({"lengths": [1, 2]}, r"lengths must be \[R\]"),
        ({"lengths": 7}, r"lengths\[0\] is 7, expected \[0, 6\]"),
        ({"ancestors": _ANCESTORS[0]}, r"ancestors must be \[B, W, S\]"),
        ({"ancestors": _ANCESTORS[..., :5]}, r"ancestors must be \[B, W, S\]"),
        ({"ancestors": _ANCESTORS[:1]}, r"ancestors must be \[B, W, S\] with B \* W = R"),
        ({"ancestors": _ANCESTORS + 1}, r"ancestors\[\d,\d,\d\] is 2, expected \[0, 1\]"),
        ({"ancestors": _ANCESTORS - 1}, r"ancestors\[\d,\d,\d\] is -1, expected \[0, 1\]"),
        ({"window": 0}, "window is 0, expected an int in"),
        ({"scale": np.nan}, r"scale is nan, expected a number in \[-3.4e38, 3.4e38\]"),
        ({"softcap": 0.0}, "softcap is 0.0, expected a number above 0"),
        ({"alibi_slopes": np.zeros([3, 4], "f")}, r"alibi_slopes must be \[1, heads\] or \[R, heads\]"),
        ({"sinks": _SINKS[:3]}, r"sinks must be \[heads\]"),
    ],
    finite=["query", "keys", "alibi_slopes"],
    non_differentiable=(0, 1, 2),
)
