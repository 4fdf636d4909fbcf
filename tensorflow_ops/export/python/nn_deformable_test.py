"""Compositions of deformable convolution and attention: against the ops."""

import compositions_testing as testing
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

INF, NAN = float("inf"), float("nan")


def _normal(shape, dtype, seed=0, scale=1.0, extreme=None):
    """Returns normal numbers, some of them `extreme`."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * scale
    if extreme is not None:
        x[rng.random(shape) < 0.03] = extreme
    return tf.constant(x, dtype)


def _wide(dtype):
    return tf.float64 if dtype == tf.float64 else tf.float32


class DeformConvTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(
        dtype=testing.FLOATS,
        # Batch, height, width, channels; kernel; groups, offset groups.
        sizes=(
            ((2, 5, 6, 4), (3, 2), (1, 1)),
            ((1, 4, 3, 6), (2, 2), (2, 3)),
            ((1, 6, 5, 4), (1, 3), (4, 2)),
            ((0, 4, 4, 2), (2, 2), (1, 1)),
            ((2, 0, 4, 2), (1, 2), (1, 2)),
        ),
        strides=((1, 1), (2, 3)),
        dilations=((1, 1), (2, 1)),
        padding=("VALID", "SAME", "EXPLICIT"),
        has_mask=(False, True),
        has_bias=(False, True),
        of_offsets=(None, NAN, INF, -INF, "whole"),
        of_features=(None, NAN),
    )
    def test_deform_conv2d(
        self, dtype, sizes, strides, dilations, padding, has_mask, has_bias, of_offsets, of_features
    ):
        features, kernel, (groups, offset_groups) = sizes
        paddings = (1, 2, 0, 1) if padding == "EXPLICIT" else (0, 0, 0, 0)
        places = []
        for axis in (0, 1):
            room = (
                features[1 + axis] + sum(paddings[2 * axis : 2 * axis + 2]) - (kernel[axis] - 1) * dilations[axis] - 1
            )
            same = -(-features[1 + axis] // strides[axis])
            places.append(same if padding == "SAME" else room // strides[axis] + 1 if room >= 0 else 0)
        per_place = offset_groups * kernel[0] * kernel[1]
        extreme = None if of_offsets == "whole" else of_offsets
        offsets = _normal((features[0], *places, 2 * per_place), _wide(dtype), 1, 2.0, extreme)
        offsets = tf.round(offsets) if of_offsets == "whole" else offsets
        inputs = [
            _normal(features, dtype, extreme=of_features),
            offsets,
            _normal((*kernel, features[3] // groups, 8), dtype, 2),
            [_normal((features[0], *places, per_place), dtype, 3)] if has_mask else [],
            [_normal((8,), dtype, 4)] if has_bias else [],
        ]
        attrs = {"strides": strides, "dilations": dilations, "padding": padding, "paddings": paddings}
        testing.check(self, "DeformConv2d", inputs, attrs)


class DeformableAttentionTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(
        dtype=testing.FLOATS,
        num_points=(None, [2, 0, 3]),
        sizes=((2, 3, 2, 4), (1, 1, 1, 1), (0, 2, 1, 3), (2, 0, 1, 3)),
        of_locations=(None, NAN, INF, -INF, "whole"),
        of_values=(None, NAN),
    )
    def test_multiscale_deformable_attention(self, dtype, num_points, sizes, of_locations, of_values):
        batch, queries, heads, channels = sizes
        shapes = [[3, 4], [2, 2], [1, 5]]
        points = [sum(num_points)] if num_points else [3, 2]
        rng = np.random.default_rng(0)
        locations = rng.random((batch, queries, heads, *points, 2)) * 1.6 - 0.3
        if of_locations == "whole":
            locations = np.round(locations * 8) / 8
        elif of_locations is not None:
            locations[rng.random(locations.shape) < 0.05] = of_locations
        inputs = [
            _normal((batch, 21, heads, channels), dtype, extreme=of_values),
            tf.constant(shapes, tf.int64),
            tf.constant(locations, _wide(dtype)),
            tf.constant(rng.random((batch, queries, heads, *points)), _wide(dtype)),
        ]
        testing.check(self, "MultiscaleDeformableAttention", inputs, {"num_points": num_points or []})


if __name__ == "__main__":
    tf.test.main()
