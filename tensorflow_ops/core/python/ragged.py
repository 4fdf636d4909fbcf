"""RaggedTensors and SparseTensors as arguments of functions whose ops take dense tensors."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.type_aliases import TensorLike

_Function = TypeVar("_Function", bound=Callable[..., Any])


def rows(name: str, ragged: tf.RaggedTensor, dims: str) -> tf.Tensor:
    """Returns a RaggedTensor's values, which are dense. Raises ValueError unless only dim 1 is ragged."""
    if ragged.ragged_rank != 1:
        raise ValueError(f"{name} has {ragged.ragged_rank} ragged dims, expected one: {dims}")
    return ragged.values


def on_flat_values(*names: str) -> Callable[[_Function], _Function]:
    """Lets a function of rows [..., n] take RaggedTensors, whose last dim is not ragged; a decorator.

    The function gets the flat values of the arguments of these names, and its results the
    rows of the first one. An argument may be a tuple of tensors.
    """

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if autograph.is_among(tf.RaggedTensor, args, kwargs):
                return _call_on_flat_values(function, signature.bind(*args, **kwargs).arguments, names)
            return function(*args, **kwargs)

        return cast(_Function, call)

    return decorate


def _call_on_flat_values(function: Callable[..., Any], kwargs: dict[str, Any], names: tuple[str, ...]) -> Any:
    if kwargs.get("axis", -1) != -1:
        raise ValueError(f"axis is {kwargs['axis']}, expected -1: {' or '.join(names)} is a RaggedTensor")
    leaves = [(name, value) for name in names for value in tf.nest.flatten(kwargs.get(name))]
    found = [(name, value) for name, value in leaves if isinstance(value, tf.RaggedTensor)]
    if not found:
        return function(**kwargs)
    first_name, first = found[0]
    checks = []
    for name, value in leaves:
        rank = value.shape.rank if isinstance(value, tf.RaggedTensor | tf.Tensor) else np.ndim(value)
        if isinstance(value, tf.RaggedTensor):
            checks += _row_checks(name, value, first_name, first)
        elif rank is not None and rank > first.flat_values.shape.rank:
            raise ValueError(f"{name} is a dense tensor, expected a RaggedTensor, as {first_name} is")
    with tf.control_dependencies(checks):
        flat = tf.nest.map_structure(_flat_values, {name: kwargs[name] for name in names if name in kwargs})
    return tf.nest.map_structure(first.with_flat_values, function(**(kwargs | flat)))


def _row_checks(name: str, value: tf.RaggedTensor, first_name: str, first: tf.RaggedTensor) -> list[Any]:
    """Returns assertions that a RaggedTensor has the rows of another one. Raises ValueError."""
    # Floats have the dim of a row's numbers, integers are a row's label.
    if value.dtype.is_floating and value.flat_values.shape.rank == 1:
        raise ValueError(f"{name} is a RaggedTensor of shape {value.shape}, expected a last dim of one size")
    if value.ragged_rank != first.ragged_rank:
        ranks = f"{value.ragged_rank} ragged dims, expected {first.ragged_rank}"
        raise ValueError(f"{name} has {ranks}, those of {first_name}")
    message = f"{name} and {first_name} have rows of different lengths"
    pairs = zip(value.nested_row_splits, first.nested_row_splits, strict=True)
    checks = [
        tf.debugging.assert_equal(tf.cast(ours, theirs.dtype), theirs, message)
        for ours, theirs in pairs
        if ours is not theirs
    ]
    return [check for check in checks if check is not None]


def _flat_values(value: Any) -> Any:
    return tf.identity(value.flat_values) if isinstance(value, tf.RaggedTensor) else value


