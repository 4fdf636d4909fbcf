"""tfo.layers.Merge, beside Dense over tiled and concatenated inputs, with the same weights: time, memory. 3 min."""

import keras
import numpy as np
import tensorflow as tf
from harness import Case, in_graph, normal, table

import tensorflow_ops as tfo

# (shapes of inputs, units)
CASES = {
    "speech: frames and a speaker": ([[8, 1000, 80], [8, 1, 512]], 512),
    "text: tokens and a topic": ([[16, 256, 512], [16, 1, 512]], 512),
    "attention: queries and keys": ([[4, 128, 1, 256], [4, 1, 128, 256]], 128),
    "image: pixels and two codes": ([[8, 64, 64, 32], [8, 1, 1, 128], [128]], 64),
    "equal shapes": ([[8192, 256], [8192, 256]], 256),
}


def tile_and_concatenate(inputs):
    """Returns the input of Dense."""
    leading = np.broadcast_shapes(*[tuple(x.shape[:-1]) for x in inputs])
    return tf.concat([tf.broadcast_to(x, [*leading, x.shape[-1]]) for x in inputs], -1)


@table(memory=("ours", "Dense"))
def merge():
    """Gradients are those to all inputs and weights."""
    for case, (shapes, units) in CASES.items():
        inputs = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        merge, dense = tfo.layers.Merge(units), keras.layers.Dense(units)
        merge.build(shapes)
        dense.build([None, sum(shape[-1] for shape in shapes)])
        dense.set_weights(merge.get_weights())

        def call(layer, prepare, which, inputs=inputs):
            weights = [w.value for w in layer.weights]

            def both(*x):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    result = layer(prepare(x))
                return result, tape.gradient(result, [*x, *weights])

            return in_graph(both if which == "forward+backward" else lambda *x: layer(prepare(x)), inputs)

        for which in ("forward", "forward+backward"):
            yield Case(
                {"case": case, "inputs": ", ".join(map(str, shapes)), "units": units, "pass": which},
                call(merge, list, which),
                {"Dense": call(dense, tile_and_concatenate, which)},
                inputs,
                off=("Dense",) if which == "forward" else (),  # sums of thousands differ more
            )
