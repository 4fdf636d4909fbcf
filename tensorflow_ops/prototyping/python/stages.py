"""A NumPy function of a python_op, and the context of its gradient."""

import dataclasses
from typing import Any

import tensorflow as tf


class MissingGradientError(LookupError):
    """A gradient that is not registered was requested."""

    # AutoGraph adds the line of user code to the message by constructing the error again.
    # For an unknown __init__ it raises StagingError instead.
    __init__ = Exception.__init__


class Stage:
    """A NumPy function: that of an op (order 0), of its gradient (1), of the gradient's gradient (2), and so on."""

    def __init__(self, op_name, python_name, function, vmap, check_finite, order=0):
        self.op_name = op_name
        self.python_name = python_name  # of the op
        self.function = function
        self.vmap = vmap
        self.check_finite = check_finite
        self.order = order
        self.gradient = None
        self._refusing = None
        self.name = "the gradient of " * order + op_name

    def call(self, *args, **kwargs):
        """Calls the function. Converts its errors to errors of TensorFlow with type, message and line."""
        try:
            return self.function(*args, **kwargs)
        except Exception as error:
            raise self._as_tensorflow_error(error) from error

    def _as_tensorflow_error(self, error):
        at = error.__traceback__.tb_next or error.__traceback__
        while at.tb_next:
            at = at.tb_next
        message = f"{self.name}: its function raised {type(error).__name__}: {error} "
        message += f"({at.tb_frame.f_code.co_filename}, line {at.tb_lineno})"
        if isinstance(error, ValueError) and "read-only" in str(error):
            message += ". Inputs may not be written to: copy one first"
        # The mapping of tf.numpy_function, except for StopIteration, which would silently end a tf.data.Dataset.
        for kind, of_tensorflow in (
            ((ValueError, TypeError, tf.errors.InvalidArgumentError), tf.errors.InvalidArgumentError),
            (NotImplementedError, tf.errors.UnimplementedError),
            (MemoryError, tf.errors.ResourceExhaustedError),
        ):
            if isinstance(error, kind):
                return of_tensorflow(None, None, message)
        return tf.errors.UnknownError(None, None, message)

    def missing_gradient(self):
        """Returns the error for a gradient of this function that is not registered."""
        if self.order == 0:
            how = f"@{self.python_name}.register_gradient on a NumPy function of (ctx, *output gradients)"
            return MissingGradientError(
                f"{self.op_name} has no gradient. Register one: {how}; or put tf.stop_gradient around its result"
            )
        return MissingGradientError(
            f"{self.name} has no gradient, which second-order gradients and forward mode "
            "(tf.autodiff.ForwardAccumulator) need. Register one: the result of register_gradient has a "
            "register_gradient, too"
        )

    def refusing_gradient(self):
        """Returns a gradient that raises an error when it is called.

        For a graph's forward mode TensorFlow also builds its gradient, a gradient of third
        order, even if the program does not use it.
        """
        if self._refusing is None:

            def refuse(*unused):
                raise self.missing_gradient()

            self._refusing = Stage(self.op_name, self.python_name, refuse, self.vmap, self.check_finite, self.order + 1)
        return self._refusing

    def missing_forward_mode(self):
        """Returns the error for forward mode, which needs two gradients, or None if both are registered."""
        if self.gradient is not None and self.gradient.gradient is not None:
            return None
        missing = "no gradient" if self.gradient is None else "a gradient without a gradient of its own"
        return MissingGradientError(
            f"{self.name} has {missing}, and forward mode (tf.autodiff.ForwardAccumulator) needs both. Register them: "
            f"@{self.python_name}.register_gradient, and register_gradient of its result"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """The call that a gradient function differentiates; arrays are read-only.

    Attributes:
      inputs: tuple of arrays. In a gradient's gradient: the forward inputs, then one
        gradient for each forward output (None for an output without gradient).
      outputs: tuple of arrays, in tf.nest's order. In a gradient's gradient: one for each
        input (None for an input without gradient).
      saved: the nest that `saved` declares, of arrays; None if nothing is saved.
      attributes: dict of all attributes.
      forward: in a gradient's gradient the context of the gradient, else None.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    saved: Any
    attributes: dict[str, Any]
    forward: "Context | None" = None