def with_lengths_of(name: str, value: tf.RaggedTensor, other_name: str, other: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns a RaggedTensor, whose rows must be as long as another's; an op checks it when the values are used."""
    # XLA needs sizes that are known.
    count = other.shape[0] or tf.cast(other.nrows(), tf.int32)
    lengths = arguments.with_shape(f"{name}'s row lengths", value.row_lengths(), [count], f"[N] with {other_name}' N")
    fit = arguments.equal(lengths, tf.cast(other.row_lengths(), lengths.dtype))
    # Not control dependencies: TensorFlow removes an op without side effects that has nothing else.
    lengths = arguments.checked(f"the number of {name}", lengths, fit, f"that of {other_name}")
    return tf.RaggedTensor.from_row_lengths(  # pyright: ignore[reportAttributeAccessIssue]  (not in the stubs)
        value.values[: tf.reduce_sum(lengths)], lengths, validate=False
    )


def is_ragged_or_sparse(value: Any) -> bool:
    """Returns whether the dense form of a value is as wide as its longest row, not as its caller pads."""
    return isinstance(value, tf.RaggedTensor | tf.SparseTensor)


def with_width(labels: tf.Tensor, width: int | tf.Tensor) -> tf.Tensor:
    """Returns dense labels [N, T], cut or padded to a width: what lengths exclude does not matter."""
    labels = labels[:, :width]
    paddings: Any = [[0, 0], [0, width - tf.shape(labels)[1]]]
    return tf.pad(labels, paddings)


def in_front(values: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Returns values [N, T, ...], in each row those that count, by bools [N, T], before the others, in their order."""
    order = tf.argsort(tf.cast(counts, tf.int32), direction="DESCENDING", stable=True)  # fits: bools
    return tf.gather(values, order, batch_dims=1)


def lengths_to_last(counts: tf.Tensor) -> tf.Tensor:
    """Returns int32 [N]: how long rows are up to the last number that counts, by bools [N, T]."""
    is_before_end = tf.cumsum(tf.cast(counts, tf.int32), 1, reverse=True) > 0  # fits: bools
    return tf.reduce_sum(tf.cast(is_before_end, tf.int32), 1)


def label_rows(name: str, labels: tf.Tensor) -> tf.Tensor:
    """Returns labels, a tensor; checks that it is [N, T], at once or when its shape is known. Raises ValueError."""
    return arguments.with_shape(name, labels, [None, None], "an integer for each label, not one-hot")


def padded(
    name: str,
    value: Any,
    lengths_name: str,
    lengths: TensorLike | None,
    padding: int | None,
    drop_padding: bool = False,
) -> tuple[Any, Any]:
    """Returns a dense tensor and lengths [N]: of a RaggedTensor [N, (T), ...], or of padded labels if lengths are None.

    Args:
      name: the argument's name, for errors.
      value: a tensor; a RaggedTensor, or a SparseTensor of labels [N, T].
      lengths_name: the name of `lengths`, for errors.
      lengths: as the user gives them, or None.
      padding: None: without lengths, all of dim 1 counts. A number: fills labels, of which
        negative ones are padding, too.
      drop_padding: whether labels without lengths may have padding anywhere, which is
        dropped. If not, they end after the last one that is no padding: the op refuses
        padding before it.

    Raises:
      ValueError: lengths of a RaggedTensor, deeper ragged dims, labels that are not [N, T].
    """
    if isinstance(value, tf.RaggedTensor):
        if lengths is not None:
            raise ValueError(f"{lengths_name} are given, expected None: {name} is a RaggedTensor, which has lengths")
        rows(name, value, "[N, (T), ...]")
        return value.to_tensor(padding), value.row_lengths()
    if isinstance(value, tf.SparseTensor) and padding is not None:
        value = tf.sparse.to_dense(tf.sparse.reorder(value), padding)
    if lengths is not None:
        return value, lengths
    tensor = arguments.int_tensor(name, value) if padding is not None else arguments.dense_tensor(name, value)
    if tensor.shape.rank is not None and tensor.shape.rank < 2:
        text = arguments.shape_text(tensor.shape)
        raise ValueError(f"{lengths_name} are None, expected lengths, or {name} of at least two dims, not {text}")
    if padding is None:
        sizes = tf.shape(tensor)
        return tensor, tf.fill(sizes[:1], sizes[1])
    tensor = label_rows(name, tensor)
    is_label = tf.cast(tensor, tf.int64) >= 0  # fits: ops take no uint64
    if drop_padding:
        tensor = in_front(tensor, is_label)
        return tensor, tf.reduce_sum(tf.cast(is_label, tf.int32), 1)
    return tensor, lengths_to_last(is_label)
