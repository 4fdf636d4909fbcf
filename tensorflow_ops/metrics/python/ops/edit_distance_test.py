"""Tests of EditDistance: rates of a dynamic program in NumPy, kinds of sequences, Keras, errors."""

import contextlib

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

# Logical devices must be configured before anything runs. Another test file may have done so.
_CPU = tf.config.list_physical_devices("CPU")[0]
if not tf.config.get_logical_device_configuration(_CPU):
    tf.config.set_logical_device_configuration(_CPU, [tf.config.LogicalDeviceConfiguration()] * 2)


def _distance(a, b):
    """Returns the Levenshtein distance from the table of all prefixes."""
    table = np.zeros([len(a) + 1, len(b) + 1], int)
    table[:, 0], table[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i in range(len(a)):
        for j in range(len(b)):
            replaced = table[i, j] + (a[i] != b[j])
            table[i + 1, j + 1] = min(replaced, table[i, j + 1] + 1, table[i + 1, j] + 1)
    return table[-1, -1]


def _rate(truth, found, normalization):
    errors = np.array([_distance(a, b) for a, b in zip(truth, found, strict=True)], float)
    lengths = np.array([*map(len, truth)])
    if normalization == "total":
        return errors.sum() / lengths.sum()
    return (errors / np.maximum(lengths, 1) if normalization == "sequence" else errors).mean()


def _sequences(seed=0, count=20, longest=12):
    """Returns lists of references and of sequences, some of them empty."""
    rng = np.random.default_rng(seed)
    return [[rng.integers(0, 4, rng.integers(0, longest)) for _ in range(count)] for _ in range(2)]


def _padded(sequences, pad=-1, dtype=np.int32):
    rows = np.full([len(sequences), max(map(len, sequences)) + 2], pad, dtype)
    for row, ids in zip(rows, sequences, strict=True):
        row[: len(ids)] = ids
    return rows


def _ragged(sequences):
    return tf.ragged.constant([*map(list, sequences)], dtype=tf.int32)


_KINDS = {
    "padded": _padded,
    "float": lambda sequences: _padded(sequences, dtype=np.float32),
    "lengths": lambda sequences: (_padded(sequences, pad=2), np.array([*map(len, sequences)])),
    "ragged": _ragged,
    "sparse": lambda sequences: _ragged(sequences).to_sparse(),
    "sparse with holes": lambda sequences: _with_holes(_ragged(sequences).to_sparse()),
}


def _with_holes(sparse):
    """Returns a SparseTensor whose columns are 2, 5, ... instead of 0, 1, ..., in another order."""
    indices, size = sparse.indices.numpy() * [1, 3] + [0, 2], sparse.dense_shape.numpy() * [1, 3]
    order = np.random.default_rng(0).permutation(len(indices))
    return tf.SparseTensor(indices[order], sparse.values.numpy()[order], size)


def _result(y_true, y_pred, *args, **options):
    """Returns the result of one update."""
    metric = tfo.metrics.EditDistance(*args, **options)
    metric.update_state(y_true, y_pred)
    return metric.result()


class EditDistanceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(kind=[*_KINDS], normalization=["total", "sequence", None])
    def test_equals_the_dynamic_program(self, kind, normalization):
        truth, found = _sequences()
        metric = tfo.metrics.EditDistance(normalization=normalization, dtype="float64")
        for part in slice(0, 7), slice(7, 20):
            metric.update_state(_KINDS[kind](truth[part]), _KINDS[kind](found[part]))
        self.assertAllClose(metric.result(), _rate(truth, found, normalization), rtol=0, atol=1e-12)

    def test_kinds_may_differ(self):
        truth, found = _sequences(1)
        metric = tfo.metrics.EditDistance(dtype="float64")
        for kind in _KINDS:
            metric.update_state(_padded(truth), _KINDS[kind](found))
        self.assertAllClose(metric.result(), _rate(truth, found, "total"), rtol=0, atol=1e-12)

    def test_pad_id(self):
        self.assertAllEqual(_result(np.array([[1, 2, 0, 0]]), np.array([[0, 1, 0, 2, -1]]), pad_id=0), 0)

    def test_result_of_ctc_greedy_decode(self):
        found = tfo.seq2seq.ctc_greedy_decode(tf.one_hot([[1, 1, 0, 2]], 3) * 9, [4])
        self.assertAllClose(_result(np.array([[1, 2, 2, -1]]), found), 1 / 3)

    def test_words_and_characters(self):
        spaces = "".join(filter(str.isspace, map(chr, range(0x110000))))
        truth, found = ["der  Fuß ist", "", "ja", "x".join(spaces)], ["die Füße ist", "so", "", "x"]
        for tokens, split in (("words", str.split), ("characters", list)):
            expected = _rate([*map(split, truth)], [*map(split, found)], "total")
            self.assertAllClose(_result(np.array(truth), tf.constant(found), tokens), expected)

    @parameterized.product(kind=["all", "mask", "lengths", "ragged"], blank=[0, -1])
    def test_logits_of_ctc(self, kind, blank):
        rng = np.random.default_rng(6)
        logits, lengths = rng.normal(size=[5, 9, 4]).astype(np.float32), np.array([9, 0, 4, 9, 6])
        labels = rng.integers(0, 3, [5, 4]) + (blank == 0)
        labels[2:, 3] = 3 if blank else 0  # blanks are padding, too
        labels[3, 2:] = -1
        is_frame = np.arange(9) < np.where(kind == "all", 9, lengths)[:, np.newaxis]
        if kind == "mask":  # of frames anywhere
            is_frame = rng.random([5, 9]) < 0.5
        best = [[*map(int, row[keep].argmax(-1))] for row, keep in zip(logits, is_frame, strict=True)]
        merged = [[c for c, before in zip(path, [None, *path], strict=False) if c != before] for path in best]
        found = [[c for c in path if c != blank % 4] for path in merged]
        truth = [[c for c in row if c not in (-1, blank % 4)] for row in labels]
        values = {
            "all": lambda: tf.constant(logits),
            "mask": lambda: tf.constant(logits),
            "lengths": lambda: (logits, lengths),
            "ragged": lambda: tf.RaggedTensor.from_tensor(logits, lengths),
        }[kind]()
        if kind == "mask":
            values._keras_mask = tf.constant(is_frame)
        options = {"decode": "ctc", "blank_index": blank, "dtype": "float64"}
        self.assertAllClose(_result(labels, values, **options), _rate(truth, found, "total"), rtol=0, atol=1e-12)

    def test_strings_as_tokens(self):
        truth, found = tf.ragged.constant([["a", "b"], ["c"]]), tf.ragged.constant([["a"], ["c", "d"]])
        self.assertAllClose(_result(truth, found), 2 / 3)

    @parameterized.parameters(("total", 3), ("sequence", 1.5), (None, 1.5))
    def test_references_without_tokens(self, normalization, expected):
        options = {"normalization": normalization}
        self.assertAllEqual(tfo.metrics.EditDistance(**options).result(), 0)
        self.assertAllEqual(_result(np.zeros([0, 3], np.int32), np.zeros([0, 2], np.int32), **options), 0)
        found = np.array([[1, 2, 3], [-1, -1, -1]])
        self.assertAllEqual(_result(np.zeros([2, 0], np.int32), found, **options), expected)

    def test_a_graph_of_unknown_shapes(self):
        truth, found = _sequences(2)
        metric = tfo.metrics.EditDistance(dtype="float64")
        update = tf.function(metric.update_state, input_signature=[tf.TensorSpec(None, tf.int32)] * 2)
        for part in slice(0, 7), slice(7, 20):
            update(_padded(truth[part]), _padded(found[part]))
        self.assertAllClose(tf.function(metric.result)(), _rate(truth, found, "total"), rtol=0, atol=1e-12)
        text = "the shape of y_pred.* expected .*as many as y_true"
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, text):
            update(_padded(truth[:3]), _padded(found[:2]))

    def test_ragged_and_sparse_of_unknown_rank(self):
        truth, found = _sequences(2)
        metric = tfo.metrics.EditDistance(dtype="float64")
        specs = [tf.RaggedTensorSpec(None, tf.int32, ragged_rank=1), tf.SparseTensorSpec(None, tf.int32)]
        update = tf.function(metric.update_state, input_signature=specs)
        update(_ragged(truth), _KINDS["sparse with holes"](found))
        self.assertAllClose(metric.result(), _rate(truth, found, "total"), rtol=0, atol=1e-12)
        wide = tf.RaggedTensor.from_row_lengths(tf.zeros([1, 2], tf.int32), [1])
        for y_true, y_pred, text in (
            (
                _ragged(truth),
                tf.sparse.from_dense([[[1]]]),
                r"the shape of y_pred's dense_shape is \[3\], expected \[2\]",
            ),
            (wide, _ragged(found).to_sparse(), "the shape of y_true's values"),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, text):
                update(y_true, y_pred)

    def test_merged_metrics_equal_one(self):
        truth, found = _sequences(3)
        metrics = [tfo.metrics.EditDistance(normalization="sequence", dtype="float64") for _ in range(3)]
        for metric, part in zip(metrics, (slice(0, 3), slice(3, 4), slice(4, 20)), strict=True):
            metric.update_state(_padded(truth[part]), _padded(found[part]))
        metrics[0].merge_state(metrics[1:])
        self.assertAllClose(metrics[0].result(), _rate(truth, found, "sequence"), rtol=0, atol=1e-12)
        with self.assertRaisesRegex(ValueError, r"metrics contains .*, expected tfo.metrics.EditDistance\(norm.*'seq"):
            metrics[0].merge_state([tfo.metrics.EditDistance()])
        metrics[0].reset_state()
        self.assertAllEqual(metrics[0].result(), 0)

    def test_config(self):
        metric = tfo.metrics.EditDistance("words", normalization=None, pad_id=3, name="wer", dtype="float64")
        copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
        self.assertEqual(copy.get_config(), metric.get_config())
        self.assertEqual((copy.tokens, copy.normalization, copy.pad_id, copy.name), ("words", None, 3, "wer"))

    def test_a_model_of_ctc_is_saved(self):
        rng = np.random.default_rng(7)
        x, labels = rng.normal(size=[4, 6, 3]).astype(np.float32), np.array([[1, 2], [2, 2], [1, -1], [2, 1]])
        x[0, :2], x[1, 3:] = 0, 0  # no frames
        model = keras.Sequential([keras.layers.Masking(), keras.layers.Dense(3)])
        metric = tfo.metrics.EditDistance(decode="ctc", blank_index=0, name="ler")
        model.compile("sgd", keras.losses.MeanSquaredError(), metrics=[metric], jit_compile=False)
        model.compute_loss = lambda x, y, y_pred, *args, **kwargs: tf.reduce_sum(tfo.nn.ctc_loss(y, y_pred))
        model.fit(x, labels, verbose=0)
        number = model.evaluate(x, labels, verbose=0, return_dict=True)["ler"]
        frames = tf.RaggedTensor.from_row_lengths(x[np.any(x != 0, -1)], [4, 3, 6, 6])
        logits = frames.with_values(model.layers[-1](frames.values))
        self.assertAllClose(number, _result(labels, tfo.seq2seq.ctc_greedy_decode(logits)))
        path = f"{self.get_temp_dir()}/ctc.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)
        loaded.compute_loss = model.compute_loss
        self.assertAllClose(loaded.evaluate(x, labels, verbose=0, return_dict=True)["ler"], number)

    def test_in_a_keras_model(self):
        truth, found = _sequences(4)
        x, y = _padded(found, dtype=np.float32), _padded(truth)
        inputs = keras.Input(x.shape[1:])
        model = keras.Model(inputs, keras.layers.Identity()(inputs))
        loss = lambda y_true, y_pred: tf.reduce_mean(y_pred, 1) * 0.0  # noqa: E731
        model.compile("sgd", loss, metrics=[tfo.metrics.EditDistance(name="ler")], jit_compile=False)
        expected = _rate(truth, found, "total")
        self.assertAllClose(model.evaluate(x, y, batch_size=7, verbose=0, return_dict=True)["ler"], expected)
        self.assertAllClose(model.fit(x, y, batch_size=7, verbose=0).history["ler"], [expected])

    @parameterized.product(is_inside=[False, True], normalization=["total", "sequence", None])
    def test_replicas_add_up(self, is_inside, normalization):
        truth, found = _sequences(5)
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope() if is_inside else contextlib.nullcontext():
            metric = tfo.metrics.EditDistance(normalization=normalization, dtype="float64")
        update = tf.function(lambda *args: strategy.run(metric.update_state, args))
        # The last batch, of one sequence, leaves the second replica without any.
        data = tf.data.Dataset.from_tensor_slices((_padded(truth), _padded(found)))
        data = data.take(19).batch(7).concatenate(data.skip(19).batch(1))
        for batch in strategy.experimental_distribute_dataset(data):
            update(*batch)
        for scope in (contextlib.nullcontext(), strategy.scope()):
            with scope:
                self.assertAllClose(metric.result(), _rate(truth, found, normalization), rtol=0, atol=1e-12)

    def test_bad_options(self):
        for option, value, text in (
            ("tokens", "letters", "tokens is 'letters', expected one of 'ids', 'characters', 'words'"),
            ("normalization", "mean", "normalization is 'mean', expected one of 'total', 'sequence', None"),
            ("normalization", np.array("total"), r"normalization is array\(.*, expected one of"),
            ("pad_id", 1.5, "pad_id is 1.5, expected an int"),
            ("decode", "greedy", "decode is 'greedy', expected one of 'ctc'"),
            ("blank_index", -2, "blank_index is -2, expected an int"),
        ):
            with self.subTest(option), self.assertRaisesRegex(ValueError, text):
                tfo.metrics.EditDistance(**{option: value})
        with self.assertRaisesRegex(ValueError, "decode is 'ctc', expected None for tokens='words'"):
            tfo.metrics.EditDistance("words", decode="ctc")

    def test_bad_inputs(self):
        ids = np.zeros([2, 3], np.int32)
        for y_true, y_pred, text in (
            (None, ids, "y_true is None, expected a tensor"),
            (ids, ids[0], r"y_pred has shape \[3\], expected \[\?,\?\]"),
            (ids, ids[:1], r"y_pred has shape \[1\], expected \[2\]: as many as y_true"),
            (ids, (ids, [1]), r"y_pred's lengths has shape \[1\], expected \[2\]"),
            (ids, (ids, [1, 2], 3), r"y_pred is a tuple of 3, expected \(ids, lengths\)"),
            (ids, (ids, np.float32([1, 2])), "y_pred's lengths are float32, expected int64"),
            (ids, tf.ragged.constant([["a"], []]), "y_pred are string, expected int64 as y_true"),
            (ids, tf.ragged.constant([[[1]], [[2]]]), r"y_pred has shape \(2, None, None\), expected \[N, None\]"),
            (ids, np.array([["a"], ["b"]]), "y_pred are string, expected ids"),
            (
                ids,
                np.zeros([2, 3, 4]),
                r"y_pred has shape \[2,3,4\], .*logits\? .*ctc_greedy_decode, or .*decode='ctc'",
            ),
            (ids, tf.sparse.from_dense([[[1]]]), r"y_pred's dense_shape has shape \[3\], expected \[2\]"),
        ):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                _result(y_true, y_pred)
        text = r"y_true's lengths\[1\] is 4, expected \[0, L\] of ids"
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, text):
            _result((ids, [1, 4]), ids)
        for values, text in (
            (np.float32([1, 1.5]), r"\[?0?,?1\] is 1.5, expected a whole number"),
            (np.array([0, np.nan], np.float16), "is nan, expected a whole number"),
            (np.array([0, 1e300]), r"is 1e\+300, expected a whole number of 64 bits"),
            (np.array([0, 2**63], np.uint64), r"is 9223372036854775808, expected a whole number of 64 bits"),
        ):
            rows = tf.RaggedTensor.from_row_lengths(values, [2])
            for kind in (values[np.newaxis], (values[np.newaxis], [2]), rows, rows.to_sparse()):
                with self.subTest(text), self.assertRaisesRegex(tf.errors.InvalidArgumentError, f"y_pred.*{text}"):
                    _result([[1]], kind)
        for y_true, text in (
            (ids, "y_true are int32, expected strings for tokens='words'"),
            ([["a"]], r"y_true has shape \[1,1\], expected \[\?\]: \[N\], a string"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                _result(y_true, ["a"], "words")
        with self.assertRaisesRegex(ValueError, "sample_weight is given, but tfo.metrics.EditDistance has no weights"):
            tfo.metrics.EditDistance().update_state(ids, ids, [1, 2])
        for y_pred, text in (
            ((ids, [1], [1]), r"y_pred is a tuple of 3, expected \(logits, lengths\)"),
            (ids, "y_pred are int32, expected float"),
            (np.zeros([2, 3]), r"y_pred has shape \[2,3\], expected \[\?,\?,\?\]: \[N, T, C\], logits of CTC"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                _result(ids, y_pred, decode="ctc")

    def test_graphs_of_tensorflow_1_are_refused(self):
        for metric in tfo.metrics.EditDistance(), tfo.metrics.MeanAveragePrecision(), tfo.metrics.TagAccuracy():
            text = (
                f"needs TensorFlow 2's behavior: update tfo.metrics.{type(metric).__name__} eagerly or in a tf.function"
            )
            with tf.Graph().as_default(), self.assertRaisesRegex(RuntimeError, text):
                metric.update_state([[1]], [[1]])

    def test_xla_is_refused(self):
        metric = tfo.metrics.EditDistance()
        text = "XLA cannot compile tfo.metrics.EditDistance.*jit_comp"
        with self.assertRaisesRegex(tf.errors.UnimplementedError, text):
            tf.function(metric.update_state, jit_compile=True)(np.zeros([1, 1]), np.zeros([1, 1]))


if __name__ == "__main__":
    tf.test.main()
