"""A NumPy function of a python_op, and what its gradient is told."""

import dataclasses

import tensorflow as tf


class MissingGradientError(LookupError):
    """A gradient was asked for that nobody registered."""

    # AutoGraph, which puts the place in user code into the message, makes anew only
    # errors whose __init__ it knows; others come out of a tf.function as StagingError.
    __init__ = Exception.__init__


class Stage:
    """A NumPy function: an op's, its gradient's, its gradient's gradient's, and so on."""

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
        """Calls the function; what it raises becomes an error of TensorFlow's that says so."""
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
        # As tf.numpy_function has them, but for StopIteration, which would end a tf.data.Dataset without a word.
        for kind, of_tensorflow in (
            ((ValueError, TypeError, tf.errors.InvalidArgumentError), tf.errors.InvalidArgumentError),
            (NotImplementedError, tf.errors.UnimplementedError),
            (MemoryError, tf.errors.ResourceExhaustedError),
        ):
            if isinstance(error, kind):
                return of_tensorflow(None, None, message)
        return tf.errors.UnknownError(None, None, message)

    def missing_gradient(self):
        """The error where a gradient of this function is asked for and there is none."""
        if self.order == 0:
            how = f"@{self.python_name}.register_gradient on a NumPy function of (ctx, *output gradients)"
            return MissingGradientError(
                f"{self.op_name} has no gradient. Register one: {how}; or put tf.stop_gradient around its result"
            )
        return MissingGradientError(
            f"{self.name} has no gradient, which second-order gradients and forward mode "
            "(tf.autodiff.ForwardAccumulator) need. Register one: what register_gradient gave back has a "
            "register_gradient of its own"
        )

    def refusing_gradient(self):
        """A gradient that raises when it is called.

        TensorFlow makes a graph's forward mode together with the gradient of it, which is a
        gradient of third order, whether anybody asks for it or not.
        """
        if self._refusing is None:

            def refuse(*unused):
                raise self.missing_gradient()

            self._refusing = Stage(self.op_name, self.python_name, refuse, self.vmap, self.check_finite, self.order + 1)
        return self._refusing

    def missing_forward_mode(self):
        """The error where forward mode is asked for, or None if this has it: it takes two gradients."""
        if self.gradient is not None and self.gradient.gradient is not None:
            return None
        missing = "no gradient" if self.gradient is None else "a gradient without a gradient of its own"
        return MissingGradientError(
            f"{self.name} has {missing}, and forward mode (tf.autodiff.ForwardAccumulator) needs both. Register them: "
            f"@{self.python_name}.register_gradient, and register_gradient of what that gives back"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """What a gradient's function knows of the call whose gradient it is; arrays are read-only.

    Attributes:
      inputs: tuple of arrays. In a gradient's gradient: the forward inputs, then one
        gradient for each forward output (None where that has none).
      outputs: tuple of arrays, in tf.nest's order; of a gradient: one for each input
        (None where that has none).
      saved: the nest that `saved` declares, of arrays; None if nothing is saved.
      attributes: dict of all attributes.
      forward: in a gradient's gradient the context the gradient had, else None.
    """

    inputs: tuple
    outputs: tuple
    saved: object
    attributes: dict
    forward: "Context | None" = None
