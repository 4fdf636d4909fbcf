"""Layers of Keras with weights of 8 and 4 bits."""

import functools
import inspect

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.layers.python.switch.served import Original, served
from tensorflow_ops.nn.python.ops.quantized_matmul import quantized_matmul


def _misfit(layer, inputs):
    """Returns Original where the layer fits in no mode; else None."""
    if getattr(layer, "lora_enabled", False):
        return Original("LoRA")
    if inputs.shape.rank is None:
        return Original("an unknown rank")
    return None if inputs.dtype in arguments.FLOAT_DTYPES else Original(f"{inputs.dtype.name} inputs")


# The most rows of products that only read the weights (kFewRows in quantized_weights_gpu.h).
_FEW_ROWS = 8


def _kept_on_gpus(inputs, options, count=1):
    """Returns Original where Keras's product of the last `count` axes should be as fast on a GPU; else None."""
    rows = inputs.shape[:-count].num_elements()
    if not tf.config.list_logical_devices("GPU") or (rows is not None and rows <= _FEW_ROWS):
        return None
    is_of_integers = options.get("activation_bits") and "block_size" not in options
    # Unpacking is most of Keras's time, and tensor cores multiply 16 bits.
    is_unpacked = options.get("bits") == 4 and "group_index" not in options and inputs.dtype.size == 2
    return None if is_of_integers or is_unpacked else Original("GPU")


def _served(layer, *modes):
    """Registers the decorated function, whose first argument is a mode, for methods of a layer."""

    def register(function):
        for mode in modes:
            served("quantized_matmul", f"layers.{layer}", f"_{mode}_call")(functools.partial(function, mode))
        return function

    return register


# Since Keras 3.13, layers tell the quantizer their axes; ReversibleEmbedding does not.
_CALL_HAS_AXES = "axis" in inspect.signature(keras.quantizers.AbsMaxQuantizer.__call__).parameters


def _rounding(layer, rank, count=1, call_has_axes=_CALL_HAS_AXES):
    """Returns the option activation_bits for the last `count` axes; Original for a quantizer that rounds otherwise."""
    quantizer = layer.inputs_quantizer
    if quantizer is None:
        return None
    fits = (
        type(quantizer) is keras.quantizers.AbsMaxQuantizer
        and quantizer.epsilon == 1e-7
        and tuple(quantizer.value_range) == (-127, 127)
        and quantizer.output_dtype == "int8"
    )
    if not fits:
        return Original("another quantizer of inputs")
    if not call_has_axes and quantizer.axis is not None:
        if {axis % rank for axis in quantizer.axis} != set(range(rank - count, rank)):
            return Original("another quantizer of inputs")
    return 8


def _reciprocal(scale):
    """Returns the factors [N] of a scale that divides."""
    return tf.reshape(1 / tf.convert_to_tensor(scale), [-1])


def _grouped(layer, block_size):
    """Returns options of groups of rows, whose scales multiply."""
    return {"scale": layer.kernel_scale, "zero": layer.kernel_zero, "block_size": block_size}


def _calibrated(layer):
    """Returns the options of GPTQ's and AWQ's weights."""
    columns = int(layer.kernel_scale.shape[0])
    return {
        "kernel": layer.quantized_kernel,
        "scale": layer.kernel_scale,
        "zero": layer.kernel_zero,
        "group_index": layer.g_idx,
        "transposed": True,
        "bits": 4 if layer.quantized_kernel.shape[0] < columns else 8,
    }


def _finished(layer, outputs):
    if layer.bias is not None:
        outputs = keras.ops.add(outputs, layer.bias)
    return outputs if layer.activation is None else layer.activation(outputs)


def _weights(layer, mode, inputs, count=1):
    """Returns the options of a Dense or EinsumDense layer's weights [rows, columns], or Original.

    The product sums the last `count` axes of inputs.
    """
    options = _weights_of_mode(layer, mode, inputs, count)
    return options if isinstance(options, Original) else _kept_on_gpus(inputs, options, count) or options


def _weights_of_mode(layer, mode, inputs, count):
    misfit = _misfit(layer, inputs)
    if misfit:
        return misfit
    dtypes = {inputs.dtype.name, tf.convert_to_tensor(layer.kernel_scale).dtype.name}
    if dtypes != {layer.compute_dtype}:  # Keras's product then has one of three dtypes
        return Original("inputs without autocast")
    block_size = getattr(layer, "_int4_block_size", None)
    if mode in ("gptq", "awq"):
        is_calibrated = getattr(layer, f"is_{mode}_calibrated", False)
        if not is_calibrated:
            return Original("weights that are not calibrated")
        # It would be as long packed as unpacked.
        return _calibrated(layer) if layer.kernel_scale.shape[0] > 1 else Original("a column alone")
    if mode == "int4" and block_size not in (None, -1):
        return {"kernel": layer._kernel, "bits": 4, **_grouped(layer, block_size)}
    rounding = _rounding(layer, inputs.shape.rank, count)
    if isinstance(rounding, Original):
        return rounding
    options = {"kernel": layer._kernel, "scale": _reciprocal(layer.kernel_scale), "activation_bits": rounding}
    if mode == "int4":
        # Until Keras 3.13, two numbers of a byte are of neighboring rows.
        is_packed_by_columns = hasattr(layer, "_orig_output_dim") or hasattr(layer, "_int4_unpacked_column_size")
        options.update(bits=4, packed_axis=1 if is_packed_by_columns else 0)
    return options


