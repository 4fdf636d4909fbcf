"""Raises ValueError for shapes that do not fit, in eager calls as in graphs."""

import functools
import re

import tensorflow as tf

from tensorflow_ops.core.python import autograph

# Shape functions read the values of size arguments. These are short; longer tensors are data.
_MAX_SIZE_VALUES = 16


def _placeholder(value):
    """Returns an argument of an eager call as a graph would know it: dtype, shape, the values of sizes."""
    if not tf.is_tensor(value):
        return value
    # NumPy refuses some empty shapes, such as [0, 2^62].
    if value.dtype.is_integer and 0 < value.shape.num_elements() <= _MAX_SIZE_VALUES:
        return tf.constant(value.numpy())
    return tf.compat.v1.placeholder(value.dtype, value.shape)


def _shapes_fit(op, args, kwargs):
    """Returns whether the op's shape function accepts the arguments of an eager call."""
    with tf.Graph().as_default():
        args, kwargs = tf.nest.map_structure(_placeholder, (args, kwargs))
        try:
            op(*args, **kwargs)
        except ValueError:
            return False
        except TypeError:  # A dtype does not fit.
            pass
    return True


def _kernel_message(error):
    """Returns the message of a kernel without the node and op names that TensorFlow adds."""
    return re.sub(r"^\{\{function_node [^}]*\}\} | \[Op:[^]]*\].*$", "", error.message, flags=re.DOTALL)


def as_value_errors(op):
    """Wraps the generated function of an op: its eager calls raise ValueError for wrong shapes, as a graph does.

    In a graph the op's shape function finds wrong shapes, and TensorFlow raises ValueError.
    An eager call runs only the kernel, whose InvalidArgumentError may be about values, too.
    The wrapper therefore runs the shape function after such an error, and only then.
    """

    @functools.wraps(op)
    def call(*args, **kwargs):
        try:
            return op(*args, **kwargs)
        except tf.errors.InvalidArgumentError as error:
            if not tf.executing_eagerly() or _shapes_fit(op, args, kwargs):
                raise
            raise ValueError(_kernel_message(error)) from None

    # Without the mark AutoGraph would warn that generated functions have no source file.
    return autograph.not_converted(call)
