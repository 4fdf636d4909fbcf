"""Tests of the forms of boxes that region pooling takes: by image, ragged, of other formats, scaled, normalized."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_MAP = tf.constant(_RNG.normal(size=[2, 6, 8, 4]), tf.float32)
_FUNCTIONS = {
    "roi_pool": tfo.detection.roi_pool,
    "roi_align": tfo.detection.roi_align,
    "maximum": functools.partial(tfo.detection.roi_align, sampling_ratio=2, mode="max"),
    "ps_roi_pool": tfo.detection.ps_roi_pool,
    "ps_roi_align": tfo.detection.ps_roi_align,
    "multiscale": lambda features, *args, **options: tfo.detection.multiscale_roi_align(
        [features, features[:, ::2, ::2] if options.get("data_format") != "NCHW" else features[..., ::2, ::2]],
        *args,
        strides=(1, 2),
        canonical_box_size=50.0,
        **options,
    ),
}
_CORNERS = _RNG.uniform(0, 5, [2, 3, 2])
_BOXES = np.concatenate([_CORNERS, _CORNERS + _RNG.uniform(1, 4, [2, 3, 2])], -1).astype(np.float32)
_X1, _Y1, _X2, _Y2 = np.moveaxis(_BOXES, -1, 0)
_W, _H = _X2 - _X1, _Y2 - _Y1
_FORMATS = {
    "xyxy": _BOXES,
    "yxyx": np.stack([_Y1, _X1, _Y2, _X2], -1),
    "xywh": np.stack([_X1, _Y1, _W, _H], -1),
    "center_xywh": np.stack([_X1 + _W / 2, _Y1 + _H / 2, _W, _H], -1),
    "center_yxhw": np.stack([_Y1 + _H / 2, _X1 + _W / 2, _H, _W], -1),
}


def _in_one_list(function, boxes=_BOXES, indices=None, **options):
    indices = np.repeat([0, 1], 3) if indices is None else indices
    return function(_MAP, tf.reshape(boxes, [-1, 4]), indices, 2, **options)


class BoxFormsTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(name=tuple(_FUNCTIONS), data_format=("NHWC", "NCHW"), in_graph=(False, True))
    def test_boxes_by_image(self, name, data_format, in_graph):
        def pool(features, boxes):
            return _FUNCTIONS[name](features, boxes, output_size=2, data_format=data_format)

        features = _MAP if data_format == "NHWC" else tf.transpose(_MAP, [0, 3, 1, 2])
        if in_graph:
            shape = [None, *features.shape[1:]]
            pool = tf.function(pool, input_signature=[tf.TensorSpec(shape), tf.TensorSpec([None, None, 4])])
        pooled = pool(features, tf.constant(_BOXES))
        expected = _in_one_list(_FUNCTIONS[name])
        if data_format == "NCHW":
            expected = tf.transpose(expected, [0, 3, 1, 2])
        self.assertAllEqual(pooled, tf.reshape(expected, [2, 3, *expected.shape[1:]]))

    @parameterized.parameters(*_FUNCTIONS)
    def test_ragged_boxes(self, name):
        for lengths in ([1, 2], [0, 3], [0, 0]):
            values = _BOXES.reshape([-1, 4])[: sum(lengths)]
            boxes = tf.RaggedTensor.from_row_lengths(values, lengths)
            for call in (_FUNCTIONS[name], tf.function(_FUNCTIONS[name])):
                pooled = call(_MAP, boxes, output_size=2)
                self.assertAllEqual(pooled.row_lengths(), lengths)
                expected = _FUNCTIONS[name](_MAP, values, np.repeat([0, 1], lengths), 2)
                self.assertAllEqual(pooled.values, expected)

    @parameterized.parameters(*(name for name in _FUNCTIONS if name != "multiscale"))
    def test_spatial_scale(self, name):
        scaled = _in_one_list(_FUNCTIONS[name], 2 * _BOXES, spatial_scale=0.5)
        self.assertAllEqual(scaled, _in_one_list(_FUNCTIONS[name]))

    def test_argmax_by_image(self):
        by_image = tfo.detection.roi_pool_with_argmax(_MAP, _BOXES, output_size=2)
        in_list = _in_one_list(tfo.detection.roi_pool_with_argmax)
        self.assertAllEqual(by_image.argmax, tf.reshape(in_list.argmax, [2, 3, 2, 2, 4]))

    @parameterized.parameters(*_FUNCTIONS)
    def test_int64_indices(self, name):
        indices = tf.constant([0, 0, 0, 1, 1, 1], tf.int64)
        self.assertAllEqual(_in_one_list(_FUNCTIONS[name], indices=indices), _in_one_list(_FUNCTIONS[name]))
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"box_indices\[5\] is 4294967296, expected a whole number"
        ):
            _in_one_list(_FUNCTIONS[name], indices=tf.constant([0, 0, 0, 1, 1, 2**32], tf.int64))

    @pairwise(name=tuple(_FUNCTIONS), box_format=tuple(_FORMATS), normalized=(False, True))
    def test_formats(self, name, box_format, normalized):
        boxes, options = _FORMATS[box_format], {"box_format": box_format, "normalized": normalized}
        if normalized:
            height_width = box_format in ("yxyx", "center_yxhw")
            boxes = boxes / np.float32([6, 8, 6, 8] if height_width else [8, 6, 8, 6])
            if box_format != "center_yxhw":
                pooled = _in_one_list(_FUNCTIONS[name], boxes, box_format=f"rel_{box_format}")
                self.assertAllEqual(pooled, _in_one_list(_FUNCTIONS[name], boxes, **options))
        self.assertAllClose(
            _in_one_list(_FUNCTIONS[name], boxes, **options), _in_one_list(_FUNCTIONS[name]), 1e-5, 1e-5
        )

    def test_normalized_boxes_have_gradients(self):
        boxes = tf.Variable(_FORMATS["center_xywh"] / [8, 6, 8, 6], dtype=tf.float64)
        tfo.testing.assert_gradients(
            lambda boxes: tfo.detection.roi_align(
                tf.cast(_MAP, tf.float64), boxes, output_size=2, sampling_ratio=2, box_format="rel_center_xywh"
            ),
            [boxes],
        )

    def test_layer(self):
        layer = tfo.layers.RoIAlign(2, box_format="xywh", normalized=True)
        boxes = tf.RaggedTensor.from_tensor(_FORMATS["xywh"] / np.float32([8, 6, 8, 6]))
        pooled = layer(_MAP, boxes)
        self.assertAllClose(pooled.values, _in_one_list(tfo.detection.roi_align), 1e-5, 1e-5)
        self.assertAllEqual(tfo.layers.RoIAlign.from_config(layer.get_config())(_MAP, boxes), pooled)

    @parameterized.parameters(
        ({"boxes": _BOXES, "box_indices": [0]}, r"got \[2,3,4\]: boxes of each image have no box_indices; pass None"),
        ({"boxes": tf.RaggedTensor.from_tensor(_BOXES), "box_indices": [0]}, "got a RaggedTensor: .* pass None"),
        ({"boxes": tf.RaggedTensor.from_tensor(_BOXES, ragged_rank=2)}, r"boxes has 2 ragged dims, .* \[N, \(R\), 4\]"),
        ({"boxes": tf.RaggedTensor.from_tensor(_BOXES[:1])}, "dim 0 of boxes is 1, expected features' N"),
        ({"boxes": _BOXES[0]}, r"boxes are \[3,4\], expected \[N, R, 4\], or \[K, 4\] with box_indices \[K\]"),
        ({"boxes": _BOXES, "output_size": None}, "output_size is None, expected an int"),
        ({"boxes": _BOXES[..., :3], "box_format": "xywh"}, r"boxes must be \[K, 4\]"),
        ({"boxes": _BOXES, "spatial_scale": 0.5, "normalized": True}, "spatial_scale is 0.5, expected 1: normalized"),
        ({"boxes": _BOXES, "normalized": 1}, "normalized is 1, expected True or False"),
    )
    def test_errors(self, arguments, message):
        for call in (tfo.detection.roi_align, tf.function(tfo.detection.roi_align)):
            with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), message):
                call(_MAP, **{"output_size": 2, **arguments})


if __name__ == "__main__":
    tf.test.main()
