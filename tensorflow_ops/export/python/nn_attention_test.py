"""Composition of attention: against the op."""

import tempfile

import numpy as np
import rewrite_testing
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo

_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_RNG = np.random.default_rng(0)
_SINKS, _SLOPES = _RNG.normal(size=[4]), _RNG.uniform(size=[2, 4])
_MASKS = _RNG.random([2, 1, 5, 12]) < 0.7, _RNG.random([4, 5, 1]) < 0.7


def _operands(dtype, queries=5, keys=12, heads=4, key_heads=2):
    rng = np.random.default_rng(1)
    sizes = [2, queries, heads, 3], [2, keys, key_heads, 3], [2, keys, key_heads, 2]
    return [tf.constant(rng.normal(size=size), dtype) for size in sizes]


def _given(options):
    """Returns the options that are not None, with a seed."""
    given = {name: value for name, value in options.items() if value is not None}
    return given | ({"seed": [7, -16]} if "dropout" in given else {})


class AttentionTest(tf.test.TestCase, parameterized.TestCase):
    def _check(self, *tensors, **options):
        rewrite_testing.assert_same(lambda *x: tfo.nn.attention(*x, return_log_sum_exp=True, **options), *tensors)

    @pairwise(
        dtype=_FLOATS,
        mask=(None, *_MASKS),
        bias=(None, _RNG.normal(size=[1, 12]), np.where(_MASKS[0], 0, -np.inf)),
        causal=(False, True),
        window=(None, (3, 1), (None, 2)),
        query_offset=(None, 3, [2, -1]),
        lengths=(None, [3, 5]),
        key_lengths=(None, [12, 4], [0, 9]),
    )
    def test_options_by_place(self, dtype, **options):
        self._check(*_operands(dtype), **_given(options))

    @pairwise(
        dtype=_FLOATS,
        mask=(None, _MASKS[0]),
        scale=(None, -0.7),
        softcap=(None, 1.5),
        alibi_slopes=(None, _SLOPES[0], _SLOPES),
        sinks=(None, _SINKS),
        dropout=(None, 0.3),
        key_lengths=(None, [12, 0]),
    )
    def test_options_of_numbers(self, dtype, **options):
        self._check(*_operands(dtype), **_given(options))

    @pairwise(
        queries=(0, 1, 5), keys=(0, 1, 12), heads=((4, 4), (4, 1), (0, 1), (0, 0)), dropout=(None, 0.5)
    )  # fmt: skip
    def test_sizes(self, queries, keys, heads, dropout):
        self._check(*_operands(tf.float32, queries, keys, *heads), **_given({"dropout": dropout}))

    @pairwise(
        mask=(None, np.arange(15) % 3 != 0),
        bias=(None, _RNG.normal(size=[4, 5, 12])),
        causal=(False, True),
        dropout=(None, 0.3),
        lengths=([3, 2, 5], [1, 0, 0], []),
    )
    def test_ragged(self, lengths, **options):
        rows, key_lengths = sum(lengths), [2 * n + 2 for n in lengths]
        query, key, value = _operands(tf.float64, max(rows, 1), max(sum(key_lengths), 1))

        def attend(query, key, value):
            tensors = [tf.RaggedTensor.from_row_lengths(query, tf.constant(lengths, tf.int64))]
            tensors += [tf.RaggedTensor.from_row_lengths(x, tf.constant(key_lengths, tf.int64)) for x in (key, value)]
            results = tfo.nn.attention(*tensors, return_log_sum_exp=True, **_given(options))
            return [x.values for x in results]

        rewrite_testing.assert_same(attend, query[0, :rows], key[0, : sum(key_lengths)], value[0, : sum(key_lengths)])

    @pairwise(number=(np.nan, np.inf, -np.inf), tensor=("query", "key", "value", "bias"), dtype=_FLOATS)
    def test_numbers_that_are_not_finite(self, number, tensor, dtype):
        tensors = dict(zip(("query", "key", "value"), (x.numpy() for x in _operands(dtype)), strict=True))
        tensors["bias"] = np.zeros([5, 12], tensors["query"].dtype)
        tensors[tensor][0, 1] = number
        operands = [tensors.pop(name) for name in ("query", "key", "value")]
        self._check(*operands, mask=_MASKS[0], **tensors)

    def test_values_of_all_kinds_in_one_column(self):
        query, key, value = (x.numpy() for x in _operands(tf.float32))
        value[0, 3:6, 0, 0], value[1, 8, 1, 1], value[1, 2, 1, 1] = [np.inf, -np.inf, 1], np.inf, np.inf
        self._check(query, key, value, causal=True)

    def test_causal_attention_in_litert(self):
        module = tf.Module()
        module.attend = tf.function(
            lambda x: tfo.nn.attention(x, x, x, causal=True), [tf.TensorSpec([None, None, 2, 4], name="x")]
        )
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        tf.saved_model.save(module, f"{folder}/model")
        tfo.export.to_standard_ops(f"{folder}/model", f"{folder}/standard")
        converter = tf.lite.TFLiteConverter.from_saved_model(f"{folder}/standard")
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        run = tf.lite.Interpreter(model_content=converter.convert()).get_signature_runner()
        x = np.random.default_rng(0).normal(size=[1, 5, 2, 4]).astype(np.float32)
        self.assertAllClose(next(iter(run(x=x).values())), module.attend(x), 1e-5, 1e-5)

    def test_scores_of_10000(self):
        query, key, value = _operands(tf.float32)
        self._check(tf.sign(query) * 64, tf.sign(key) * 64, value, scale=1.0, sinks=[1e4, -1e4, -np.inf, 8192.0])


if __name__ == "__main__":
    tf.test.main()
