"""Tests of LazyAdam, beside loops in NumPy."""

import os

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_TABLE = _RNG.normal(size=[20, 5])
_IDS = [[3, 3, 7, 0, 19, 3], [7], [], [19, 0, 0]]
_VALUES = [_RNG.normal(size=[len(ids), 5]) for ids in _IDS]


def _clipped(gradients, clipnorm=None, clipvalue=None):
    """Clips the sums of rows."""
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    factor = 1 if clipnorm is None or norm <= clipnorm else clipnorm / norm
    limit = np.inf if clipvalue is None else clipvalue
    return {row: np.clip(gradient * factor, -limit, limit) for row, gradient in gradients.items()}


def _reference(rate=0.1, beta_1=0.9, beta_2=0.999, epsilon=1e-7, decay=0.0, amsgrad=False, **clips):
    """Returns the table after a step of each batch, row by row in float64."""
    table, first, second, largest = _TABLE.copy(), *np.zeros([3, *_TABLE.shape])
    for step, (ids, values) in enumerate(zip(_IDS, _VALUES, strict=True), 1):
        pairs = list(zip(ids, values, strict=True))
        sums = {row: sum(value for i, value in pairs if i == row) for row in ids}
        for row, gradient in _clipped(sums, **clips).items():
            table[row] *= 1 - rate * decay
            first[row] = beta_1 * first[row] + (1 - beta_1) * gradient
            second[row] = beta_2 * second[row] + (1 - beta_2) * gradient**2
            largest[row] = np.maximum(largest[row], second[row])
            v = largest[row] if amsgrad else second[row]
            # The paper's efficient form, whose epsilon Keras has.
            corrected = rate * np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
            table[row] -= corrected * first[row] / (np.sqrt(v) + epsilon)
    return table


class _Composed(tfo.optimizers.LazyAdam):
    """A subclass does not fit the op."""

    def assign(self, variable, value):
        super().assign(variable, value)


class LazyAdamTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        kind=[tfo.optimizers.LazyAdam, _Composed],
        options=[
            {},
            {"weight_decay": 0.1},
            {"amsgrad": True, "beta_2": 0.5},
            {"clipnorm": 0.5},
            {"global_clipnorm": 0.5},
            {"clipvalue": 0.3},
        ],
        mode=["eager", "function", "unknown sizes", "xla"],
    )
    def test_is_loop_over_rows(self, kind, options, mode):
        table = keras.Variable(_TABLE, dtype="float64")
        optimizer = kind(0.1, **options)
        optimizer.build([table])

        def step(values, ids):
            optimizer.apply([tf.IndexedSlices(values, ids, tf.constant([20, 5]))], [table])

        if mode == "unknown sizes":
            specs = [tf.TensorSpec([None, 5], tf.float64), tf.TensorSpec([None], tf.int64)]
            step = tf.function(step, input_signature=specs)
        elif mode != "eager":
            step = tf.function(step, jit_compile=mode == "xla")
        for ids, values in zip(_IDS, _VALUES, strict=True):
            step(tf.constant(values), tf.constant(ids, tf.int64))
        names = {"weight_decay": "decay", "global_clipnorm": "clipnorm"}  # of one variable
        options = {names.get(name, name): value for name, value in options.items()}
        # Keras's betas and rates are float32.
        self.assertAllClose(table, _reference(**options), 1e-5, 1e-5)
        self.assertAllEqual(table[1], _TABLE[1])

    def test_dense_gradients_are_adam(self):
        results = []
        for make in (tfo.optimizers.LazyAdam, keras.optimizers.Adam):
            variables = [keras.Variable(_TABLE, dtype="float32"), keras.Variable(1.0)]
            optimizer = make(0.1, weight_decay=0.1, global_clipnorm=1.0)
            for _ in range(3):
                optimizer.apply([tf.ones_like(x) for x in variables], variables)
            results.append([*variables, *optimizer.variables])
        for one, other in zip(*results, strict=True):
            self.assertAllClose(one, other, 1e-6)

    def test_global_norm_is_of_sums(self):
        slices = tf.IndexedSlices(tf.ones([4, 1]), tf.constant([0, 0, 0, 0]), tf.constant([2, 1]))
        table = keras.Variable(np.zeros([2, 1]))
        optimizer = tfo.optimizers.LazyAdam(0.1, beta_1=0.0, epsilon=1.0, global_clipnorm=2.0)
        optimizer.apply([slices], [table])
        # The gradient 4 becomes 2; the corrected first step is 0.1 * sqrt(0.001) * 2 / (sqrt(0.001) * 2 + 1).
        root = 0.001**0.5
        self.assertAllClose(table, [[-0.1 * root * 2 / (root * 2 + 1)], [0]], 1e-5)

    @parameterized.parameters({"jit_compile": False}, {"jit_compile": True}, {"run_eagerly": True})
    def test_fit_save_load(self, **options):
        keras.utils.set_random_seed(0)
        ids = np.array([[1, 2, 2], [4, 1, 0]])
        layers = [keras.layers.Embedding(50, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input([3], dtype="int32"), *layers])
        before = model.get_weights()[0]
        model.compile(tfo.optimizers.LazyAdam(0.1, weight_decay=0.1), "mse", **options)
        losses = model.fit(ids, np.ones([2, 1]), epochs=10, verbose=0).history["loss"]
        self.assertLess(losses[-1], losses[0] / 5)
        self.assertAllEqual(model.get_weights()[0][5:], before[5:])
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = keras.saving.load_model(path)
        self.assertIsInstance(loaded.optimizer, tfo.optimizers.LazyAdam)
        self.assertEqual(loaded.optimizer.get_config(), model.optimizer.get_config())
        for trained in (model, loaded):
            trained.fit(ids, np.ones([2, 1]), verbose=0)
        for one, other in zip(loaded.get_weights(), model.get_weights(), strict=True):
            self.assertAllClose(one, other, 1e-6)

    def test_exported_steps(self):
        class Trainer(tf.Module):
            def __init__(self):
                super().__init__()
                self.table = keras.Variable(_TABLE, dtype="float64")
                self.optimizer = tfo.optimizers.LazyAdam(0.1)
                self.optimizer.build([self.table])
                self.natives = [x.value for x in [self.table, *self.optimizer.variables]]

            @tf.function(input_signature=[tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, None], tf.float64)])
            def step(self, ids, values):
                self.optimizer.apply([tf.IndexedSlices(values, ids, tf.constant([20, 5]))], [self.table])
                return self.table.value.read_value()

        path = os.path.join(self.get_temp_dir(), "trainer")
        tf.saved_model.save(Trainer(), path)
        loaded = tf.saved_model.load(path)
        for ids, values in zip(_IDS, _VALUES, strict=True):
            table = loaded.step(tf.constant(ids, tf.int64), values)
        self.assertAllClose(table, _reference(), 1e-5, 1e-5)

    def test_on_two_replicas(self):
        process_testing.output(
            os.path.dirname(__file__),
            f"""
            import sys
            import tensorflow as tf
            sys.path.append({os.path.dirname(__file__)!r})
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
            import keras, numpy as np, lazy_adam_test as of

            def table_after(kind):
                strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
                with strategy.scope():
                    table = keras.Variable(of._TABLE, dtype="float32")
                    optimizer = kind(0.1, weight_decay=0.1, global_clipnorm=0.5)
                    optimizer.build([table])

                def step(ids):
                    values = tf.ones([3, 5])
                    optimizer.apply([tf.IndexedSlices(values, tf.constant(ids), tf.constant([20, 5]))], [table])

                for ids in ([3, 3, 7], [0, 19, 3]):
                    strategy.run(step, [ids])
                return [x.numpy() for x in strategy.experimental_local_results(table.value)]

            expected = table_after(of._Composed)
            actual = table_after(of.tfo.optimizers.LazyAdam)
            np.testing.assert_array_equal(actual[0], actual[1])
            np.testing.assert_allclose(actual, expected, 1e-6)
            np.testing.assert_array_equal(actual[0][1], np.float32(of._TABLE[1]))
            assert (actual[0][3] != np.float32(of._TABLE[3])).all()
            """,
        )

    def test_under_the_switch(self):
        table = keras.Variable(_TABLE, dtype="float32")
        with tfo.layers.use_fused_ops():
            slices = tf.IndexedSlices(tf.ones([1, 5]), tf.constant([2]), tf.constant([20, 5]))
            tfo.optimizers.LazyAdam(0.1).apply([slices], [table])
        self.assertEqual(tfo.layers.fused_ops(), {})
        self.assertAllEqual(table[0], np.float32(_TABLE[0]))
        self.assertAllClose(table[2], _TABLE[2] - 0.1, 1e-4)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "dense"):
            tfo.optimizers.LazyAdam(gradient_accumulation_steps=2)


if __name__ == "__main__":
    tf.test.main()
