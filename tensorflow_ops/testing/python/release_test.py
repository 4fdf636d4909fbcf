"""Ops of each family in the TensorFlow at hand, for every release that the wheel serves: tools/test_wheel.sh.

A model is saved to the folder TENSORFLOW_OPS_MODELS, if it is set; models that other releases saved there are loaded.
"""

import contextlib
import io
import os
import pathlib

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

_LOGITS = np.array([[0.5, -1.0, 2.0], [3.0, 1.0, -2.0]], np.float32)


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class OpsTest(tf.test.TestCase):
    def test_zero_out(self):
        x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.function(tfo.zero_out)(x)
        self.assertAllEqual(y, [[1, 0], [0, 0]])
        self.assertAllEqual(tape.gradient(y, x), [[1, 0], [0, 0]])

    def test_region_pooling(self):
        features = tf.reshape(tf.range(32, dtype=tf.float32), [1, 4, 4, 2])
        boxes = tf.constant([[0.0, 0.0, 2.0, 2.0]])
        with tf.GradientTape() as tape:
            tape.watch([features, boxes])
            y = tfo.detection.roi_align(features, boxes, [0], 1, sampling_ratio=2, aligned=False)
        # The mean of samples at 0.5 and 1.5 is the value at (1, 1), the pixel of channels 10 and 11.
        self.assertAllClose(y, [[[[10, 11]]]])
        to_features, to_boxes = tape.gradient(y, [features, boxes])
        self.assertAllClose(tf.reduce_sum(to_features), 2)
        # A step of a pixel adds 2 to each channel on x and 8 on y; half of it goes to each side.
        self.assertAllClose(to_boxes, [[2, 8, 2, 8]])
        pooled, argmax = tfo.detection.roi_pool_with_argmax(features, boxes, [0], 1)
        self.assertAllEqual(pooled, [[[[20, 21]]]])
        self.assertAllEqual(argmax, [[[[10, 10]]]])

    def test_boxes(self):
        boxes = tf.constant([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.0], [5.0, 5.0, 6.0, 6.0]])
        self.assertAllEqual(tfo.detection.nms(boxes, [0.5, 0.9, 0.1], 0.4), [1, 2])
        self.assertAllClose(tfo.detection.box_iou(boxes[:1], boxes), [[1, 0.5, 0]])
        detections = tfo.detection.multiclass_nms(boxes[None], tf.constant([[[0.5], [0.9], [0.1]]]), iou_threshold=0.4)
        self.assertAllEqual(detections.counts, [2])
        matching = tfo.detection.linear_sum_assignment([[4.0, 1.0], [2.0, 0.0], [4.0, 2.0]])
        self.assertAllEqual(matching.columns, [1, 0, -1])
        box = tf.constant([0.0, 0.0, 2.0, 1.5])
        with tf.GradientTape() as tape:
            tape.watch(box)
            loss = tfo.detection.box_iou_loss(boxes[0], box, mode="iou")
        self.assertAllClose(loss, 0.25)
        # Raising the lower edge by h adds 2h to the intersection of 3, of a union of 4.
        self.assertAllClose(tape.gradient(loss, box)[3], -0.5)

    def test_functions_of_logits(self):
        logits = tf.constant(_LOGITS)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = tfo.nn.sparse_softmax_cross_entropy([2, 1], logits)
        expected = _softmax(_LOGITS)
        self.assertAllClose(tfo.nn.softmax(logits), expected)
        self.assertAllClose(loss, -np.log([expected[0, 2], expected[1, 1]]))
        self.assertAllClose(tape.gradient(loss, logits), expected - [[0, 0, 1], [0, 1, 0]])
        for dtype in tf.float16, tf.bfloat16, tf.float64:
            self.assertAllClose(tf.cast(tfo.nn.softmax(tf.cast(logits, dtype)), tf.float32), expected, atol=0.01)

    def test_masks(self):
        image = tf.constant([[0, 1, 1], [0, 0, 1], [1, 0, 0]])
        self.assertAllClose(tfo.image.euclidean_distance_transform(image), [[0, 1, 2**0.5], [0, 0, 1], [1, 0, 0]])
        labels, count = tfo.image.connected_components(image)
        self.assertAllEqual(labels, [[0, 1, 1], [0, 0, 1], [2, 0, 0]])
        self.assertAllEqual(count, 2)

    def test_beam_search(self):
        table = tf.math.log(tf.constant([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1]]))

        def step(tokens, state):
            return tf.gather(table, tokens), state

        found = tf.function(
            lambda: tfo.seq2seq.beam_search(step, (), batch_size=1, beam_width=2, max_length=4, bos_id=0, eos_ids=1)
        )()
        self.assertAllEqual(found.sequences[0, 0, :2], [2, 1])

    def test_python_op(self):
        @tfo.python_op("releases::square", out=lambda x: tf.TensorSpec(x.shape, x.dtype))
        def square(x):
            return x * x

        @square.register_gradient
        def square_gradient(ctx, up):
            return 2 * ctx.inputs[0] * up

        x = tf.constant([1.0, -3.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = square(x)
        self.assertAllEqual(y, [1, 9])
        self.assertAllEqual(tape.gradient(y, x), [2, -6])

    def test_variables(self):
        """TensorFlow's class of variables has another layout in some releases."""
        table = tf.keras.Variable(tf.ones([4, 2]))
        optimizer = tfo.optimizers.LazyAdam(0.1)
        for _ in range(3):
            optimizer.apply([tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 3]), tf.constant([4, 2]))], [table])
        self.assertAllClose(table, [[1, 1], [0.7, 0.7], [1, 1], [0.7, 0.7]], 1e-4)

    def test_errors_name_the_argument(self):
        with self.assertRaisesRegex(ValueError, "boxes"):
            tfo.detection.nms(tf.zeros([3, 5]), tf.zeros([3]), 0.5)
        with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), "box_indices"):
            tfo.detection.roi_pool(tf.zeros([1, 4, 4, 1]), [[0, 0, 1, 1]], [7], 1)

    def test_shows_the_kernels_in_use(self):
        minor = ".".join(tf.__version__.split(".")[:2])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            tfo.show_versions()
        self.assertIn(f"kernels in use: for TensorFlow {minor}.", printed.getvalue())


