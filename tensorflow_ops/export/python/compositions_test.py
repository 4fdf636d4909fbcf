"""Compositions, compared with the ops: all samples and their variants, dtypes and kinds of values in turn."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from op_samples_testing import CALLS, SAMPLES
from pairwise_testing import pairwise
from rewrite_testing import assert_same, assert_same_in_litert, composed

import tensorflow_ops as tfo
from tensorflow_ops.export.python.compositions import compositions
from tensorflow_ops.testing.python import inputs

_RNG = np.random.default_rng(0)
_INF, _NAN = np.inf, np.nan


def _some(value):
    """Returns a function that sets a few numbers of an array."""

    def set_some(array):
        array.reshape(-1)[_RNG.integers(0, array.size, 1 + array.size // 30)] = value

    return set_some


def _mask_rows(array):
    array.reshape(-1, array.shape[-1] if array.ndim else 1)[::3] = -_INF


def _make_ties(array):
    array[...] = np.round(array.astype(float) * 2) / 2


_KINDS = (_make_ties, _mask_rows, _some(_NAN), _some(_INF), _some(-_INF))


# TensorFlow's fused MatMul and BiasAdd of features [3, 0] aborts the process in a graph.
_ABORTS_WITHOUT_ELEMENTS = "nn.linear_cross_entropy"


# Of equal scores, the order of sums decides.
_HAS_NO_TIES = "seq2seq.ctc_beam_search_decode"


def _cases(name, names, tensors, finite, turn):
    """Yields tensors with values of each kind, in one of them, and without elements in each dim."""
    floats = [i for i, x in enumerate(tensors) if x.dtype.is_floating and tf.size(x) > 0 and names[i] not in finite]
    for k, change in enumerate(_KINDS if floats else ()):
        if change is _make_ties and name.startswith(_HAS_NO_TIES):
            continue
        arrays = [x.numpy() for x in tensors]
        change(arrays[floats[(turn + k) % len(floats)]])
        yield [tf.constant(array, x.dtype) for array, x in zip(arrays, tensors, strict=True)]
    for dims in inputs.dim_groups(tensors) if not name.startswith(_ABORTS_WITHOUT_ELEMENTS) else ():
        yield inputs.sliced(tensors, dims, 0)


def _is_accepted(call, tensors):
    try:
        call(*tensors)
    except inputs.REFUSALS:
        return False
    return True


class SamplesTest(parameterized.TestCase):
    @parameterized.parameters(*CALLS)
    def test_same_as_the_ops(self, name):
        call, turn, dtypes = CALLS[name].inputs, CALLS[name].turn, CALLS[name].dtypes
        # A sample's call has all dtypes; its variants one each, in turn.
        for dtype in dtypes if name in SAMPLES else [dtypes[turn % len(dtypes)]]:
            with self.subTest(dtype):
                tensors = call.cast(tf.as_dtype(dtype))
                others = [
                    case
                    for case in _cases(name, call.names, tensors, CALLS[name].finite, turn)
                    if _is_accepted(call.call, case)
                ]
                assert_same(call.call, tensors, *others)


class QuantizedTest(parameterized.TestCase):
    @parameterized.parameters((tf.qint8, np.int8), (tf.quint16, np.uint16))
    def test_same_as_the_ops(self, quantized, bits):
        """NumPy has no quantized dtypes, so no sample has one."""

        def function(x):
            x = tf.bitcast(x, quantized)
            kept, index = tfo.zero_out_with_index(x, preserve_index=4)
            return tf.bitcast(tfo.zero_out(x), bits), tf.bitcast(kept, bits), index

        assert_same(function, [np.arange(1, 7, dtype=bits).reshape(2, 3)])


def _results(sample, changes):
    """Returns the dtypes, shapes and bytes of results, or None where arguments are refused."""
    args, kwargs = sample.changed(changes)
    try:
        results = tf.nest.flatten(sample.fn(*args, **kwargs), expand_composites=True)
    except inputs.REFUSALS:
        return None
    return [(x.dtype, x.shape, x.numpy().tobytes()) for x in results]


class OptionsTest(parameterized.TestCase):
    @parameterized.parameters(*(name for name in SAMPLES if name in CALLS and SAMPLES[name].variants))
    def test_each_option_changes_the_results_of_a_variant(self, name):
        """Op and composition read the attrs of the same node: they agree, too, if the function drops an option."""
        options, used = set(), set()
        for variant in SAMPLES[name].variants:
            changes = {option: value for option, value in variant.items() if option != "onnx"}
            for option, value in changes.items():
                if not any(map(tf.is_tensor, tf.nest.flatten(value))):
                    options.add(option)
                    rest = {other: x for other, x in changes.items() if other != option}
                    if _results(SAMPLES[name], changes) != _results(SAMPLES[name], rest):
                        used.add(option)
        self.assertEqual(options, used)


class SearchesTest(parameterized.TestCase):
    def test_with_the_rules_of_end_tokens(self):
        """No end token before min_length, and nothing else at the end."""
        scores = tf.constant(_RNG.normal(size=[2, 5, 5]))

        def search(scores):
            return tfo.seq2seq.beam_search(
                lambda tokens, state: (tf.gather(state, tokens, batch_dims=1), state),
                scores,
                batch_size=2,
                beam_width=3,
                max_length=4,
                min_length=2,
                bos_id=0,
                eos_ids=[1, 3],
                num_return_sequences=3,
            )

        assert_same(search, [scores])


def _ragged_attention(query, key, value, lengths, **options):
    """Returns the values of the results for examples of these lengths, with 2 n + 2 keys each."""
    key_lengths = [2 * n + 2 for n in lengths]
    of = [tf.constant(x, tf.int64) for x in (lengths, key_lengths, key_lengths)]
    tensors = [tf.RaggedTensor.from_row_lengths(x, n) for x, n in zip((query, key, value), of, strict=True)]
    return [x.values for x in tfo.nn.attention(*tensors, return_log_sum_exp=True, **options)]


class AttentionTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(
        options=({}, {"mask": np.arange(15) % 3 != 0}, {"bias": _RNG.normal(size=[4, 5, 12])}),
        more=({}, {"causal": True}, {"dropout": 0.3, "seed": [7, -16]}),
        lengths=([3, 2, 5], [1, 0, 0], []),
    )
    def test_ragged(self, options, more, lengths):
        rows, keys = sum(lengths), sum(2 * n + 2 for n in lengths)
        tensors = [_RNG.normal(size=size) for size in ([rows, 4, 3], [keys, 2, 3], [keys, 2, 2])]
        assert_same(lambda *x: _ragged_attention(*x, lengths, **options, **more), tensors)

    @pairwise(
        number=(_NAN, _INF, -_INF), tensor=("query", "key", "value", "bias"), dtype=("float16", "bfloat16", "float64")
    )
    def test_numbers_that_are_not_finite(self, number, tensor, dtype):
        shapes = {"query": [2, 5, 4, 3], "key": [2, 12, 2, 3], "value": [2, 12, 2, 2], "bias": [5, 12]}
        arrays = {name: _RNG.normal(size=shape) for name, shape in shapes.items()}
        arrays[tensor][0, 1] = number
        tensors = [tf.constant(x, dtype) for x in arrays.values()]
        mask = _RNG.random([2, 1, 5, 12]) < 0.7
        assert_same(lambda *x: tfo.nn.attention(*x[:3], bias=x[3], mask=mask, return_log_sum_exp=True), tensors)

    def test_causal_attention_in_litert(self):
        attend = tf.function(
            lambda x: tfo.nn.attention(x, x, x, causal=True), [tf.TensorSpec([None, None, 2, 4], name="x")]
        )
        assert_same_in_litert(attend, *([_RNG.normal(size=[1, steps, 2, 4])] for steps in (5, 7)))


class PrecisionTest(tf.test.TestCase):
    def test_confident_predictions_keep_their_loss(self):
        labels, logits = tf.constant([[1.0, 0.0]]), tf.constant([[20.0, 0.0]])
        (loss,) = composed(tfo.nn.softmax_cross_entropy, labels, logits)(labels, logits)
        self.assertAllClose(loss, [np.log1p(np.exp(-20.0))], rtol=1e-6, atol=0)

    def test_gaussian_kl_of_near_gaussians(self):
        for dtype in (tf.float32, tf.float64):
            d = np.array([1e-6, -1e-3, 0.3, -0.999, 0.999, 1.001, 39.0, 41.0])
            q = tf.zeros([8, 1], dtype), tf.constant(d[:, np.newaxis], dtype)
            (kl,) = composed(lambda *q: tfo.nn.gaussian_kl(q), *q)(*q)
            series = d * d / 2 * (1 + d / 3 * (1 + d / 4 * (1 + d / 5)))
            exact = np.where(np.abs(d) < 0.1, series, np.expm1(d) - d) / 2
            self.assertAllClose(kl, exact, rtol=1e-6 if dtype == tf.float32 else 1e-13, atol=0)


class BadValuesTest(tf.test.TestCase, parameterized.TestCase):
    """Compositions check no values: what bad ones give."""

    def _run(self, function, *args):
        args = [tf.constant(x) for x in args]
        return composed(function, *args)(*args)

    @parameterized.parameters(*(name for name in SAMPLES if name.startswith("detection.") and "roi" in name))
    def test_images_out_of_range_pool_zeros(self, name):
        call = CALLS[name].inputs
        tensors = list(call.tensors)
        tensors[-1] = tf.constant([-1, 2, 10**9] + 4 * [5])
        for found in composed(call.call, *tensors)(*tensors)[:1]:
            self.assertAllEqual(found, tf.zeros_like(found))

    def test_labels_and_lengths_out_of_range_are_nan(self):
        losses = self._run(
            lambda *x: tfo.nn.sparse_softmax_cross_entropy(*x, ignore_index=5), [-1, 3, 5, 2], np.zeros([4, 3], "f")
        )
        self.assertAllClose(losses, [[_NAN, _NAN, 0.0, np.log(3)]])
        labels = np.int64([[1, 2], [1, 2**32 + 1], [0, 1], [1, 1], [1, 1]])
        lengths = [2, 2, 2, 3, 2], [4, 4, 4, 4, -1]
        for function, shape in ((tfo.nn.ctc_loss, [5, 4, 3]), (tfo.nn.rnnt_loss, [5, 4, 3, 3])):
            losses = self._run(function, labels, np.zeros(shape, "f"), *lengths)
            self.assertAllEqual(np.isnan(losses), [[False, True, True, True, True]])

    def test_tags_and_lengths_out_of_range_are_nan(self):
        crf = [np.zeros([4, 2, 3], "f"), np.zeros([3, 3], "f"), [1, 2, 3, -1]]
        labels = [[0, 3], [0, 3], [0, 0], [0, 0]]
        (likelihoods,) = self._run(
            lambda labels, *x: tfo.nn.crf_log_likelihood(labels, *x[:2], lengths=x[2]), labels, *crf
        )
        self.assertAllEqual(np.isnan(likelihoods), [False, True, True, True])
        (marginals,) = self._run(lambda *x: tfo.nn.crf_marginals(*x[:2], lengths=x[2]), *crf)
        self.assertAllEqual(np.isnan(marginals[:, 0, 0]), [False, False, True, True])
        _, scores = self._run(lambda *x: tfo.nn.crf_decode(*x[:2], lengths=x[2]), *crf)
        self.assertAllEqual(np.isnan(scores), [False, False, True, True])

    def test_frames_out_of_range_give_no_labels_and_nan(self):
        logits, lengths = np.zeros([3, 2, 4], "f"), [-1, 3, 2]
        _, label_lengths, log_probs = self._run(tfo.seq2seq.ctc_greedy_decode, logits, lengths)
        self.assertAllEqual(label_lengths, [0, 0, 0])
        self.assertAllEqual(np.isnan(log_probs), [True, True, False])
        labels, label_lengths, *scores = self._run(tfo.seq2seq.ctc_beam_search_decode, logits, lengths)
        self.assertAllEqual(labels[:2], np.full([2, 1, 2], -1))
        self.assertAllEqual(label_lengths, [[0], [0], [1]])
        self.assertAllEqual(np.isnan(scores), [[[True], [True], [False]]] * 2)

    def test_beams_out_of_range_are_padded(self):
        parents = np.array([[[0, 0, 0, 0]], [[3, 4, -1, 0]], [[0, 1, 2, 3]]])
        tokens = 10 * np.arange(1, 4)[:, np.newaxis, np.newaxis] + 0 * parents
        (found,) = self._run(lambda *x: tfo.seq2seq.gather_tree(*x, pad_id=0), tokens, parents, [[4, 3, 3, -1]])
        self.assertAllEqual(found[:, 0], [[0, 0, 0, 0], [0, 20, 20, 0], [0, 30, 30, 0]])

    @parameterized.parameters(-4, 3)
    def test_index_out_of_range_is_an_error(self, index):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "is not in"):
            self._run(lambda x: tfo.zero_out_with_index(x, preserve_index=index), np.ones([3]))

    def test_options_are_not_checked(self):
        boxes = np.float32([[0, 0, 1, 1], [0, 0, 2, 2]])
        (kept,) = self._run(tfo.detection.nms, boxes, np.float32([1, 2]), np.float32(1.5))
        self.assertAllEqual(kept, [1, 0])

    def test_a_refused_gradient_is_nan_unless_its_upstream_is_zero(self):
        refuse = compositions()["RefuseGradient"].function
        x, zeros = tf.ones([2, 3], tf.bfloat16), [tf.zeros([4]), tf.zeros([0, 1], tf.float64)]
        self.assertAllEqual(refuse(x, zeros, reason="none"), tf.zeros_like(x))
        self.assertAllEqual(tf.math.is_nan(refuse(x, [*zeros, tf.ones([2])], reason="none")), tf.ones([2, 3], tf.bool))


if __name__ == "__main__":
    tf.test.main()
