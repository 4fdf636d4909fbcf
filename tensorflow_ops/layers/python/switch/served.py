"""For the files of this folder, which register what `use_fused_ops` replaces."""

from collections.abc import Callable
from typing import NamedTuple


class Original(str):
    """Sends a call to the function that is replaced. The text is the reason, which `fused_ops` counts; "": no miss."""

    __slots__ = ()


class Row(NamedTuple):
    """A function to replace; see `served`."""

    op: str
    owner: str
    name: str
    function: Callable
    is_counted: bool = True


ROWS: list[Row] = []


def backend():
    """Returns the module that holds `nn` and others, which Keras 3.16 moves."""
    from keras.src import backend  # private: after check_keras

    return getattr(backend, "ops", backend)


def served(op: str, owner: str, name: str | None = None, is_counted: bool = True):
    """Registers the decorated function, which takes the original and its arguments, in place of another one.

    It returns Original(reason) where they do not fit. The page `keras` has a table of these functions, with conditions.

    Args:
      op: the public name, of `only` and `fused_ops`.
      owner: a module of Keras's "backend", a class of its "layers" or "optimizers", or a module of "keras_hub", or a
        class in it: "layers.LSTM". With ":Class", instances of the class hold the function.
      name: of the other function; None: that of the decorated one.
      is_counted: whether `fused_ops` counts calls.
    """

    def register(function):
        ROWS.append(Row(op, owner, name or function.__name__, function, is_counted))
        return function

    return register
