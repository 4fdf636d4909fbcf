"""Tests of NMS, GridSample, MultiScaleDeformableAttention; of supports_jit, output shapes, tf_keras in all layers."""

from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import build_info, library

_RNG = np.random.default_rng(0)


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


class JitTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        ("CRF", tfo.layers.CRF, 3),
        ("NMS", tfo.layers.NMS),
        ("CorrelationCost", tfo.layers.CorrelationCost, 3),
        ("DeformConv2D", tfo.layers.DeformConv2D, 3, 3),
        ("GridSample", tfo.layers.GridSample),
        ("GroupQueryAttention", tfo.layers.GroupQueryAttention, 3, 4, 2),
        ("MultiHeadAttention", tfo.layers.MultiHeadAttention, 4, 3),
        ("MultiScaleDeformableAttention", tfo.layers.MultiScaleDeformableAttention),
        ("RoIPool", tfo.layers.RoIPool, 2),
    )
    def test_lets_keras_compile_with_xla(self, layer, *args):
        self.assertEqual(layer(*args).supports_jit, library.xla_error is None)
        with mock.patch.object(library, "xla_error", "built without XLA"):
            self.assertFalse(layer(*args).supports_jit)
        gpus = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]
        with (
            mock.patch.object(tf.config, "list_physical_devices", return_value=gpus),
            mock.patch.object(build_info, "CUDA_VERSION", ""),
        ):
            self.assertFalse(layer(*args).supports_jit)


class OutputShapeTest(tf.test.TestCase):
    def test_every_layer_computes_it(self):
        for name in tfo.layers.__all__:
            layer = getattr(tfo.layers, name)
            if isinstance(layer, type):
                self.assertIsNot(layer.compute_output_shape, keras.layers.Layer.compute_output_shape, name)

    def test_equals_that_of_results(self):
        for layer, *shapes in (
            (tfo.layers.NMS(max_outputs=7), [2, 9, 4], [2, 9, 3]),
            (tfo.layers.NMS(max_outputs=7, box_format="cxcywhr"), [2, 9, 3, 5], [2, 9, 3]),
            (tfo.layers.GridSample(), [1, 5, 6, 3], [2, 4, 7, 2]),
            (tfo.layers.GridSample(data_format="NCHW"), [2, 3, 5, 6], [2, 4, 2]),
        ):
            expected = tf.nest.map_structure(lambda x: tuple(x.shape), layer(*(_normal(*shape) for shape in shapes)))
            self.assertEqual(layer.compute_output_shape(*shapes), expected)
            batches = layer.compute_output_shape(*([None, *shape[1:]] for shape in shapes))
            self.assertEqual(batches[-1], (None,) if isinstance(layer, tfo.layers.NMS) else expected[-1])


class LegacyKerasTest(tf.test.TestCase):
    _TEXT = "of tensorflow_ops needs Keras 3, but is used in tf_keras"

    def test_no_layer_takes_inputs_of_tf_keras(self):
        tensor = type("KerasTensor", (), {"__module__": "tf_keras.src.engine.keras_tensor"})()
        for name in set(tfo.layers.__all__) - {"compare_fused", "fused_ops", "use_fused_ops"}:
            layer = getattr(tfo.layers, name)
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"{layer.__name__} {self._TEXT}"):
                layer.__new__(layer)([tensor])

    def test_no_metric_is_compiled_by_tf_keras(self):
        for name in tfo.metrics.__all__:
            names = {"metric": getattr(tfo.metrics, name)(), "__name__": "tf_keras.src.engine.training"}
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"{name} {self._TEXT}"):
                exec("getattr(metric, 'variables', [])", names)
            self.assertIsInstance(names["metric"].variables, list)


