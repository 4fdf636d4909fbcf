"""Checks and conversions that the seq2seq functions share: logits, ids, functions."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import TypeAliasType

from tensorflow_ops.core.python import arguments
from tensorflow_ops.core.python.type_aliases import TensorLike

# (token_ids, state) -> (logits, state).
StepFn = TypeAliasType("StepFn", Callable[[tf.Tensor, Any], tuple[TensorLike, Any]])
# (step, sequences, logits) -> logits, or -> (logits, forbidden). step is an int32 scalar.
LogitsProcessor = TypeAliasType(
    "LogitsProcessor", Callable[[Any, tf.Tensor, tf.Tensor], tf.Tensor | tuple[tf.Tensor, tf.Tensor]]
)


def logits_tensor(logits, expected, meaning):
    """Returns logits of the expected shape, of a dtype that has a kernel. Raises ValueError."""
    logits = arguments.float_tensor("logits", logits)
    arguments.check_shape("logits", logits, expected, meaning)
    if logits.shape.rank is not None and logits.shape[-1] == 0:
        raise ValueError(f"logits are {arguments.shape_text(logits.shape)}, expected at least one token")
    return logits


def max_length(value):
    """Returns an int, or an int32 scalar tensor, that is at least 1. Raises ValueError."""
    value = arguments.int_scalar("max_length", value, 1, decides_shape=True)
    # At least 1 even so: XLA compiles tensors of this size before the check runs.
    return value if isinstance(value, int) else tf.maximum(value, 1)


def tokens(name, ids, logits):
    """Returns ids as int32, checked to be tokens of logits [..., V]."""
    ids, count = tf.constant(ids, tf.int32), tf.shape(logits)[-1]
    size = "the number of tokens" if logits.shape[-1] is None else logits.shape[-1]
    return arguments.checked(name, ids, ids < count, f"[0, {size})")


def eos_tuple(eos_ids):
    """Returns ids of end tokens as a tuple of ints, each once. Raises ValueError."""
    known = tf.get_static_value(eos_ids) if arguments.is_tensor(eos_ids) else eos_ids
    arguments.check_dense("eos_ids", eos_ids)
    if known is None:
        raise ValueError("eos_ids are a tensor without a known value, expected ints")
    ids = np.reshape(known, -1).tolist() if isinstance(known, np.ndarray | np.generic) else known
    ids = list(ids) if isinstance(ids, Iterable) and not isinstance(ids, bytes | str) else [ids]
    return tuple(dict.fromkeys(arguments.static_int("eos_ids: an id", i, 0) for i in ids))


def function_or_none(name, value):
    """Returns a callable, or None. Raises ValueError."""
    if value is not None and not callable(value):
        raise ValueError(f"{name} is {value!r}, expected a function or None")
    return value


def probability(name, value):
    """Returns a float, or a float64 scalar tensor, in [0, 1]. Raises ValueError."""
    return arguments.number(name, value, "a number in [0, 1]", lambda x: (x >= 0) & (x <= 1))


def positive_probability(name, value):
    """Returns a float, or a float64 scalar tensor, in (0, 1]. Raises ValueError."""
    return arguments.number(name, value, "a number above 0, at most 1", lambda x: (x > 0) & (x <= 1))


def pad_id_or_default(pad_id, eos_ids):
    """Returns the pad id: by default the first end token, or 0 if there is none. Raises ValueError."""
    if pad_id is None:
        return eos_ids[0] if eos_ids else 0
    if not arguments.is_int(pad_id) or not -(2**31) <= pad_id <= arguments.MAX_INT32:
        raise ValueError(f"pad_id is {pad_id!r}, expected a 32-bit int or None")
    return int(pad_id)
