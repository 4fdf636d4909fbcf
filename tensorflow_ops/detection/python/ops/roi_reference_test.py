"""Tests of roi_reference_testing: values against hand-computed ones, gradients against finite differences."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from roi_reference_testing import (
    ARANGE,
    PS_FEATURES,
    PS_ROI_POOL_EXAMPLES,
    ROI_ALIGN_EXAMPLES,
    Pooling,
    gradients_of,
    random,
)


class ReferenceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*ROI_ALIGN_EXAMPLES)
    def test_roi_align_by_hand(self, box, output_size, options, expected):
        output_size = output_size if isinstance(output_size, tuple) else (output_size, output_size)
        mode = options.get("mode", "avg")
        pooling = Pooling(np.float32([box]), [0], output_size, **{k: v for k, v in options.items() if k != "mode"})
        output = (pooling.average if mode == "avg" else pooling.maximum)([ARANGE])
        self.assertAllClose(output[0, :, :, 0], expected, atol=1e-12)

    @parameterized.parameters(*PS_ROI_POOL_EXAMPLES)
    def test_ps_roi_pool_by_hand(self, box, output_size, first, second):
        pooling = Pooling(np.float32([box]), [0], output_size, pixels=True, channel_order="channel_major")
        output = pooling.average([PS_FEATURES])
        self.assertAllClose(output[0, :, :, 0], first)
        self.assertAllClose(output[0, :, :, 1], second)

    @parameterized.product(sampling_ratio=(0, 1, 2, 3), aligned=(True, False), mode=("avg", "max"))
    def test_gradients_equal_finite_differences(self, sampling_ratio, aligned, mode):
        boxes = np.array([[1.17, 0.83, 5.39, 4.61], [-2.43, -1.71, 3.13, 9.87], [2.11, 3.43, 2.31, 3.53]])
        maps, upstream = [random([2, 6, 7, 2])], random([3, 2, 3, 2], seed=2)

        def value(boxes, maps):
            pooling = Pooling(boxes, [0, 1, 0], (2, 3), 0.8, sampling_ratio, aligned)
            output = (pooling.average if mode == "avg" else pooling.maximum)(maps)
            return (output * upstream).sum(), pooling

        _, pooling = value(boxes, maps)
        to_features, to_boxes = gradients_of(pooling, mode)
        step = 1e-6 * random(maps[0].shape, seed=3)  # too small to change the maximum's sample
        difference = value(boxes, [maps[0] + step])[0] - value(boxes, maps)[0]
        self.assertAllClose((to_features(upstream, maps)[0] * step).sum() / 1e-6, difference / 1e-6, atol=1e-8)
        gradient = to_boxes(upstream, maps)
        for at in np.ndindex(3, 4):
            step = np.zeros([3, 4])
            step[at] = 1e-6
            difference = value(boxes + step, maps)[0] - value(boxes - step, maps)[0]
            self.assertAllClose(gradient[at], difference / 2e-6, atol=1e-8)


if __name__ == "__main__":
    tf.test.main()