def _product(layer, mode, inputs, options):
    if mode != "awq":
        return quantized_matmul(inputs, **options)
    # In float32: quotients with Keras's smallest scale, 1e-4, may be too large for float16.
    dtype = arguments.at_least_float32(inputs.dtype)
    outputs = quantized_matmul(tf.cast(inputs, dtype) / tf.cast(layer.awq_scales, dtype), **options)
    return tf.cast(outputs, inputs.dtype)


@_served("Dense", "int8", "int4", "gptq", "awq")
def _dense(mode, original, layer, inputs, training=None):
    del original, training
    inputs = tf.convert_to_tensor(inputs)
    options = _weights(layer, mode, inputs)
    if isinstance(options, Original):
        return options
    return _finished(layer, _product(layer, mode, inputs, options))


def _summed_axes(equation):
    """Returns how many axes an einsum sums if it is a product of flattened matrices, the last of inputs; else 0."""
    inputs, kernel, outputs = equation.replace(" ", "").replace("->", ",").split(",")
    for count in range(1, len(kernel) + 1):
        if inputs.endswith(kernel[:count]) and outputs == inputs[:-count] + kernel[count:]:
            return count
    return 0


@_served("EinsumDense", "int8", "int4", "gptq", "awq")
def _einsum_dense(mode, original, layer, inputs, training=None):
    del original, training
    inputs = tf.convert_to_tensor(inputs)
    count = _summed_axes(layer.equation)
    if not count:
        return Original("an equation that is no product of flattened matrices")
    options = _weights(layer, mode, inputs, count)
    if isinstance(options, Original):
        return options
    shape = tuple(getattr(layer, "original_kernel_shape", None) or layer._kernel.shape)
    if options.get("packed_axis") == 0:
        if count > 1 or layer._int4_pack_axis != 0:
            return Original("int4 that sums two axes")
        shape = (layer._orig_length_along_pack_axis, *layer._kernel.shape[1:])
    elif mode in ("gptq", "awq") and layer.g_idx.shape[0] != _size(shape[:count]):
        return Original("other axes of rows")
    if mode == "int8" or options.get("packed_axis") == 0:
        kernel = tf.convert_to_tensor(options["kernel"])
        rows = _size(kernel.shape[:count])
        options["kernel"] = tf.reshape(kernel, [rows, _size(shape[count:])])
    batch = tf.shape(inputs)[:-count]
    flat = inputs if count == 1 else tf.reshape(inputs, tf.concat([batch, [_size(shape[:count])]], 0))
    outputs = _product(layer, mode, flat, options)
    outputs = tf.reshape(outputs, tf.concat([batch, shape[count:]], 0))
    outputs.set_shape(inputs.shape[:-count].concatenate(shape[count:]))
    return _finished(layer, outputs)


def _size(shape):
    return int(tf.TensorShape(shape).num_elements())


@_served("ReversibleEmbedding", "int8", "int4")
def _reversible_embedding(mode, original, layer, inputs, reverse=False):
    """Of the reverse direction."""
    del original
    if not reverse:
        return Original("")  # a lookup
    inputs = tf.convert_to_tensor(inputs)
    rounding = _misfit(layer, inputs) or _rounding(layer, inputs.shape.rank, call_has_axes=False)
    if isinstance(rounding, Original):
        return rounding
    prefix = "embeddings" if layer.tie_weights else "reverse_embeddings"
    kernel = layer._embeddings if layer.tie_weights else layer.reverse_embeddings
    scale = getattr(layer, f"{prefix}_scale")
    options = {"transposed": layer.tie_weights, "activation_bits": rounding}
    block_size = getattr(layer, "_int4_block_size", None)
    is_grouped = mode == "int4" and block_size not in (None, -1)
    # Keras does not cast the inputs: its result has the widest of these dtypes.
    own, *dtypes = inputs.dtype.name, layer.compute_dtype, tf.convert_to_tensor(scale).dtype.name
    dtype = keras.backend.result_type(*dtypes, *([own] if rounding or is_grouped else []))
    wide = keras.backend.result_type(own, dtype)
    if rounding and wide != own:
        return Original(f"{own} inputs of a {dtype} result")
    inputs = tf.cast(inputs, wide)
    if mode == "int4":
        options.update(bits=4, packed_axis=1 if layer.tie_weights else 0)
    if is_grouped:
        options.update(scale=scale, zero=getattr(layer, f"{prefix}_zero"), block_size=block_size)
    else:
        options["scale"] = _reciprocal(scale)
    if kept := _kept_on_gpus(inputs, options):
        return kept
    logits = tf.cast(quantized_matmul(inputs, kernel, **options), dtype)
    if layer.logit_soft_cap is not None:
        logits = keras.ops.tanh(logits / layer.logit_soft_cap) * layer.logit_soft_cap
    return logits
