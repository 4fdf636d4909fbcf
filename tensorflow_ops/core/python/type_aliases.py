"""Types of public arguments. A fixed set of words is a Literal beside the functions that take it."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

# Values that tf.convert_to_tensor accepts, except for strings; KerasTensors, which every function of ops takes; and
# RaggedTensors, for the arguments whose docstrings say so.
TensorLike: TypeAlias = (
    tf.Tensor
    | tf.RaggedTensor
    | tf.Variable
    | keras.Variable
    | keras.KerasTensor
    | npt.NDArray[Any]
    | np.generic
    | complex
    | Sequence["TensorLike"]
)
# Scalars, tensors among them.
NumberLike: TypeAlias = float | np.number[Any] | npt.NDArray[Any] | tf.Tensor | tf.Variable
IntLike: TypeAlias = int | np.integer[Any] | npt.NDArray[Any] | tf.Tensor | tf.Variable
# Values that tf.as_dtype accepts.
DTypeLike: TypeAlias = tf.DType | np.dtype[Any] | type | str
