"""Data parallelism over the devices of one machine."""

import functools

import numpy as np
import tensorflow as tf

from tensorflow_ops.distribute.python.placed_gradient import PlacedGradient


def make_parallel(fn, *, devices=None):
    """Makes a function of a batch that runs on several devices, a part of the batch on each.

    Splits the batch, calls fn on each part under its device, and joins what comes back.
    Values and gradients are those of fn on the whole batch. Variables are shared: each
    device reads the same ones.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> weights = tf.Variable([[1.0], [2.0]])
    >>> def fn(x, y):
    ...     predictions = x @ weights
    ...     return {"predictions": predictions, "loss": tf.reduce_mean((predictions - y) ** 2)}
    >>> parallel = tf.function(tfo.distribute.make_parallel(fn))    # all GPUs; without one, all CPU devices
    >>> result = parallel(tf.ones([5, 2]), tf.zeros([5, 1]))
    >>> result["predictions"].shape, float(result["loss"])
    (TensorShape([5, 1]), 9.0)

    Call it in a `tf.function`: the parts then run at the same time, and so do their
    gradients, each on its part's device, if the tape is in that function, too. Eagerly
    TensorFlow starts one op after the other, and takes gradients on the first device.

    What is split: of fn's arguments, which may be nests, each tensor and NumPy array of
    at least one dim, along dim 0. What goes to all devices as it is: scalars, variables,
    and whatever is no tensor. To give a tensor such as a matrix of weights to all
    devices, let fn take it from outside: `make_parallel(lambda x: fn(x, weights))`.

    What is joined, for each tensor in the nest that fn returns:

    - A tensor of at least one dim has the part's batch as dim 0. The parts are
      concatenated.
    - A float scalar is taken to be a mean over the examples, as a loss or a metric is.
      The result is the mean of the parts' scalars, weighted with the parts' sizes. For
      a sum return the summands, a number for each example, and add them up outside.
    - What is no tensor must be the same from all devices, and comes back as it is.

    A batch that the devices cannot share equally gives the first ones an example more.
    A batch of fewer examples than devices uses as many devices as it has examples; an
    empty one the first device. In a `tf.function` whose batch is of unknown size all
    devices run: those without an example run on a copy of the last one, and what they
    compute is dropped and has no gradient.

    fn sees a part only: what mixes examples, such as batch normalisation in training,
    works on the part. For several machines, or for a copy of the variables on each
    device, use `tf.distribute`: all ops run under its strategies.

    The function generalises the recipe of the same name in "Effective TensorFlow".

    Args:
      fn: a function of tensors, for example a Keras model. It is called once for each
        device.
      devices: names of logical devices, such as ["GPU:0", "GPU:1"]. A device that is
        named twice gets two parts. Default: all GPUs or, without one, all CPU devices.

    Returns:
      A function with fn's arguments, and fn's results of the whole batch.

    Raises:
      ValueError: devices are none, or one does not exist. From the returned function:
        no argument has a batch, batches of different sizes, a RaggedTensor or
        SparseTensor, a result that has neither the part's batch nor is a float
        scalar, results that differ where they must not.
      InvalidArgumentError: the same of shapes that are known only at run time.
    """
    if not callable(fn):
        raise ValueError(f"fn is {fn!r}, expected a function")
    if devices is not None:
        if isinstance(devices, str) or not list(devices):
            raise ValueError(f"devices is {devices!r}, expected a list of at least one name")
        devices = tuple(getattr(device, "name", device) for device in devices)

    # No updated=: a Keras model's attributes are its own.
    @functools.wraps(fn, updated=())
    def parallel(*args, **kwargs):
        return _run(fn, _find_devices(devices), (args, kwargs))

    return parallel


def _find_devices(names):
    """Full names of the devices, all of them where names is None. Raises ValueError."""
    if names is None:
        found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return [device.name for device in found]
    known = [device.name for device in tf.config.list_logical_devices()]
    return [_find_device(i, name, known) for i, name in enumerate(names)]


def _find_device(position, name, known):
    try:
        wanted = tf.DeviceSpec.from_string(name)
    except (ValueError, TypeError, AttributeError):
        wanted = tf.DeviceSpec()
    if wanted.device_type is not None and wanted.device_index is not None:
        for candidate in known:
            spec = tf.DeviceSpec.from_string(candidate)
            pairs = [(getattr(wanted, f), getattr(spec, f)) for f in ("job", "replica", "task")]
            if (wanted.device_type, wanted.device_index) == (spec.device_type, spec.device_index) and all(
                a is None or b is None or a == b for a, b in pairs
            ):
                return candidate
    raise ValueError(f"devices[{position}] is {name!r}, expected one of {', '.join(known)}")


def _is_batch(value):
    return (tf.is_tensor(value) and not isinstance(value, tf.Variable)) or isinstance(value, np.ndarray)


