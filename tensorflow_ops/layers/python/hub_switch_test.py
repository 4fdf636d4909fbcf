"""Tests of keras-hub's functions by tfo.layers.use_fused_ops."""

import itertools
import sys
import types
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


def _modules(version="0.32.0", **models):
    """Returns modules of keras-hub, with these attributes, by name."""
    modules = {"keras_hub": types.ModuleType("keras_hub")}
    modules["keras_hub"].__version__ = version
    for name, members in models.items():
        name = f"keras_hub.src.models.{name.replace('__', '.')}"
        modules[name] = types.ModuleType(name)
        vars(modules[name]).update(members)
    return mock.patch.dict(sys.modules, modules), *list(modules.values())[1:]


class KerasHubTest(tf.test.TestCase):
    """Uses modules with keras-hub's names: its package is not installed for tests."""

    def test_attention(self):
        names = "fused_attention_op_available", "running_on_gpu", "gpu_supports_fused_attention_op"
        members = dict.fromkeys(names, lambda: False)
        modules, llama, mixtral, qwen = _modules(
            llama__llama_attention={names[0]: members[names[0]]},
            mixtral__mixtral_attention=members,
            qwen__qwen_attention=members,
        )
        with modules:
            with tfo.layers.use_fused_ops():
                self.assertTrue(llama.fused_attention_op_available())
                self.assertTrue(mixtral.running_on_gpu() and mixtral.gpu_supports_fused_attention_op())
                self.assertFalse(qwen.fused_attention_op_available())
            self.assertFalse(llama.fused_attention_op_available() or mixtral.running_on_gpu())

    def test_deformable_attention(self):
        class Attention(keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.ms_deformable_attn_core = lambda *args: "original"

        modules, _ = _modules(d_fine__d_fine_attention={"DFineMultiscaleDeformableAttention": Attention})
        values = _normal(1, 14, 2, 3)  # maps of 3 x 4 and 1 x 2 pixels
        x, y = np.array([3, 0, 1]), np.array([2, 1, 0])  # two points on the first map, one on the second
        places = np.stack([(x + 0.5) / [4, 4, 2], (y + 0.5) / [3, 3, 1]], -1)
        locations = np.broadcast_to(places, [1, 5, 2, 3, 2]).astype(np.float32)
        weights = _normal(1, 5, 2, 3)
        shapes = [(3, 4), (1, 2)]
        args = values, tf.constant(shapes), locations, weights, [2, 1], [12, 2], shapes, 2, 5
        before = Attention()
        pixels = values[0, [11, 4, 13]]
        expected = np.einsum("nqhp,phd->nqhd", weights, pixels).reshape(1, 5, 6)
        with modules, tfo.layers.use_fused_ops(["multi_scale_deformable_attention_v2"]):
            for layer in (before, Attention()):
                self.assertAllClose(layer.ms_deformable_attn_core(*args), expected, 1e-5, 1e-5)
                self.assertEqual(layer.ms_deformable_attn_core(*args, "discrete"), "original")
        self.assertEqual([layer.ms_deformable_attn_core(*args) for layer in (before, layer)], ["original"] * 2)
        self.assertNotIn("ms_deformable_attn_core", vars(Attention))

    def test_assignment(self):
        modules, module = _modules(d_fine__d_fine_loss={"hungarian_assignment": lambda *args: "original"})
        costs = np.full([6, 6], 1e9, np.float32)
        costs[:, :3] = _normal(6, 3)
        best = min(itertools.permutations(range(6), 3), key=lambda rows: costs[list(rows), range(3)].sum())
        with modules, tfo.layers.use_fused_ops(["hungarian_assignment"]):
            rows, columns, valid = (x.numpy() for x in module.hungarian_assignment(costs, 6))
            self.assertEqual(module.hungarian_assignment(costs, 7), "original")
        self.assertAllEqual(rows, range(6))
        self.assertEqual(columns.dtype, np.int32)
        self.assertEqual({columns[i]: i for i in np.flatnonzero(valid)}, dict(enumerate(best)))

    def test_roi_align(self):
        modules, module = _modules(sam3__sam3_geometry_encoder={"roi_align": lambda *args, **options: "original"})
        y, x = np.mgrid[:9, :8]
        plane = (10.0 * y + x).astype(np.float32)
        features = np.stack([plane, plane + 100])[..., np.newaxis]
        with modules:
            with tfo.layers.use_fused_ops():
                pooled = module.roi_align(features, [[1.0, 2, 1, 6, 5]], (2, 2), spatial_scale=1.0, height=9, width=8,
                                          hidden_dim=1)  # fmt: skip
                half = module.roi_align(features.astype(np.float16), [[1.0, 2, 1, 6, 5]], (2, 2), 9, 8, 1)
                self.assertEqual(module.roi_align(features.astype(int), [[0] * 5], (2, 2), 9, 8, 1), "original")
            self.assertEqual(module.roi_align(), "original")
        self.assertAllClose(pooled[0, ..., 0], [[123, 125], [143, 145]])
        self.assertEqual(half.dtype, "float16")

    def test_unknown_version(self):
        modules, module = _modules("0.99.1", sam3__sam3_geometry_encoder={"roi_align": "original"})
        with modules, self.assertWarnsRegex(RuntimeWarning, "keras-hub 0.25 to 0.32, and 0.99.1 is imported"):
            with tfo.layers.use_fused_ops():
                self.assertEqual(module.roi_align, "original")
                self.assertNotIn("roi_align", tfo.layers.fused_ops())


if __name__ == "__main__":
    tf.test.main()
