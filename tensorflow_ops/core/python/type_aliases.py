"""Types of public arguments. A fixed set of words is a Literal beside the functions that take it.

Each is a TypeAliasType, which `help` prints by its name: signatures stay short.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from typing_extensions import TypeAliasType  # Keras's optree needs it, too. In typing from Python 3.12

# Values that tf.convert_to_tensor accepts, except for strings; KerasTensors, which every function of ops takes; and
# RaggedTensors, for the arguments whose docstrings say so.
TensorLike = TypeAliasType(
    "TensorLike",
    tf.Tensor
    | tf.RaggedTensor
    | tf.Variable
    | keras.Variable
    | keras.KerasTensor
    | npt.NDArray[Any]
    | np.generic
    | complex
    | Sequence["TensorLike"],
)
# Scalars, tensors among them.
NumberLike = TypeAliasType("NumberLike", float | np.number[Any] | npt.NDArray[Any] | tf.Tensor | tf.Variable)
IntLike = TypeAliasType("IntLike", int | np.integer[Any] | npt.NDArray[Any] | tf.Tensor | tf.Variable)
# Values that tf.as_dtype accepts.
DTypeLike = TypeAliasType("DTypeLike", tf.DType | np.dtype[Any] | type | str)