class NMSTest(tf.test.TestCase):
    _BOXES = np.abs(_normal(2, 9, 4)) + np.float32([0, 0, 2, 2])
    _SCORES = keras.ops.softmax(_normal(2, 9, 3)).numpy()

    def test_is_multiclass_nms_in_a_saved_model(self):
        boxes, scores = keras.Input([None, 4]), keras.Input([None, 3])
        options = {"iou_threshold": 0.3, "score_threshold": 0.1, "max_outputs": 2, "max_outputs_per_class": 1}
        found = tfo.layers.NMS(**options, box_format="yxyx")(boxes, scores)
        path = f"{self.get_temp_dir()}/nms.keras"
        keras.Model([boxes, scores], found._asdict()).save(path)
        actual = keras.saving.load_model(path).predict([self._BOXES, self._SCORES], verbose=0)
        expected = tfo.detection.multiclass_nms(self._BOXES, self._SCORES, **options, box_format="yxyx")
        for name, value in expected._asdict().items():
            self.assertAllEqual(actual[name], value)

    def test_mixed_precision_keeps_boxes(self):
        boxes = self._BOXES.astype(np.float32) + 1000
        layer = tfo.layers.NMS(dtype="mixed_float16")
        self.assertAllEqual(layer(boxes, self._SCORES).boxes, tfo.detection.multiclass_nms(boxes, self._SCORES).boxes)

    def test_bad_options(self):
        for options, message in (
            ({"iou_threshold": 1.5}, r"iou_threshold is 1.5, expected a number in \[0, 1\]"),
            ({"score_threshold": "a"}, "score_threshold is 'a'"),
            ({"max_outputs": -1}, "max_outputs is -1"),
            ({"max_outputs_per_class": 0.5}, "max_outputs_per_class is 0.5"),
            ({"box_format": "xy"}, "box_format is 'xy'"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                tfo.layers.NMS(**options)


class GridSampleTest(tf.test.TestCase):
    def test_is_grid_sample(self):
        features, grid = _normal(2, 5, 6, 3), _normal(2, 4, 2)
        options = {"mode": "bicubic", "padding_mode": "reflection", "align_corners": True}
        layer = tfo.layers.GridSample(**options)
        self.assertAllEqual(layer(features, grid), tfo.image.grid_sample(features, grid, **options))
        copy = tfo.layers.GridSample.from_config(layer.get_config())
        self.assertAllEqual(copy(features, grid), layer(features, grid))
        half = tfo.layers.GridSample(normalized=False, dtype="mixed_float16")(features, grid * 3)
        self.assertEqual(half.dtype, tf.float16)
        expected = tfo.image.grid_sample(tf.cast(features, tf.float16), grid * 3, normalized=False)
        self.assertAllEqual(half, expected)
        nchw = tfo.layers.GridSample(data_format="NCHW")(np.moveaxis(features, -1, 1), grid)
        self.assertAllEqual(nchw, np.moveaxis(tfo.image.grid_sample(features, grid), -1, 1))
        with self.assertRaisesRegex(ValueError, "mode is 'cubic', expected one of"):
            tfo.layers.GridSample(mode="cubic")


class MultiScaleDeformableAttentionTest(tf.test.TestCase, parameterized.TestCase):
    _SHAPES = ((4, 6), (2, 3))
    _QUERY, _VALUES = _normal(2, 5, 8), _normal(2, 30, 8)

    def _layer(self, **options):
        layer = tfo.layers.MultiScaleDeformableAttention(num_heads=2, num_levels=2, num_points=3, **options)
        layer.build([None, None, 8])
        return layer

    def _expected(self, layer, reference, mask):
        """The projections in NumPy around the function, which takes the samples."""

        def project(x, dense):
            return x @ dense.kernel.numpy() + dense.bias.numpy()

        values = np.where(mask[..., np.newaxis], project(self._VALUES, layer.value_proj), 0).reshape([2, 30, 2, 4])
        offsets = project(self._QUERY, layer.sampling_offsets).reshape([2, 5, 2, 2, 3, 2])
        weights = np.exp(project(self._QUERY, layer.attention_weights).reshape([2, 5, 2, 6]))
        weights = (weights / weights.sum(-1, keepdims=True)).reshape([2, 5, 2, 2, 3])
        reference = reference[:, :, np.newaxis, :, np.newaxis]
        scale = 1 / np.array(self._SHAPES)[:, np.newaxis, ::-1]  # of (x, y) on each level
        if reference.shape[-1] == 4:
            scale = reference[..., 2:] / 2 / 3
        places = reference[..., :2] + offsets * scale
        samples = tfo.nn.multiscale_deformable_attention(values, self._SHAPES, places, weights)
        return project(samples.numpy(), layer.output_proj)

    @parameterized.parameters(2, 4)
    def test_is_the_definition(self, size):
        layer = self._layer()
        for weight in layer.weights:
            weight.assign(_normal(*weight.shape))
        reference = _RNG.uniform(0.1, 0.9, [2, 5, 2, size]).astype(np.float32)
        mask = _RNG.uniform(size=[2, 30]) < 0.8
        for values_mask in (mask, mask.astype(np.float32), mask.tolist()):
            actual = layer(self._QUERY, reference, self._VALUES, spatial_shapes=self._SHAPES, values_mask=values_mask)
            self.assertAllClose(actual, self._expected(layer, reference, mask), 1e-4, 1e-4)

    def test_first_weights(self):
        layer = tfo.layers.MultiScaleDeformableAttention(num_heads=4, num_levels=1, num_points=2)
        layer.build([None, None, 8])
        bias = tf.reshape(tf.convert_to_tensor(layer.sampling_offsets.bias), [4, 2, 2])
        self.assertAllClose(
            bias, [[[1, 0], [2, 0]], [[0, 1], [0, 2]], [[-1, 0], [-2, 0]], [[0, -1], [0, -2]]], atol=1e-6
        )
        self.assertAllEqual(layer.attention_weights.kernel, np.zeros([8, 8]))
        self.assertEqual([tuple(w.shape) for w in layer.weights], [(8, 16), (16,), (8, 8), (8,)] + [(8, 8), (8,)] * 2)

    def test_model_trains_and_is_saved(self):
        query, values, points = keras.Input([5, 8]), keras.Input([30, 8]), keras.Input([5, 2, 2])
        attended = self._layer()(query, points, values, spatial_shapes=self._SHAPES)
        model = keras.Model([query, points, values], attended)
        inputs = [self._QUERY, np.full([2, 5, 2, 2], 0.4, np.float32), self._VALUES]
        path = f"{self.get_temp_dir()}/attention.keras"
        model.save(path)
        self.assertAllEqual(keras.saving.load_model(path)(inputs), model(inputs))
        model.compile("sgd", "mse", jit_compile=False)
        before = [w.numpy() for w in model.weights]
        model.fit(inputs, _normal(2, 5, 8), verbose=0)
        for old, new in zip(before, model.weights, strict=True):
            self.assertNotAllEqual(old, new)

    @parameterized.parameters(("mixed_bfloat16", "bfloat16"), ("float16", "float16"), ("bfloat16", "bfloat16"))
    def test_16_bits(self, policy, dtype):
        inputs = self._QUERY, np.full([2, 5, 2, 2], 0.4, np.float32), self._VALUES
        layer, half = self._layer(), self._layer(dtype=policy)
        half.set_weights(layer.get_weights())
        result = half(*inputs, spatial_shapes=self._SHAPES)
        self.assertEqual(result.dtype, dtype)
        self.assertAllClose(result, layer(*inputs, spatial_shapes=self._SHAPES), 0.05, 0.05)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "query has 7 channels, expected a multiple of num_heads, 2"):
            tfo.layers.MultiScaleDeformableAttention(num_heads=2).build([None, None, 7])
        for shape, text in (
            ([2, 5, 2, 3], r"are \[2,5,2,3\], expected \[N, Q, L, 2\] or"),
            ([2, 5, 1, 2], r"has shape \[2,5,1,2\], expected \[\?,\?,2,\?\]"),
        ):
            with self.assertRaisesRegex(ValueError, f"reference_points {text}"):
                self._layer()(self._QUERY, np.zeros(shape, np.float32), self._VALUES, spatial_shapes=self._SHAPES)


if __name__ == "__main__":
    tf.test.main()
