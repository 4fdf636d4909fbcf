"""Tests of how the switch opens and closes: beside patches by other code, and at export."""

import itertools
import os
import sys
import types
import warnings
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from keras.src import backend

import tensorflow_ops as tfo

_HEADS = np.ones([1, 2, 1, 3], np.float32)
_STEPS = np.ones([1, 2, 3], np.float32)


def _attention():
    return backend.nn, "dot_product_attention", lambda: keras.ops.dot_product_attention(_HEADS, _HEADS, _HEADS)


def _layer():
    layer = keras.layers.GRU(2)
    layer.build(_STEPS.shape)
    return keras.layers.GRU, "inner_loop", lambda: layer(_STEPS)


def _hub_module(name, **members):
    """Imports a module with the name of one of keras-hub's."""
    package, module = types.ModuleType("keras_hub"), types.ModuleType(f"keras_hub.src.models.{name}")
    package.__version__ = "0.32.0"
    vars(module).update(members)
    sys.modules.update({x.__name__: x for x in (package, module)})
    return module


def _condition():
    name = "fused_attention_op_available"
    module = _hub_module("llama.llama_attention", **{name: lambda: False})
    return module, name, lambda: getattr(module, name)()


# All orders in which a patch, "p", and two switches, "a" before "b", begin and end.
_ORDERS = [order for order in sorted(set(itertools.permutations("aabbpp"))) if order.index("a") < order.index("b")]


class PatchesOfOthersTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        modules = mock.patch.dict(sys.modules)
        modules.start()
        self.addCleanup(modules.stop)

    @parameterized.product(kind=(_attention, _layer, _condition), calls_through=(False, True))
    def test_begin_and_end_in_any_order(self, kind, calls_through):
        owner, name, call = kind()
        original, patched = getattr(owner, name), []

        def foreign(replaced):
            def function(*args, **kwargs):
                patched.append(1)
                return replaced(*args, **kwargs)

            return function

        def servers():
            """Returns who serves a call, besides Keras."""
            patched.clear()
            before = tfo.layers.fused_ops()
            by_switch = call() is True or tfo.layers.fused_ops() != before
            return {name for name, serves in (("switch", by_switch), ("patch", patched)) if serves}

        for order in _ORDERS:
            now, lost = {}, set()
            for event in order:
                if event in now:
                    end, began_first = now.pop(event)
                    end()
                    if event == "p" and began_first:
                        lost = set(now)  # it restores what it found, which ends ours
                elif event == "p":
                    replaced = getattr(owner, name) if calls_through else original
                    patch = mock.patch.object(owner, name, foreign(replaced))
                    patch.start()
                    now[event] = patch.stop, not now
                else:
                    switch = tfo.layers.use_fused_ops()
                    self.addCleanup(switch.close)
                    now[event] = switch.close, False
                found, latest = servers(), list(now)[-1:]
                message = f"{event} of {''.join(order)}"
                if not now.keys() & {"a", "b"}:
                    self.assertEqual(found, set(now) and {"patch"}, message)
                elif not lost.issuperset(latest):
                    self.assertIn("patch" if latest == ["p"] else "switch", found, message)
            # One that began under a switch and ended after it has restored our function.
            if "a" in order[: order.index("p")] and order[-1] == "p":
                self.assertEqual(servers(), set(), message)
            else:
                self.assertIs(getattr(owner, name), original, message)
            with tfo.layers.use_fused_ops():
                self.assertEqual(servers(), {"switch"}, message)
            self.assertIs(getattr(owner, name), original, message)

    def test_of_an_instance(self):
        class Attention(keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.ms_deformable_attn_core = original

        def original(*args):
            return "original"

        _hub_module("d_fine.d_fine_attention", DFineMultiscaleDeformableAttention=Attention)
        layer = Attention()
        args = np.ones([1, 1, 1, 1]), None, np.ones([1, 1, 1, 1, 2]), np.ones([1, 1, 1, 1]), [1], None, [(1, 1)], 1, 1
        # A patch of the class, which an instance hides.
        patch = mock.patch.object(Attention, "ms_deformable_attn_core", "patch", create=True)
        patch.start()
        switch = tfo.layers.use_fused_ops()
        self.assertIsInstance(layer.ms_deformable_attn_core(*args), tf.Tensor)
        switch.close()
        self.assertEqual(Attention.ms_deformable_attn_core, "patch")
        patch.stop()
        switch = tfo.layers.use_fused_ops()
        held = layer.ms_deformable_attn_core
        self.assertFalse(hasattr(Attention, "ms_deformable_attn_core"))
        patch.start()
        switch.close()
        patch.stop()
        for function in (held, layer.ms_deformable_attn_core, Attention().ms_deformable_attn_core):
            self.assertEqual(function(*args), "original")
        with tfo.layers.use_fused_ops():
            self.assertIsInstance(layer.ms_deformable_attn_core(*args), tf.Tensor)
        self.assertNotIn("ms_deformable_attn_core", vars(Attention))

    def test_names_that_modules_import_keep_what_they_serve(self):
        x = [_HEADS] * 3
        with tfo.layers.use_fused_ops():
            imported = backend.nn.dot_product_attention
        expected = imported(*x)
        self.assertEqual(tfo.layers.fused_ops(), {})
        with tfo.layers.use_fused_ops(["ctc_loss"]):
            imported(*x)
            self.assertEqual(tfo.layers.fused_ops(), {})
        with tfo.layers.use_fused_ops(["dot_product_attention"]):
            self.assertAllClose(imported(*x), expected)
            self.assertEqual(tfo.layers.fused_ops(), {"dot_product_attention": {"fused": 1, "original": 0}})


class ExportTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self._model = keras.Sequential([keras.Input([2, 3], batch_size=1), keras.layers.LSTM(2)])
        self._expected = self._model(_STEPS)
        self._path = os.path.join(self.get_temp_dir(), "model")

    def test_warns_of_our_ops(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with tfo.layers.use_fused_ops(["ctc_loss"]):
                self._model.export(self._path, verbose=False)
            self._model.export(self._path, verbose=False)
        with (
            tfo.layers.use_fused_ops(),
            self.assertWarnsRegex(
                RuntimeWarning, "model contains ops .* while the switch is closed, or rewrite"
            ) as found,
        ):
            self._model.export(self._path, verbose=False)
        self.assertEqual(found.filename, __file__)
        self.assertIn(self._path, str(found.warning))
        self.assertEqual(tfo.layers.fused_ops()["lstm"]["original"], 0)
        standard = f"{self._path}_standard"
        self.assertIn("TensorflowOps>Lstm", tfo.export.to_standard_ops(self._path, standard))
        loaded = tf.saved_model.load(standard)
        self.assertAllClose(loaded.serve(_STEPS), self._expected, 1e-5, 1e-6)

    def test_does_not_warn_of_ops_of_tensorflow(self):
        model = keras.Sequential([keras.Input([6, 6, 4], batch_size=1), keras.layers.Conv2D(4, 3, groups=2)])
        images = np.ones([1, 6, 6, 4], np.float32)
        expected = model(images)
        with warnings.catch_warnings(), tfo.layers.use_fused_ops():
            warnings.simplefilter("error", RuntimeWarning)
            model.export(self._path, verbose=False)
        self.assertIn("conv", tfo.layers.fused_ops())  # without oneDNN, as Keras's own
        loaded = tf.saved_model.load(self._path)
        self.assertAllClose(loaded.serve(images), expected, 1e-5, 1e-6)

    def test_formats_that_cannot_hold_our_ops_get_originals(self):
        def export(model, filepath, format="tf_saved_model"):
            model(_STEPS)
            if format == "wrong":
                raise ValueError(filepath)

        handlers = {"tensorflow_ops.onnx.python.conversion": types.ModuleType("conversion")}
        with mock.patch.object(keras.Model, "export", export), mock.patch.dict(sys.modules) as modules:
            modules.pop(*handlers, None)
            with tfo.layers.use_fused_ops():
                for name in ("litert", "openvino", "onnx"):
                    self._model.export("file", name)
                with self.assertRaisesRegex(ValueError, "file"):
                    self._model.export(filepath="file", format="wrong")
                self.assertEqual(tfo.layers.fused_ops(), {})
                modules.update(handlers)
                self._model.export("file", format="onnx")
                self.assertEqual(tfo.layers.fused_ops(), {"lstm": {"fused": 1, "original": 0}})


if __name__ == "__main__":
    tf.test.main()
