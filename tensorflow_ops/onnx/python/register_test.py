"""Tests of register: models of Keras, errors, what tf2onnx does without ops of this package."""

import warnings

import keras
import numpy as np
import onnx
import onnx_testing
import process_testing
import tensorflow as tf
import tf2onnx
from absl.testing import parameterized
from keras.src.export import tf2onnx_lib

import tensorflow_ops as tfo


def _head():
    """A Keras model of layers of this package, with two feature maps, and its inputs."""
    keras.utils.set_random_seed(0)
    image = keras.Input([32, 32, 3], name="image")
    boxes = keras.Input([4], name="boxes")
    box_indices = keras.Input([], dtype="int32", name="box_indices")
    fine = keras.layers.Conv2D(4, 3, strides=4, padding="same", activation="relu")(image)
    fine = tfo.layers.DeformConv2D(4, 3, padding="same")(fine)
    coarse = keras.layers.Conv2D(4, 3, strides=2, padding="same")(fine)
    pooled = tfo.layers.MultiScaleRoIAlign(3, strides=(4, 8))([fine, coarse], boxes, box_indices)
    classes = keras.layers.Dense(5)(keras.layers.Flatten()(pooled))
    model = keras.Model([image, boxes, box_indices], keras.layers.Lambda(tfo.nn.softmax)(classes))
    for weight in model.weights:
        if "offset" in weight.path:
            weight.assign(keras.random.normal(weight.shape, stddev=0.3))
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 20, [6, 2])
    boxes = np.concatenate([corners, corners + rng.uniform(2, 12, [6, 2])], 1)
    return model, [rng.normal(size=[2, 32, 32, 3]).astype("f"), boxes.astype("f"), np.int32([0, 1] * 3)]


def _run(path, inputs):
    model = onnx.load(path)
    for i, node in enumerate(model.graph.input):
        for user in model.graph.node:
            user.input[:] = [f"x{i}" if name == node.name else name for name in user.input]
        node.name = f"x{i}"
    return onnx_testing.run(model, inputs)


class RegisterTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        tfo.onnx.register()

    @parameterized.parameters((18, "RoiAlign"), (19, "DeformConv"))
    def test_keras_export(self, opset, operator):
        model, inputs = _head()
        expected = model(inputs)
        path = f"{self.get_temp_dir()}/model.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.export(path, format="onnx", opset_version=opset, verbose=False)
        self.assertIn(operator, onnx_testing.operators(onnx.load(path)))
        (found,) = _run(path, inputs)
        self.assertAllClose(found, expected, 1e-5, 1e-5)

    def test_large_model(self):
        tf2onnx_lib.patch_tf2onnx()  # NumPy 2 lacks what this needs; Keras's export patches it, too.
        weights = np.random.default_rng(1).normal(size=[50, 60]).astype(np.float32)

        @tf.function(input_signature=[tf.TensorSpec([None, 50])])
        def function(x):
            return tfo.nn.softmax_entropy(x @ weights)

        path = f"{self.get_temp_dir()}/model.zip"
        model, storage = tf2onnx.convert.from_function(
            function, function.input_signature, opset=18, large_model=True, output_path=path
        )
        self.assertNotEmpty(storage.name_to_tensor_data)
        self.assertIn("Exp", onnx_testing.operators(model))

    def test_warns_of_an_opset_without_the_operator(self):
        specs = [tf.TensorSpec([1, 8, 8, 2]), tf.TensorSpec([1, 5, 5, 2])]
        with self.assertWarnsRegex(UserWarning, r"TensorflowOps>GridSample becomes many nodes.* from opset 16 on"):
            used = onnx_testing.operators(onnx_testing.convert(tfo.image.grid_sample, specs, 15))
        self.assertNotIn("GridSample", used)

    def test_names_the_op_that_has_no_form_in_onnx(self):
        def gradient(x):
            return tf.gradients(tfo.nn.softmax_entropy(x), x)

        with self.assertRaisesRegex(NotImplementedError, r"TensorflowOps>SoftmaxEntropyGrad, node .* no form in ONNX"):
            onnx_testing.convert(gradient, [tf.TensorSpec([2, 3])])
        with self.assertRaisesRegex(NotImplementedError, "TensorflowOps>Softmax, node .* is of bfloat16"):
            onnx_testing.convert(tfo.nn.softmax, [tf.TensorSpec([2, 3], tf.bfloat16)])

    def test_fails_for_an_op_of_tensorflow_that_tf2onnx_lacks(self):
        """tf2onnx writes a file that no runtime loads. It still does for graphs without ops of this package."""

        def function(x):
            with tf.name_scope("block"):
                return tf.linalg.inv(tf.linalg.inv(tf.math.digamma(x)))

        specs = [tf.TensorSpec([3, 3])]
        model = onnx_testing.convert(function, specs)
        self.assertContainsSubset({"MatrixInverse"}, onnx_testing.operators(model))
        message = "MatrixInverse, node .*block/MatrixInverse; Digamma, node .*block/Digamma: it lacks the op"
        for convert in (
            lambda x: tfo.nn.softmax(function(x)),
            lambda x: tf.while_loop(lambda _: True, lambda x: [tfo.nn.softmax(function(x))], [x]),
        ):
            with self.assertRaisesRegex(NotImplementedError, message):
                onnx_testing.convert(convert, specs)

    def test_activations_of_keras(self):
        """tf2onnx lacks Erfc of gelu and Expm1 of celu; ONNX Runtime has no Erf of float64."""
        tiny = np.logspace(-30, -3, 50)
        x = np.concatenate([-tiny, tiny, np.linspace(-30, 11, 99), [0, 1e30, np.inf, -np.inf, -1, np.nan]])

        def function(x):
            results = tf.math.log1p(x), tf.math.expm1(x)
            digits = [y / x for y in results]  # of small ones, too
            others = [keras.activations.gelu(x), keras.activations.celu(x)] if x.dtype != tf.float64 else []
            return *results, *digits, *others, tfo.zero_out(x)

        for dtype in ("float16", "float32", "float64"):
            onnx_testing.check(self, function, x.astype(dtype))

    def test_keeps_how_other_graphs_are_converted(self):
        """Select is arithmetic in tf2onnx, and Where beside an op of this package."""

        def function(x):
            return tf.where(x > 0, x, 2 * x)

        specs = [tf.TensorSpec([3])]
        self.assertNotIn("Where", onnx_testing.operators(onnx_testing.convert(function, specs)))
        tfo.onnx.register()
        self.assertIn(
            "Where", onnx_testing.operators(onnx_testing.convert(lambda x: function(tfo.nn.softmax(x)), specs))
        )

    def test_graph_without_names_of_inputs(self):
        with tf.Graph().as_default() as graph:
            tf.identity(tfo.nn.softmax_entropy(tf.compat.v1.placeholder(tf.float32, [2, 3])), "y")
            made = tf2onnx.tfonnx.process_tf_graph(graph, opset=18, output_names=["y:0"])
        self.assertIn("Exp", {node.type for node in made.get_nodes()})

    def test_import_of_the_package_does_not_import_tf2onnx(self):
        script = """
            import sys
            import tensorflow_ops as tfo
            print("tf2onnx" in sys.modules, "onnx" in sys.modules)
            sys.modules["tf2onnx"] = None  # As if not installed.
            try:
                tfo.onnx.register()
            except ImportError as error:
                print(error)
        """
        self.assertEqual(
            process_testing.output(self.get_temp_dir(), script),
            "False False\ntfo.onnx.register needs tf2onnx: install the extra, tensorflow-extra-ops[onnx]\n",
        )

    def test_runs_in_a_process_without_the_package(self):
        folder = self.get_temp_dir()
        model = onnx_testing.convert(tfo.nn.softmax, [tf.TensorSpec([2, 4])])
        onnx.save(model, f"{folder}/model.onnx")
        script = """
            import sys
            import numpy as np, onnxruntime
            session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
            (found,) = session.run(None, {"x0": np.zeros([2, 4], np.float32)})
            print(found.tolist(), "tensorflow" in sys.modules)
        """
        self.assertEqual(process_testing.output(folder, script), f"{[[0.25] * 4] * 2} False\n")


if __name__ == "__main__":
    tf.test.main()
