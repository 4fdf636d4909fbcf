"""Tests of optimizers by tfo.layers.use_fused_ops, beside Keras's own steps."""

import contextlib
import os
import threading
from unittest import mock

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_SHAPES = [7, 5], [5], [3, 4, 2], [], [100, 33], [2, 0]
_WEIGHTS = [_RNG.normal(size=shape) for shape in _SHAPES]
_GRADIENTS = [[_RNG.normal(size=shape) * 0.1 for shape in _SHAPES] for _ in range(4)]
_OF = keras.optimizers


def _excluding():
    optimizer = _OF.AdamW(0.01, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["v1"])
    return optimizer


_OPTIMIZERS = {
    "adam": lambda: _OF.Adam(0.01),
    "adamw": lambda: _OF.AdamW(0.01, weight_decay=0.1),
    "amsgrad": lambda: _OF.Adam(0.01, amsgrad=True),
    "sgd": lambda: _OF.SGD(0.1),
    "sgd_with_decay": lambda: _OF.SGD(0.1, weight_decay=0.1),
    "momentum": lambda: _OF.SGD(0.1, 0.9),
    "nesterov": lambda: _OF.SGD(0.1, 0.9, nesterov=True),
    "rmsprop": lambda: _OF.RMSprop(0.01),
    "rmsprop_centered": lambda: _OF.RMSprop(0.01, centered=True),
    "rmsprop_momentum": lambda: _OF.RMSprop(0.01, momentum=0.9),
    "rmsprop_centered_momentum": lambda: _OF.RMSprop(0.01, momentum=0.9, centered=True),
    "adagrad": lambda: _OF.Adagrad(0.1),
    "adamax": lambda: _OF.Adamax(0.01),
    "nadam": lambda: _OF.Nadam(0.01),
    "lion": lambda: _OF.Lion(0.01),
}
_OPTIONS = {
    "excluding": _excluding,
    "clipnorm": lambda: _OF.Adam(0.01, clipnorm=0.1),
    "global_clipnorm": lambda: _OF.Adam(0.01, global_clipnorm=0.1),
    "global_clipnorm_of_small_gradients": lambda: _OF.Adam(0.01, global_clipnorm=1e3),
    "clipvalue": lambda: _OF.Adam(0.01, clipvalue=0.05),
    "schedule": lambda: _OF.SGD(_OF.schedules.CosineDecay(0.01, 3), 0.9),
    "function_as_rate": lambda: _OF.Adam(lambda: 0.01),
    "moving_average": lambda: _OF.AdamW(0.01, use_ema=True, ema_overwrite_frequency=2),
    "accumulation": lambda: _OF.AdamW(0.01, gradient_accumulation_steps=2),
    "loss_scale": lambda: _OF.LossScaleOptimizer(_OF.Adam(0.01), initial_scale=8),
    "loss_scale_factor": lambda: _OF.Adam(0.01, loss_scale_factor=8.0),
}


def _switch(is_on=True):
    return tfo.layers.use_fused_ops(["optimizers"]) if is_on else contextlib.nullcontext()


def _calls():
    return tfo.layers.fused_ops()["optimizers"]


def _variables(weights=_WEIGHTS, dtype="float32"):
    return [keras.Variable(weight, dtype=dtype, name=f"v{i}") for i, weight in enumerate(weights)]


def _steps(make, is_on, in_function=False, dtype="float32", gradients=_GRADIENTS, weights=_WEIGHTS):
    """Returns variables and those of the optimizer after a step with each list of gradients."""
    variables = _variables(weights, dtype)
    with _switch(is_on):
        optimizer = make()
        optimizer.build(variables)

        def step(*of_step):
            optimizer.apply(of_step, variables)

        step = tf.function(step) if in_function else step
        for of_step in gradients:
            given = [g if isinstance(g, tf.IndexedSlices) else tf.constant(g, dtype) for g in of_step]
            step(*given)
    return [x.numpy().astype(np.float64) for x in [*variables, *optimizer.variables]]


def _slices(ids, seed, dtype="float32", rows=20, width=5):
    values = tf.constant(np.random.default_rng(seed).normal(size=[len(ids), width]), dtype)
    return tf.IndexedSlices(values, tf.constant(ids, tf.int32), tf.constant([rows, width]))


