"""Dropout, beside TensorFlow's function, Keras's layer and PyTorch. 3 min."""

import keras
import peers
import tensorflow as tf
from harness import DTYPES, PAUSE, Case, in_graph, in_torch, normal, num_bytes, table

import tensorflow_ops as tfo

RATE = 0.1
SIZES = ((4096, 1024), (32, 256, 768), (64, 128))


@table(pause=PAUSE)
def dropout():
    """The upstream gradient is a constant. PyTorch draws other numbers."""
    seed = tf.constant([1, 2])  # an input: TensorFlow would draw only once for a constant
    for shape in SIZES:
        for dtype in DTYPES if shape == SIZES[0] else DTYPES[:2]:
            x, upstream = (tf.cast(normal(*shape, seed=i), dtype) for i in (0, 1))
            layer = keras.layers.Dropout(RATE, seed=3, dtype=dtype)
            functions = {
                "TensorFlow": lambda x, seed: tf.nn.experimental.stateless_dropout(x, RATE, seed),
                "Keras": lambda x, _, layer=layer: layer(x, training=True),
            }
            for which, to in (("forward", ()), ("forward+backward", (0,))):
                options = {"to": to, "upstream": upstream if to else None}
                rivals = {name: in_graph(function, [x, seed], **options) for name, function in functions.items()}
                if (torch := peers.torch()) and dtype != "bfloat16":
                    drop = torch.nn.functional.dropout
                    rivals["PyTorch"] = in_torch(torch, lambda x, drop=drop: drop(x, RATE), [x], **options)
                moved = num_bytes(x) * (2 if to else 1)
                yield Case(
                    {"shape": list(shape), "dtype": dtype, "pass": which},
                    in_graph(lambda x, seed: tfo.nn.dropout(x, RATE, seed=seed), [x, seed], **options),
                    rivals,
                    [x],
                    (moved, moved),
                    off=("TensorFlow",),
                )