class _Parts:
    """How a batch is dealt out.

    Attributes:
      count: of parts.
      total: examples in the batch.
      sizes: of each part what fn sees.
      kept: of each part how much of that is the batch's; None: all.
      short: how many examples to add to the batch; None: none.
    """

    def __init__(self, total, most):
        self.total, self.kept, self.short = total, None, None
        if isinstance(total, int):
            self.count = max(1, min(total, most))
            self.sizes = [total // self.count + (i < total % self.count) for i in range(self.count)]
            return
        self.count = most
        if most == 1:
            self.sizes = [total]
            return
        self.kept = self._deal(total, most)
        self.short = tf.where(total > 0, tf.maximum(most - total, 0), 0)
        self.sizes = self._deal(total + self.short, most)

    @staticmethod
    def _deal(total, count):
        return tf.unstack(total // count + tf.cast(tf.range(count) < total % count, tf.int32))

    def split(self, tensor):
        """The list of the tensor's parts."""
        if self.count == 1:
            return [tensor]
        if self.short is not None:
            tensor = tf.cond(
                self.short > 0,
                lambda: tf.concat([tensor, tf.repeat(tensor[-1:], self.short, 0)], 0),
                lambda: tf.identity(tensor),
            )
        return tf.split(tensor, self.sizes)

    def join(self, tensors):
        """The concatenation of results of the parts."""
        if self.kept is not None:
            tensors = [tensor[:n] for tensor, n in zip(tensors, self.kept, strict=True)]
        result = tensors[0] if self.count == 1 else tf.concat(tensors, 0)
        if isinstance(self.total, int):
            result.set_shape([self.total, *result.shape[1:]])
        return result

    def mean(self, scalars):
        """The mean of the parts' scalars, weighted with their sizes."""
        if self.count == 1:
            return scalars[0]
        dtype = scalars[0].dtype
        wide = tf.float64 if dtype == tf.float64 else tf.float32
        if self.kept is None:
            weights = [n / self.total for n in self.sizes]
        else:
            # Of an empty batch the first part's, which is empty, too.
            kept = [tf.maximum(self.kept[0], 1), *self.kept[1:]]
            weights = [tf.cast(n / tf.maximum(self.total, 1), wide) for n in kept]
        return tf.cast(tf.add_n([tf.cast(s, wide) * w for s, w in zip(scalars, weights, strict=True)]), dtype)


def _check_batch(tensor):
    if not isinstance(tensor, tf.Tensor):
        raise ValueError(f"an argument is a {type(tensor).__name__}, expected dense tensors")
    if tensor.shape.rank is None:
        raise ValueError(f"{tensor.name} has an unknown rank, expected a known one: tf.ensure_shape gives one")


def _total(batches):
    """The size of the batch, an int if it is known, and ops that check what the run alone tells. Raises ValueError."""
    sizes = {tensor.shape[0] for tensor in batches}
    known = sorted(sizes - {None})
    if len(known) > 1:
        texts = ", ".join(str(tensor.shape) for tensor in batches)
        raise ValueError(f"arguments have the shapes {texts}, expected the same batch size, dim 0, in all of them")
    if None not in sizes:
        return known[0], []
    total = tf.shape(next(tensor for tensor in batches if tensor.shape[0] is None))[0]
    message = "arguments differ in dim 0, expected the same batch size in all of them"
    expected = known[0] if known else total
    checks = [
        tf.debugging.assert_equal(tf.shape(tensor)[0], expected, message)
        for tensor in batches
        if tensor.shape[0] is None
    ]
    return expected, [check for check in checks if check is not None]


def _run(fn, devices, arguments):
    flat = tf.nest.flatten(arguments)
    flat = [tf.convert_to_tensor(a) if isinstance(a, np.ndarray) else a for a in flat]
    for a in flat:
        if _is_batch(a):
            _check_batch(a)
    positions = [i for i, a in enumerate(flat) if _is_batch(a) and a.shape.rank > 0]
    if not positions:
        raise ValueError("no argument is a tensor with a batch, expected at least one with dim 0 to split")
    total, checks = _total([flat[i] for i in positions])
    parts = _Parts(total, len(devices))
    with tf.control_dependencies(checks):  # or tf.split's own error may come first
        split = {i: parts.split(flat[i]) for i in positions}
    results = []
    for number, (device, size) in enumerate(zip(devices, parts.sizes, strict=False)):
        mine = [split[i][number] if i in split else a for i, a in enumerate(flat)]
        args, kwargs = tf.nest.pack_sequence_as(arguments, mine)
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
    """The values, the gradients of those that are tensors on the region's device."""
    placed = iter(region.place([value for value in values if tf.is_tensor(value)]))
    return [next(placed) if tf.is_tensor(value) else value for value in values]


def _check_output(value, size):
    """A value of a part's results, a tensor if it can be one. Raises ValueError."""
    if not (tf.is_tensor(value) or isinstance(value, np.ndarray | np.generic)):
        return value
    if isinstance(value, tf.__internal__.CompositeTensor) and not isinstance(value, tf.Variable):
        raise ValueError(f"fn returns a {type(value).__name__}, expected dense tensors")
    tensor = tf.convert_to_tensor(value)
    if tensor.shape.rank is None:
        raise ValueError("fn returns a tensor of unknown rank, expected a known one: tf.ensure_shape gives one")
    if tensor.shape.rank == 0:
        if not tensor.dtype.is_floating:
            raise ValueError(
                f"fn returns a scalar of {tensor.dtype.name}, which has no mean over parts: "
                "return a number for each example, and reduce them outside"
            )
        return tensor
    message = "fn returns a tensor without the batch of its part as dim 0: return a row for each example, or a mean"
    if isinstance(size, int) and tensor.shape[0] is not None:
        if tensor.shape[0] != size:
            raise ValueError(f"{message}. It is {tensor.shape}, and the part has {size} examples")
        return tensor
    check = tf.debugging.assert_equal(tf.shape(tensor)[0], size, message)
    with tf.control_dependencies([check]):
        return tf.identity(tensor)


def _join(parts, values):
    if not tf.is_tensor(values[0]):
        if any(type(value) is not type(values[0]) or value != values[0] for value in values[1:]):
            raise ValueError(
                f"fn returns {', '.join(map(repr, values))} from its parts, expected the same from all: "
                "only tensors can be joined"
            )
        return values[0]
    return parts.join(values) if values[0].shape.rank else parts.mean(values)
