"""Declared nests of results, and checks of returned values against them."""

import tensorflow as tf

from tensorflow_ops.prototyping.python import results


def _leaves(nest, path):
    """Returns (path, spec) of each leaf, in the order of tf.nest."""
    if isinstance(nest, tf.TensorSpec):
        return [(path, nest)]
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in _leaves(nest[key], f"{path}[{key!r}]")]
    if isinstance(nest, (tuple, list)):
        return [leaf for i, item in enumerate(nest) for leaf in _leaves(item, f"{path}[{i}]")]
    raise TypeError(f"{path} is a {type(nest).__name__}, expected a tf.TensorSpec, or a nest of them")


class Nest:
    """A declared nest: a tf.TensorSpec, or a tuple, list or dict of nests."""

    def __init__(self, nest, path):
        leaves = _leaves(nest, path)
        self.nest = nest
        self.path = path
        self.paths = [path for path, _ in leaves]
        self.specs = [spec for _, spec in leaves]
        self._single = isinstance(nest, tf.TensorSpec)
        self._flat = type(nest) in (tuple, list) and all(isinstance(item, tf.TensorSpec) for item in nest)

    def flatten(self, value, stage_name):
        """Checks the structure of a returned value. Returns its leaves in a new list or tuple."""
        if self._single:
            return (value,)
        if self._flat and isinstance(value, (tuple, list)) and len(value) == len(self.specs):
            return list(value)  # a copy: the function may keep its own
        flat = []
        self._flatten(self.nest, value, self.path, stage_name, flat)
        return flat

    def _flatten(self, nest, value, path, stage_name, flat):
        if isinstance(nest, tf.TensorSpec):
            flat.append(value)
        elif isinstance(nest, dict):
            if not isinstance(value, dict) or value.keys() != nest.keys():
                got = f"a dict of {sorted(map(str, value))}" if isinstance(value, dict) else _text(value)
                results.fail(f"{stage_name}: {path} is {got}, declared a dict of {sorted(nest)}")
            for key in sorted(nest):
                self._flatten(nest[key], value[key], f"{path}[{key!r}]", stage_name, flat)
        else:
            if not isinstance(value, (tuple, list)) or len(value) != len(nest):
                results.fail(f"{stage_name}: {path} is {_text(value)}, declared {_text(nest)}")
            for i, (item, item_value) in enumerate(zip(nest, value, strict=True)):
                self._flatten(item, item_value, f"{path}[{i}]", stage_name, flat)

    def pack(self, leaves):
        """Returns the nest with these leaves."""
        if self._single:
            return leaves[0]
        return type(self.nest)(leaves) if self._flat else tf.nest.pack_sequence_as(self.nest, leaves)


def _text(value):
    name = type(value).__name__
    return f"a {name} of {len(value)}" if isinstance(value, (tuple, list)) else f"one {name}"
