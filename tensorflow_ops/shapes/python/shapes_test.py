"""Tests of get_shape and reshape."""

import itertools
import os

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_SHAPE = (2, 3, 4, 5)
# Folds of four axes and the resulting shapes.
_FOLDS = (
    ([0, 1, 2, 3], (2, 3, 4, 5)),
    ([0, [1, 2], 3], (2, 12, 5)),
    ([[0, 1], [2, 3]], (6, 20)),
    ([[0, 1, 2, 3]], (120,)),
    ([0, [1, 2, 3]], (2, 60)),
    ([(0,), 1, (-2, -1)], (2, 3, 20)),
    ([0, [], 1, 2, 3, []], (2, 1, 3, 4, 5, 1)),
)
_MASKS = tuple(itertools.product((False, True), repeat=4))


def _trace(function, shape, dtype=tf.float32):
    return tf.function(function, input_signature=[tf.TensorSpec(shape, dtype)]).get_concrete_function()


def _types(concrete_function):
    return [op.type for op in concrete_function.graph.get_operations()]


class GetShapeTest(parameterized.TestCase, tf.test.TestCase):
    def test_known_dims_are_ints(self):
        for tensor in (tf.zeros([2, 0, 3]), np.zeros([2, 0, 3]), tf.Variable(tf.zeros([2, 0, 3]))):
            dims = tfo.shapes.get_shape(tensor)
            self.assertEqual(dims, [2, 0, 3])
            self.assertEqual({type(n) for n in dims}, {int})
        self.assertEqual(tfo.shapes.get_shape(7.0), [])
        self.assertEqual(tfo.shapes.get_shape([[1], [2]]), [2, 1])
        self.assertEqual(tfo.shapes.get_shape(["a", "b"]), [2])

    @parameterized.product(mask=_MASKS, out_type=(tf.int32, tf.int64))
    def test_only_unknown_dims_are_tensors(self, mask, out_type):
        static = [None if unknown else n for unknown, n in zip(mask, _SHAPE, strict=True)]
        seen = []

        def shape(x):
            dims = tfo.shapes.get_shape(x, out_type=out_type)
            seen.append(dims)
            return tf.stack([tf.cast(n, tf.int64) for n in dims])

        traced = _trace(shape, static)
        for n, dim in zip(static, seen[0], strict=True):
            if n is None:
                self.assertEqual((dim.dtype, dim.shape.rank), (out_type, 0))
            else:
                self.assertIs(type(dim), int)
                self.assertEqual(dim, n)
        self.assertEqual(_types(traced).count("Shape"), int(any(mask)))
        self.assertAllEqual(traced(tf.zeros(_SHAPE)), _SHAPE)

    def test_unknown_rank(self):
        traced = _trace(lambda x: tfo.shapes.get_shape(x, name="sizes"), None)
        self.assertIn("sizes", [op.name for op in traced.graph.get_operations()])
        for shape in ((), (3,), (2, 0, 4)):
            self.assertAllEqual(traced(tf.zeros(shape)), shape)

    def test_keras_symbolic_inputs(self):
        self.assertEqual(tfo.shapes.get_shape(keras.Input(batch_shape=[8, 3])), [8, 3])
        with self.assertRaisesRegex(ValueError, r"KerasTensor of shape \(None, 3\).*call method of a layer"):
            tfo.shapes.get_shape(keras.Input([3]))

    @parameterized.parameters(
        (tf.ragged.constant([[1], [2, 3]]), "RaggedTensor, expected a dense"),
        (tf.sparse.from_dense([[1, 0]]), "SparseTensor, expected a dense"),
        (keras.Input([3], sparse=True), "sparse KerasTensor, expected a dense"),
    )
    def test_not_dense(self, tensor, message):
        for function in (tfo.shapes.get_shape, lambda x: tfo.shapes.reshape(x, [[0, 1]])):
            with self.assertRaisesRegex(ValueError, message):
                function(tensor)

    def test_bad_out_type(self):
        with self.assertRaisesRegex(ValueError, "out_type is tf.float32, expected tf.int32 or tf.int64"):
            tfo.shapes.get_shape([1], out_type=tf.float32)


class ReshapeTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(fold=_FOLDS, mask=_MASKS)
    def test_folds(self, fold, mask):
        dims, expected = fold
        x = np.arange(120).reshape(_SHAPE)
        self.assertAllEqual(tfo.shapes.reshape(x, dims), x.reshape(expected))
        static = [None if unknown else n for unknown, n in zip(mask, _SHAPE, strict=True)]
        traced = _trace(lambda x: tfo.shapes.reshape(x, dims), static, tf.int64)
        self.assertAllEqual(traced(x), x.reshape(expected))
        # All determinable dims are static, and with at most one unknown dim the graph has no Shape op.
        groups = [[dim] if isinstance(dim, int) else dim for dim in dims]
        known = [None if any(mask[axis] for axis in g) else n for g, n in zip(groups, expected, strict=True)]
        self.assertEqual(traced.output_shapes.as_list(), known)
        self.assertEqual(_types(traced).count("Shape"), int(known.count(None) > 1))

    @parameterized.parameters(
        ([None, 0, 4], [0, [1, 2]], (3, 0, 4), (3, 0), [None, 0]),
        ([None, 0, 4], [[0, 1], 2], (3, 0, 4), (0, 4), [0, 4]),
        ([None, 5, 4], [0, [1, 2]], (0, 5, 4), (0, 20), [None, 20]),
        ([None, None, 4], [0, [1, 2]], (0, 3, 4), (0, 12), [None, None]),
        (None, [0, [1, 2]], (3, 0, 4), (3, 0), [None, None]),
    )
    def test_empty(self, static, dims, shape, expected, known):
        traced = _trace(lambda x: tfo.shapes.reshape(x, dims), static)
        self.assertEqual(traced.output_shapes.as_list(), known)
        self.assertEqual(traced(tf.zeros(shape)).shape, expected)
        self.assertEqual(tfo.shapes.reshape(tf.zeros(shape), dims).shape, expected)

    @parameterized.parameters(([0, [1, 2], -1],), ([0, (-3, -2), 3],))
    def test_unknown_rank(self, dims):
        traced = _trace(lambda x: tfo.shapes.reshape(x, dims), None)
        self.assertEqual(traced.output_shapes.rank, 3)
        x = np.arange(120, dtype=np.float32).reshape(_SHAPE)
        self.assertAllEqual(traced(x), x.reshape([2, 12, 5]))
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"\[2,3\] is not compatible"):
            traced(tf.zeros([2, 3]))

    def test_scalars_and_dtypes(self):
        self.assertEqual(tfo.shapes.reshape(7, []).numpy(), 7)
        for value in (["a", "b"], [True, False], [1j, 2], np.ones(2, np.float16)):
            result = tfo.shapes.reshape(value, [[], 0])
            self.assertEqual(result.dtype, tf.convert_to_tensor(value).dtype)
            self.assertEqual(result.shape, [1, 2])

    @parameterized.parameters(
        ([0, [1, 1]], r"dims is \[0, \[1, 1\]\], expected each of the 3 axes once and in order"),
        ([0, 1], "each of the 3 axes once"),
        ([0, 2, 1], "tf.transpose"),
        ([0, [2, 1]], "tf.transpose"),
        ([0, 1, 3], r"expected axes in \[-3, 3\): the tensor is \(2, 3, 4\)"),
        ([0, 1, -4], r"expected axes in \[-3, 3\)"),
        ([0, 1, 2.0], "expected a list of axes"),
        ([0, 1, True], "expected a list of axes"),
        ([0, [[1], 2]], "expected a list of axes"),
        ([0, None, 2], "expected a list of axes"),
        (0, "dims is 0, expected a list"),
    )
    def test_bad_dims(self, dims, message):
        with self.assertRaisesRegex(ValueError, message):
            tfo.shapes.reshape(tf.zeros([2, 3, 4]), dims)
        with self.assertRaisesRegex(ValueError, "2 axes are named"):
            _trace(lambda x: tfo.shapes.reshape(x, [0, 2]), None)

    def test_in_a_keras_model(self):
        image = keras.Input([7, 9, 3])
        rows = tfo.shapes.reshape(image, [[0, 1], 2, 3])
        model = keras.Model(image, tfo.shapes.reshape(rows, [0, [1, 2]]))
        self.assertEqual(model.output_shape, (None, 27))
        x = np.random.default_rng(0).normal(size=[2, 7, 9, 3]).astype(np.float32)
        self.assertAllEqual(model(x), x.reshape([14, 27]))
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        self.assertAllEqual(keras.saving.load_model(path)(x), x.reshape([14, 27]))
        with self.assertRaisesRegex(ValueError, r"\(None, None, 3\).*the result would be \[None, None, 3\]"):
            tfo.shapes.reshape(keras.Input([None, 3]), [0, 1, 2])


if __name__ == "__main__":
    tf.test.main()
