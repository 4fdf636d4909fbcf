"""Tests of grouped and depthwise convolutions by tfo.layers.use_fused_ops."""

import contextlib
import itertools

import keras
import numpy as np
import pairwise_testing
import process_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_KERNELS = ([5, 4, 1, 12], 6), ([3, 3, 4, 12], 8), ([3, 1, 12], 6), ([3, 2, 12], 4)  # and input channels
_RTOL = {
    "float64": 1e-6,
    "float32": 1e-5,
    "float16": 5e-3,
    "bfloat16": 4e-2,
}  # XLA has float32's in float64's gradients


def _has_onednn():
    images, kernel = tf.ones([1, 4, 4, 4]), tf.ones([2, 2, 2, 4])
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        outputs = tf.nn.conv2d(images, kernel, 1, "SAME")
    try:
        return tape.gradient(outputs, kernel) is not None
    except tf.errors.InvalidArgumentError:
        return False


_HAS_ONEDNN = _has_onednn()  # TensorFlow's default on some processors


def _convolve(images, kernel, strides, padding, dilations):
    """Returns a grouped convolution by its definition, tap by tap."""
    if len(images.shape) == 3:
        images, kernel = images[:, np.newaxis], kernel[np.newaxis]
        strides, dilations = (1, strides), (1, dilations)
    else:
        strides = (strides,) * 2 if isinstance(strides, int) else strides
        dilations = (dilations,) * 2
    sizes, taps = images.shape[1:3], kernel.shape[:2]
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    if padding == "same":
        outputs = [-(-n // s) for n, s in zip(sizes, strides, strict=True)]
        more = [max(0, (o - 1) * s + r - n) for o, s, r, n in zip(outputs, strides, reach, sizes, strict=True)]
        images = tf.pad(images, [[0, 0], *([m // 2, m - m // 2] for m in more), [0, 0]])
    else:
        outputs = [(n - r) // s + 1 for n, r, s in zip(sizes, reach, strides, strict=True)]
    in_group, filters = kernel.shape[2:]
    groups = images.shape[-1] // in_group
    total = 0.0
    for y, x in itertools.product(*map(range, taps)):
        rows, columns = (
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip((y, x), dilations, outputs, strides, strict=True)
        )
        read = tf.reshape(images[:, rows, columns], [-1, *outputs, groups, in_group])
        weights = tf.reshape(kernel[y, x], [in_group, groups, filters // groups])
        total += tf.einsum("bhwgi,igo->bhwgo", read, weights)
    return tf.reshape(total, [-1, *outputs, filters])


def _with_gradients(function):
    def run(images, kernel, to_outputs):
        with tf.GradientTape() as tape:
            tape.watch((images, kernel))
            outputs = function(images, kernel)
        to_outputs = tf.reshape(tf.cast(to_outputs, outputs.dtype), tf.shape(outputs))
        return outputs, *tape.gradient(outputs, (images, kernel), to_outputs)

    return run


class ConvTest(tf.test.TestCase, parameterized.TestCase):
    """Compares outputs and gradients with the definition in float64."""

    def _is_convolution(self, images, kernel, options, mode="eager"):
        images, kernel = tf.constant(images), tf.constant(kernel)
        wide = [tf.cast(x, tf.float64) for x in (images, kernel)]
        expected = _convolve(*wide, *options)
        to_outputs = tf.cast(tf.cast(_RNG.normal(size=expected.shape), images.dtype), tf.float64)
        expected = _with_gradients(lambda *x: _convolve(*x, *options))(*wide, to_outputs)
        strides, padding, dilations = options
        run = _with_gradients(lambda *x: keras.ops.conv(*x, strides, padding, "channels_last", dilations))
        if mode == "unknown sizes":
            shape = [None] * (images.shape.rank - 1) + [images.shape[-1]]
            specs = tf.TensorSpec(shape, images.dtype), tf.TensorSpec(kernel.shape, kernel.dtype)
            run = tf.function(run, [*specs, tf.TensorSpec([None] * to_outputs.shape.rank, tf.float64)])
        elif mode != "eager":
            run = tf.function(run, jit_compile=mode == "XLA")
        with tfo.layers.use_fused_ops(["conv"]):
            actual = run(images, kernel, to_outputs)
        reason = "XLA" if mode == "XLA" else None
        is_depthwise = kernel.shape[-2] == 1
        if not reason and not is_depthwise and not (_HAS_ONEDNN and images.dtype.size < 8):
            reason = f"groups of several channels, in {images.dtype.name} without oneDNN"
        calls = {"fused": 0, "original": 1, "reasons": {reason: 1}} if reason else {"fused": 1, "original": 0}
        self.assertEqual(tfo.layers.fused_ops(), {"conv": calls})
        rtol = _RTOL[images.dtype.name]
        for one, other in zip(actual, expected, strict=True):
            self.assertEqual(one.dtype, images.dtype)
            other = tf.reshape(other, one.shape)
            self.assertAllClose(tf.cast(one, tf.float64), other, 0, rtol * np.max(np.abs(other), initial=1e-3))

    @parameterized.product(kernel=_KERNELS, dtype=("float32", "float64", "float16", "bfloat16"))
    def test_is_the_definition(self, kernel, dtype):
        shape, channels = kernel
        modes, paddings = ("eager", "graph", "unknown sizes"), ("same", "valid")
        if dtype == "float64" and shape[-2] > 1:
            modes, paddings = modes[:1], paddings[:1]  # the original, which compiles for a second
        sizes = [9, 8][: len(shape) - 2]
        steps = [(1, 1), (2, 1), (1, 2)] + [((2, 1), 1)] * (len(sizes) > 1)
        for mode, padding, batch, (strides, dilations) in pairwise_testing.pairs_of(modes, paddings, (2, 0), steps):
            images = tf.cast(_RNG.normal(size=[batch, *sizes, channels]), dtype)
            self._is_convolution(images, tf.cast(_RNG.normal(size=shape), dtype), (strides, padding, dilations), mode)

    def test_no_images_in_inference(self):
        # TensorFlow merges pads of zeros into convolutions without padding and gradients.
        for in_group in (1, 4):
            kernel = tf.ones([3, 3, in_group, 8])
            run = tf.function(
                lambda images, kernel=kernel: keras.ops.conv(images, kernel, 1, "valid", "channels_last"),
                [tf.TensorSpec([None, 9, 8, 8])],
            )
            with tfo.layers.use_fused_ops(["conv"]):
                self.assertEqual(run(tf.zeros([0, 9, 8, 8])).shape, [0, 7, 6, 8])

    @parameterized.parameters("float32", "bfloat16")
    def test_images_smaller_than_the_kernel(self, dtype):
        # Of taps that meet no pixel, TensorFlow's gradient in bfloat16 is uninitialized memory.
        for (size, strides), in_group in itertools.product([(1, 2), (1, 1), (2, 2)], [1, 4]):
            images = tf.cast(_RNG.normal(size=[3, size, size, 8]), dtype)
            kernel = tf.cast(_RNG.normal(size=[5, 5, in_group, 8]), dtype)
            for mode in ("eager", "unknown sizes"):
                self._is_convolution(images, kernel, (strides, "same", 1), mode)

    def test_compiled_by_xla_is_the_original(self):
        images, kernel = _RNG.normal(size=[2, 7, 6, 8]).astype(np.float32), _RNG.normal(size=[3, 3, 2, 8])
        self._is_convolution(images, kernel.astype(np.float32), (1, "same", 1), "XLA")

    def test_originals(self):
        def reasons(shape, kernel, strides=1, padding="same", data_format="channels_last", dilations=1):
            images, kernel = (tf.constant(_RNG.normal(size=x), tf.float32) for x in (shape, kernel))
            expected = keras.ops.conv(images, kernel, strides, padding, data_format, dilations)
            with tfo.layers.use_fused_ops():
                actual = keras.ops.conv(images, kernel, strides, padding, data_format, dilations)
            self.assertAllClose(actual, expected, 1e-5, 1e-5)
            return tfo.layers.fused_ops().get("conv")

        def original(reason):
            return {"fused": 0, "original": 1, "reasons": {reason: 1}}

        self.assertIsNone(reasons([2, 5, 5, 4], [3, 3, 4, 6]))  # one group
        self.assertEqual(reasons([2, 5, 5, 4], [3, 3, 1, 4], np.int64(2)), {"fused": 1, "original": 0})
        with tfo.layers.use_fused_ops():
            ones = tf.ones([2, 5, 5, 4], tf.int32)
            with contextlib.suppress(tf.errors.OpError, ValueError):  # of some versions
                keras.ops.conv(ones, ones[0, :3, :3, :1], 1, "same", "channels_last")
        self.assertEqual(tfo.layers.fused_ops()["conv"], original("mixed dtypes, or integers"))
        self.assertEqual(reasons([2, 5, 5, 5, 4], [3, 3, 3, 2, 4]), original("a rank other than 3 and 4"))
        self.assertEqual(reasons([2, 4, 6], [3, 2, 4], data_format="channels_first"), original("channels_first"))
        with tfo.layers.use_fused_ops(["conv"]):
            for shape, kernel, padding in (([2, 5, 5, 5], [3, 3, 2, 4], "same"), ([2, 5, 5, 4], [7, 7, 2, 4], "valid")):
                with self.assertRaises(Exception):  # noqa: B017  (of several types, by version)
                    keras.ops.conv(tf.zeros(shape), tf.zeros(kernel), 1, padding, "channels_last")
        self.assertEqual(tfo.layers.fused_ops()["conv"]["fused"], 0)

    def test_kernels_of_unknown_size(self):
        images, kernel = (tf.constant(_RNG.normal(size=x), tf.float32) for x in ([2, 5, 5, 4], [3, 3, 2, 4]))
        expected = keras.ops.conv(images, kernel, 1, "same", "channels_last")
        for shape in ([None, 3, 2, 4], [3, 3, None, 4], [3, 3, 2, None], None):
            run = tf.function(
                lambda kernel: keras.ops.conv(images, kernel, 1, "same", "channels_last"), [tf.TensorSpec(shape)]
            )
            with tfo.layers.use_fused_ops():
                self.assertAllClose(run(kernel), expected, 1e-5, 1e-5)
            calls = {"fused": 0, "original": 1, "reasons": {"a kernel of unknown size": 1}}
            self.assertEqual(tfo.layers.fused_ops(), {"conv": calls})

    def test_layers_and_second_derivatives(self):
        inputs = tf.constant(_RNG.normal(size=[2, 7, 6, 8]), tf.float32)
        for layer in (keras.layers.Conv2D(16, 3, groups=8, activation="tanh"), keras.layers.Conv2D(12, 3, groups=4)):
            layer.build(inputs.shape)

            def second(layer=layer):
                with tf.GradientTape() as outer:
                    outer.watch(inputs)
                    with tf.GradientTape() as inner:
                        inner.watch(inputs)
                        outputs = tf.reduce_sum(layer(inputs) ** 3)
                    gradient = inner.gradient(outputs, inputs)
                return outer.gradient(gradient, [inputs, layer.kernel.value])

            expected = second()
            with tfo.layers.use_fused_ops(["conv"]):
                actual = second()
            self.assertEqual(tfo.layers.fused_ops()["conv"]["fused"], layer.groups == 8 or _HAS_ONEDNN)
            for one, other in zip(actual, expected, strict=True):
                self.assertAllClose(one, other, 1e-4, 1e-4)

    def test_without_onednn(self):
        output = process_testing.output(
            self.get_temp_dir(),
            """
            import keras, numpy as np, tensorflow as tf, tensorflow_ops as tfo
            for dtype in ("float32", "bfloat16"):
                for in_group in (1, 4):
                    images, kernel = tf.ones([40, 32, 32, 8], dtype), tf.ones([3, 3, in_group, 8], dtype)
                    with tfo.layers.use_fused_ops(), tf.GradientTape() as tape:
                        tape.watch((images, kernel))
                        outputs = keras.ops.conv(images, kernel, 1, "same", "channels_last")
                    gradient = tape.gradient(outputs, kernel)
                    print(float(gradient[1, 1, 0, 0]), *tfo.layers.fused_ops()["conv"].get("reasons", ()))
            """,
            TF_ENABLE_ONEDNN_OPTS="0",
        )
        reason = "40960.0 groups of several channels, in {} without oneDNN"
        self.assertEqual(
            output.splitlines(), ["40960.0", reason.format("float32"), "40960.0", reason.format("bfloat16")]
        )


def _depthwise_kernel(kernel):
    """Returns [..., channels, multiplier] as a kernel of as many groups."""
    return tf.reshape(kernel, [*kernel.shape[:-2], 1, kernel.shape[-2] * kernel.shape[-1]])


class DepthwiseConvTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(multiplier=(1, 2), dtype=("float32", "float64", "float16", "bfloat16"))
    def test_is_the_definition(self, multiplier, dtype):
        modes, paddings, steps = ("eager", "graph", "unknown sizes"), ("same", "valid"), ((1, 1), (2, 1), (1, 2))
        kernels = [3, 3], [7, 7], [5, 2], [3]
        for shape, mode, padding, batch, (strides, dilations) in pairwise_testing.pairs_of(
            kernels, modes, paddings, (2, 0), steps
        ):
            images = tf.cast(_RNG.normal(size=[batch, *[19, 20][: len(shape)], 5]), dtype)
            kernel = tf.cast(_RNG.normal(size=[*shape, 5, multiplier]), dtype)
            wide = [tf.cast(x, tf.float64) for x in (images, kernel)]
            define = lambda x, k, o=(strides, padding, dilations): _convolve(x, _depthwise_kernel(k), *o)  # noqa: E731
            to_outputs = tf.cast(tf.cast(_RNG.normal(size=define(*wide).shape), dtype), tf.float64)
            expected = _with_gradients(define)(*wide, to_outputs)
            options = strides, padding, "channels_last", dilations
            run = _with_gradients(lambda x, k, o=options: keras.ops.depthwise_conv(x, k, *o))
            if mode == "unknown sizes":
                specs = [tf.TensorSpec([None] * (images.shape.rank - 1) + [5], dtype), kernel]
                run = tf.function(
                    run, [*specs[:1], tf.TensorSpec(kernel.shape, dtype), tf.TensorSpec(None, tf.float64)]
                )
            elif mode == "graph":
                run = tf.function(run)
            with tfo.layers.use_fused_ops(["depthwise_conv"]):
                actual = run(images, kernel, to_outputs)
            self.assertEqual(tfo.layers.fused_ops(), {"depthwise_conv": {"fused": 1, "original": 0}})
            for one, other in zip(actual, expected, strict=True):
                self.assertEqual(one.dtype, dtype)
                other = tf.reshape(other, one.shape)
                limit = _RTOL[dtype] * np.max(np.abs(other), initial=1e-3)
                self.assertAllClose(tf.cast(one, tf.float64), other, 0, limit)

    @parameterized.parameters(
        (keras.layers.DepthwiseConv2D(3, 2, "same", activation="tanh"), [2, 7, 6, 8]),
        (keras.layers.SeparableConv2D(5, 3, depth_multiplier=2, activation="tanh"), [2, 7, 6, 8]),
        (keras.layers.DepthwiseConv1D(3, 1, "same", dilation_rate=2), [2, 9, 8]),
        (keras.layers.SeparableConv1D(5, 3, activation="tanh"), [2, 9, 8]),
    )
    def test_layers_and_second_derivatives(self, layer, shape):
        inputs = tf.constant(_RNG.normal(size=shape), tf.float32)

        def second():
            with tf.GradientTape() as outer:
                outer.watch(inputs)
                with tf.GradientTape() as inner:
                    inner.watch(inputs)
                    outputs = tf.reduce_sum(layer(inputs) ** 3)
                gradient = inner.gradient(outputs, inputs)
            return outer.gradient(gradient, [inputs, *(v.value for v in layer.trainable_variables[:-1])])

        expected = second()
        with tfo.layers.use_fused_ops(["depthwise_conv"]):
            actual = second()
        self.assertEqual(tfo.layers.fused_ops()["depthwise_conv"]["fused"], 1)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-4)

    @parameterized.parameters(
        ({"data_format": "channels_first"}, "channels_first"),
        ({"shape": [2, 5, 5, None]}, "unknown channels"),
        ({"kernel_shape": [3, None, 4, 1]}, "a kernel of unknown size"),
        ({"jit_compile": True}, "XLA"),
    )
    def test_originals(self, options, reason):
        shape, kernel_shape = options.pop("shape", [2, 5, 5, 4]), options.pop("kernel_shape", [3, 3, 4, 1])
        jit_compile, options = options.pop("jit_compile", False), {"data_format": "channels_last"} | options
        size = [4 if n is None else n for n in shape]
        if options["data_format"] == "channels_first":
            size = shape = [2, 4, 5, 5]
        images, kernel = _RNG.normal(size=size), _RNG.normal(size=[3, 3, 4, 1])
        expected = _convolve(
            np.moveaxis(images, 1, 3) if shape[1] == 4 else images, kernel.reshape(3, 3, 1, 4), 1, "valid", 1
        )
        run = tf.function(
            lambda x, k: keras.ops.depthwise_conv(x, k, **options),
            [tf.TensorSpec(shape, tf.float64), tf.TensorSpec(kernel_shape, tf.float64)],
            jit_compile=jit_compile,
        )
        with tfo.layers.use_fused_ops():
            try:
                actual = run(images, kernel)
            except (tf.errors.OpError, ValueError):  # of some versions, or without a GPU
                actual = None
        self.assertEqual(
            tfo.layers.fused_ops(), {"depthwise_conv": {"fused": 0, "original": 1, "reasons": {reason: 1}}}
        )
        if actual is not None and shape[1] != 4:
            self.assertAllClose(actual, expected, 1e-6, 1e-6)

    def test_no_dilations(self):
        images, kernel = tf.ones([2, 5, 5, 4]), tf.ones([3, 3, 4, 1])
        expected = keras.ops.depthwise_conv(images, kernel, 1, "same", "channels_last", 1)
        with tfo.layers.use_fused_ops():
            none = keras.ops.depthwise_conv(images, kernel, 1, "same", "channels_last", None)
        self.assertAllClose(none, expected)

    def test_errors_are_keras(self):
        for shape, kernel, strides in (
            ([2, 5, 5, 5, 4], [3, 3, 4, 1], 1),
            ([2, 5, 5, 6], [3, 3, 4, 1], 1),
            ([2, 2, 2, 4], [5, 5, 4, 1], 1),
        ):
            with tfo.layers.use_fused_ops(["depthwise_conv"]), self.assertRaises(Exception):  # noqa: B017
                keras.ops.depthwise_conv(tf.zeros(shape), tf.zeros(kernel), strides, "valid", "channels_last")
            self.assertEqual(tfo.layers.fused_ops().get("depthwise_conv", {}).get("fused", 0), 0)

    def test_exported_models_load_and_become_standard(self):
        inputs = keras.Input([9, 8, 4])
        outputs = keras.layers.DepthwiseConv2D(3, 2, "same", activation="relu6")(inputs)
        model = keras.Model(inputs, keras.layers.SeparableConv2D(5, 3)(outputs))
        images = tf.constant(_RNG.normal(size=[2, 9, 8, 4]), tf.float32)
        expected, path = model(images), self.get_temp_dir()
        with tfo.layers.use_fused_ops(["depthwise_conv"]):
            model.export(path + "/ours", verbose=False)
        tfo.export.to_standard_ops(path + "/ours", path + "/standard")
        for name in ("ours", "standard"):
            loaded = tf.saved_model.load(f"{path}/{name}")  # must live as long as its function
            self.assertAllClose(loaded.serve(images), expected, 1e-5, 1e-5)


if __name__ == "__main__":
    tf.test.main()
