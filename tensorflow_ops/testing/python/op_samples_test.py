"""Runs opcheck on every public op of the package: op_samples_testing lists the calls."""

import importlib
import inspect
import tempfile
import types

import keras
import shard_testing
import tensorflow as tf
from absl.testing import parameterized
from op_samples_testing import OP_SAMPLES, SAMPLES, TABLES

import tensorflow_ops as tfo
from tensorflow_ops.testing.python import compare
from tensorflow_ops.testing.python import inputs as inputs_module

_CHECKED = shard_testing.part_of(OP_SAMPLES)

# Public names that opcheck cannot check, with the reasons.
_NO_OPS = {
    "show_versions": "prints",
    "layers.DeformConv2D": "has variables whose sizes depend on its inputs; calls deform_conv2d",
    "layers.MultiScaleDeformableAttention": "has variables whose sizes depend on its inputs; calls the function",
    "layers.MultiHeadAttention": "has variables whose sizes depend on its inputs; calls attention",
    "layers.GroupQueryAttention": "has variables whose sizes depend on its inputs; calls attention",
    "layers.compare_fused": "runs models",
    "layers.fused_ops": "counts calls",
    "layers.use_fused_ops": "changes Keras",
    "losses.CRF": "takes an output of layers.CRF; calls crf_log_likelihood",
    "layers.Merge": "has variables whose sizes depend on its inputs; Keras and matmul define gradients and dtypes",
    "distribute.make_parallel": "takes and returns functions",
    "seq2seq.beam_search": "a loop over the caller's function, composed of beam_search_step and gather_tree",
    "seq2seq.sample": "a loop over the caller's function that draws random numbers",
    "seq2seq.stochastic_beam_search": "a loop over the caller's function that draws random numbers",
    "onnx.register": "changes tf2onnx",
    "shapes.get_shape": "returns Python numbers",
    "metrics": "have state; their tests call the ops in graphs, too",
    "testing": "checks ops",
    "python_op": "makes ops; its own tests run opcheck on them",
    "summary": "writes files",
    "export": "writes files; its own tests compare what they compute",
    "sysconfig": "returns paths",
}
# Of a function that the sample defines.
_OF_THE_SAMPLE = "seq2seq.ctc_beam_search_decode (language model)"
# The sample, or Keras, converts arguments before the op does.
_CONVERTED = ("layers.CRF", _OF_THE_SAMPLE)
# Losses are no part of a functional model, and a file cannot hold a user's function.
_NO_KERAS_TENSORS = ("losses.", _OF_THE_SAMPLE)


def _public_names():
    """Yields the names of public functions and Keras classes, such as "nn.softmax", and the tutorial's."""
    for name in (*tfo.__all__, "tutorial"):
        member = getattr(tfo, name)
        if isinstance(member, types.ModuleType):
            yield from (f"{name}.{inner}" for inner in member.__all__ if _is_callable(getattr(member, inner)))
        elif _is_callable(member):
            yield name


def _is_callable(member):
    """Returns whether a member is a function, layer, loss or metric, not a named tuple or a number."""
    if inspect.isclass(member):
        return issubclass(member, keras.layers.Layer | keras.losses.Loss | keras.metrics.Metric)
    return callable(member)


def _takes_none(fn, name):
    """Returns whether None is a value of an argument of a function, layer or loss."""
    parameter = inspect.signature(getattr(fn, "call", fn)).parameters.get(name)
    return parameter is None or parameter.default is None


def _not_dense(name, sample, parameter, tensor):
    """Yields values that are no dense tensors, and what an error says of them."""
    if not sample.ragged:
        ragged = tf.RaggedTensor.from_tensor(tensor if tensor.shape.rank > 1 else tensor[tf.newaxis])
        yield ragged, r"a RaggedTensor, expected a dense tensor: pass .*\.to_tensor\(\.\.\.\)"
    if not (sample.sparse and parameter in ("labels", "y_true")):
        yield tf.sparse.from_dense(tensor), r"a SparseTensor, expected a dense tensor: pass tf\.sparse\.to_dense\("
    if name not in _CONVERTED and not _takes_none(sample.fn, parameter):
        yield None, "None, expected a tensor"


class OpSamplesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = tfo.testing.opcheck_samples(_CHECKED, raise_on_failure=False)

    @parameterized.parameters(*_CHECKED)
    def test_passes(self, name):
        self.assertEmpty(self.results[name].failures, f"\n{self.results[name]}")
        if SAMPLES[name].options.get("second_order") is False:
            # Not that the gradient registry has no entry.
            for refusal in self.results[name]["second_order"].detail.split("; "):
                self.assertIn("has no second derivative", refusal)

    def test_every_public_op_has_a_sample(self):
        sampled = {name.partition(" ")[0] for name in SAMPLES}
        for name in _public_names():
            if name not in _NO_OPS and name.partition(".")[0] not in _NO_OPS:
                self.assertIn(name, sampled, f"tfo.{name} needs a sample in OP_samples_testing.py, beside it")

    def test_every_sample_names_a_public_op(self):
        self.assertContainsSubset({name.partition(" ")[0] for name in SAMPLES}, set(_public_names()))


