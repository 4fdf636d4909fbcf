"""Data parallelism over the devices of one machine."""

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.distribute.python.placed_gradient import PlacedGradient

_P = ParamSpec("_P")
_R = TypeVar("_R")


def make_parallel(fn: Callable[_P, _R], *, devices: Sequence[str] | None = None) -> Callable[_P, _R]:
    """Returns a function that runs fn on several devices, with a part of the batch on each.

    Splits the batch, calls fn on each part on its device, and joins the results. Values
    and gradients are those of fn on the whole batch. All devices read the same variables.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> weights = tf.Variable([[1.0], [2.0]])
    >>> def fn(x, y):
    ...     predictions = x @ weights
    ...     return {"predictions": predictions, "loss": tf.reduce_mean((predictions - y) ** 2)}
    >>> parallel = tf.function(tfo.distribute.make_parallel(fn))    # all GPUs; without one, all CPU devices
    >>> result = parallel(tf.ones([5, 2]), tf.zeros([5, 1]))
    >>> result["predictions"].shape, float(result["loss"])
    (TensorShape([5, 1]), 9.0)

    Call it in a `tf.function`: the parts then run in parallel. So do their gradients,
    each on its part's device, if the tape is in that function, too. Eagerly TensorFlow
    starts one op after the other, and computes gradients on the first device.

    The function splits fn's arguments, which may be nests: each tensor and NumPy array of
    at least one dim, along dim 0. It passes scalars, variables and other values to all
    devices unchanged. To pass a whole tensor, such as a matrix of weights, to all devices,
    use a closure: `make_parallel(lambda x: fn(x, weights))`.

    It joins the values in the nest that fn returns:

    - A tensor of at least one dim has the part's batch as dim 0. The parts are
      concatenated.
    - A float scalar is a mean over the examples, as a loss or a metric is. The result is
      the mean of the parts' scalars, weighted with the parts' sizes. For a sum, return a
      number for each example, and add them up outside.
    - Any other value must be the same on all devices, and is returned unchanged.

    If the batch size is not a multiple of the number of devices, the first devices have
    one more example. A batch with fewer examples than devices uses as many devices as it has
    examples; an empty batch uses the first device. In a `tf.function` with a batch of
    unknown size all devices run: those without an example run on a copy of the last one,
    and their results are dropped and have no gradient.

    fn reads one part: computations across examples, such as batch normalization in
    training, are across the part. For several machines, or for a copy of the variables on
    each device, use `tf.distribute`: all ops run under its strategies.

    The function generalizes the recipe of the same name in "Effective TensorFlow".

    Args:
      fn: a function of tensors, for example a Keras model. It is called once for each
        device.
      devices: names of logical devices, such as ["GPU:0", "GPU:1"]. A device that appears
        twice has two parts. Default: all GPUs or, without one, all CPU devices.

    Returns:
      A function that takes fn's arguments and returns fn's results of the whole batch.

    Raises:
      ValueError: devices is empty, or a device does not exist. From the returned function: no
        argument has a batch, batches have different sizes, an argument is a RaggedTensor
        or SparseTensor, a result neither has the part's batch nor is a float scalar,
        results other than tensors differ.
      InvalidArgumentError: the same errors, found at run time.
    """
    if not callable(fn):
        raise ValueError(f"fn is {fn!r}, expected a function")
    if devices is not None:
        if isinstance(devices, str) or not list(devices):
            raise ValueError(f"devices is {devices!r}, expected a list of at least one name")
        devices = tuple(getattr(device, "name", device) for device in devices)

    # updated=() does not copy the attributes of a Keras model.
    @functools.wraps(fn, updated=())
    def parallel(*args, **kwargs):
        return _run(fn, _find_devices(devices), (args, kwargs))

    return parallel


def _find_devices(names):
    """Returns full names of the devices; all devices if names is None. Raises ValueError."""
    if names is None:
        found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return [device.name for device in found]
    known = [device.name for device in tf.config.list_logical_devices()]
    return [_find_device(i, name, known) for i, name in enumerate(names)]


