"""A function and its arguments, as every check sees them: flat lists of tensors in, flat lists of tensors out."""

import itertools

import numpy as np
import tensorflow as tf

# No public function tells the path of a leaf or converts one function; the package is made for one TensorFlow.
from tensorflow.python.autograph.core import ag_ctx as autograph_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.util import nest

# What a function may raise that refuses its arguments.
REFUSALS = (ValueError, TypeError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError)


def is_differentiable(dtype):
    """Has a tensor of this dtype a gradient?"""
    return dtype.is_floating or dtype.is_complex


def widened(dtype, to):
    """A floating dtype as `to`, a complex one as its complex counterpart; others as they are."""
    if dtype.is_complex:
        return tf.complex128 if to == tf.float64 else tf.complex64
    return to if dtype.is_floating else dtype


def _path_text(path):
    """("args", 0, "a") as args[0]['a']; ("kwargs", "bias") as bias."""
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
        # The checks' own functions are traced as they are: only fn may need AutoGraph.
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
        """The inputs that an option names. Raises ValueError for a name of none."""
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
        """The tensors of other arguments; None unless these differ from the first in tensors alone."""
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
        """(args, kwargs) with these tensors."""
        leaves = list(self._leaves)
        for position, tensor in zip(self._positions, tensors, strict=True):
            leaves[position] = tensor
        packed = tf.nest.pack_sequence_as(self._structure, leaves, expand_composites=True)
        return packed["args"], packed["kwargs"]

    def call_structured(self, *tensors):
        """What fn returns."""
        args, kwargs = self.packed(tensors)
        return (self.fn if tf.executing_eagerly() else self._graph_fn)(*args, **kwargs)

    def call(self, *tensors):
        """What fn returns, as a flat list of tensors."""
        outputs = tf.nest.flatten(self.call_structured(*tensors), expand_composites=True)
        return [tf.convert_to_tensor(y) for y in outputs if y is not None]

    def output_names(self, *tensors):
        """A name for each output."""
        outputs = self.call_structured(*tensors)
        paths = nest.flatten_with_tuple_paths(outputs, expand_composites=True)
        return ["output" + "".join(f"[{part!r}]" for part in path) for path, y in paths if y is not None]

    def cast(self, dtype, tensors=None):
        """Inputs with floating ones in a dtype, but for those whose dtype is fixed."""
        tensors = self.tensors if tensors is None else tensors
        return [
            x if i in self.fixed or not is_differentiable(x.dtype) else tf.cast(x, widened(x.dtype, dtype))
            for i, x in enumerate(tensors)
        ]

    def vjp(self, tensors, upstream, wanted=None):
        """(outputs, gradients): for each wanted input its gradient, or None.

        Upstream: one tensor for each differentiable output, or a function that makes
        these of the outputs.
        """
        wanted = self.differentiable if wanted is None else wanted
        with tf.GradientTape() as tape:
            watched = [tf.identity(tensors[i]) for i in wanted]
            tape.watch(watched)
            tensors = list(tensors)
            for i, x in zip(wanted, watched, strict=True):
                tensors[i] = x
            outputs = self.call(*tensors)
            of_floats = [y for y in outputs if is_differentiable(y.dtype)]
        if not of_floats or not wanted:
            return outputs, [None] * len(wanted)
        upstream = upstream(of_floats) if callable(upstream) else upstream
        gradients = tape.gradient(of_floats, watched, output_gradients=upstream)
        return outputs, [None if g is None else tf.convert_to_tensor(g) for g in gradients]


def random_like(tensors, seed):
    """Normal tensors of the same shapes and dtypes, none of them uniform. Of a graph's tensors, too."""
    result = []
    for k, x in enumerate(tensors):
        parts = [
            tf.random.stateless_normal(tf.shape(x), [seed + k, part], dtype=tf.float64)
            for part in range(2 if x.dtype.is_complex else 1)
        ]
        result.append(tf.cast(tf.complex(*parts) if len(parts) == 2 else parts[0], x.dtype))
    return result


def variant(tensors, step):
    """Other values that are as valid: rolled along the first axis, floats smaller by eighths, too."""
    result = []
    for x in tensors:
        array = x.numpy()
        array = np.roll(array, step, 0) if array.ndim else array
        if is_differentiable(x.dtype):
            array = (array * (1 - step / 8)).astype(array.dtype)
        result.append(tf.constant(array, x.dtype))
    return result


# What sizes are multiplied with: to see whether they can grow, and to see whether that traces again.
GROWTH, MORE_GROWTH = (2, 3), (4, 5, 6)


def tiled(tensors, dims, factor):
    """Inputs repeated along some dims, given as pairs (input, axis)."""
    result = list(tensors)
    for i, axis in dims:
        result[i] = tf.concat([result[i]] * factor, axis)
    return result


def sliced(tensors, dims, size):
    """Inputs with some dims cut to a size."""
    result = list(tensors)
    for i, axis in dims:
        result[i] = tf.gather(result[i], tf.range(size), axis=axis)
    return result


def dim_groups(tensors):
    """Dims that may be one: all of one size, over all inputs; lists of pairs (input, axis)."""
    groups = {}
    for i, x in enumerate(tensors):
        for axis, size in enumerate(x.shape):
            if size:
                groups.setdefault(size, []).append((i, axis))
    return list(groups.values())


def dims_text(inputs, dims):
    """Names dims: args[0] dim 1."""
    return ", ".join(f"{inputs.names[i]} dim {axis}" for i, axis in dims)


def growable(inputs):
    """Groups of dims along which fn takes larger inputs. Where equal sizes are no one dim, single ones are tried."""
    found = []
    for group in dim_groups(inputs.tensors):
        for dims in (group, *([[dim] for dim in group] if len(group) > 1 else ())):
            try:
                for factor in GROWTH:
                    inputs.call(*tiled(inputs.tensors, dims, factor))
            except Exception:  # refused, in whichever way
                continue
            found.append(dims)
            if dims is group:
                break
    return found


def masks(tensors, seed, most=32):
    """Static shapes with unknown dims: every mask where there are few, else a sample with the telling ones.

    Yields, for each input, a TensorShape.
    """
    shapes = [x.shape.as_list() for x in tensors]
    dims = [(i, axis) for i, shape in enumerate(shapes) for axis in range(len(shape))]
    unknown_ranks = [set(), *({i} for i in range(len(shapes))), set(range(len(shapes)))]
    chosen = [(frozenset(), frozenset(rank)) for rank in unknown_ranks]
    if 2 ** len(dims) <= most:
        subsets = itertools.chain.from_iterable(itertools.combinations(dims, n) for n in range(len(dims) + 1))
        chosen += [(frozenset(subset), frozenset()) for subset in subsets]
    else:
        everything = frozenset(dims)
        chosen += [(everything, frozenset())]
        chosen += [(frozenset([dim]), frozenset()) for dim in dims]
        rng = np.random.default_rng(seed)
        while len(chosen) < most:
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