class TablesTest(tf.test.TestCase):
    def test_values_depend_on_their_own_table_only(self):
        for table in TABLES:
            first, second = (
                [x for sample in samples.values() for x in tf.nest.flatten(sample.args) if tf.is_tensor(x)]
                for samples in (table.SAMPLES, importlib.reload(table).SAMPLES)
            )
            for x, y in zip(first, second, strict=True):
                self.assertAllEqual(x, y, f"{table.__name__}: call seed first")


class SessionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*_CHECKED)
    def test_graph_of_tensorflow_1_equals_eager_execution(self, name):
        sample = SAMPLES[name]
        for changes in ({}, *sample.variants):
            changes = {key: value for key, value in changes.items() if key != "onnx"}
            inputs = inputs_module.Inputs(sample.fn, *sample.changed(changes))

            def run(tensors, inputs=inputs):
                outputs, gradients = inputs.vjp(tensors, lambda ys: inputs_module.random_like(ys, 1))
                return [*outputs, *(g for g in gradients if g is not None)]

            expected = run(inputs.tensors)
            with self.subTest(changes), tf.Graph().as_default(), tf.compat.v1.Session() as session:
                placeholders = [tf.compat.v1.placeholder(x.dtype, [None] * x.shape.rank) for x in inputs.tensors]
                values = [x.numpy() for x in inputs.tensors]
                found = session.run(run(placeholders), dict(zip(placeholders, values, strict=True)))
                names = [str(k) for k in range(len(found))]
                compare.check_close("in a session", names, found, expected, compare.TOLERANCES)

    @parameterized.parameters(*_CHECKED)
    def test_refuses_shapes_of_tensorflow_1(self, name):
        sample = SAMPLES[name]
        values = [x.numpy() for x in tf.nest.flatten((sample.args, sample.kwargs)) if tf.is_tensor(x)]
        tf.compat.v1.disable_v2_tensorshape()  # disable_v2_behavior does
        try:
            with tf.Graph().as_default(), self.assertRaisesRegex(RuntimeError, "needs TensorFlow 2's behavior: call"):
                rest = iter(map(tf.constant, values))
                args, kwargs = tf.nest.map_structure(
                    lambda x: next(rest) if tf.is_tensor(x) else x, (sample.args, dict(sample.kwargs))
                )
                sample.fn(*args, **kwargs)
        finally:
            tf.compat.v1.enable_v2_tensorshape()


class ArgumentsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*_CHECKED)
    def test_names_the_argument_that_is_no_dense_tensor(self, name):
        sample = SAMPLES[name]
        for parameter, value in [*zip(sample.names, sample.args, strict=True), *sample.kwargs.items()]:
            leaves = tf.nest.flatten(value)
            if not (leaves and tf.is_tensor(leaves[0])):
                continue
            for other, text in _not_dense(name, sample, parameter, leaves[0]):
                args, kwargs = sample.changed({parameter: tf.nest.pack_sequence_as(value, [other, *leaves[1:]])})
                # A name such as "features", or "q's means" of the argument q.
                with self.subTest(parameter), self.assertRaisesRegex(ValueError, rf"{parameter}\b.* is {text}"):
                    sample.fn(*args, **kwargs)

    @parameterized.parameters(*(name for name in _CHECKED if not name.startswith(("layers.", _OF_THE_SAMPLE))))
    def test_graphs_take_arrays_in_any_byte_order(self, name):
        sample = SAMPLES[name]
        args, kwargs = tf.nest.map_structure(
            lambda x: x.numpy().astype(x.numpy().dtype.newbyteorder(">")) if isinstance(x, tf.Tensor) else x,
            (sample.args, dict(sample.kwargs)),
        )
        outputs = tf.nest.flatten(tf.function(lambda: sample.fn(*args, **kwargs), autograph=False)())
        expected = tf.nest.flatten(sample.fn(*sample.args, **sample.kwargs))
        for output, x in zip(outputs, expected, strict=True):
            self.assertAllClose(output, x)

    @parameterized.parameters(*(name for name in _CHECKED if not name.startswith(_NO_KERAS_TENSORS)))
    def test_takes_keras_tensors(self, name):
        sample = SAMPLES[name]
        arguments = sample.args, sample.kwargs
        leaves = tf.nest.flatten(arguments)
        inputs = [keras.Input(batch_shape=x.shape, dtype=x.dtype.name) for x in leaves if tf.is_tensor(x)]
        rest = iter(inputs)
        symbolic = [next(rest) if tf.is_tensor(x) else x for x in leaves]
        args, kwargs = tf.nest.pack_sequence_as(arguments, symbolic)
        outputs = tf.nest.flatten(sample.fn(*args, **kwargs))
        with tempfile.TemporaryDirectory() as folder:
            keras.Model(inputs, outputs).save(f"{folder}/model.keras")
            model = keras.saving.load_model(f"{folder}/model.keras")
        actual = tf.nest.flatten(model([x for x in leaves if tf.is_tensor(x)]))
        expected = tf.nest.flatten(sample.fn(*sample.args, **sample.kwargs))
        for output, x, y in zip(outputs, expected, actual, strict=True):
            self.assertAllEqual(x, y)
            self.assertTrue(x.shape.is_compatible_with(output.shape))


if __name__ == "__main__":
    tf.test.main()
