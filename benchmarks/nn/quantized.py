"""Products of 1 to 64 rows with weights of 8 and 4 bits, beside floats, Keras, PyTorch, ONNX Runtime. 6 min.

Also beside reading the weights.
"""

import functools
import importlib.util

import keras
import numpy as np
import peers
import tensorflow as tf
from harness import PAUSE, Case, in_graph, in_torch, normal, reader, table

import tensorflow_ops as tfo

DEPTH, COLUMNS, GROUP = 4096, 16384, 128


def keras_int8(inputs, kernel, scale):
    """Returns what keras.layers.Dense computes in the mode int8; its scale is the reciprocal."""
    integers, factors = keras.quantizers.abs_max_quantize(inputs, axis=-1)
    return tf.cast(tf.matmul(integers, kernel, output_type=tf.int32), inputs.dtype) * scale / factors


def keras_int4(inputs, kernel, scale, zero):
    """Returns what keras.layers.Dense computes in the mode int4."""
    numbers = keras.quantizers.unpack_int4(kernel, COLUMNS, axis=-1)
    groups = tf.range(DEPTH) // GROUP
    weights = (tf.cast(numbers, scale.dtype) - tf.gather(tf.cast(zero, scale.dtype), groups)) * tf.gather(scale, groups)
    return tf.matmul(inputs, weights)


def keras_rounded_int4(inputs, kernel, scale, zero):
    """Returns the same of inputs that are rounded as in the mode int8."""
    integers, factors = keras.quantizers.abs_max_quantize(inputs, axis=-1)
    return keras_int4(tf.cast(integers, inputs.dtype), kernel, scale, zero) / factors


def onnx_runtime_int4(numbers, scale, zero, accuracy_level):
    """Returns a function of inputs: MatMulNBits, with its own copy of the weights. Level 4 rounds inputs by blocks."""
    import onnx
    import onnxruntime

    def pack(q):  # along the last axis
        return (q[..., ::2] | q[..., 1::2] << 4).astype(np.uint8)

    weights = {
        "kernel": pack((numbers.T + 8).astype(np.uint8)).reshape(COLUMNS, -1, GROUP // 2),
        "scale": scale.T.ravel(),
        "zero": pack((zero.T + 8).astype(np.uint8)).ravel(),
    }
    options = {"K": DEPTH, "N": COLUMNS, "bits": 4, "block_size": GROUP, "accuracy_level": accuracy_level}
    node = onnx.helper.make_node("MatMulNBits", ["x", *weights], ["y"], domain="com.microsoft", **options)
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", n])
        for name, n in (("x", DEPTH), ("y", COLUMNS))
    )
    initializers = [onnx.numpy_helper.from_array(np.ascontiguousarray(v), k) for k, v in weights.items()]
    graph = onnx.helper.make_graph([node], "product", [x], [y], initializers)
    versions = [onnx.helper.make_opsetid(*version) for version in (("", 17), ("com.microsoft", 1))]
    model = onnx.helper.make_model(graph, opset_imports=versions, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = peers.THREADS
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def torch_int4(torch, numbers, scale, zero):
    """Returns a function of inputs, with PyTorch's own layout of the weights."""
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(torch.tensor(numbers.T + 8, dtype=torch.int32), 1)
    parameters = torch.tensor(np.stack([scale, -scale * zero], -1))
    return lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, parameters)


@table(pause=PAUSE, threads=True)
def products():
    """A layer [4096, 16384]: int8 with rounded inputs, and int4 in groups of 128 with zeros, with either inputs.

    The floor reads the kernel's bytes and does the float product's work, whichever is slower: up to 8 rows, the bytes.
    "float32" is tf.matmul with float weights, "Keras" the composition of its layer, "torch" its
    _weight_int4pack_mm_for_cpu, "ONNX" ONNX Runtime's MatMulNBits, with accuracy_level=4 for rounded inputs.
    """
    rng = np.random.default_rng(0)
    numbers = rng.integers(-8, 8, [DEPTH, COLUMNS], np.int8)
    zero = rng.integers(-8, 8, [DEPTH // GROUP, COLUMNS], np.int8)
    scale = rng.uniform(0.01, 0.02, zero.shape).astype(np.float32)
    packed = ((numbers[:, ::2] & 15) | (numbers[:, 1::2] << 4)).astype(np.int8)
    weights = normal(DEPTH, COLUMNS, seed=1, scale=0.02)
    has_onnx = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime"))
    onnx = {level: onnx_runtime_int4(numbers, scale, zero, level) for level in (0, 4) if has_onnx}
    for rows in (1, 2, 4, 8, 16, 64):
        x = normal(rows, DEPTH)
        of_float = in_graph(tf.matmul, (x, weights))
        for bits, rounding in ((8, 8), (4, None), (4, 8)):
            kernel = numbers if bits == 8 else packed
            if bits == 8:
                inputs = x, kernel, scale[0]
                options, composition = {}, keras_int8
            else:
                inputs = x, kernel, scale, zero
                options = {"bits": 4, "block_size": GROUP}
                composition = keras_rounded_int4 if rounding else keras_int4

            def layer(x, kernel, scale, zero=None, options=options, rounding=rounding):
                return tfo.nn.quantized_matmul(x, kernel, scale, zero=zero, activation_bits=rounding, **options)

            rivals = {"float32": of_float, "Keras": in_graph(composition, inputs)}
            if bits == 4 and not rounding and peers.torch():
                torch = peers.torch()
                rivals["torch"] = in_torch(torch, torch_int4(torch, numbers, scale, zero), (x,))
            if bits == 4 and has_onnx:
                rivals["ONNX"] = functools.partial(onnx[4 if rounding else 0], x.numpy())
            yield Case(
                {"bits": bits, "inputs": "rounded" if rounding else "floats", "rows": rows},
                in_graph(layer, inputs),
                rivals,
                inputs,
                floor=(reader(kernel),) if rows <= 8 else (of_float,),
                off=["Keras"] + ["torch"] * ("torch" in rivals),
            )
