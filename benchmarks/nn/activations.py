"""gelu and silu of features plus a bias, compared with TensorFlow's, also by XLA, and PyTorch's. 5 min.

Also Dense layers with them under the switch, compared with Keras's.
"""

import contextlib
import functools

import keras
import peers
import tensorflow as tf
from harness import Case, in_graph, in_torch, normal, num_bytes, table

import tensorflow_ops as tfo

# Of GPT-2's and BERT's blocks, and of images.
_SHAPES = ((4096, 1024), (2048, 3072), (8 * 56 * 56, 384))
_FUNCTIONS = {
    "gelu": (tfo.nn.gelu, tf.nn.gelu),
    "gelu (tanh)": (
        functools.partial(tfo.nn.gelu, approximate=True),
        functools.partial(tf.nn.gelu, approximate=True),
    ),
    "silu": (tfo.nn.silu, tf.nn.silu),
}


def _in_pytorch(torch, name):
    gelu = torch.nn.functional.gelu
    return {
        "gelu": gelu,
        "gelu (tanh)": functools.partial(gelu, approximate="tanh"),
        "silu": torch.nn.functional.silu,
    }[name]


@table()
def bias_activation():
    """The gradients are those to features and bias."""
    for rows, channels in _SHAPES:
        for name, (ours, theirs) in _FUNCTIONS.items():
            for dtype in ("float32", "bfloat16"):
                inputs = [tf.cast(normal(*shape, seed=len(shape)), dtype) for shape in ([rows, channels], [channels])]
                upstream = normal(rows, channels, seed=3)
                composed = lambda x, bias, theirs=theirs: theirs(tf.nn.bias_add(x, bias))  # noqa: E731
                size = num_bytes(inputs[0])
                cases = []
                for which, to, moved in (
                    ("forward", (), (size, size)),
                    ("forward+backward", (0, 1), (3 * size, 2 * size)),
                ):
                    rivals = {
                        "TensorFlow": in_graph(composed, inputs, to, upstream),
                        "XLA": in_graph(composed, inputs, to, upstream, jit_compile=True),
                    }
                    if (torch := peers.torch()) and dtype == "float32":
                        function = _in_pytorch(torch, name)
                        rivals["PyTorch"] = in_torch(
                            torch, lambda x, bias, function=function: function(x + bias), inputs, to, upstream
                        )
                    where = {"features": f"[{rows}, {channels}]", "function": name, "dtype": dtype, "pass": which}
                    case = Case(where, in_graph(ours, inputs, to, upstream), rivals, inputs, moved)
                    cases.append(case)
                yield cases


@table()
def dense():
    """A Dense layer with its activation: in `predict`, which grappler fuses for matrices, and in training."""
    for shape, units in (((8, 256, 256), 1024), ((8, 128, 768), 3072), ((1024, 768), 3072), ((1, 768), 3072)):
        for activation in ("gelu", "silu"):
            for policy in ("float32", "mixed_bfloat16"):
                layer = keras.layers.Dense(units, activation, dtype=policy)
                layer.build(shape)
                inputs = tf.cast(normal(*shape), layer.compute_dtype), *map(tf.constant, layer.trainable_variables)

                def call(x, *weights, layer=layer, training=False):
                    return layer.stateless_call(weights, [], x, training=training)[0]

                cases = []
                for which, to in (("forward", ()), ("forward+backward", (0, 1, 2))):
                    function = functools.partial(call, training=bool(to))
                    calls = []
                    for context in (tfo.layers.use_fused_ops, contextlib.nullcontext):
                        traced = in_graph(function, inputs, to)
                        with context():
                            traced()
                        calls.append(traced)
                    flat = tf.reshape(inputs[0], [-1, shape[-1]])
                    products = [in_graph(tf.matmul, (flat, tf.cast(inputs[1], flat.dtype)))] * (3 if to else 1)
                    where = {"inputs": list(shape), "units": units, "activation": activation, "policy": policy}
                    cases.append(Case(where | {"pass": which}, calls[0], {"Keras": calls[1]}, floor=tuple(products)))
                yield cases
