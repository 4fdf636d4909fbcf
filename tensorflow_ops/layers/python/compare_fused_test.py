"""Tests of tfo.layers.compare_fused: what it reports, and that it leaves the model as it was."""

import io
import sys
from unittest import mock

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized
from keras.src import backend

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_RNG = np.random.default_rng(0)
_X, _Y = _RNG.normal(size=[4, 6, 8]), _RNG.normal(size=[4, 6, 3])
_OP = "tensorflow_ops.nn.python.ops.attention.attention"
_SERVED = {"dot_product_attention": {"fused": 1, "original": 0}}


class Attend(keras.layers.Layer):
    def call(self, x):
        heads = keras.ops.reshape(x, [-1, 6, 2, 4])
        return keras.ops.reshape(keras.ops.dot_product_attention(heads, heads, heads), [-1, 6, 8])


class Stateful(keras.Model):
    """Takes and returns dicts; draws numbers, and has all kinds of state."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8)
        self.attend, self.drop, self.norm = Attend(), keras.layers.Dropout(0.5), keras.layers.BatchNormalization()
        self.out = keras.layers.Dense(3)
        self.steps = tf.Variable(0)
        self.python_steps = 0

    def call(self, x, training=False):
        h = self.drop(self.attend(self.hidden(x["a"])), training=training)
        if training:
            h += keras.random.normal([8], dtype=h.dtype)  # by the seed of all such calls
        return {"c": self.out(self.norm(h, training=training)), "d": keras.ops.sum(x["b"], -1)}

    def train_step(self, data):
        self.steps.assign_add(1)
        self.python_steps += 1
        return super().train_step(data)


_DICTS = {"a": _X, "b": np.ones([4, 2], np.float32)}, {"c": _Y, "d": np.ones([4], np.float32)}


def _subclassed():
    keras.utils.set_random_seed(3)
    model = Stateful()
    metrics = {"c": ["mae", keras.metrics.MeanSquaredError()]}
    # Large for a LossScaleOptimizer's first scale.
    weights = {"c": 20.0, "d": 1.0}
    model.compile(keras.optimizers.Adam(0.1), {"c": "mse", "d": "mae"}, metrics=metrics, loss_weights=weights)
    return model


def _compared(model):
    return tfo.layers.compare_fused(model, *_DICTS, only=["dot_product_attention"], seconds=0)


def _functional(*layers, **options):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input([6, 8]), *layers, keras.layers.Dense(3, name="last")])
    model.compile("sgd", "mse", **options)
    return model


def _values(model):
    seeds = backend.common.global_state.get_global_attribute("global_seed_generator")
    owners = [model, model.optimizer, *model.metrics]
    return [v.numpy() for v in (*(v for o in owners for v in o.variables), model.steps, seeds.state)]


class CompareFusedTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters("float32", "mixed_float16")
    def test_report(self, policy):
        keras.config.set_dtype_policy(policy)
        self.addCleanup(keras.config.set_dtype_policy, "float32")
        model = _subclassed()
        children = set(tf.train.TrackableView(model).children(model))
        compared = _compared(model)
        limit = 1e-5 if policy == "float32" else 2e-2
        for run in (compared.predict, compared.train):
            self.assertEqual(run.calls, _SERVED)
            self.assertBetween(run.difference, 1e-9, limit)
            self.assertTrue(0 < run.on < 10 and 0 < run.off < 10)
        self.assertEqual(compared.predict.differs_at, "c")
        self.assertIn(compared.train.differs_at, [v.path for v in model.trainable_variables])
        lines = str(compared).splitlines()
        self.assertRegex(lines[1], r"^predict +[\d.]+ ms +[\d.]+ ms +[\d.]+  \d\.\de-\d\d \(outputs, c\)$")
        self.assertRegex(lines[2], r"^train +[\d.]+ ms +[\d.]+ ms +[\d.]+  \d\.\de-\d\d \(gradients, .*\)$")
        self.assertRegex(lines[5], r"^dot_product_attention  predict +1 +0$")
        self.assertLen(lines, 7)
        self.assertEqual(repr(compared), str(compared))
        # Nothing was made for the first step.
        self.assertEqual(set(tf.train.TrackableView(model).children(model)), children)
        self.assertFalse(model.optimizer.built)
        self.assertLen(model.metrics, 2)
        self.assertEqual((model.train_function, model.predict_function, model.python_steps), (None, None, 0))

    def test_leaves_the_model_as_it_was(self):
        model = _subclassed()
        model.fit(*_DICTS, verbose=0)
        model.predict(_DICTS[0], verbose=0)
        before, functions = _values(model), (model.train_function, model.predict_function, model.python_steps)
        compared = _compared(model)
        self.assertEqual((compared.predict.calls, compared.train.calls), (_SERVED, _SERVED))
        self._assert_same(_values(model), before)
        for error, expected in ((ValueError("mine"), RuntimeError), (KeyboardInterrupt, KeyboardInterrupt)):
            fails = mock.Mock(side_effect=[tf.zeros([4, 6, 2, 4]), error])  # in the training step
            with mock.patch(_OP, fails), self.assertRaises(expected):
                _compared(model)
            self.assertEqual(fails.call_count, 2)
            self._assert_same(_values(model), before)
        self.assertEqual((model.train_function, model.predict_function, model.python_steps), functions)
        model.fit(*_DICTS, verbose=0)

    def _assert_same(self, values, others):
        for value, other in zip(values, others, strict=True):
            np.testing.assert_array_equal(value, other)

    def test_wrong_values_are_visible(self):
        model = _functional(Attend())
        attention = tfo.nn.attention
        with mock.patch(_OP, lambda query, *args, **kwargs: attention(query, *args, **kwargs) + 1.0):
            compared = tfo.layers.compare_fused(model, _X, seconds=0)
        self.assertGreater(compared.predict.difference, 0.1)
        self.assertIsNone(compared.train)

        @tf.custom_gradient
        def twice(x):
            return x, lambda upstream: 2 * upstream

        model = _functional(keras.layers.Dense(8, name="first"), Attend())
        with mock.patch(_OP, lambda *args, **kwargs: twice(attention(*args, **kwargs))):
            compared = tfo.layers.compare_fused(model, _X, _Y, seconds=0)
        self.assertLess(compared.predict.difference, 1e-5)
        self.assertBetween(compared.train.difference, 0.05, 1)
        self.assertIn("/first/", compared.train.differs_at)
        with mock.patch(_OP, lambda query, *args, **kwargs: query * np.nan):
            compared = tfo.layers.compare_fused(model, _X, _Y, seconds=0)
        self.assertEqual((compared.predict.difference, compared.train.difference), (np.inf, np.inf))

    def test_xla_compiles_as_the_model_says(self):
        compiled = []
        attention = tfo.nn.attention

        def attend(*args, **kwargs):
            compiled.append(library.is_compiled_by_xla())
            return attention(*args, **kwargs)

        for jit_compile in (False, True):
            with mock.patch(_OP, attend):
                model = _functional(Attend(), jit_compile=jit_compile)
                compared = tfo.layers.compare_fused(model, _X, _Y, only=["dot_product_attention"], seconds=0)
            calls = {"dot_product_attention": {"fused": 0, "original": 1, "reasons": {"XLA": 1}}}
            self.assertEqual(compared.train.calls, _SERVED if library.supports_xla() or not jit_compile else calls)
            self.assertLess(compared.train.difference, 1e-5)
            self.assertEqual(set(compiled), {jit_compile} if library.supports_xla() or not jit_compile else set())
            compiled.clear()

    def test_nothing_is_served(self):
        compared = tfo.layers.compare_fused(_functional(), _X, _Y, only=["dot_product_attention"], seconds=0)
        for run in (compared.predict, compared.train):
            self.assertEqual((run.calls, run.difference, run.differs_at), ({}, 0, ""))
        self.assertRegex(str(compared), r"0 \(outputs\)\n.* 0 \(gradients\)\n\nThe switch served no call\..*`keras`")

    def test_shows_progress_on_terminals(self):
        model = keras.Sequential([keras.Input([8]), keras.layers.Dense(2)])
        with mock.patch.object(sys, "stderr", io.StringIO()) as shown, mock.patch.object(shown, "isatty", lambda: True):
            tfo.layers.compare_fused(model, np.ones([4, 8], np.float32), seconds=0)
        places = [text.count("█") for text in shown.getvalue().split("\r\033[K")[1:]]
        self.assertEqual(places, [0, 1, 2, 0])  # first calls, timing, nothing that stays

    def test_metrics_that_get_variables_late(self):
        metric = keras.metrics.F1Score()
        model = keras.Sequential([keras.Input([8]), keras.layers.Dense(3)])
        model.compile("sgd", "mse", metrics=[metric])
        tfo.layers.compare_fused(model, _X[:, 0], np.eye(4, 3), seconds=0)
        self.assertLen(metric.variables, 4)
        for variable in metric.variables:
            self.assertAllEqual(variable, np.zeros_like(variable))

    def test_reasons_only_and_open_switches(self):
        model = _functional(Attend(), keras.layers.GRU(8, unroll=True, return_sequences=True))
        with tfo.layers.use_fused_ops():
            keras.ops.dot_product_attention(*[np.ones([1, 2, 3, 4], np.float32)] * 3)
            with mock.patch(_OP, lambda query, *args, **kwargs: query + 1.0):
                compared = tfo.layers.compare_fused(model, _X, seconds=0)
                without = tfo.layers.compare_fused(model, _X, only=["gru"], seconds=0)
            self.assertEqual(tfo.layers.fused_ops(), _SERVED)
        gru = {"gru": {"fused": 0, "original": 1, "reasons": {"unroll=True": 1}}}
        self.assertEqual(compared.predict.calls, _SERVED | gru)
        self.assertGreater(compared.predict.difference, 0.01)  # off is off under an open switch
        self.assertRegex(str(compared), r"\ngru +predict +0 +1  1 x unroll=True$")
        self.assertEqual((without.predict.calls, without.predict.difference), (gru, 0))
        self.assertIn("served no call", str(without))
        tfo.layers.compare_fused(model, _X, only=["gru"], seconds=0)
        self.assertEqual(tfo.layers.fused_ops(), _SERVED)

    def test_models_with_other_optimizers(self):
        class Own(Stateful):
            def train_step(self, data):
                with tf.GradientTape() as tape:
                    loss = self.compute_loss(y=data[1], y_pred=self(data[0], training=True))
                weights = self.trainable_variables
                self.other.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
                return {"loss": loss}

        model = Own()
        model.compile(loss={"c": "mse", "d": "mae"})
        model.other = keras.optimizers.Adam()
        for _ in range(2):
            before = [variable.numpy() for variable in model.other.variables]
            compared = _compared(model)
            self.assertEqual(compared.train.calls, _SERVED)
            self.assertBetween(compared.train.difference, 1e-9, 1e-5)
            self._assert_same([variable.numpy() for variable in model.other.variables], before)
            model.fit(*_DICTS, verbose=0)

    @parameterized.parameters(True, False)
    def test_models_that_step_by_themselves(self, run_eagerly):
        """Without an optimizer, there are no gradients; eager calls count once."""

        class Own(keras.Model):
            def __init__(self):
                super().__init__()
                self.attend = Attend()

            def call(self, x):
                return tf.RaggedTensor.from_tensor(self.attend(x)), tf.as_string(x[:, 0, 0])

            def train_step(self, data):
                return {"loss": tf.reduce_mean(self.attend(data[0])) + tf.reduce_mean(data[1])}  # of the same dtype

        model = Own()
        model.compile(run_eagerly=run_eagerly)
        compared = tfo.layers.compare_fused(model, _X, _Y, seconds=0)
        self.assertTrue(np.isnan(compared.train.difference))
        self.assertIn("unknown (gradients)", str(compared))
        self.assertLess(compared.predict.difference, 1e-5)
        self.assertEqual(compared.train.calls, _SERVED)

    def test_errors_say_which_way_fails(self):
        model = _functional(Attend())
        for inputs, step in (((_X[:, :5],), "predict_on_batch"), ((_X, _Y[:, :5]), "train_on_batch")):
            with self.assertRaisesRegex(RuntimeError, f"the model's {step} fails without the switch, too: ") as raised:
                tfo.layers.compare_fused(model, *inputs, seconds=0)
            self.assertIsNotNone(raised.exception.__cause__)
        with self.assertRaisesRegex(RuntimeError, "the model fails without the switch, too"):
            tfo.layers.compare_fused(Stateful(), _DICTS[0]["a"], seconds=0)
        model = _functional(keras.layers.LSTM(8, return_sequences=True), Attend())
        message = r"works without the switch and fails with it, after calls of \['lstm'\].* as only=\['lstm'\]: .*mine"
        with mock.patch(_OP, side_effect=KeyError("mine")), self.assertRaisesRegex(RuntimeError, message):
            tfo.layers.compare_fused(model, _X, seconds=0)

    def test_arguments(self):
        model = _functional()
        for x in (tf.data.Dataset.from_tensor_slices(_X), [1.0, 2.0], {"a": "text"}, iter([_X])):
            hint = r"next\(iter" if isinstance(x, tf.data.Dataset) else ""
            with self.assertRaisesRegex(ValueError, rf"x holds .*, expected arrays or tensors \[batch, .*{hint}"):
                tfo.layers.compare_fused(model, x)
        with self.assertRaisesRegex(ValueError, "y holds"):
            tfo.layers.compare_fused(model, _X, 3)
        with self.assertRaisesRegex(ValueError, "model has no loss: call model.compile"):
            tfo.layers.compare_fused(Stateful(), *_DICTS)
        with self.assertRaisesRegex(ValueError, "model is Dense, expected keras.Model"):
            tfo.layers.compare_fused(keras.layers.Dense(3), _X)
        with self.assertRaisesRegex(ValueError, "only is 'lstm'"):
            tfo.layers.compare_fused(model, _X, only="lstm")
        schedule = type("Schedule", (keras.optimizers.schedules.LearningRateSchedule,), {"__call__": lambda *_: 0.1})
        model.compile(keras.optimizers.SGD(schedule()), "mse")
        with self.assertRaisesRegex(ValueError, "call model.optimizer.build"):
            tfo.layers.compare_fused(model, _X, _Y)
        model.optimizer.build(model.trainable_variables)
        self.assertIsNotNone(tfo.layers.compare_fused(model, _X, _Y, seconds=0).train)

    def test_replicas(self):
        script = """
            import keras, numpy as np, tensorflow as tf, tensorflow_ops as tfo

            cpus = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
            with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
                x = keras.Input([5, 2, 4])
                h = keras.layers.BatchNormalization()(keras.ops.dot_product_attention(x, x, x))
                model = keras.Model(x, keras.layers.Dense(2)(h))
                model.compile("sgd", "mse")
            x, y = np.random.default_rng(0).normal(size=[4, 5, 2, 4]), np.ones([4, 5, 2, 2])
            model.fit(x, y, verbose=0)
            variables = [part for v in model.variables for part in v.value.values]
            before = [variable.numpy() for variable in variables]
            compared = tfo.layers.compare_fused(model, x, y, seconds=0)
            assert compared.predict.difference < 1e-5 and compared.train.difference < 1e-5, compared
            assert all(map(np.array_equal, [variable.numpy() for variable in variables], before))
            print(compared.train.calls["dot_product_attention"])
            with tfo.layers.use_fused_ops():
                try:
                    tfo.layers.compare_fused(model, x)
                except ValueError as error:
                    print(error)
        """
        printed = process_testing.output(self.get_temp_dir(), script)
        self.assertStartsWith(printed, "{'fused': 2, 'original': 0}\nuse_fused_ops is on, and serves all")


if __name__ == "__main__":
    tf.test.main()