def _find_device(position, name, known):
    try:
        requested = tf.DeviceSpec.from_string(name)
    except (ValueError, TypeError, AttributeError):
        requested = tf.DeviceSpec()
    if requested.device_type is not None and requested.device_index is not None:
        for candidate in known:
            spec = tf.DeviceSpec.from_string(candidate)
            pairs = [(getattr(requested, f), getattr(spec, f)) for f in ("job", "replica", "task")]
            if (requested.device_type, requested.device_index) == (spec.device_type, spec.device_index) and all(
                a is None or b is None or a == b for a, b in pairs
            ):
                return candidate
    raise ValueError(f"devices[{position}] is {name!r}, expected one of {', '.join(known)}")


def _is_batch(value):
    return (tf.is_tensor(value) and not isinstance(value, tf.Variable)) or isinstance(value, np.ndarray)


class _Parts:
    """The split of a batch into parts.

    Attributes:
      count: number of parts.
      total: number of examples in the batch.
      sizes: number of examples in each part, padding included.
      valid_sizes: number of examples in each part, without padding; None: no padding.
      padding: number of examples added to the batch; None: 0.
    """

    def __init__(self, total, max_count):
        self.total, self.valid_sizes, self.padding = total, None, None
        if isinstance(total, int):
            self.count = max(1, min(total, max_count))
            self.sizes = [total // self.count + (i < total % self.count) for i in range(self.count)]
            return
        self.count = max_count
        if max_count == 1:
            self.sizes = [total]
            return
        self.valid_sizes = self._equal_sizes(total, max_count)
        self.padding = tf.where(total > 0, tf.maximum(max_count - total, 0), 0)
        self.sizes = self._equal_sizes(total + self.padding, max_count)

    @staticmethod
    def _equal_sizes(total, count):
        return tf.unstack(total // count + tf.cast(tf.range(count) < total % count, tf.int32))

    def split(self, tensor):
        """Returns the list of the tensor's parts."""
        if self.count == 1:
            return [tensor]
        if self.padding is not None:
            tensor = tf.cond(
                self.padding > 0,
                lambda: tf.concat([tensor, tf.repeat(tensor[-1:], self.padding, 0)], 0),
                lambda: tf.identity(tensor),
            )
        return tf.split(tensor, self.sizes)

    def join(self, tensors):
        """Concatenates the results of the parts."""
        if self.valid_sizes is not None:
            tensors = [tensor[:n] for tensor, n in zip(tensors, self.valid_sizes, strict=True)]
        result = tensors[0] if self.count == 1 else tf.concat(tensors, 0)
        if isinstance(self.total, int):
            result.set_shape([self.total, *result.shape[1:]])
        return result

    def mean(self, scalars):
        """Returns the mean of the parts' scalars, weighted with their sizes."""
        if self.count == 1:
            return scalars[0]
        dtype = scalars[0].dtype
        wide = arguments.at_least_float32(dtype)
        if self.valid_sizes is None:
            weights = [n / self.total for n in self.sizes]
        else:
            # For an empty batch, the scalar of the first part, which is empty, too.
            sizes = [tf.maximum(self.valid_sizes[0], 1), *self.valid_sizes[1:]]
            weights = [tf.cast(n / tf.maximum(self.total, 1), wide) for n in sizes]
        return tf.cast(tf.add_n([tf.cast(s, wide) * w for s, w in zip(scalars, weights, strict=True)]), dtype)


def _check_batch(tensor):
    if not isinstance(tensor, tf.Tensor):
        raise ValueError(f"an argument is a {type(tensor).__name__}, expected dense tensors")
    if tensor.shape.rank is None:
        raise ValueError(f"{tensor.name} has an unknown rank, expected a known one: tf.ensure_shape gives one")


def _total(batches):
    """Returns the batch size, an int if it is known, and the tensors with checked sizes. Raises ValueError."""
    sizes = {tensor.shape[0] for tensor in batches}
    known = sorted(sizes - {None})
    if len(known) > 1:
        texts = ", ".join(str(tensor.shape) for tensor in batches)
        raise ValueError(f"arguments have the shapes {texts}, expected the same batch size, dim 0, in all of them")
    if None not in sizes:
        return known[0], batches
    sizes = tf.stack([tf.shape(tensor)[0] for tensor in batches])
    equal = tf.reduce_all(tf.equal(sizes, sizes[0]))
    sizes = arguments.checked("dim 0 of the arguments", sizes, equal, "the same batch size in all of them")
    checked = [_slice(tensor, size) for tensor, size in zip(batches, tf.unstack(sizes), strict=True)]
    return known[0] if known else sizes[0], checked


def _slice(tensor, size):
    """Returns tensor[:size], all of it: its use depends on the check of `size`."""
    return tf.ensure_shape(tensor[:size], tensor.shape)


def _run(fn, devices, args_and_kwargs):
    arguments.check_behavior()
    flat = tf.nest.flatten(args_and_kwargs)
    flat = [tf.convert_to_tensor(arguments.native(a)) if isinstance(a, np.ndarray) else a for a in flat]
    for a in flat:
        if _is_batch(a):
            _check_batch(a)
    positions = [i for i, a in enumerate(flat) if _is_batch(a) and a.shape.rank > 0]
    if not positions:
        raise ValueError("no argument is a tensor with a batch, expected at least one with dim 0 to split")
    total, batches = _total([flat[i] for i in positions])
    parts = _Parts(total, len(devices))
    split = {i: parts.split(batch) for i, batch in zip(positions, batches, strict=True)}
    results = []
    for number, (device, size) in enumerate(zip(devices, parts.sizes, strict=False)):
        part = [split[i][number] if i in split else a for i, a in enumerate(flat)]
        args, kwargs = tf.nest.pack_sequence_as(args_and_kwargs, part)
        region = PlacedGradient(device)
        with region:
            with tf.device(device):
                result = fn(*args, **kwargs)
            values = [_check_output(value, size) for value in tf.nest.flatten(result)]
        results.append(tf.nest.pack_sequence_as(result, _place(region, values)))
    for result in results[1:]:
        tf.nest.assert_same_structure(results[0], result)
    joined = [_join(parts, values) for values in zip(*map(tf.nest.flatten, results), strict=True)]
    return tf.nest.pack_sequence_as(results[0], joined)


def _place(region, values):
    """Places the gradients of tensors on the region's device. Returns tensors and other values."""
    placed = iter(region.place([value for value in values if tf.is_tensor(value)]))
    return [next(placed) if tf.is_tensor(value) else value for value in values]


def _check_output(value, size):
    """Checks a value that fn returns for a part; converts arrays to tensors. Raises ValueError."""
    if not (tf.is_tensor(value) or isinstance(value, np.ndarray | np.generic)):
        return value
    if isinstance(value, tf.__internal__.CompositeTensor) and not isinstance(value, tf.Variable):
        raise ValueError(f"fn returns a {type(value).__name__}, expected dense tensors")
    tensor = tf.convert_to_tensor(arguments.native(value))
    if tensor.shape.rank is None:
        raise ValueError("fn returns a tensor of unknown rank, expected a known one: tf.ensure_shape gives one")
    if tensor.shape.rank == 0:
        if not tensor.dtype.is_floating:
            raise ValueError(
                f"fn returns a scalar of {tensor.dtype.name}, which has no mean over parts: "
                "return a number for each example, and reduce them outside"
            )
        return tensor
    expected = "the number of examples in its part as dim 0: return a row for each example, or a scalar mean"
    if isinstance(size, int) and tensor.shape[0] is not None:
        if tensor.shape[0] != size:
            raise ValueError(f"fn returns a tensor {tensor.shape} for {size} examples, expected {expected}")
        return tensor
    rows = tf.shape(tensor)[0]
    return _slice(tensor, arguments.checked("dim 0 of fn's result", rows, tf.equal(rows, size), expected))


def _join(parts, values):
    if not tf.is_tensor(values[0]):
        if any(type(value) is not type(values[0]) or value != values[0] for value in values[1:]):
            raise ValueError(
                f"fn returns {', '.join(map(repr, values))} from its parts, expected the same from all: "
                "only tensors can be joined"
            )
        return values[0]
    return parts.join(values) if values[0].shape.rank else parts.mean(values)
