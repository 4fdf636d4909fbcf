"""Tests of TagAccuracy: tags of all paths of a CRF, kinds of labels, Keras, errors."""

import itertools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_TAGS = np.array([[1, 2, 0, 1], [2, 2, -1, -1], [-1, -1, -1, -1], [0, 1, 2, -1]])
_LENGTHS = np.array([4, 2, 0, 3])
_SCORES = np.random.default_rng(3).normal(size=[4, 4, 3]).astype(np.float32)


def _model():
    """Returns a CRF whose best tags are not those of single frames, and its model."""
    crf = tfo.layers.CRF(3, transitions_initializer=keras.initializers.RandomNormal(stddev=2, seed=1))
    return crf, keras.Sequential([keras.Input([None, 3]), crf])


def _best(crf):
    """Returns the best tags [N, T], by the scores of all paths."""
    first, last, transitions = *crf.boundaries.numpy(), crf.transitions.numpy()
    rows = np.full(_TAGS.shape, -1)
    for row, scores, length in zip(rows, _SCORES, _LENGTHS, strict=True):

        def score(path, scores=scores):
            steps = sum(scores[t, tag] for t, tag in enumerate(path))
            return steps + first[path[0]] + last[path[-1]] + sum(transitions[i, j] for i, j in itertools.pairwise(path))

        if length:
            row[:length] = max(itertools.product(range(3), repeat=length), key=score)
    return rows


def _accuracy(found):
    return (found == _TAGS)[_TAGS >= 0].mean()


_KINDS = {
    "ids": lambda: _TAGS,
    "floats": lambda: _TAGS.astype(np.float32),
    "ragged": lambda: tf.RaggedTensor.from_tensor(_TAGS.astype(np.uint8), _LENGTHS),
    "sparse": lambda: tf.RaggedTensor.from_tensor(_TAGS, _LENGTHS).to_sparse(),
}


class TagAccuracyTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(kind=[*_KINDS], mode=["eager", "graph", "xla"])
    def test_equals_all_paths(self, kind, mode):
        crf, model = _model()
        metric, best = tfo.metrics.TagAccuracy(dtype="float64"), _best(crf)
        self.assertNotEqual(_accuracy(best), _accuracy(_SCORES.argmax(-1)))
        if mode == "xla" and kind in ("ragged", "sparse"):
            self.skipTest("XLA compiles no RaggedTensors of unknown sizes")

        def update(y_true, scores, tags):
            metric.update_state(y_true, model(scores))
            metric.update_state(y_true, tags)

        if mode != "eager":
            update = tf.function(update, jit_compile=mode == "xla")
        update(_KINDS[kind](), _SCORES, best)
        self.assertAllClose(metric.result(), _accuracy(best), rtol=0, atol=1e-12)
        other = tfo.metrics.TagAccuracy()
        other.update_state(_TAGS, _TAGS)
        metric.merge_state([other])
        self.assertAllClose(metric.result(), (2 * _accuracy(best) + 1) / 3, rtol=0, atol=1e-12)

    def test_a_graph_of_unknown_shapes(self):
        metric = tfo.metrics.TagAccuracy()
        update = tf.function(metric.update_state, input_signature=[tf.TensorSpec(None, tf.int32)] * 2)
        update(_TAGS, np.zeros_like(_TAGS))
        self.assertAllClose(metric.result(), _accuracy(0 * _TAGS))
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"the shape of y_true.* expected .*with y_pred's N"
        ):
            update(_TAGS, _TAGS[:, :3])

    @parameterized.parameters(False, True)
    def test_in_a_keras_model(self, is_distributed):
        strategy = tf.distribute.MirroredStrategy(["CPU:0"]) if is_distributed else tf.distribute.get_strategy()
        with strategy.scope():
            crf, model = _model()
            metric = tfo.metrics.TagAccuracy()
            model.compile(keras.optimizers.SGD(0.0), loss=tfo.losses.CRF(), metrics=[metric])
        path = f"{self.get_temp_dir()}/tagger.keras"
        model.save(path)
        for tagger in model, keras.saving.load_model(path):
            history = tagger.fit(_SCORES, _TAGS, verbose=0).history["tag_accuracy"]
            result = tagger.evaluate(_SCORES, _TAGS, batch_size=3, verbose=0, return_dict=True)["tag_accuracy"]
            self.assertAllClose([*history, result], [_accuracy(_best(crf))] * 2)

    def test_config(self):
        metric = tfo.metrics.TagAccuracy("tags", dtype="float64")
        copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
        self.assertEqual(copy.get_config(), metric.get_config())

    def test_bad_inputs(self):
        _, model = _model()
        long = tf.RaggedTensor.from_row_lengths(np.zeros(6, int), [5, 1, 0, 0])
        for y_true, y_pred, text in (
            (_TAGS, _SCORES, r"y_pred has shape \[4,4,3\], expected .*\[N, T\], tags, or the output of tfo.layers.CRF"),
            (_TAGS[:, :3], model(_SCORES), r"y_true has shape \[4,3\], expected \[4,4\]"),
            (_TAGS[:3], _TAGS, r"y_true has shape \[3,4\], expected \[4,4\]"),
            (long, model(_SCORES), r"y_true has shape \[4,5\], expected \[4,4\]"),
            (np.eye(3)[_TAGS], model(_SCORES), r"y_true has shape \[4,4,3\], expected \[4,4\]"),
            (None, _TAGS, "y_true is None, expected a tensor"),
        ):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                tfo.metrics.TagAccuracy().update_state(y_true, y_pred)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"y_true\[0,0\] is 1.5, expected a whole number"):
            tfo.metrics.TagAccuracy().update_state(_TAGS + 0.5, _TAGS)
        with self.assertRaisesRegex(ValueError, "sample_weight is given, but tfo.metrics.TagAccuracy has no weights"):
            tfo.metrics.TagAccuracy().update_state(_TAGS, _TAGS, np.ones(4))


if __name__ == "__main__":
    tf.test.main()
