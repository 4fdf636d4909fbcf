"""SavedModels that to_standard_ops rewrites run in processes that never import this package."""

import os
import pathlib
import tempfile

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized
from rewrite_testing import assert_same_in_litert
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import kernels

import tensorflow_ops as tfo
from tensorflow_ops.export.python.compositions import PREFIX, compositions

_RNG = np.random.default_rng(0)
_MASK = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0]]) > 0

# Metrics, versions and a matcher for training are not of a saved model.
_NO_COMPOSITIONS = {"ApplyGradients", "AveragePrecision", "BuildInfo", "LinearSumAssignment", "MatchDetections"}

# Writes the results of a model's signature for the arrays in a file.
_SERVE = """
    import sys
    import numpy as np, tensorflow as tf

    model, signature, arguments, results = sys.argv[1:]
    loaded = tf.saved_model.load(model)
    found = loaded.signatures[signature](**{name: tf.constant(x) for name, x in np.load(arguments).items()})
    assert "tensorflow_ops" not in sys.modules
    np.savez(results, **{name: x.numpy() for name, x in found.items()})
"""


def _read(folder):
    model = saved_model_pb2.SavedModel()
    model.ParseFromString(pathlib.Path(folder, "saved_model.pb").read_bytes())
    return model


def _ops(folder):
    """Returns the names of all ops in a SavedModel, also of those that it lists."""
    found = set()
    for meta in _read(folder).meta_graphs:
        graph = meta.graph_def
        found |= {node.op for node in graph.node} | {op.name for op in meta.meta_info_def.stripped_op_list.op}
        found |= {node.op for function in graph.library.function for node in function.node_def}
    return found


class _Detector(tf.Module):
    """Ops in functions called twice, in a loop and a branch, with lists of inputs, behind control dependencies."""

    def __init__(self, words):
        self.scale = tf.Variable(tf.random.stateless_normal([3, 3], seed=(1, 2)))
        self.words = tf.saved_model.Asset(words)

    @tf.function
    def _pool(self, maps, boxes):
        indices = tf.zeros(tf.shape(boxes)[:1], tf.int32)
        return tfo.detection.multiscale_roi_align(maps, boxes, indices, 2, strides=(1, 2), canonical_box_size=5.0)

    @tf.function(
        input_signature=[tf.TensorSpec([1, None, None, 3], name="image"), tf.TensorSpec([None, 4], name="boxes")]
    )
    def detect(self, image, boxes):
        maps = [image, image[:, ::2, ::2]]
        pooled = self._pool(maps, boxes) + 2 * self._pool(maps, boxes + 1)
        for i in tf.range(3):
            with tf.control_dependencies([tfo.image.grid_sample(image, tf.zeros([1, 1, 2]))]):
                warped = tfo.image.dense_image_warp(image, tf.fill(tf.shape(image[..., :2]), tf.cast(i, tf.float32)))
            if i > 0:
                kept = tfo.detection.soft_nms(boxes, boxes[:, 0]).scores
            else:
                kept = tf.zeros([0])
            image = warped + tf.reduce_sum(kept)
        scores = tf.reduce_mean(pooled, [1, 2]) @ self.scale
        found = tfo.detection.multiclass_nms(boxes[None], scores[None], max_outputs=3)
        return {"image": image, "scores": found.scores, "classes": found.class_ids}

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="boxes")])
    def overlap(self, boxes):
        return {"iou": tfo.detection.box_iou(boxes, boxes, mode="giou"), "word": tf.io.read_file(self.words)}


