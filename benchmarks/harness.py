"""Cases of benchmarks, the tables that they belong to, and the calls that they time.

Files benchmarks/NAMESPACE/FILE.py have functions that yield cases; `table` registers them.
run.py measures the cases and writes the tables.
"""

import concurrent.futures
import dataclasses
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

THREADS = 2
DTYPES = ("float32", "bfloat16", "float16", "float64")
PAUSE = 0.01  # seconds between calls of ours and PyTorch's, whose threads spin after a call
TABLES = {}


@dataclasses.dataclass
class Case:
    """A row of a table: our call, and what it is compared with.

    A call returns after its work is done. Attributes:
      where: the first columns.
      ours: our call.
      peers: other implementations.
      inputs: the tensors that the call reads.
      moved: the bytes that it must read and write, if not inputs and result once each.
      floor: calls of what the work cannot do without, instead of `moved`.
      off: the peers whose results are compared with ours; None for all.
      arrays: {name or "ours": function of its result to what is compared}.
      rounding: counts differences above this, relative for values above 1.
      facts: a function of {name: result} to further columns.
    """

    where: dict[str, Any]
    ours: Callable
    peers: dict[str, Callable] = dataclasses.field(default_factory=dict)
    inputs: Any = ()
    moved: tuple[int, int] | None = None
    floor: tuple[Callable, ...] = ()
    off: tuple[str, ...] | None = None
    arrays: dict[str, Callable] = dataclasses.field(default_factory=dict)
    rounding: float | None = None
    facts: Callable | None = None


@dataclasses.dataclass
class Table:
    """A function that yields cases, or lists of cases that are timed in turns, and what to measure of them.

    Attributes:
      cases: the function; its docstring is the note above the table.
      speed: whether to time the cases.
      threads: whether to time our calls with one thread, too.
      memory: whose peak memory to measure: "ours" or names of peers.
      axis: the column over which times are plotted.
      pause: seconds between calls.
    """

    cases: Callable
    speed: bool = True
    threads: bool = False
    memory: tuple[str, ...] = ()
    axis: str | None = None
    pause: float = 0.0


def table(name="", **attributes):
    """Registers a function that yields cases as table NAMESPACE/FILE/NAME; NAME is the function's by default."""

    def register(cases):
        key = f"{cases.__module__.replace('.', '/')}/{name or cases.__name__}"
        TABLES[key] = Table(cases, **attributes)
        return cases

    return register


def time_in_turns(calls, seconds=4.0, min_rounds=7, max_seconds=60.0, pause=0.0):
    """Times calls in rounds, each in a random order; returns each one's median (seconds, CPU seconds of all threads).

    Times on a shared machine drift; the ratios of these medians hardly do. Runs for `seconds`, or up to
    `max_seconds` for `min_rounds`, and at least three rounds.
    """
    times = [[] for _ in calls]
    for call in calls:  # caches, pools, traces
        call()
    order, shuffle = list(enumerate(calls)), random.Random(0).shuffle
    start, rounds = time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - start < (max_seconds if rounds < min_rounds else seconds):
        shuffle(order)  # so that no call always runs after the same other one
        for i, call in order:
            time.sleep(pause)
            cpu, begin = time.process_time(), time.perf_counter()
            call()
            wall = time.perf_counter() - begin
            times[i].append((wall, time.process_time() - cpu))
        rounds += 1
    return [tuple(map(statistics.median, zip(*samples, strict=True))) for samples in times]


def interleave(calls, seconds=4.0, **options):
    """Returns the median seconds of each call, by `time_in_turns`."""
    return [wall for wall, _ in time_in_turns(calls, seconds, **options)]


def on_threads(function, parts):
    """Returns a call of a function of each part, with a thread for each."""
    pool = concurrent.futures.ThreadPoolExecutor(len(parts))
    return lambda: list(pool.map(function, parts))


def reader(array):
    """Returns a call that reads an array once, the least work of any function of it."""
    # As float32: NumPy reads fastest in a dot product, and releases the GIL.
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    floats = flat[: flat.size // 4 * 4].view(np.float32)

    def read(part):
        with np.errstate(all="ignore"):
            return part @ part

    return on_threads(read, np.array_split(floats, THREADS))


def num_bytes(*tensors):
    """Returns the bytes of a structure of tensors, of TensorFlow or torch, or arrays."""
    tensors = tf.nest.flatten(tensors)
    return sum(t.nbytes if hasattr(t, "nbytes") else t.dtype.size * int(np.prod(t.shape)) for t in tensors)


def normal(*shape, seed=0, scale=1.0):
    """Returns a float32 tensor of normal numbers."""
    return tf.constant(np.float32(scale) * np.random.default_rng(seed).standard_normal(shape, np.float32))


def integers(low, high, *shape, seed=0):
    """Returns an int32 tensor of numbers from low to high - 1."""
    return tf.constant(np.random.default_rng(seed).integers(low, high, shape), tf.int32)


def in_graph(function, inputs, to=(), upstream=None, only_gradients=False, **options):
    """Returns a call of a tf.function of inputs, with the gradients to the inputs whose indices are in `to`."""

    def with_gradients(*inputs):
        variables = [inputs[i] for i in to]
        with tf.GradientTape() as tape:
            tape.watch(variables)
            result = function(*inputs)
        # A peer's result may have another dtype.
        up = None if upstream is None else tf.cast(upstream, result.dtype)
        gradients = tape.gradient(result, variables, up)
        return gradients if only_gradients else (result, gradients)

    compiled = tf.function(with_gradients if to else function, autograph=False, **options)
    inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
    return lambda: compiled(*inputs)


def to_torch(torch, array):
    """Returns an array, or a tensor of TensorFlow, as one of torch's."""
    array = np.array(array)
    if array.dtype == tf.bfloat16.as_numpy_dtype:  # torch does not know this type of NumPy's
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def in_torch(torch, function, inputs, to=(), upstream=None, only_gradients=False):
    """Returns the same for a function of torch's tensors."""
    tensors = [to_torch(torch, x).requires_grad_(i in to) for i, x in enumerate(inputs)]
    variables = [tensors[i] for i in to]
    known = function(*tensors) if only_gradients else None

    def call():
        if not to:
            with torch.no_grad():
                return function(*tensors)
        result = function(*tensors) if known is None else known
        up = torch.ones_like(result) if upstream is None else torch.from_numpy(np.array(upstream))
        gradients = torch.autograd.grad(result, variables, up, retain_graph=only_gradients)
        return gradients if only_gradients else (result, gradients)

    return call


def channels_first(array):
    """Returns an NHWC array as NCHW."""
    return np.moveaxis(np.asarray(array), -1, 1).copy()


def channels_last(array):
    """Returns an NCHW array, or tensor of torch, as NHWC."""
    return np.moveaxis(array.detach().numpy() if hasattr(array, "detach") else np.asarray(array), 1, -1)


def passes(where, op, inputs, to, peers=None):
    """Returns the cases of an op's forward pass and of its gradient to an input, which are timed in turns.

    Args:
      where: the first columns.
      op: its function, which returns one tensor.
      inputs: its arguments.
      to: the index of the input.
      peers: {name: function of the same arguments}.
    """
    read, written = num_bytes(inputs), num_bytes(op(*inputs))
    return [
        Case(
            where | {"pass": name},
            in_graph(op, inputs, indices),
            {peer: in_graph(function, inputs, indices) for peer, function in (peers or {}).items()},
            inputs,
            moved,
        )
        for name, indices, moved in (
            ("forward", (), (read, written)),
            ("forward+backward", (to,), (2 * read + written, written + num_bytes(inputs[to]))),
        )
    ]
