"""The arguments of a python_op: which are tensors, which are attributes, and attributes as keys."""

import enum
import hashlib
import inspect

import numpy as np
import tensorflow as tf

_SCALARS = (type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype, tf.DType, tf.TensorShape, type)


def freeze(value):
    """Copies an attribute, and returns a key for it.

    Returns:
      (key, copy): key is hashable and the same for equal values; None for values without
      a meaningful equality, such as functions. Later changes of the caller's lists, dicts
      and arrays do not affect the copy.

    Raises:
      TypeError: the attribute contains a tensor.
    """
    if isinstance(value, (tf.Tensor, tf.Variable)):
        raise TypeError(f"{value!r} is a tensor")
    if isinstance(value, (*_SCALARS, enum.Enum)):
        return (type(value), repr(value)), value  # repr distinguishes -0.0 from 0.0, and all NaNs are equal
    if isinstance(value, np.ndarray) and value.dtype != object:
        copy = value.copy()
        copy.setflags(write=False)
        # A digest: keys in caches would keep the bytes.
        return (np.ndarray, value.dtype.str, value.shape, hashlib.sha256(copy.tobytes()).digest()), copy
    if isinstance(value, dict):
        pairs = [(key, *freeze(item)) for key, item in value.items()]
        copy = {key: item for key, _, item in pairs}
        known = all(isinstance(key, str) and item_key is not None for key, item_key, _ in pairs)
        return ((dict, *((key, item_key) for key, item_key, _ in pairs)) if known else None), copy
    if type(value) in (list, tuple):
        items = [freeze(item) for item in value]
        copy = type(value)(item for _, item in items)
        known = all(key is not None for key, _ in items)
        return ((type(value), *(key for key, _ in items)) if known else None), copy
    return None, value


def num_bytes(value):
    """Estimates how many bytes an attribute and its key take."""
    if isinstance(value, (list, tuple, dict)):
        return sum(map(num_bytes, value.values() if isinstance(value, dict) else value))
    return 256 + (len(value) if isinstance(value, (str, bytes)) else getattr(value, "nbytes", 0))


def freeze_all(op_name, attributes):
    """Applies `freeze` to a dict of attributes. Returns (key or None, copy)."""
    if not attributes:
        return (), attributes
    try:
        return freeze(attributes)
    except TypeError as error:
        raise TypeError(
            f"{op_name}: {error} in the attributes {sorted(attributes)}. Keyword-only parameters and those with a "
            "default are attributes, known when the op is traced; a tensor needs a positional parameter without one"
        ) from None


class Arguments:
    """Sorts the arguments of a call by the NumPy function's signature.

    Positional parameters without a default are tensors; so are *parameters. Keyword-only
    parameters, and those with a default, are attributes.
    """

    def __init__(self, op_name, function):
        self._op_name = op_name
        parameters = inspect.signature(function).parameters.values()
        kinds = inspect.Parameter
        self.inputs = tuple(
            p.name
            for p in parameters
            if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD) and p.default is kinds.empty
        )
        self.rest = next((p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL), None)
        attributes = [p for p in parameters if p.kind is kinds.KEYWORD_ONLY or p.default is not kinds.empty]
        self.attributes = frozenset(p.name for p in attributes)
        self._defaults = {p.name: p.default for p in attributes if p.default is not kinds.empty}
        if any(p.kind is kinds.VAR_KEYWORD for p in parameters):
            raise TypeError(f"{op_name}: its function takes **keywords, expected attributes by name")
        if self.rest and any(p.kind is not kinds.KEYWORD_ONLY for p in attributes):
            raise TypeError(f"{op_name}: a parameter with a default stands before *{self.rest}, expected it after")
        self._takes_name = "name" in self.attributes or "name" in self.inputs
        self._signature = inspect.signature(function)
        self._plain = not attributes and not self.rest

    def bind(self, args, kwargs):
        """Returns (inputs, attributes, name); attributes include defaults."""
        if self._plain and not kwargs and len(args) == len(self.inputs):
            return args, {}, None
        name = None if self._takes_name else kwargs.get("name")
        if name is not None or (kwargs and not self._takes_name and "name" in kwargs):
            kwargs = {key: value for key, value in kwargs.items() if key != "name"}
        if (self.rest or len(args) == len(self.inputs)) and len(args) >= len(self.inputs):
            inputs, attributes = args, {**self._defaults, **kwargs}
            if attributes.keys() == self.attributes:
                return inputs, attributes, name
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._op_name}{self._signature}: {error}") from None
        bound.apply_defaults()
        values = bound.arguments
        inputs = (*(values[n] for n in self.inputs), *(values[self.rest] if self.rest else ()))
        return inputs, {n: values[n] for n in values if n in self.attributes}, name

    def input_name(self, index):
        """Returns the name of an input in messages."""
        if index < len(self.inputs):
            return self.inputs[index]
        return f"{self.rest}[{index - len(self.inputs)}]"


def keywords_of(function, names):
    """Returns the names that a function takes as keywords."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return frozenset(names)
    by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return frozenset(name for name in names if name in parameters and parameters[name].kind in by_keyword)
