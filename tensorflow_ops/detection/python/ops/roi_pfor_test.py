"""Tests of the region pooling ops under tf.vectorized_map and jacobian."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops

_P, _N, _K, _H, _W = 3, 2, 4, 6, 7  # iterations, images, boxes, pixels
_BINS = (2, 3)
_PYRAMID = {"strides": [1.0, 2.0], "canonical_box_size": 4.0, "canonical_stride": 1.0}

# (op, inputs that may differ between iterations, inputs that may not, attrs other than the defaults). Names determine
# the inputs' values (_value). A pyramid's second map has half the size.
_ROI = ("boxes", "box_indices")
_SIZE, _SHAPE, _SHAPES = (("output_size",), ("features_shape",), ("features_shapes",))
_CASES = {
    "RoiPool": (ops.tensorflow_ops_roi_pool, ("features", *_ROI), _SIZE, {}),
    "RoiPoolGrad": (ops.tensorflow_ops_roi_pool_grad, ("d_output", "argmax", *_ROI), _SHAPE, {}),
    "RoiPoolGradGrad": (ops.tensorflow_ops_roi_pool_grad_grad, ("dd_features", "argmax", *_ROI), (), {}),
    "RoiAlign": (ops.tensorflow_ops_roi_align, ("features", *_ROI), _SIZE, {"aligned": False}),
    "RoiAlign, max": (ops.tensorflow_ops_roi_align, ("features", *_ROI), _SIZE, {"mode": "max", "sampling_ratio": 2}),
    "RoiAlignGrad": (ops.tensorflow_ops_roi_align_grad, ("d_output", *_ROI), _SHAPE, {"aligned": False}),
    "RoiAlignBoxesGrad": (ops.tensorflow_ops_roi_align_boxes_grad, ("d_output", "features", *_ROI), (), {}),
    "RoiAlignMaxGrad": (ops.tensorflow_ops_roi_align_max_grad, ("d_output", "features", *_ROI), (), {}),
    "RoiAlignMaxGradGrad": (ops.tensorflow_ops_roi_align_max_grad_grad, ("dd_features", "features", *_ROI), _SIZE, {}),
    "RoiAlignMaxBoxesGrad": (
        ops.tensorflow_ops_roi_align_max_boxes_grad,
        ("d_output", "features", "values", *_ROI),
        (),
        {},
    ),
    "PsRoiPool": (ops.tensorflow_ops_ps_roi_pool, ("features", *_ROI), _SIZE, {"channel_order": "bin_major"}),
    "PsRoiPoolGrad": (ops.tensorflow_ops_ps_roi_pool_grad, ("d_output", *_ROI), _SHAPE, {}),
    "PsRoiAlign": (ops.tensorflow_ops_ps_roi_align, ("features", *_ROI), _SIZE, {"sampling_ratio": 2}),
    "PsRoiAlignGrad": (ops.tensorflow_ops_ps_roi_align_grad, ("d_output", *_ROI), _SHAPE, {}),
    "PsRoiAlignBoxesGrad": (ops.tensorflow_ops_ps_roi_align_boxes_grad, ("d_output", "features", *_ROI), (), {}),
    "MultiscaleRoiAlign": (
        ops.tensorflow_ops_multiscale_roi_align,
        ("fine features", "coarse features", *_ROI),
        _SIZE,
        _PYRAMID,
    ),
    "MultiscaleRoiAlignGrad": (ops.tensorflow_ops_multiscale_roi_align_grad, ("d_output", *_ROI), _SHAPES, _PYRAMID),
    "MultiscaleRoiAlignBoxesGrad": (
        ops.tensorflow_ops_multiscale_roi_align_boxes_grad,
        ("d_output", "fine features", "coarse features", *_ROI),
        (),
        _PYRAMID,
    ),
}


def _value(name, case, rng):
    """Returns an input's value for one iteration."""
    pooled_channels = 2
    channels = pooled_channels * (6 if case.startswith("Ps") else 1)
    if name == "output_size":
        return np.array(_BINS, np.int32)
    images = [(_N, _H // stride, _W // stride, channels) for stride in (1, 2)]
    if name == "features_shape":
        return np.array(images[0], np.int64)
    if name == "features_shapes":
        return [np.array(shape, np.int64) for shape in images]
    if name == "boxes":
        boxes = np.concatenate([rng.uniform(0, 3, [_K, 2]), rng.uniform(3.5, 7, [_K, 2])], 1)
        boxes[-1] = boxes[-1, [2, 3, 0, 1]]  # inverted
        return boxes
    if name == "box_indices":
        return rng.integers(0, _N, _K).astype(np.int32)
    pooled = (_K, *_BINS, pooled_channels)
    if name == "argmax":
        return rng.integers(0, _H * _W, pooled).astype(np.int32)
    return rng.normal(size=pooled if name == "d_output" else images[name.startswith("coarse")])


def _call(case, inputs, box_format):
    """Calls the case's op with inputs by name."""
    op, varying, fixed, attrs = _CASES[case]
    by_argument = {}
    for name in (*varying, *fixed):
        argument = name.rpartition(" ")[2]
        if argument == name:
            by_argument[argument] = inputs[name]
        else:
            by_argument.setdefault(argument, []).append(inputs[name])
    return tf.nest.flatten(op(**by_argument, **attrs, box_format=box_format))


def _map(function, elements):
    return tf.vectorized_map(function, elements, fallback_to_while_loop=False)


class EachOpTest(parameterized.TestCase, tf.test.TestCase):
    def test_cases_cover_all_ops(self):
        registered = {name for name in dir(ops) if name.startswith("tensorflow_ops_") and "roi" in name}
        registered = {name for name in registered if not name.endswith("_eager_fallback")}
        self.assertEqual({case[0].__name__ for case in _CASES.values()}, registered)

    @parameterized.product(case=tuple(_CASES), box_format=("xyxy", "yxyx"))
    def test_equals_a_loop_whichever_inputs_differ(self, case, box_format):
        rng = np.random.default_rng(1)
        _, varying, fixed, _ = _CASES[case]
        stacks = {name: np.stack([_value(name, case, rng) for _ in range(_P)]) for name in varying}
        constants = {name: _value(name, case, rng) for name in fixed}
        # Each input alone, and all. box_format is an attr: the second one checks that attrs are passed on.
        alone = [{name: stack} for name, stack in stacks.items()] if box_format == "xyxy" else []
        for stacked in (*alone, stacks):
            same = {**constants, **{name: value[0] for name, value in stacks.items() if name not in stacked}}
            with self.subTest(stacked=[*stacked]):
                mapped = _map(lambda x, same=same: _call(case, {**same, **x}, box_format), stacked)
                for p in range(_P):
                    iteration = {name: value[p] for name, value in stacked.items()}
                    expected = _call(case, {**same, **iteration}, box_format)
                    for result, value in zip(mapped, expected, strict=True):
                        self.assertAllClose(result[p], value, rtol=1e-12, atol=1e-12)
                    self.assertGreater(np.count_nonzero(expected[0]), 3)

    @parameterized.parameters(*_CASES)
    def test_out_of_range_box_index_is_an_error(self, case):
        """The index must not reach another iteration's image either."""
        rng = np.random.default_rng(1)
        _, varying, fixed, _ = _CASES[case]
        stacked = {name: np.stack([_value(name, case, rng)] * _P) for name in varying}
        constants = {name: _value(name, case, rng) for name in fixed}
        for at, wrong in ((0, _N), (_P - 1, -1)):
            box_indices = stacked["box_indices"].copy()
            box_indices[at, 1] = wrong
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, rf"box_indices\[{at * _K + 1}\] is -1"):
                _map(
                    lambda x: _call(case, {**constants, **x}, "xyxy"),
                    {**stacked, "box_indices": box_indices},
                )


def _random(shape, seed=1):
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


_BOXES = np.array([[0.3, 0.4, 5.1, 4.6], [1.2, 2.7, 6.9, 5.8], [4, 4, 2, 5]])
_INDICES = np.array([0, 1, 1], np.int32)


def _align(features, boxes, box_indices=_INDICES, **options):
    return tfo.detection.roi_align(features, boxes, box_indices, _BINS, **options)


class VectorizedMapTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(False, True)
    def test_shared_images_are_not_copied(self, differ):
        features = _random([_P if differ else 1, _N, _H, _W, 1])

        @tf.function
        def pool(boxes):
            if differ:
                return _map(lambda x: _align(*x), (features, boxes))
            return _map(lambda b: _align(features[0], b), boxes)

        graph = pool.get_concrete_function(tf.TensorSpec([_P, 3, 4], tf.float64)).graph
        body, mapped = (op for op in graph.get_operations() if op.type == "TensorflowOps>RoiAlign")
        self.assertEqual(body.inputs[0].shape, [_N, _H, _W, 1])
        self.assertEqual(mapped.inputs[0].shape, [_P * _N if differ else _N, _H, _W, 1])
        self.assertEqual(mapped.inputs[1].shape, [_P * 3, 4])
        self.assertEqual(pool.get_concrete_function(tf.TensorSpec([_P, 3, 4], tf.float64)).output_shapes[:2], [_P, 3])

    def test_nested(self):
        features, boxes = _random([2, _P, _N, _H, _W, 2]), _BOXES + np.arange(_P)[:, np.newaxis, np.newaxis] / 4
        result = _map(lambda f: _map(lambda x: _align(*x), (f, tf.constant(boxes))), features)
        for i, p in itertools.product(range(2), range(_P)):
            self.assertAllClose(result[i, p], _align(features[i, p], boxes[p]), rtol=1e-12)
        # Maps over all features for each set of boxes, and takes the gradient to features.
        gradients = _map(lambda b: _map(lambda f: _gradient(lambda f: _align(f, b) ** 2, f), features[0]), boxes)
        for i, p in itertools.product(range(_P), range(_P)):
            expected = _gradient(lambda f, i=i: _align(f, boxes[i]) ** 2, features[0, p])
            self.assertAllClose(gradients[i, p], expected, rtol=1e-12, atol=1e-12)

    def test_in_a_branch_taken_by_some_iterations(self):
        taken = [True, False, True]
        features, boxes = _random([_P, _N, _H, _W, 2]), tf.constant(_BOXES)

        def pool(x):
            return tf.cond(x[0], lambda: _align(x[1], boxes), lambda: _align(x[1], boxes, mode="max"))

        result = tf.function(lambda *x: _map(pool, x))(tf.constant(taken), features)
        for p in range(_P):
            expected = _align(features[p], boxes, mode="avg" if taken[p] else "max")
            self.assertAllClose(result[p], expected, rtol=1e-12)

    def test_output_size_that_differs_raises_or_falls_back_to_a_loop(self):
        features, sizes = _random([_N, _H, _W, 2]), tf.constant([[2, 3], [2, 3]])

        def pool(size):
            return tfo.detection.roi_align(features, _BOXES, _INDICES, size)

        message = "output_size of TensorflowOps>RoiAlign differs between iterations, expected one for all"
        with self.assertRaisesRegex(ValueError, message):
            _map(pool, sizes)
        self.assertAllClose(tf.vectorized_map(pool, sizes), [pool([2, 3])] * 2)


def _gradient(function, x, upstream=None):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x, output_gradients=upstream)


