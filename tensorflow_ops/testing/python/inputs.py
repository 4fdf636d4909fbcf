"""A function and its arguments, for the checks: flat lists of tensors in, flat lists of tensors out."""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

# TensorFlow has no public API for paths of leaves, or to convert one function; a wheel fits one TensorFlow release.
from tensorflow.python.autograph.core import ag_ctx as autograph_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.util import nest
from typing_extensions import TypeAliasType

# Positions in args, (0, 2) for args[0][2], and names in kwargs; or one of these.
InputNames = TypeAliasType("InputNames", int | str | Iterable[int | str | tuple[Any, ...]])
# Errors with which a function may reject its arguments.
REFUSALS = (ValueError, TypeError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError)


def is_differentiable(dtype):
    """Returns whether tensors of a dtype have gradients."""
    return dtype.is_floating or dtype.is_complex


def widened(dtype, to):
    """Returns `to` for a floating dtype, the complex counterpart of `to` for a complex one, else the dtype."""
    if dtype.is_complex:
        return tf.complex128 if to == tf.float64 else tf.complex64
    return to if dtype.is_floating else dtype


def _path_text(path):
    """Formats ("args", 0, "a") as args[0]['a'], ("kwargs", "bias") as bias."""
    if path[0] == "kwargs":
        path = path[1:]
    return str(path[0]) + "".join(f"[{part!r}]" for part in path[1:])


def _selects(declared, path):
    if isinstance(declared, str):
        return _path_text(path) == declared or path[:2] == ("kwargs", declared)
    parts = declared if isinstance(declared, tuple) else (declared,)
    return path[: len(parts) + 1] == ("args", *parts)


def _is_input(leaf):
    return tf.is_tensor(leaf) or isinstance(leaf, np.ndarray | np.generic | tf.Variable)


class Inputs:
    """fn(*args, **kwargs) as a function of the tensors in args and kwargs, in their order.

    Tensors, variables and arrays are inputs. Python numbers, strings and None are passed
    as they are.
    """

    def __init__(self, fn, args, kwargs=None, *, non_differentiable=(), fixed_dtype=()):
        self.fn, self.args, self.kwargs = fn, tuple(args), dict(kwargs or {})
        # The checks trace their own functions without AutoGraph: only fn may need it.
        self._graph_fn = autograph.tf_convert(fn, autograph_ctx.control_status_ctx())
        self._structure = {"args": self.args, "kwargs": self.kwargs}
        leaves = nest.flatten_with_tuple_paths(self._structure, expand_composites=True)
        self._leaves = [leaf for _, leaf in leaves]
        self._positions = [i for i, leaf in enumerate(self._leaves) if _is_input(leaf)]
        paths = [leaves[i][0] for i in self._positions]
        self.names = [_path_text(path) for path in paths]
        self.tensors = [tf.convert_to_tensor(self._leaves[i]) for i in self._positions]
        declared = self._declared("non_differentiable", non_differentiable, paths)
        self.declared_none = [i for i in declared if is_differentiable(self.tensors[i].dtype)]
        self.fixed = self._declared("fixed_dtype", fixed_dtype, paths)
        self.differentiable = [
            i for i, x in enumerate(self.tensors) if is_differentiable(x.dtype) and i not in self.declared_none
        ]

    def _declared(self, option, declarations, paths):
        """Returns the indices of inputs that an option names. Raises ValueError for an unknown name."""
        if isinstance(declarations, int | str):
            declarations = (declarations,)
        selected = set()
        for declared in declarations:
            matching = [i for i, path in enumerate(paths) if _selects(declared, path)]
            if not matching:
                raise ValueError(f"{option} names {declared!r}, expected one of the inputs {', '.join(self.names)}")
            selected.update(matching)
        return sorted(selected)

    def of(self, args, kwargs=None):
        """Returns the tensors of other arguments; None if more than the tensors differs."""
        structure = {"args": tuple(args), "kwargs": dict(self.kwargs if kwargs is None else kwargs)}
        try:
            nest.assert_same_structure(self._structure, structure, expand_composites=True)
        except (TypeError, ValueError):
            return None
        leaves = tf.nest.flatten(structure, expand_composites=True)
        tensors = []
        for i, leaf in enumerate(leaves):
            if i not in self._positions:
                if _is_input(leaf) or leaf != self._leaves[i]:
                    return None
            elif _is_input(leaf):
                tensors.append(tf.convert_to_tensor(leaf))
            else:
                return None
        same = all(x.dtype == y.dtype for x, y in zip(tensors, self.tensors, strict=True))
        return tensors if same else None

    def packed(self, tensors):
        """Returns (args, kwargs) with these tensors."""
        leaves = list(self._leaves)
        for position, tensor in zip(self._positions, tensors, strict=True):
            leaves[position] = tensor
        packed = tf.nest.pack_sequence_as(self._structure, leaves, expand_composites=True)
        return packed["args"], packed["kwargs"]

    def call_structured(self, *tensors):
        """Calls fn. Returns its result."""
        args, kwargs = self.packed(tensors)
        return (self.fn if tf.executing_eagerly() else self._graph_fn)(*args, **kwargs)

    def call(self, *tensors):
        """Calls fn. Returns its result as a flat list of tensors."""
        outputs = tf.nest.flatten(self.call_structured(*tensors), expand_composites=True)
        return [tf.convert_to_tensor(y) for y in outputs if y is not None]

    def output_names(self, *tensors):
        """Returns a name for each output."""
        outputs = self.call_structured(*tensors)
        paths = nest.flatten_with_tuple_paths(outputs, expand_composites=True)
        return ["output" + "".join(f"[{part!r}]" for part in path) for path, y in paths if y is not None]

    def cast(self, dtype, tensors=None):
        """Casts floating inputs to a dtype, except for those whose dtype is fixed."""
        tensors = self.tensors if tensors is None else tensors
        return [
            x if i in self.fixed or not is_differentiable(x.dtype) else tf.cast(x, widened(x.dtype, dtype))
            for i, x in enumerate(tensors)
        ]

    def vjp(self, tensors, upstream, indices=None):
        """Computes gradients.

        Args:
          tensors: the inputs.
          upstream: one tensor for each differentiable output, or a function that returns these
            for the outputs.
          indices: of the inputs to differentiate in; None: all differentiable ones.

        Returns:
          (outputs, gradients): a gradient, or None, for each index.
        """
        indices = self.differentiable if indices is None else indices
        with tf.GradientTape() as tape:
            watched = [tf.identity(tensors[i]) for i in indices]
            tape.watch(watched)
            tensors = list(tensors)
            for i, x in zip(indices, watched, strict=True):
                tensors[i] = x
            outputs = self.call(*tensors)
            of_floats = [y for y in outputs if is_differentiable(y.dtype)]
        if not of_floats or not indices:
            return outputs, [None] * len(indices)
        upstream = upstream(of_floats) if callable(upstream) else upstream
        gradients = tape.gradient(of_floats, watched, output_gradients=upstream)
        return outputs, [None if g is None else tf.convert_to_tensor(g) for g in gradients]