class ToStandardOpsTest(tf.test.TestCase, parameterized.TestCase):
    def _folder(self, name):
        return os.path.join(self.get_temp_dir(), self.id(), name)

    def _detector(self):
        words = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), "words.txt")
        pathlib.Path(words).write_text("word", "utf-8")
        module, folder = _Detector(words), self._folder("model")
        tf.saved_model.save(module, folder, {"detect": module.detect, "overlap": module.overlap})
        return module, folder

    def _served(self, model, signature="serving_default", **arguments):
        """Returns a signature's results in a new process."""
        given, results = self._folder("arguments.npz"), self._folder("results.npz")
        np.savez(given, **arguments)
        process_testing.output(self.get_temp_dir(), _SERVE, model, signature, given, results)
        return dict(np.load(results))

    def test_model_runs_without_the_package(self):
        module, model = self._detector()
        standard = self._folder("standard")
        counts = tfo.export.to_standard_ops(pathlib.Path(model), pathlib.Path(standard))
        replaced = ["BoxIou", "GridSample", "MulticlassNms", "MultiscaleRoiAlign", "SoftNms"]
        self.assertEqual(sorted(counts), [PREFIX + op for op in replaced])
        self.assertEqual(counts[PREFIX + "GridSample"], 2)
        self.assertIn(PREFIX + "BoxIou", _ops(model))
        self.assertEmpty({op for op in _ops(standard) if op.startswith(PREFIX)})
        self.assertNoCommonElements(os.listdir(standard), ["fingerprint.pb"])
        corners = _RNG.uniform(0, 5, [6, 2])
        image = _RNG.normal(size=[1, 9, 11, 3]).astype(np.float32)
        boxes = np.concatenate([corners, corners + _RNG.uniform(1, 6, [6, 2])], 1).astype(np.float32)
        for signature, arguments in (("detect", {"image": image, "boxes": boxes}), ("overlap", {"boxes": boxes})):
            expected = getattr(module, signature)(**arguments)
            served = self._served(standard, signature, **arguments)
            self.assertCountEqual(served, expected)
            for name, value in expected.items():
                if value.dtype.is_floating:
                    self.assertAllClose(served[name], value, 1e-5, 1e-5, msg=name)
                else:
                    self.assertAllEqual(served[name], value, msg=name)

    def test_keras_model_exported_or_saved(self):
        features = keras.Input([8, 9, 3], batch_size=1, name="features")
        boxes = keras.Input([4], name="boxes")
        convolved = keras.layers.Conv2D(4, 3, name="convolution")(features)
        indices = keras.layers.Lambda(lambda boxes: tf.zeros(tf.shape(boxes)[:1], tf.int32))(boxes)
        pooled = tfo.layers.RoIAlign(2)(convolved, boxes, indices)
        model = keras.Model([features, boxes], pooled)
        arguments = [
            _RNG.normal(size=[1, 8, 9, 3]).astype(np.float32),
            np.array([[1, 1, 4, 5], [0, 2, 6, 6]], np.float32),
        ]
        expected = model(arguments)
        exported, saved = self._folder("exported"), self._folder("saved")
        model.export(exported, verbose=False)
        tf.saved_model.save(model, saved)
        for folder in (exported, saved):
            self.assertEqual(tfo.export.to_standard_ops(folder, folder + "_standard"), {PREFIX + "RoiAlign": 1})
            inputs = _read(folder).meta_graphs[0].signature_def["serving_default"].inputs
            by_rank = sorted(inputs, key=lambda name: -len(inputs[name].tensor_shape.dim))
            served = self._served(folder + "_standard", **dict(zip(by_rank, arguments, strict=True)))
            self.assertAllClose(next(iter(served.values())), expected, 1e-5, 1e-5)

    def test_functions_of_both_keep_apart(self):
        """The model's loops have the names that those of compositions have when they are traced in a new process."""
        script = """
            import sys
            import tensorflow as tf
            import tensorflow_ops as tfo

            class Model(tf.Module):
                @tf.function(input_signature=[tf.TensorSpec([None, 4], name="boxes")])
                def keep(self, boxes):
                    kept = tfo.detection.nms(boxes, boxes[:, 0], 0.5)
                    return {"kept": tf.while_loop(lambda x: x[0] < 5, lambda x: [x + 1], [kept])[0]}

            if sys.argv[1] == "save":
                tf.saved_model.save(Model(), "model")
            else:
                tfo.export.to_standard_ops("model", "standard")
        """
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        process_testing.output(folder, script, "save")
        process_testing.output(folder, script, "rewrite")
        for name in ("standard", "again"):
            if name == "again":  # Names of the first rewriting are taken.
                tf.saved_model.save(tf.saved_model.load(os.path.join(folder, "standard")), os.path.join(folder, name))
            os.makedirs(self._folder(name))
            boxes = np.array([[3, 0, 4, 1], [2, 0, 3, 1]], np.float32)
            served = tf.saved_model.load(os.path.join(folder, name)).signatures["serving_default"]
            self.assertAllEqual(served(boxes=tf.constant(boxes))["kept"], [5, 6])

    def test_a_search_with_a_model(self):
        """Its SavedModel has the function of its gradient, which refuses one, and takes tensors of several dtypes."""
        scores = tf.constant(_RNG.normal(size=[4, 4]), tf.float32)

        class Model(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([None, None, 4], name="logits")])
            def decode(self, logits):
                best = tfo.seq2seq.ctc_beam_search_decode(
                    logits, beam_width=3, step_fn=lambda labels, state: (tf.gather(scores, labels), state)
                )
                return {"labels": best.labels, "scores": best.scores}

        module, model, standard = Model(), self._folder("model"), self._folder("standard")
        tf.saved_model.save(module, model)
        self.assertIn(PREFIX + "RefuseGradient", tfo.export.to_standard_ops(model, standard))
        logits = _RNG.normal(size=[2, 5, 4]).astype(np.float32)
        served, expected = self._served(standard, logits=logits), module.decode(logits)
        self.assertAllEqual(served["labels"], expected["labels"])
        self.assertAllClose(served["scores"], expected["scores"], 1e-5)

    def test_ops_without_composition_are_all_named(self):
        class Model(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([1, 4, 4, 1])])
            def gradient(self, features):
                with tf.GradientTape() as tape:
                    tape.watch(features)
                    pooled = tfo.detection.roi_align(features, [[0.0, 0, 2, 2]], [0], 1)
                    pooled += tfo.detection.roi_pool(features, [[0.0, 0, 2, 2]], [0], 1)
                return tape.gradient(pooled, features)

        model, standard = self._folder("model"), self._folder("standard")
        tf.saved_model.save(Model(), model)
        with self.assertRaisesRegex(
            ValueError, "without a composition .*: TensorflowOps>RoiAlignGrad, TensorflowOps>RoiPoolGrad; gradients"
        ):
            tfo.export.to_standard_ops(model, standard)
        self.assertFalse(os.path.exists(standard))

    def test_custom_gradients_are_not_saved(self):
        class Model(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([5, 4], name="features"), tf.TensorSpec([4, 3], name="weight")])
            def loss(self, features, weight):
                return {"loss": tfo.nn.linear_cross_entropy(features, weight, [0, 1, 2, 0, 1])}

        module, model, standard = Model(), self._folder("model"), self._folder("standard")
        tf.saved_model.save(module, model)
        with self.assertRaisesRegex(ValueError, r"SaveOptions\(experimental_custom_gradients=False\)"):
            tfo.export.to_standard_ops(model, standard)
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, self._folder("inference"), options=options)
        tfo.export.to_standard_ops(self._folder("inference"), standard)
        arguments = {"features": _RNG.normal(size=[5, 4]), "weight": _RNG.normal(size=[4, 3])}
        arguments = {name: x.astype(np.float32) for name, x in arguments.items()}
        self.assertAllClose(self._served(standard, **arguments), module.loss(**arguments), 1e-5, 1e-5)

    def test_bad_folders(self):
        empty = tempfile.mkdtemp(dir=self.get_temp_dir())
        with self.assertRaisesRegex(ValueError, "saved_model_dir is '.*', expected the folder of a SavedModel"):
            tfo.export.to_standard_ops(empty, self._folder("standard"))
        _, model = self._detector()
        with self.assertRaisesRegex(ValueError, "output_dir is '.*', expected a folder that is empty"):
            tfo.export.to_standard_ops(model, model)

    def test_every_op_but_gradients_has_a_composition(self):
        registered = {kernel.op for kernel in kernels.get_all_registered_kernels().kernel}
        names = {op.removeprefix(PREFIX) for op in registered if op.startswith(PREFIX)}
        without = {name for name in names if name.endswith(("Grad", "Tangent"))}
        self.assertEqual(names - without - _NO_COMPOSITIONS, set(compositions()))


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


