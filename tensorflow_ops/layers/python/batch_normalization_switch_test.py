"""Tests of batch normalization by tfo.layers.use_fused_ops."""

import keras
import numpy as np
import pairwise_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_FUSED = {"fused": 1, "original": 0}


def _reference(x, gamma, beta, epsilon, to_outputs):
    """Returns outputs, gradients to x, gamma and beta, the mean and the variance, in float64."""
    axes = tuple(range(x.ndim - 1))
    mean, variance = x.mean(axes), x.var(axes)
    scale = 1 / np.sqrt(variance + epsilon)
    normal = (x - mean) * scale
    to_gamma, to_beta = (to_outputs * normal).sum(axes), to_outputs.sum(axes)
    count = x.size // x.shape[-1]
    to_x = gamma * scale * (to_outputs - (to_beta + normal * to_gamma) / count)
    return normal * gamma + beta, to_x, to_gamma, to_beta, mean, variance


def _layer(shape, kind=keras.layers.BatchNormalization, **options):
    layer = kind(momentum=0.9, **options)
    layer.build([None, *shape[1:]])
    for weight in layer.weights:
        weight.assign(_RNG.uniform(0.5, 2, weight.shape))
    return layer


def _run(layer, x, to_outputs, mode="eager", **options):
    """Returns outputs, gradients to x and to the layer's weights, and what the moving statistics become."""

    def run(x, to_outputs):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x, training=True, **options)
        return outputs, *tape.gradient(outputs, [x, *(v.value for v in layer.trainable_variables)], to_outputs)

    if mode == "unknown sizes":
        run = tf.function(run, [tf.TensorSpec([None] * (x.shape.rank - 1) + x.shape[-1:], x.dtype)] * 2)
    elif mode != "eager":
        run = tf.function(run, jit_compile=mode == "XLA")
    before = [v.numpy() for v in layer.non_trainable_variables]
    results = *run(x, to_outputs), *(v.numpy() for v in layer.non_trainable_variables)
    for variable, value in zip(layer.non_trainable_variables, before, strict=True):
        variable.assign(value)
    return results


class BatchNormalizationTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise_testing.pairwise(
        policy=("float32", "mixed_float16", "mixed_bfloat16", "float16", "bfloat16"),
        mode=("eager", "unknown sizes"),
        sizes=((4096,), (64, 64), (8, 16, 32), (8, 4, 16, 8), (1, 4096)),
        mean=(0, 100),
        options=({}, {"scale": False}, {"center": False}, {"axis": "rank - 1"}),
    )
    def test_is_the_definition(self, policy, mode, sizes, mean, options):
        channels = 16
        if "axis" in options:
            options = {"axis": len(sizes)}
        layer = _layer([*sizes, channels], dtype=policy, **options)
        spread = _RNG.uniform(0.1, 3, [channels])
        x, to_outputs = (
            tf.cast(_RNG.normal(size=[*sizes, channels]) * spread + m, layer.compute_dtype) for m in (mean, 0)
        )
        wide = [np.float64(tf.cast(t, tf.float64)) for t in (x, to_outputs)]
        gamma, beta = (np.float64(1.0 * (w if w is not None else d)) for w, d in ((layer.gamma, 1), (layer.beta, 0)))
        outputs, to_x, to_gamma, to_beta, mean, variance = _reference(wide[0], gamma, beta, layer.epsilon, wide[1])
        moving = [
            0.9 * v.numpy().astype(np.float64) + 0.1 * new
            for v, new in zip(layer.non_trainable_variables, (mean, variance), strict=True)
        ]
        weights = [g for w, g in ((layer.gamma, to_gamma), (layer.beta, to_beta)) if w is not None]
        with tfo.layers.use_fused_ops(["batch_normalization"]):
            results = _run(layer, x, to_outputs, mode)
        is_small = mode == "unknown sizes" and len(sizes) == 1  # of 32 examples
        calls = {"fused": 0, "original": 1, "reasons": {"few numbers": 1}} if is_small else _FUSED
        self.assertEqual(tfo.layers.fused_ops(), {"batch_normalization": calls})
        dtypes = [x.dtype, x.dtype, *(v.dtype for v in layer.trainable_variables)]
        rtol = {2: 1e-2, 4: 1e-4}
        for i, (one, other) in enumerate(zip(results, [outputs, to_x, *weights, *moving], strict=True)):
            if i < len(dtypes):
                self.assertEqual(one.dtype, dtypes[i])
            limit = rtol[tf.as_dtype(one.dtype).size] * np.abs(other).max()
            self.assertAllClose(tf.cast(one, tf.float64), other, 0, limit, msg=f"result {i}")

    @parameterized.parameters(((0, 2, 65536),), ((1, 65536),), ((4, 65536),))
    def test_no_example_one_and_constants(self, shape):
        layer = _layer(shape)
        x = tf.fill(shape, 3.0)
        with tfo.layers.use_fused_ops():
            outputs, to_x, *_, mean, variance = _run(layer, x, tf.ones(shape))
        self.assertEqual(tfo.layers.fused_ops(), {"batch_normalization": _FUSED})
        self.assertAllEqual(outputs, tf.broadcast_to(layer.beta, shape))
        self.assertAllClose(to_x, tf.zeros(shape), atol=1e-4)
        count = np.prod(shape[:-1])
        # Keras's mean of no number is NaN.
        self.assertAllClose(mean, 0.9 * layer.moving_mean + (0.1 * 3 if count else np.nan), 1e-6)
        self.assertAllClose(variance, 0.9 * layer.moving_variance + (0 if count else np.nan), 1e-6)

    def test_originals(self):
        class Mine(keras.layers.BatchNormalization):
            def _moments(self, *args):
                return super()._moments(*args)

        x = _RNG.normal(size=[64, 64, 16])
        mask = tf.constant(_RNG.uniform(size=[64, 64]) > 0.5)
        cases = [
            ("float64 inputs", _layer(x.shape, dtype="float64"), {}),
            ("a mask", _layer(x.shape), {"mask": mask}),
            ("synchronized=True", _layer(x.shape, synchronized=True), {}),
            ("another axis", _layer(x.shape, axis=1), {}),
            ("a subclass", _layer(x.shape, Mine), {}),
        ]
        if int(keras.__version__.split(".")[1]) >= 14:
            cases.append(("renorm=True", _layer(x.shape, renorm=True), {}))
        for reason, layer, options in cases:
            inputs = tf.constant(x, layer.compute_dtype)
            expected = _run(layer, inputs, inputs, **options)
            with tfo.layers.use_fused_ops():
                actual = _run(layer, inputs, inputs, **options)
            calls = {"fused": 0, "original": 1, "reasons": {reason: 1}}
            self.assertEqual(tfo.layers.fused_ops(), {"batch_normalization": calls})
            for one, other in zip(actual, expected, strict=True):
                self.assertAllClose(one, other, 1e-5, 1e-5)
        with tfo.layers.use_fused_ops():
            inputs = tf.constant(x, tf.float32)
            _run(_layer(x.shape), inputs, inputs, "XLA")
            _layer(x[0].shape)(inputs[0], training=True)
            # Grappler folds inference into convolutions.
            frozen = _layer(x.shape)
            frozen.trainable = False
            frozen(inputs, training=True)
            frozen(inputs, training=False)
            frozen(inputs)
        calls = {"fused": 0, "original": 2, "reasons": {"XLA": 1, "few numbers": 1}}
        self.assertEqual(tfo.layers.fused_ops(), {"batch_normalization": calls})

    @parameterized.parameters({}, {"center": False, "scale": False})
    def test_unknown_channels(self, **options):
        x = tf.constant(_RNG.normal(size=[64, 64, 16]), tf.float32)
        layer = _layer(x.shape, **options)
        run = tf.function(lambda x: layer(x, training=True), [tf.TensorSpec([None, None, None])])
        expected = layer(x, training=True)
        with tfo.layers.use_fused_ops():
            self.assertAllClose(run(x), expected, 1e-5, 1e-5)
        calls = {"fused": 0, "original": 1, "reasons": {"unknown channels": 1}}
        self.assertEqual(tfo.layers.fused_ops(), {"batch_normalization": calls})

    def test_second_derivatives(self):
        x = tf.constant(_RNG.normal(size=[2, 4, 512, 16]), tf.float32)
        layer = _layer(x.shape)

        def second():
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    loss = tf.reduce_sum(layer(x, training=True) ** 3)
                gradient = inner.gradient(loss, x)
            return outer.gradient(gradient, [x, layer.gamma.value], x)

        expected = second()
        with tfo.layers.use_fused_ops():
            actual = second()
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, 1e-3, 1e-4 * np.abs(other).max())


if __name__ == "__main__":
    tf.test.main()
