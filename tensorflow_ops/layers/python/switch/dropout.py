"""`keras.random.dropout`, which is behind dropout layers, with the same masks."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, library
from tensorflow_ops.layers.python.switch.served import Original, backend, served
from tensorflow_ops.nn.python.ops import dropout as ops


@served("dropout", "backend.random")
def dropout(original, inputs, rate, noise_shape=None, seed=None):
    del original
    if library.is_compiled_by_xla():
        return Original("XLA")  # draws other numbers
    if noise_shape is not None:
        return Original("a noise_shape")
    if not isinstance(rate, float):
        return Original("a tensor as rate" if arguments.is_tensor(rate) else "no float as rate")
    if not 0 < rate < 1:
        return Original("")  # keeps all, or none
    x = tf.convert_to_tensor(inputs)
    if x.dtype not in arguments.FLOAT_DTYPES:
        return Original(f"{x.dtype.name} inputs")
    random = backend().random
    return ops.with_seed(x, rate, random._cast_seed(random.draw_seed(seed)))
