"""Exempts this package's own functions from AutoGraph's conversion."""

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

# The mark that do_not_convert puts on a function. Its wrapper, left out here, would slow down eager calls.
_MARK = vars(tf.autograph.experimental.do_not_convert(lambda: None)).copy()
_MARK.pop("__wrapped__", None)

_Function = TypeVar("_Function", bound=Callable[..., Any])


def not_converted(function: _Function) -> _Function:
    """Marks a function that AutoGraph calls as it is; a decorator.

    For functions that need no conversion, being written without Python control flow on
    tensors: it makes their first trace faster. Not for functions that take a callable of
    the user's: AutoGraph would not convert that callable either.
    """
    vars(function).update(_MARK)
    return function
