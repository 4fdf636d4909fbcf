"""Tests of quantized_matmul: Keras's layers and quantizers, gradients, dtypes, errors."""

import unittest

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
# Older releases pack other axes, and have no AWQ.
_KERAS_3_15 = unittest.skipUnless(hasattr(keras.quantizers, "Int4QuantizationConfig"), "the layouts of Keras 3.15")


def _inputs(*shape):
    return tf.constant(_RNG.normal(size=shape), tf.float32)


def _layer(layer, depth, mode, config=None):
    """Returns a quantized layer, of a depth."""
    layer.build([None, depth])
    if config is None:
        layer.quantize(mode)
    else:
        layer.quantize(mode, config=config)
    return layer


class KerasTest(tf.test.TestCase, parameterized.TestCase):
    """The kernels of Keras's layers, as they are."""

    def _same(self, y, expected, tolerance=2e-6):
        """Compares results, relative to the greatest."""
        expected = keras.ops.convert_to_numpy(expected).astype("float32")
        most = np.abs(expected).max()
        self.assertAllClose(np.asarray(y, "float32") / most, expected / most, atol=tolerance, rtol=0)

    @parameterized.product(rows=[1, 3, 12], depth=[20, 301])
    def test_dense_int8(self, rows, depth):
        layer = _layer(keras.layers.Dense(70, use_bias=False), depth, "int8")
        x = _inputs(2, rows, depth)
        y = tfo.nn.quantized_matmul(x, layer._kernel, 1 / layer.kernel_scale, activation_bits=8)
        self._same(y, layer(x), 1e-6)
        # Float activations.
        weights = keras.ops.cast(layer._kernel, "float32") / layer.kernel_scale
        y = tfo.nn.quantized_matmul(x, layer._kernel, 1 / layer.kernel_scale)
        self._same(y, tf.matmul(x, weights))

    @parameterized.parameters("float16", "bfloat16", "float32", "float64")
    def test_integers_of_activations_are_those_of_keras(self, dtype):
        x = tf.cast(_inputs(5, 96) * tf.constant([1, 1e-3, 1e3, 0, 1e-6], tf.float32)[:, tf.newaxis], dtype)
        integers, scale = keras.quantizers.abs_max_quantize(x, axis=-1)
        scale = tf.cast(scale, tf.float64)
        for repeats in (1, 3):
            rows = tf.repeat(x, repeats, 0)
            y = tfo.nn.quantized_matmul(rows, np.eye(96, dtype="int8"), tf.ones([96]), activation_bits=8)
            found = tf.round(tf.cast(y, tf.float64)[::repeats] * scale)
            # float16 has no scale for the last rows.
            finite = tf.math.is_finite(scale)
            self.assertAllEqual(tf.where(finite, found, 0), tf.where(finite, tf.cast(integers, tf.float64), 0))
            self.assertAllEqual(tf.where(finite, 0, tf.cast(y[::repeats], tf.float64)), tf.zeros_like(found))

    @parameterized.product(rows=[1, 12], block_size=[-1, 128, 32], units=[7, 70])
    @_KERAS_3_15
    def test_dense_int4(self, rows, block_size, units):
        config = keras.quantizers.Int4QuantizationConfig(block_size=block_size)
        layer = _layer(keras.layers.Dense(units, use_bias=False), 300, "int4", config)
        x = _inputs(rows, 300)
        if block_size == -1:
            y = tfo.nn.quantized_matmul(x, layer._kernel, 1 / layer.kernel_scale, bits=4)
            self._same(y, layer(x))
            return
        args = x, layer._kernel, layer.kernel_scale
        y = tfo.nn.quantized_matmul(*args, zero=layer.kernel_zero, bits=4, block_size=block_size)
        self._same(y, layer(x))
        y = tfo.nn.quantized_matmul(*args, zero=layer.kernel_zero, bits=4, group_index=layer.g_idx)
        self._same(y, layer(x))

    @parameterized.product(rows=[1, 12], equation=["abc,cde->abde", "abde,dec->abc"], block_size=[-1, 32])
    @_KERAS_3_15
    def test_einsum_dense_int4(self, rows, equation, block_size):
        """Keras flattens the kernel to [depth, columns]."""
        output, inner = ([None, 6, 11], [64]) if equation.startswith("abc,") else ([None, 30], [4, 16])
        layer = keras.layers.EinsumDense(equation, output_shape=output)
        layer.build([None, rows, *inner])
        layer.quantize("int4", config=keras.quantizers.Int4QuantizationConfig(block_size=block_size))
        x = _inputs(1, rows, *inner)
        flat = tf.reshape(x, [rows, 64])
        scale = layer.kernel_scale if block_size > 0 else tf.reshape(1 / layer.kernel_scale, [-1])
        options = {"zero": layer.kernel_zero, "block_size": block_size} if block_size > 0 else {}
        y = tfo.nn.quantized_matmul(flat, layer._kernel, scale, bits=4, **options)
        expected = layer(x)
        self._same(tf.reshape(y, expected.shape), expected)

    @parameterized.product(bits=[4, 8, 2], group_size=[-1, 32], ordered=[True, False], rows=[1, 12])
    @_KERAS_3_15
    def test_gptq(self, bits, group_size, ordered, rows):
        config = keras.quantizers.GPTQConfig(
            dataset=None, tokenizer=None, weight_bits=bits, group_size=group_size, activation_order=not ordered
        )
        layer = _layer(keras.layers.Dense(35, use_bias=False), 96, "gptq", config)
        self._assign_groups(layer, 96, 35, bits, group_size, ordered)
        layer.is_gptq_calibrated = True
        x = _inputs(rows, 96)
        y = tfo.nn.quantized_matmul(
            x, layer.quantized_kernel, layer.kernel_scale, zero=layer.kernel_zero, bits=4 if bits == 4 else 8,
            group_index=layer.g_idx, transposed=True,
        )  # fmt: skip
        self._same(y, layer(x))

    def _assign_groups(self, layer, depth, units, bits, group_size, ordered=True):
        """Assigns random integers, scales and groups, as calibration would."""
        groups = 1 if group_size == -1 else depth // group_size
        q = _RNG.integers(0, 2**bits, [units, depth]).astype("uint8")
        if bits == 4:
            q, _, _ = keras.quantizers.pack_int4(tf.constant(q), axis=0, dtype="uint8")
        layer.quantized_kernel.assign(q)
        layer.kernel_scale.assign(_RNG.uniform(0.1, 1, [units, groups]))
        layer.kernel_zero.assign(_RNG.integers(0, 2**bits, [units, groups]))
        index = np.arange(depth) // (depth // groups)
        layer.g_idx.assign((index if ordered else _RNG.permutation(index)).astype("float32"))

    @_KERAS_3_15
    def test_awq(self):
        config = keras.quantizers.AWQConfig(dataset=None, tokenizer=None, group_size=32)
        layer = _layer(keras.layers.Dense(35, use_bias=False), 96, "awq", config)
        self._assign_groups(layer, 96, 35, 4, 32)
        layer.awq_scales.assign(_RNG.uniform(0.5, 2, [96]))
        layer.is_awq_calibrated = True
        x = _inputs(3, 96)
        y = tfo.nn.quantized_matmul(
            x / layer.awq_scales, layer.quantized_kernel, layer.kernel_scale, zero=layer.kernel_zero, bits=4,
            group_index=layer.g_idx, transposed=True,
        )  # fmt: skip
        self._same(y, layer(x))

    @parameterized.product(depth=[40, 41], tied=[True, False], rows=[1, 12])
    @_KERAS_3_15
    def test_reversible_embedding_int8(self, depth, tied, rows):
        layer = keras.layers.ReversibleEmbedding(50, depth, tie_weights=tied)
        layer.build()
        layer.quantize("int8")
        x = _inputs(2, rows, depth)
        if tied:
            y = tfo.nn.quantized_matmul(
                x, layer._embeddings, 1 / layer.embeddings_scale, transposed=True, activation_bits=8
            )
        else:
            y = tfo.nn.quantized_matmul(
                x, layer.reverse_embeddings, 1 / layer.reverse_embeddings_scale, activation_bits=8
            )
        self._same(y, layer(x, reverse=True), 1e-6)

    @parameterized.product(depth=[64, 41], tied=[True, False], rows=[1, 12], options=[(-1, None), (-1, 8), (32, None)])
    @_KERAS_3_15
    def test_reversible_embedding_int4(self, depth, tied, rows, options):
        block_size, activation_bits = options
        layer = keras.layers.ReversibleEmbedding(50, depth, tie_weights=tied)
        layer.build()
        quantizer = keras.quantizers.AbsMaxQuantizer(axis=-1) if activation_bits else None
        config = keras.quantizers.Int4QuantizationConfig(block_size=block_size, activation_quantizer=quantizer)
        layer.quantize("int4", config=config)
        x = _inputs(2, rows, depth)
        kernel, scale = layer._embeddings, layer.embeddings_scale
        zero = layer.embeddings_zero if block_size > 0 else None
        if not tied:
            kernel, scale = layer.reverse_embeddings, layer.reverse_embeddings_scale
            zero = layer.reverse_embeddings_zero if block_size > 0 else None  # floats
        more = {"zero": zero, "block_size": block_size} if block_size > 0 else {}
        y = tfo.nn.quantized_matmul(
            x, kernel, scale if block_size > 0 else 1 / scale, bits=4, transposed=tied,
            packed_axis=-1 if tied else 0, activation_bits=activation_bits, **more,
        )  # fmt: skip
        self._same(y, layer(x, reverse=True))

    def test_gradient(self):
        layer = _layer(keras.layers.Dense(30, use_bias=False), 50, "int8")
        x = _inputs(4, 50)
        scale = 1 / tf.convert_to_tensor(layer.kernel_scale)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, scale])
            y = tfo.nn.quantized_matmul(x, layer._kernel, scale, activation_bits=8)
            loss, of_keras = tf.reduce_sum(y**2), tf.reduce_sum(layer(x) ** 2)
        self._same(tape.gradient(loss, x), tape.gradient(of_keras, x), 1e-5)
        self.assertIsNone(tape.gradient(loss, scale))


class QuantizedMatmulTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        kernel=["int8", "uint8"],
        packed_axis=[None, 0, 1],  # None: 8 bits
        transposed=[False, True],
        groups=["none", "blocks", "ordered", "scattered"],
        activation_bits=[None, 8],
        float_zero=[False, True],
    )
    def test_layouts(self, kernel, packed_axis, transposed, groups, activation_bits, float_zero):
        """Each layout is its definition, for few rows and many."""
        depth, columns, block = 77, 21, 32
        bits = 8 if packed_axis is None else 4
        low = -(2 ** (bits - 1)) if kernel == "int8" else 0
        group = np.zeros(depth, int) if groups == "none" else np.arange(depth) // block
        if groups == "scattered":
            group = _RNG.permutation(group)
        q = _RNG.integers(low, low + 2**bits, [depth, columns])
        zero = _RNG.integers(low, low + 2**bits, [group.max() + 1, columns])
        zero = (1.25 * zero - 3.3).astype("float32") if float_zero else zero.astype(kernel)
        scale = _RNG.uniform(0.01, 0.02, zero.shape)
        weights = (q - zero.astype(float)[group]) * scale[group]
        stored = q.T if transposed else q
        if packed_axis is not None:
            even = np.pad(stored, [(0, axis == packed_axis and n % 2) for axis, n in enumerate(stored.shape)]) & 15
            first, second = (np.take(even, range(i, even.shape[packed_axis], 2), packed_axis) for i in (0, 1))
            stored = first | second << 4
        options = {
            "blocks": {"block_size": block},
            "ordered": {"group_index": group},
            "scattered": {"group_index": group.astype("float32")},
        }.get(groups, {})
        for rows in (1, 13):
            x = _RNG.normal(size=[rows, depth]).astype("float32")
            factor = 1
            expected = x.astype(float)
            if activation_bits:
                factor = np.float32(127) / (np.abs(x).max(1, keepdims=True) + np.float32(1e-7))
                expected = np.round(x * factor).astype(float)
            y = tfo.nn.quantized_matmul(
                x, stored.astype("uint8").view(kernel), scale.T if transposed else scale,
                zero=zero.T if transposed else zero, bits=bits, transposed=transposed,
                packed_axis=packed_axis, activation_bits=activation_bits, **options,
            )  # fmt: skip
            self.assertAllClose(y, expected @ weights / factor, rtol=2e-5, atol=2e-4)

    @parameterized.product(
        zero=[
            np.float32([1.5, -2, 300]),
            np.float16([0.5, 3, -7]),
            np.int64([300, -2, 2**40]),
            [300, -2, 3],
            [1.5, 2, 0],
        ],
        kernel=["int8", "uint8"],
        activation_bits=[None, 8],
    )
    def test_zeros_are_any_numbers(self, zero, kernel, activation_bits):
        q, x = _RNG.integers(0, 128, [40, 3]).astype(kernel), _RNG.integers(-127, 128, [2, 40]).astype("float32")
        x[:, 0] = 127  # so that rounding leaves the numbers as they are
        expected = x.astype(float) @ (q - np.asarray(zero, float))

        def call(x, zero=zero):
            return tfo.nn.quantized_matmul(x, q, tf.ones([3]), zero=zero, activation_bits=activation_bits)

        functions = [call, tf.function(call), tf.function(call, jit_compile=True)]
        if isinstance(zero, np.ndarray):
            specs = [tf.TensorSpec([None, None]), tf.TensorSpec([None], zero.dtype)]
            functions.append(lambda x: tf.function(call, input_signature=specs)(x, zero))
        for function in functions:
            self.assertAllClose(function(tf.constant(x)), expected, rtol=1e-6, atol=np.abs(expected).max() * 1e-6)
        with tf.GradientTape() as tape:
            tape.watch(x := tf.constant(x))
            y = call(x)
        self.assertAllClose(tape.gradient(y, x), np.tile((q - np.asarray(zero, float)).sum(1), [2, 1]), rtol=1e-6)

    def test_a_zero_of_nan_makes_its_columns_nan(self):
        y = tfo.nn.quantized_matmul(tf.ones([2, 4]), tf.ones([4, 3], tf.int8), tf.ones([3]), zero=[0.5, np.nan, 0.5])
        self.assertAllEqual(np.isnan(y), [[False, True, False]] * 2)

    @parameterized.parameters(
        (np.int64([2**32, 2**32 + 1]), r"group_index\[0\] is 4294967296, expected a whole number of 32 bits"),
        (np.uint64([1, 2**63]), r"group_index\[1\] is 9223372036854775808, expected a whole number of 32 bits"),
        (np.float32([0.9, -0.9]), r"group_index\[0\] is 0.9, expected a whole number of 32 bits"),
        (np.float32([1, np.nan]), r"group_index\[1\] is nan, expected a whole number of 32 bits"),
        ([0, 2**32], r"group_index\[1\] is 4294967296, expected a whole number of 32 bits"),
    )
    def test_a_group_index_is_whole(self, groups, message):
        def call(groups=groups):
            return tfo.nn.quantized_matmul(
                tf.ones([1, 2]), tf.ones([2, 3], tf.int8), tf.ones([2, 3]), group_index=groups
            )

        functions = [call, tf.function(call), tf.function(call, jit_compile=True)]
        if isinstance(groups, np.ndarray):
            spec = [tf.TensorSpec([None], groups.dtype)]
            functions.append(lambda: tf.function(call, input_signature=spec)(groups))
        for function in functions:
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                function()

    def test_ranks(self):
        kernel, scale = tf.ones([5, 3], tf.int8), tf.ones([3])
        self.assertAllClose(tfo.nn.quantized_matmul(tf.ones([5]), kernel, scale), [5.0] * 3)
        self.assertAllClose(tfo.nn.quantized_matmul(tf.ones([2, 1, 0, 5]), kernel, scale), tf.zeros([2, 1, 0, 3]))

    def test_a_map_calls_one_op_for_all_iterations(self):
        x, kernel, scale = _inputs(4, 2, 6), tf.constant(_RNG.integers(-9, 9, [6, 3]), tf.int8), tf.ones([3])

        @tf.function
        def mapped(x):
            return tf.vectorized_map(lambda x: tfo.nn.quantized_matmul(x, kernel, scale), x)

        self.assertAllClose(mapped(x), tfo.nn.quantized_matmul(x, kernel, scale))
        ops = [op.type for op in mapped.get_concrete_function(x).graph.get_operations()]
        self.assertEmpty([op for op in ops if "While" in op])

    def test_second_order(self):
        kernel = tf.constant([[1, -2], [3, 4], [0, 5]], tf.int8)
        x = tf.constant([[1.0, 2.0, 3.0]])
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(tfo.nn.quantized_matmul(x, kernel, [1.0, 0.5]) ** 3)
            d_x = tape.gradient(loss, x)
        w = np.array([[1, -2], [3, 4], [0, 5]]) * [1.0, 0.5]
        y = x.numpy() @ w
        self.assertAllClose(outer.gradient(d_x, x), (6 * y * w.sum(0)) @ w.T)

    def test_static_shapes(self):
        @tf.function(input_signature=[tf.TensorSpec([None, None, 7]), tf.TensorSpec([4, None], tf.uint8)])
        def function(x, kernel):
            y = tfo.nn.quantized_matmul(x, kernel, tf.ones([5]), bits=4, packed_axis=0)
            self.assertEqual(y.shape.as_list(), [None, None, 5])
            return y

        self.assertAllClose(function(tf.ones([1, 2, 7]), tf.fill([4, 5], tf.constant(0x11, tf.uint8)))[0, 0], [7.0] * 5)

    @parameterized.parameters(
        ({"bits": 2}, "bits is 2, expected 8 or 4"),
        ({"bits": True}, "bits is True, expected 8 or 4"),
        ({"packed_axis": 0}, "packed_axis is 0, expected None: numbers of 8 bits are not packed"),
        ({"packed_axis": 2, "bits": 4}, "packed_axis is 2, expected None, 0, 1, -1 or -2"),
        ({"activation_bits": 4}, "activation_bits is 4, expected None or 8"),
        ({"transposed": 1}, "transposed is 1, expected True or False"),
        ({"block_size": 0}, r"block_size is 0, expected an int in \[1, 2147483647\]"),
        ({"block_size": 2, "group_index": [0] * 6}, "block_size is 2 and group_index is given"),
        ({"kernel": tf.ones([6, 3])}, "kernel is float32, expected int8 or uint8"),
        ({"inputs": tf.ones([2, 6], tf.int32)}, "inputs are int32, expected float16"),
        ({"scale": tf.ones([3], tf.int32)}, "scale are int32, expected float16"),
        ({"zero": [True] * 3}, "zero are bool, expected int8"),
        ({"zero": tf.constant([True] * 3)}, "zero is bool, expected integers or floats"),
        ({"group_index": [True] * 6}, "group_index are bool, expected int32"),
        ({"inputs": tf.constant(1.0)}, r"inputs must be \[.., depth\]"),
        ({"inputs": tf.ones([2, 5])}, r"kernel must be \[depth, columns\]"),
        ({"scale": tf.ones([4])}, r"scale must be \[columns\] or .* with columns = 3, the kernel's: it has 4"),
        ({"scale": tf.ones([1, 4])}, r"scale must be \[columns\] or .* with columns = 3, the kernel's: it has 4"),
        ({"scale": tf.ones([])}, r"scale must be \[columns\] or \[groups, columns\]: it has rank 0"),
        ({"scale": tf.ones([2, 3])}, r"scale must be \[columns\] or \[groups, columns\] with groups = 1, without"),
        (
            {"scale": tf.ones([2, 3]), "block_size": 2},
            r"scale must be \[groups, columns\] with groups = 3, of depth 6 in",
        ),
        ({"block_size": 6}, r"scale must be \[groups, columns\]: it has rank 1"),
        ({"bits": 4}, r"scale must be \[columns\] or .* with columns = 5 or 6, the kernel's: it has 3"),
        ({"kernel": tf.ones([6], tf.int8), "bits": 4}, r"kernel must be \[depth, pairs of columns\]"),
        ({"transposed": True}, r"kernel must be \[columns, depth\]"),
        ({"zero": tf.ones([1, 3], tf.int8)}, "zero must have scale's shape"),
        ({"group_index": [0] * 5, "scale": tf.ones([1, 3])}, r"group_index must be \[depth\]"),
        ({"group_index": [0, 0, 1, 0, 0, 0], "scale": tf.ones([1, 3])}, r"group_index\[2\] is 1, expected \[0, 0\]"),
    )
    def test_errors(self, changes, message):
        args = {"inputs": tf.ones([2, 6]), "kernel": tf.ones([6, 3], tf.int8), "scale": tf.ones([3])} | changes
        with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), message):
            tfo.nn.quantized_matmul(**args)


if __name__ == "__main__":
    tf.test.main()