_FUNCTIONS = {
    "roi_pool": (tfo.detection.roi_pool, 2, {}),
    "roi_align": (tfo.detection.roi_align, 2, {}),
    "roi_align, max": (tfo.detection.roi_align, 2, {"mode": "max"}),
    "ps_roi_pool": (tfo.detection.ps_roi_pool, 12, {}),
    "ps_roi_align": (tfo.detection.ps_roi_align, 12, {"sampling_ratio": 2}),
    "multiscale_roi_align": (
        lambda features, *args, **options: tfo.detection.multiscale_roi_align(
            [features, features[:, ::2, ::2]], *args, **options
        ),
        2,
        {"strides": (1, 2), "canonical_box_size": 4, "canonical_stride": 1},
    ),
}


class JacobianTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_FUNCTIONS)
    def test_equals_a_loop_of_gradients(self, function):
        pool, channels, options = _FUNCTIONS[function]
        features, boxes = _random([_N, _H, _W, channels]), tf.constant(_BOXES)
        has_boxes_gradient = function not in ("roi_pool", "ps_roi_pool")
        sources = [features, boxes][: 1 + has_boxes_gradient]

        def jacobian(*sources):
            with tf.GradientTape() as tape:
                tape.watch(sources)
                y = pool(*sources, *[boxes][len(sources) - 1 :], _INDICES, _BINS, **options)
            return tape.jacobian(y, sources)

        result = tf.function(jacobian)(*sources)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(sources)
            y = pool(features, boxes, _INDICES, _BINS, **options)
        for at in np.ndindex(*y.shape):
            upstream = np.zeros(y.shape)
            upstream[at] = 1
            for matrix, expected in zip(result, tape.gradient(y, sources, tf.constant(upstream)), strict=True):
                self.assertAllClose(matrix[at], expected, rtol=1e-12, atol=1e-12)
        for matrix in result:
            self.assertGreater(np.count_nonzero(matrix), 10)


if __name__ == "__main__":
    tf.test.main()