class OptimizersTest(tf.test.TestCase, parameterized.TestCase):
    def _assert_equal(self, actual, expected, limit=0.0):
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, limit, limit)

    @parameterized.product(name=[*_OPTIMIZERS, *_OPTIONS], in_function=[False, True])
    def test_is_keras_step(self, name, in_function):
        make = (_OPTIMIZERS | _OPTIONS)[name]
        expected = _steps(make, is_on=False, in_function=in_function)
        actual = _steps(make, is_on=True, in_function=in_function)
        self.assertEqual(_calls()["original"], 0)
        # Grappler changes the order of Keras's products, and sums of squares have an order of their own.
        self._assert_equal(actual, expected, 1e-6 if in_function or name == "global_clipnorm" else 0)

    @parameterized.parameters(*_OPTIMIZERS)
    def test_float64(self, name):
        # Keras rounds betas to float32.
        expected = _steps(_OPTIMIZERS[name], is_on=False, dtype="float64")
        self._assert_equal(_steps(_OPTIMIZERS[name], is_on=True, dtype="float64"), expected, 1e-6)

    @parameterized.product(name=[*_OPTIMIZERS], dtype=["float16", "bfloat16"])
    def test_16_bits_are_rounded_once(self, name, dtype):
        """A step is the one in float64, of what the variables of 16 bits hold."""
        start = _steps(_OPTIMIZERS[name], True, dtype=dtype, gradients=_GRADIENTS[:3])
        variables = _variables(start[: len(_SHAPES)], dtype)
        wide = _variables(start[: len(_SHAPES)], "float64")
        results = []
        for group in (variables, wide):
            optimizer = _OPTIMIZERS[name]()
            optimizer.build(group)
            for slot, value in zip(optimizer.variables, start[len(_SHAPES) :], strict=True):
                slot.assign(value)
            with _switch():
                optimizer.apply([tf.cast(tf.cast(g, dtype), group[0].dtype) for g in _GRADIENTS[3]], group)
            results.append([x.numpy().astype(np.float64) for x in [*group, *optimizer.variables]])
        unit = 2.0 ** (-11 if dtype == "float16" else -8)
        for narrow, expected in zip(*results, strict=True):
            # Half a unit, and the rounding of sums in float32.
            self.assertAllClose(narrow, expected, unit * 1.001, 2.0**-22)

    @parameterized.product(
        name=["adamw", "sgd", "sgd_with_decay", "nesterov", "rmsprop_centered_momentum", "adagrad", "lion", "amsgrad"],
        ids=[[3, 3, 7, 0, 19, 3], [], [5]],
        in_function=[False, True],
    )
    def test_rows_are_their_dense_gradient(self, name, ids, in_function):
        dtype = "float64" if in_function else "float32"
        weights = [np.ones([3]), _RNG.normal(size=[20, 5])]
        sparse = [[np.ones([3]), _slices(ids, seed, dtype)] for seed in range(3)]
        dense = [[one, tf.convert_to_tensor(slices)] for one, slices in sparse]
        actual = _steps(_OPTIMIZERS[name], True, in_function, dtype, sparse, weights)
        self.assertEqual(_calls()["original"], 0)
        expected = _steps(_OPTIMIZERS[name], True, in_function, dtype, dense, weights)
        self._assert_equal(actual, expected, 1e-6 if dtype == "float32" else 1e-14)

    @parameterized.parameters("clipnorm", "global_clipnorm", "clipvalue")
    def test_clips_sums_of_rows(self, option):
        weights = [_RNG.normal(size=[20, 5])]
        sparse = [[_slices([3, 3, 7, 3], seed)] for seed in range(3)]
        dense = [[tf.convert_to_tensor(slices) for slices in step] for step in sparse]
        actual = _steps(_OPTIONS[option], True, gradients=sparse, weights=weights)
        expected = _steps(_OPTIONS[option], False, gradients=dense, weights=weights)
        self._assert_equal(actual, expected, 1e-6)

    def test_repeated_ids_are_summed_before_they_are_squared(self):
        """Adam's first step is the learning rate, whatever the gradient."""
        slices = tf.IndexedSlices(tf.ones([4, 1]), [0, 0, 0, 0], [2, 1])
        moved = _steps(lambda: _OF.Adam(0.1), True, gradients=[[slices]], weights=[np.zeros([2, 1])])[0]
        self.assertAllClose(moved, [[-0.1], [0]], 1e-5)

    def test_what_others_read_stays(self):
        weights = [np.ones([4]), _RNG.normal(size=[20, 5])]
        variables = _variables(weights)
        optimizer = _OF.Adam(0.1)
        optimizer.build(variables)
        everything = [*variables, *optimizer.variables[2:]]
        held = [x.value.read_value() for x in everything]
        values = [x.numpy() for x in everything]
        with _switch():
            optimizer.apply([tf.ones([4]), _slices([1, 2], 0)], variables)
        self._assert_equal(held, values)
        self.assertNotAllClose(variables[0], held[0])

    def test_gradients_that_are_the_variable_itself(self):
        variable = keras.Variable([2.0, 3.0])
        optimizer = _OF.SGD(0.5, 0.5)
        with _switch():
            optimizer.apply([variable.value.read_value()], [variable])
            optimizer.apply([optimizer.momentums[0].value.read_value()], [variable])
        self.assertAllEqual(variable, [2 - 1, 3 - 1.5])  # the second step: 0.5 * -1 - 0.5 * -1

    def test_no_memory_changes_nothing(self):
        process_testing.output(
            os.path.dirname(__file__),
            """
            import resource, keras, numpy as np, tensorflow as tf, tensorflow_ops as tfo
            variables = [keras.Variable(tf.ones([1 << 24])) for _ in range(3)]
            held, gradients = [x.value.read_value() for x in variables], [tf.ones([1 << 24])] * 3
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build(variables)
            with tfo.layers.use_fused_ops(["optimizers"]):
                small = keras.Variable(1.0)
                keras.optimizers.SGD(1.0).apply([1.0], [small])
                pages = int(open("/proc/self/statm").read().split()[0])
                limit = pages * resource.getpagesize() + (160 << 20)  # room for two of the three
                before = resource.getrlimit(resource.RLIMIT_AS)
                resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
                try:
                    optimizer.apply(gradients, variables)
                except tf.errors.ResourceExhaustedError:
                    resource.setrlimit(resource.RLIMIT_AS, before)
                else:
                    raise AssertionError("there was memory")
            assert all((x.numpy() == 1).all() for x in variables)
            """,
        )

    def test_no_gradients_and_frozen_variables(self):
        variables = _variables()
        frozen = keras.Variable([1.0], trainable=False)
        optimizer = _OF.AdamW(0.1)
        with _switch(), self.assertWarnsRegex(UserWarning, "Gradients do not exist"):
            optimizer.apply([None, *map(tf.ones_like, variables[1:])], variables)
        self.assertAllEqual(variables[0], np.float32(_WEIGHTS[0]))
        self.assertNotAllClose(variables[1], np.float32(_WEIGHTS[1]))
        self.assertAllEqual(frozen, [1])

    def test_constraints_and_dtypes_of_each_variable(self):
        constrained = keras.Variable([1.0, -1.0])
        constrained.constraint = keras.constraints.NonNeg()
        variables = [constrained, keras.Variable([1.0], dtype="float64"), keras.Variable([1.0], dtype="bfloat16")]
        with _switch():
            _OF.SGD(0.5, global_clipnorm=1e9).apply([tf.ones_like(x) for x in variables], variables)
        self._assert_equal([x.numpy().astype(np.float64) for x in variables], [[0.5, 0], [0.5], [0.5]])
        self.assertEqual(_calls(), {"fused": 1, "original": 0})

    def test_global_norm_beyond_float32(self):
        variables = [keras.Variable([1.0]), keras.Variable([1.0], dtype="float64")]
        with _switch():
            _OF.SGD(1.0, global_clipnorm=2.0).apply([tf.ones([1]), tf.constant([1e100], tf.float64)], variables)
        self._assert_equal(variables, [[1], [-1]], 1e-12)

    def test_a_thousand_variables(self):
        weights = [np.full([1 + i % 7], i) for i in range(1000)]
        gradients = [[np.ones_like(weight, np.float32) for weight in weights]]
        with_switch = _steps(_OPTIMIZERS["adamw"], True, True, gradients=gradients, weights=weights)
        self._assert_equal(with_switch, _steps(_OPTIMIZERS["adamw"], False, gradients=gradients, weights=weights), 1e-6)

    def test_threads_that_step_at_once(self):
        """Without a lock for all of a step's variables, steps of 0.1 would be lost."""
        variable, other = keras.Variable(tf.zeros([100_000])), keras.Variable(tf.zeros([3]))
        optimizers = [_OF.SGD(0.1), _OF.SGD(0.1)]
        orders = [[variable, other], [other, variable]]
        for optimizer, order in zip(optimizers, orders, strict=True):
            optimizer.build(order)

        def steps(optimizer, order):
            for _ in range(50):
                optimizer.apply([tf.ones_like(x) for x in order], order)

        with _switch():
            threads = [threading.Thread(target=steps, args=pair) for pair in zip(optimizers, orders, strict=True)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertAllClose(variable, np.full([100_000], -10), 1e-4)
        self.assertAllClose(other, np.full([3], -10), 1e-4)

    def test_originals(self):
        class Own(_OF.Adam):
            def update_step(self, gradient, variable, learning_rate):
                super().update_step(gradient * 2, variable, learning_rate)

        class Clipping(_OF.Adam):
            def _clip_gradients(self, grads):
                return [g * 2 for g in grads]

        class Options(_OF.AdamW):
            """Adam with other options only."""

        variable = keras.Variable([1.0])
        compiled = tf.function(lambda optimizer: optimizer.apply([tf.ones([1])], [variable]), jit_compile=True)
        reasons = {
            "another optimizer": [_OF.Adadelta(), _OF.Ftrl()],
            "a subclass": [Own(), Clipping(), _OF.Adam()],
        }
        reasons["a subclass"][-1].update_step = mock.Mock()
        for reason, optimizers in reasons.items():
            for optimizer in optimizers:
                with _switch():
                    optimizer.apply([tf.ones([1])], [variable])
                self.assertEqual(_calls()["reasons"], {reason: 1})
        with _switch(), mock.patch.object(_OF.SGD, "update_step", lambda *_: variable.assign([7.0])):
            _OF.SGD().apply([tf.ones([1])], [variable])
        self.assertEqual((_calls()["reasons"], variable.numpy()), ({"a subclass": 1}, [7]))
        optimizer = _OF.Adam()
        optimizer.build([variable])
        with _switch():
            compiled(optimizer)
        self.assertEqual(_calls()["reasons"], {"XLA": 1})
        with _switch():
            _OF.SGD(1.0).apply([tf.ones([1]), tf.ones([1])], [variable, variable])
            self.assertEqual(_calls()["reasons"], {"a variable twice": 1})
        with _switch():
            Options().apply([tf.ones([1])], [variable])
        self.assertEqual(_calls(), {"fused": 1, "original": 0})

    def test_slots_of_another_dtype(self):
        class Wide(_OF.SGD):
            def add_variable_from_reference(self, reference_variable, name=None, initializer="zeros"):
                del initializer
                return self.add_variable(reference_variable.shape, dtype="float32", name=name)

        variable = keras.Variable([1.0], dtype="bfloat16")
        with _switch():
            Wide(1.0, 0.5).apply([tf.ones([1], tf.bfloat16)], [variable])
        self.assertEqual(_calls()["reasons"], {"optimizer variables of another dtype or device": 1})
        self.assertAllEqual(variable, tf.zeros([1], tf.bfloat16))

    def test_gradients_of_other_types_and_shapes(self):
        for gradient in (np.ones([2], np.float32), keras.Variable([1.0, 1.0]), 1.0):
            variable = keras.Variable([1.0, 2.0])
            with _switch():
                _OF.SGD(1.0, 0.5, global_clipnorm=1e9).apply([gradient], [variable])
            self.assertAllClose(variable, [0, 1])

    def test_product_of_nadam(self):
        """It is no variable of the optimizer."""
        optimizer, variable = _OF.Nadam(), keras.Variable([1.0], dtype="float64")
        with _switch():
            for _ in range(3):
                optimizer.apply([tf.ones([1], tf.float64)], [variable])
        expected = np.prod([0.9 * (1 - 0.5 * 0.96**step) for step in (1, 2, 3)])
        self.assertAllClose(optimizer._u_product, expected, 1e-12, 1e-12)

    @parameterized.parameters("LossScaleOptimizer(keras.optimizers.AdamW(0.1))", "Nadam(0.1)")
    def test_on_two_replicas(self, make):
        process_testing.output(
            os.path.dirname(__file__),
            f"""
            import tensorflow as tf
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
            import keras, numpy as np, tensorflow_ops as tfo
            strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

            def trained():
                with strategy.scope():
                    variables = [keras.Variable(tf.ones([20, 5])), keras.Variable(tf.ones([3]))]
                    optimizer = keras.optimizers.{make}
                    optimizer.build(variables)

                @tf.function
                def step():
                    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                    ids = tf.stack([3, 7 + tf.cast(replica, tf.int32)])
                    values = tf.ones([2, 5]) * (1 + tf.cast(replica, tf.float32))
                    slices = tf.IndexedSlices(values, ids, tf.constant([20, 5]))
                    optimizer.apply([slices, values[0, :3]], variables)

                for _ in range(3):
                    strategy.run(step)
                variables += optimizer.variables
                return [np.stack([y.numpy() for y in strategy.experimental_local_results(x.value)]) for x in variables]

            def dense(*gradients):  # what sums of repeated rows are beside
                return [tf.convert_to_tensor(gradient) for gradient in gradients]

            with tfo.layers.use_fused_ops(["optimizers"]):
                actual = trained()
            assert tfo.layers.fused_ops()["optimizers"]["original"] == 0
            apply = keras.optimizers.Optimizer._backend_apply_gradients
            keras.optimizers.Optimizer._backend_apply_gradients = lambda self, grads, variables: apply(
                self, dense(*grads), variables
            )
            for one, other in zip(actual, trained(), strict=True):
                np.testing.assert_allclose(one, other, 1e-5)
                np.testing.assert_array_equal(one[0], one[-1])
            """,
        )

    def test_outside_of_the_strategy(self):
        with tf.distribute.OneDeviceStrategy("CPU:0").scope():
            variable = keras.Variable([1.0])
            optimizer = _OF.SGD(1.0)
            optimizer.build([variable])
        with _switch():
            optimizer.apply([tf.ones([1])], [variable])
        self.assertEqual(_calls()["reasons"], {"outside of the optimizer's strategy": 1})
        self.assertAllEqual(variable, [0])

    def test_errors(self):
        optimizer = _OF.Adam()
        variables = _variables([np.ones([4]), np.ones([4, 2])])
        optimizer.build(variables)
        invalid = tf.errors.InvalidArgumentError
        unknown = tf.function(
            lambda gradient: optimizer.apply([gradient, tf.ones([4, 2])], variables),
            input_signature=[tf.TensorSpec(None)],
        )
        with _switch(), self.assertRaisesRegex(invalid, r"gradient 0 has shape \[5\], expected \[4\]"):
            unknown(tf.ones([5]))
        with _switch(), self.assertRaisesRegex(invalid, r"ids of variable 0 has 4 at 1, expected \[0, 4\)"):
            optimizer.apply([tf.ones([4]), _slices([3, 4], 0, rows=4, width=2)], variables)
        self._assert_equal(variables, [np.ones([4]), np.ones([4, 2])])

    def test_training_goes_on_without_the_switch(self):
        def trained(switches):
            keras.utils.set_random_seed(0)
            model = keras.Sequential([keras.Input([3]), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
            model.compile(_OF.AdamW(0.01, global_clipnorm=1.0), "mse", jit_compile=False)
            x = np.random.default_rng(0).normal(size=[32, 3])
            for is_on in switches:
                with _switch(is_on):
                    model.fit(x, x[:, :1], batch_size=8, epochs=1, verbose=0, shuffle=False)
                path = os.path.join(self.get_temp_dir(), "model.keras")
                model.save(path)
                model = keras.saving.load_model(path)
            return [x.numpy() for x in [*model.weights, *model.optimizer.variables]]

        self._assert_equal(trained([True, False, True]), trained([False, False, False]), 1e-5)


if __name__ == "__main__":
    tf.test.main()