class ModelTest(tf.test.TestCase):
    def test_keras_model_trains_and_loads(self):
        features = tf.keras.Input([8, 8, 2])
        boxes = tf.keras.Input([3, 4])
        pooled = tfo.layers.RoIAlign(2)(features, boxes)
        logits = tf.keras.layers.Dense(3)(tf.keras.layers.Reshape([3, 8])(pooled))
        model = tf.keras.Model([features, boxes], logits)
        model.compile("sgd", tfo.losses.SparseSoftmaxCrossEntropy(), jit_compile=False)
        x = [np.ones([4, 8, 8, 2], np.float32), np.tile(np.float32([0, 0, 4, 4]), [4, 3, 1])]
        model.fit(x, np.zeros([4, 3], np.int32), epochs=1, verbose=0)
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        self.assertAllClose(tf.keras.models.load_model(path).predict(x, verbose=0), model.predict(x, verbose=0))

    def test_saved_models_of_all_releases_load(self):
        folder = pathlib.Path(os.environ.get("TENSORFLOW_OPS_MODELS", self.get_temp_dir()))

        class Module(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([None, 3])])
            def __call__(self, logits):
                with tf.GradientTape() as tape:
                    tape.watch(logits)
                    loss = tfo.nn.sparse_softmax_cross_entropy(tf.ones_like(logits[:, 0], tf.int32), logits)
                return tfo.nn.softmax(logits), tape.gradient(loss, logits)

        tf.saved_model.save(Module(), str(folder / tf.__version__))
        expected = _softmax(_LOGITS)
        for path in sorted(folder.iterdir()):
            if (path / "saved_model.pb").exists():
                probabilities, gradient = tf.saved_model.load(str(path))(tf.constant(_LOGITS))
                self.assertAllClose(probabilities, expected, msg=str(path))
                self.assertAllClose(gradient, expected - [[0, 1, 0]], msg=str(path))
                print("loaded the model of TensorFlow", path.name)


if __name__ == "__main__":
    tf.test.main()
