"""Bases of the Keras 3 classes, which refuse models of tf_keras, Keras 2: those do not find their variables."""

import sys
from typing import Any

import keras
import tensorflow as tf


def _refuse(instance):
    raise ValueError(
        f"{type(instance).__name__} of tensorflow_ops needs Keras 3, but is used in tf_keras (TF_USE_LEGACY_KERAS=1): "
        "build the model with `keras`"
    )


def infers_shapes():
    """Returns whether Keras calls with tensors of its own, which have shapes and nothing that layers attach."""
    return not tf.executing_eagerly() and getattr(tf.compat.v1.get_default_graph(), "name", "").startswith("scratch_")


class Layer(keras.layers.Layer):
    """The base of layers."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(type(value).__module__.startswith("tf_keras.") for value in keras.tree.flatten((args, kwargs))):
            _refuse(self)
        return super().__call__(*args, **kwargs)


class Metric(keras.metrics.Metric):
    """The base of metrics."""

    @property
    def variables(self):
        # The compile() of tf_keras reads them, and nothing else of a metric.
        if sys._getframe(1).f_globals.get("__name__", "").startswith("tf_keras."):
            _refuse(self)
        return super().variables
