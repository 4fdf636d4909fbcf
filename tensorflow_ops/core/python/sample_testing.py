"""For the tables of samples, OP_samples_testing.py: an entry and its arguments."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

RNG = np.random.default_rng(0)

# Per-row results, such as losses and overlaps, are float32 for 16-bit inputs.
ROW_DTYPES = {"float16": "float32", "bfloat16": "float32"}
# Forward mode is slow to trace, so only one sample per op tests it.
IN_ANOTHER_SAMPLE = {"forward_mode": "another sample of the op has this test"}
# A layer or a loss calls a function.
IN_THE_FUNCTIONS_SAMPLE = dict.fromkeys(
    ("gradients", "determinism", "extreme_values", "vectorization", "second_order", "forward_mode", "bad_input"),
    "the sample of the function that it calls has this test",
)


@dataclasses.dataclass(frozen=True)
class Sample:
    """A call of a public function, layer or loss; see `sample`."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    variants: Sequence[Mapping[str, Any]]
    edge: Sequence[Mapping[str, Any]]
    bad: Sequence[tuple[Mapping[str, Any], str]]
    onnx: tuple[str, int] | None
    ragged: bool
    sparse: bool
    finite: Sequence[str]
    options: Mapping[str, Any]

    @property
    def names(self) -> list[str]:
        """The names of the positional arguments."""
        return list(inspect.signature(getattr(self.fn, "call", self.fn)).parameters)[: len(self.args)]

    def changed(self, changes: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns the (args, kwargs) of a call with other values of some arguments, by name."""
        args = [changes.get(name, value) for name, value in zip(self.names, self.args, strict=True)]
        return args, {**self.kwargs, **{name: x for name, x in changes.items() if name not in self.names}}

    def of_opcheck(self) -> tuple[Any, ...]:
        """Returns the arguments of tfo.testing.OpSample, whose function takes all tensors by position."""
        tensors = [name for name, value in self.kwargs.items() if any(map(tf.is_tensor, tf.nest.flatten(value)))]
        count = len(self.args)

        @tf.autograph.experimental.do_not_convert
        def by_position(*args: Any, **options: Any) -> Any:
            return self.fn(*args[:count], **dict(zip(tensors, args[count:], strict=True)), **options)

        def arguments(changes: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
            args, kwargs = self.changed(changes)
            return [*args, *(kwargs.pop(name) for name in tensors)], kwargs

        edge_args = [arguments(changes)[0] for changes in self.edge]
        bad_args = [(*arguments(changes), message) for changes, message in self.bad]
        options = {"edge_args": edge_args, "bad_args": bad_args, **self.options}
        return by_position if tensors else self.fn, *arguments({}), options


def sample(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    variants: Sequence[Mapping[str, Any]] = (),
    edge: Sequence[Mapping[str, Any]] = (),
    bad: Sequence[tuple[Mapping[str, Any], str]] = (),
    onnx: tuple[str, int] | None = None,
    ragged: bool = False,
    sparse: bool = False,
    finite: Sequence[str] = (),
    **options: Any,
) -> Sample:
    """Returns an entry of a table. All readers of op_samples_testing.py's SAMPLES follow from it.

    Args:
      fn: the public function.
      *args: its positional arguments: dims of different sizes, values away from kinks.
      kwargs: its keyword arguments.
      variants: dicts of arguments that change, by name: each option once, with a value that changes the results,
        in pairs where options interact. Exports and same_bits.py run them; opcheck runs the call only, so one that it
        should run needs an entry of its own.
        "onnx" is no argument: None if ONNX lacks the operator for this variant, a string if it computes something
        else, for the reason that the string gives.
      edge: dicts of arguments that must work, such as no boxes.
      bad: (dict of arguments, regex of the error's message).
      onnx: the operator of ONNX that the function becomes, and the first opset that has it; None: many nodes.
      ragged: whether arguments may be RaggedTensors, which its own tests check.
      sparse: whether labels may be a SparseTensor, too.
      finite: names of arguments that stay finite where exports are compared with the op: where an infinite weight meets
        nothing, only one of the two has a NaN.
      **options: of `opcheck`.
    """
    of_opcheck = {"imports": ("tensorflow_ops",), **options}
    return Sample(fn, args, kwargs or {}, variants, edge, bad, onnx, ragged, sparse, finite, of_opcheck)


def seed(name: str) -> None:
    """Makes RNG's next values depend on the name of a table, or of a part of it, instead of on what is before it."""
    RNG.bit_generator.state = np.random.default_rng(list(name.encode())).bit_generator.state


def normal(*shape: int) -> tf.Tensor:
    return tf.constant(RNG.normal(size=shape), tf.float32)


def without_gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns fn of positional arguments without gradients: its own gradient is an error, by design."""

    def call(*args: Any, **kwargs: Any) -> Any:
        # What is no tensor is for fn to convert, or to refuse.
        arrays = (x if x is None or isinstance(x, np.ndarray) else keras.ops.stop_gradient(x) for x in args)
        return fn(*arrays, **kwargs)

    call.__signature__ = inspect.signature(fn)
    return call