def random_like(tensors, seed):
    """Returns normally distributed tensors of the same shapes and dtypes. Works in graphs, too."""
    result = []
    for k, x in enumerate(tensors):
        parts = [
            tf.random.stateless_normal(tf.shape(x), [seed + k, part], dtype=tf.float64)
            for part in range(2 if x.dtype.is_complex else 1)
        ]
        result.append(tf.cast(tf.complex(*parts) if len(parts) == 2 else parts[0], x.dtype))
    return result


def variant(tensors, step):
    """Returns other valid values: rolls the first axis, and scales floats by 1 - step / 8."""
    result = []
    for x in tensors:
        array = x.numpy()
        array = np.roll(array, step, 0) if array.ndim else array
        if is_differentiable(x.dtype):
            array = (array * (1 - step / 8)).astype(array.dtype)
        result.append(tf.constant(array, x.dtype))
    return result


# Factors of sizes: to find dims that can grow, and to find functions that trace again for each size.
GROWTH, MORE_GROWTH = (2, 3), (4, 5, 6)


def tiled(tensors, dims, factor):
    """Repeats inputs along some dims, pairs (input, axis)."""
    result = list(tensors)
    for i, axis in dims:
        result[i] = tf.concat([result[i]] * factor, axis)
    return result


def sliced(tensors, dims, size):
    """Slices inputs to a size along some dims."""
    result = list(tensors)
    for i, axis in dims:
        result[i] = tf.gather(result[i], tf.range(size), axis=axis)
    return result


def dim_groups(tensors):
    """Groups dims of equal size in all inputs, which may be the same dim; lists of pairs (input, axis)."""
    groups = {}
    for i, x in enumerate(tensors):
        for axis, size in enumerate(x.shape):
            if size:
                groups.setdefault(size, []).append((i, axis))
    return list(groups.values())


def dims_text(inputs, dims):
    """Formats dims: args[0] dim 1."""
    return ", ".join(f"{inputs.names[i]} dim {axis}" for i, axis in dims)


def growable(inputs):
    """Returns groups of dims along which fn accepts larger inputs.

    If fn rejects the growth of all dims of equal size together, tries each alone.
    """
    found = []
    for group in dim_groups(inputs.tensors):
        for dims in (group, *([[dim] for dim in group] if len(group) > 1 else ())):
            try:
                for factor in GROWTH:
                    inputs.call(*tiled(inputs.tensors, dims, factor))
            except Exception:  # fn rejects the size
                continue
            found.append(dims)
            if dims is group:
                break
    return found


def masks(tensors, seed, max_masks=32):
    """Yields masks of unknown dims, a list of TensorShapes each: all masks if there are few.

    Else the masks with one unknown dim, with all unknown, with unknown ranks, and random ones.
    """
    shapes = [x.shape.as_list() for x in tensors]
    dims = [(i, axis) for i, shape in enumerate(shapes) for axis in range(len(shape))]
    unknown_ranks = [set(), *({i} for i in range(len(shapes))), set(range(len(shapes)))]
    chosen = [(frozenset(), frozenset(rank)) for rank in unknown_ranks]
    if 2 ** len(dims) <= max_masks:
        subsets = itertools.chain.from_iterable(itertools.combinations(dims, n) for n in range(len(dims) + 1))
        chosen += [(frozenset(subset), frozenset()) for subset in subsets]
    else:
        everything = frozenset(dims)
        chosen += [(everything, frozenset())]
        chosen += [(frozenset([dim]), frozenset()) for dim in dims]
        rng = np.random.default_rng(seed)
        while len(chosen) < max_masks:
            subset = frozenset(dim for dim in dims if rng.random() < 0.5)
            rank = frozenset(i for i in range(len(shapes)) if rng.random() < 0.15)
            chosen.append((subset, rank))
    for subset, rank in dict.fromkeys(chosen):
        yield [
            tf.TensorShape(None)
            if i in rank
            else tf.TensorShape([None if (i, axis) in subset else n for axis, n in enumerate(shape)])
            for i, shape in enumerate(shapes)
        ]
