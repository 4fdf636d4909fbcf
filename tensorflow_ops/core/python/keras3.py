"""Bases of the Keras 3 classes, which refuse models of tf_keras, Keras 2: those do not find their variables.

OpLayer has the options of layers. check_keras is for what overrides private functions.
"""

import sys
from typing import Any, NoReturn

import keras
import tensorflow as tf

from tensorflow_ops.core.python import library

# What makes objects of options whose names end in the key, and names of objects.
_KERAS_KINDS = {
    "activation": keras.activations,
    "initializer": keras.initializers,
    "regularizer": keras.regularizers,
    "constraint": keras.constraints,
}


# The minors whose private functions are known. To add one, `pip install --no-deps --target FOLDER keras==3.MINOR.*`,
# and run attention_layers_test.py, lazy_adam_test.py and *_switch_test.py with FOLDER first in PYTHONPATH. From 3.16,
# Keras's backend has its functions in `ops`: `served.backend` knows both places.
_KERAS_MINORS = range(7, 16)


def check_keras(caller: str) -> None:
    """Raises ImportError unless private functions of the installed Keras are known, ValueError on other backends."""
    major, minor = keras.__version__.split(".")[:2]
    first, last = _KERAS_MINORS[0], _KERAS_MINORS[-1]
    if major != "3" or int(minor) not in _KERAS_MINORS:
        raise ImportError(
            f"{caller} overrides private functions of Keras 3.{first} to 3.{last}, and Keras {keras.__version__} is "
            f'installed. Either install one of these: pip install "keras>=3.{first},<3.{last + 1}", or a '
            f"tensorflow-extra-ops that knows Keras {major}.{minor}."
        )
    if keras.backend.backend() != "tensorflow":
        raise ValueError(f"Keras's backend is {keras.backend.backend()!r}, expected 'tensorflow'")


def _refuse(instance: object) -> NoReturn:
    raise ValueError(
        f"{type(instance).__name__} of tensorflow_ops needs Keras 3, but is used in tf_keras (TF_USE_LEGACY_KERAS=1): "
        "build the model with `keras`"
    )


def infers_shapes() -> bool:
    """Returns whether Keras calls with tensors of its own, which have shapes and nothing that layers attach."""
    return not tf.executing_eagerly() and getattr(tf.compat.v1.get_default_graph(), "name", "").startswith("scratch_")


class Layer(keras.layers.Layer):
    """The base of layers."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(type(value).__module__.startswith("tf_keras.") for value in keras.tree.flatten((args, kwargs))):
            _refuse(self)
        return super().__call__(*args, **kwargs)


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options among a constructor's `locals()`."""
    return {name: value for name, value in given.items() if name not in ("self", "kwargs", "__class__")}


class OpLayer(Layer):
    """A layer that calls an op. The arguments of its constructor are attributes and its config."""

    def __init__(self, given: dict[str, Any], **of_keras: Any) -> None:
        """`given`: the `locals()` of the subclass' constructor: checked arguments, and Keras's in kwargs."""
        super().__init__(**of_keras, **given["kwargs"])
        options = options_of(given)
        self._options = tuple(options)
        for name, value in options.items():
            kind = _KERAS_KINDS.get(name.rpartition("_")[2])
            setattr(self, name, kind.get(value) if kind else value)
        self.supports_jit = library.supports_xla()

    def _option_values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._options}

    def get_config(self) -> dict[str, Any]:
        config = self._option_values()
        for name, value in config.items():
            kind = _KERAS_KINDS.get(name.rpartition("_")[2])
            config[name] = kind.serialize(value) if kind else value
        return {**super().get_config(), **config}


class Metric(keras.metrics.Metric):
    """The base of metrics."""

    @property
    def variables(self) -> list[keras.Variable]:
        # The compile() of tf_keras reads them, and nothing else of a metric.
        if sys._getframe(1).f_globals.get("__name__", "").startswith("tf_keras."):
            _refuse(self)
        return super().variables