class LiteRtTest(parameterized.TestCase):
    def test_head(self):
        weights = _normal(3, 3, 3, 4)

        @tf.function(input_signature=[tf.TensorSpec([1, 8, 9, 3], name="image"), tf.TensorSpec([5, 4], name="boxes")])
        def pool(image, boxes):
            features = tf.nn.conv2d(image, weights, 1, "SAME")
            return tfo.detection.roi_align(features, boxes, [0] * 5, 2, sampling_ratio=2)

        corners = _RNG.uniform(-1, 5, [2, 5, 2])
        boxes = np.concatenate([corners, corners + 3], -1)
        assert_same_in_litert(pool, [_normal(1, 8, 9, 3), boxes[0]], [_normal(1, 8, 9, 3), boxes[1]])

    @parameterized.named_parameters(
        ("lstm", "lstm", {}),
        ("lstm_relu", "lstm", {"activation": "relu"}),
        ("lstm_hard_sigmoid", "lstm", {"recurrent_activation": "hard_sigmoid"}),
        ("lstm_mask", "lstm", {"mask": _MASK}),
        ("lstm_of_any_batch", "lstm", {}, None),
        ("gru", "gru", {}),
        ("gru_relu", "gru", {"activation": "relu", "recurrent_activation": "hard_sigmoid"}),
        ("gru_resets_before", "gru", {"reset_after": False}),
        ("gru_mask", "gru", {"mask": _MASK}),
        ("gru_one_step", "gru", {}, 2, 1),
    )
    def test_recurrent(self, name, options, batch=2, steps=5):
        """Two directions, and two layers behind them that share a state."""
        op = getattr(tfo.nn, name)
        gates, biases = (4, []) if name == "lstm" else (3, [2] if options.get("reset_after", True) else [])
        weights = [
            [_normal(d, gates * 4) / 4, _normal(4, gates * 4) / 4, _normal(*biases, gates * 4) / 4] for d in (3, 8, 4)
        ]

        @tf.function(input_signature=[tf.TensorSpec([batch, steps, 3], name="x")])
        def function(x):
            forward, backward = (op(x, *weights[0], **options, reverse=reverse) for reverse in (False, True))
            both = tf.concat([forward.outputs, tf.reverse(backward.outputs, [1])], -1)
            # A state of a batch of any size is checked by an op that LiteRT lacks.
            initial = (tuple(forward[1:]) if name == "lstm" else forward.h) if batch else None
            above = op(both, *weights[1], **options, initial_state=initial)
            last = op(above.outputs, *weights[2], **options, initial_state=initial)
            return {"above": above.outputs, **last._asdict()}

        self.assertIn("WHILE", assert_same_in_litert(function, [_normal(2, steps, 3)], [_normal(2, steps, 3)]))

    @parameterized.parameters(
        ("LSTM GRU", False, False),
        ("GRU LSTM", False, True),
        ("LSTM LSTM", False, False),
        ("LSTM GRU", True, False),
        ("GRU LSTM", True, True),
    )
    def test_stack_of_layers(self, names, bidirectional, masked):
        """Layers of the same sizes, which may share tensors."""
        layers = [getattr(keras.layers, name)(4, return_sequences=True) for name in names.split()]
        if bidirectional:
            layers = [keras.layers.Bidirectional(layer) for layer in layers]
        masking = [keras.layers.Masking()] if masked else []
        model = keras.Sequential([keras.Input([5, 3], batch_size=2), *masking, *layers])
        function = tf.function(lambda x: model(x), [tf.TensorSpec([2, 5, 3], name="x")])
        with tfo.layers.use_fused_ops():
            cases = [_normal(2, 5, 3)], [_normal(2, 5, 3) * _MASK[..., np.newaxis]]
            assert_same_in_litert(function, *cases, variables=[x.value for x in model.variables])

    def test_impossible_paths(self):
        """Infinities that a composition compares; the converter makes constants of them finite."""
        labels, transitions = tf.constant([[1, 1], [2, 1], [2, 2]]), _normal(3, 3)
        transitions[:, 1] = -np.inf

        @tf.function(input_signature=[tf.TensorSpec([3, 2, 3], name="x")])
        def function(x):
            lengths = tf.constant([2, 2, 1])
            loss = tfo.nn.ctc_loss(labels, x, lengths, [2] * 3, blank_index=0, zero_infinity=True)
            return {
                "loss": loss,
                "marginals": tfo.nn.crf_marginals(x, transitions, lengths=lengths),
                "no_tag": tfo.nn.crf_marginals(x, tf.fill([3, 3], -np.inf), lengths=lengths),
            }

        assert_same_in_litert(function, [_normal(3, 2, 3)], [_normal(3, 2, 3)])

    def test_activations_behind_quantized_products(self):
        """Of constants small enough to be unpacked by the converter and too large, of inputs, behind a loop."""
        weights = [_normal(*size) for size in ([6, 24], [8, 24], [2, 24])]

        def numbers(*shape):
            return _RNG.integers(-128, 128, shape).astype(np.int8)

        small, large, zero, scale = numbers(8, 3), numbers(512, 600), numbers(3, 6), _normal(600) / 20

        @tf.function(
            input_signature=[
                tf.TensorSpec([2, 5, 6], name="x"),
                tf.TensorSpec([3, 512], name="y"),
                tf.TensorSpec([3, 5], tf.int8, name="kernel"),
            ]
        )
        def function(x, y, kernel):
            multiply = tfo.nn.quantized_matmul
            states = tfo.nn.gru(x, *weights).outputs
            products = {
                "int8": multiply(states, small, scale[:3]),
                "int4": multiply(states, small, scale[:6], bits=4),
                "rounded": multiply(states, small, scale[:6], bits=4, activation_bits=8),
                "groups": multiply(states, small, np.tile(scale[:6], [3, 1]), zero=zero, bits=4, block_size=3),
                "pairs_of_rows": multiply(states, small[:4], scale[:3], bits=4, packed_axis=0),
                "transposed": multiply(states, small.T, scale[:3], transposed=True),
                "large": multiply(y, large, np.tile(scale / 50, [2, 1]), block_size=256),
                "large_int4": multiply(y, large[:, :300], scale / 50, bits=4),
                "input": multiply(x[..., :3], kernel, scale[:5]),
                "input_transposed": multiply(x[..., :5], kernel[:, :5], scale[:3], transposed=True),
            }
            activations = {
                "relu": tf.nn.relu,
                "relu6": tf.nn.relu6,
                "cut": lambda x: tf.clip_by_value(x, -1, 1),
                "of_biased": lambda x: tf.nn.relu(x + tf.zeros([tf.shape(x)[-1]])),
            }
            return {
                f"{activation} of {product}": activations[activation](products[product])
                for activation in activations
                for product in products
            }

        assert_same_in_litert(function, *([_normal(2, 5, 6), _normal(3, 512), numbers(3, 5)] for _ in range(2)))


if __name__ == "__main__":
    tf.test.main()
