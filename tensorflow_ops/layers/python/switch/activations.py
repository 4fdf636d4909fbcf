"""Gelu and silu, as functions and with the bias of a Dense or EinsumDense layer."""

import sys

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, library
from tensorflow_ops.layers.python.switch.served import Original, served
from tensorflow_ops.nn.python.ops import activations

# Unless a gradient needs the sum: with oneDNN, grappler makes one op of a product of matrices, the bias and gelu.
_FUSED_BY_GRAPPLER = Original("a product that grappler fuses it with")


def _misfit(*tensors):
    """Returns Original where our op does not fit; else None."""
    if library.is_compiled_by_xla():
        return Original("XLA")  # it fuses them
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1:
        return Original("mixed dtypes")
    (dtype,) = dtypes
    return None if dtype in arguments.FLOAT_DTYPES else Original(f"{dtype.name} inputs")


def _of_function(x, activation):
    if isinstance(x, tf.RaggedTensor):
        return Original("ragged inputs")
    x = tf.convert_to_tensor(x)
    misfit = _misfit(x)
    if not misfit and not tf.executing_eagerly() and x.op.type == "BiasAdd" and x.op.inputs[0].op.type == "MatMul":
        misfit = _FUSED_BY_GRAPPLER
    return misfit or activations.activated(x, None, activation)


@served("gelu", "backend.nn")
def gelu(original, x, approximate=True):
    del original
    return _of_function(x, "gelu_tanh" if approximate else "gelu")


@served("silu", "backend.nn")
def silu(original, x):
    del original
    return _of_function(x, "silu")


def _activation(layer):
    """Returns the activation of a layer, as the attr of our op; None if it has none."""
    keras_hub = sys.modules.get("keras_hub.src.utils.keras_utils")
    for function, activation in (
        (keras.activations.gelu, "gelu"),
        (keras.activations.silu, "silu"),
        (getattr(keras_hub, "gelu_approximate", None), "gelu_tanh"),
    ):
        if function is not None and layer.activation is function:
            return activation
    return None


def _with_bias(layer, inputs, training, product):
    activation = _activation(layer)
    if layer.bias is None or activation is None:
        return Original("")  # `gelu` and `silu` may serve its activation
    if isinstance(inputs, tf.SparseTensor):
        return Original("sparse inputs")
    inputs, kernel, bias = map(tf.convert_to_tensor, (inputs, layer.kernel, layer.bias))
    misfit = _misfit(inputs, kernel, bias)
    if misfit:
        return misfit
    if bias.shape.rank != 1:
        return Original("a bias of several dims")
    may_train = arguments.is_tensor(training) or training
    if inputs.shape.rank == 2 and not (may_train or tf.executing_eagerly()):
        return _FUSED_BY_GRAPPLER
    return activations.activated(product(inputs, kernel), bias, activation)


@served("bias_activation", "layers.Dense", "call")
def dense(original, layer, inputs, training=None):
    del original
    return _with_bias(layer, inputs, training, keras.ops.matmul)


@served("bias_activation", "layers.EinsumDense", "call")
def einsum_dense(original, layer, inputs, training=None):
    del original
    return _with_bias(layer, inputs, training, lambda x, kernel: keras.ops.einsum(layer.equation, x, kernel))
