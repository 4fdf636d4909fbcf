"""Shapes that do not fit as ValueError, whether an op is called eagerly or in a graph."""

import functools
import re

import tensorflow as tf

# Shape functions read the values of sizes, which are few numbers.
_MOST_VALUES = 16


def _symbolic(value):
    """What a graph knows of an argument of an eager call."""
    if not tf.is_tensor(value):
        return value
    if value.dtype.is_integer and value.shape.num_elements() <= _MOST_VALUES:
        return tf.constant(value.numpy())
    return tf.compat.v1.placeholder(value.dtype, value.shape)


def _shapes_fit(op, args, kwargs):
    """Whether the op's shape function takes the arguments of an eager call."""
    with tf.Graph().as_default():
        args, kwargs = tf.nest.map_structure(_symbolic, (args, kwargs))
        try:
            op(*args, **kwargs)
        except ValueError:
            return False
        except TypeError:  # A dtype does not fit.
            pass
    return True


def _text(error):
    """A kernel's own words, without TensorFlow's on where it ran."""
    return re.sub(r"^\{\{function_node [^}]*\}\} | \[Op:[^]]*\].*$", "", error.message, flags=re.DOTALL)


def as_value_errors(op):
    """The generated function of an op, whose eager calls raise ValueError where a graph's do.

    In a graph the op's shape function finds what does not fit, and TensorFlow raises
    ValueError. An eager call has only the kernel, whose InvalidArgumentError may be of
    values, too. So after an error, and only then, the shape function is asked.
    """

    @functools.wraps(op)
    def call(*args, **kwargs):
        try:
            return op(*args, **kwargs)
        except tf.errors.InvalidArgumentError as error:
            if not tf.executing_eagerly() or _shapes_fit(op, args, kwargs):
                raise
            raise ValueError(_text(error)) from None

    # AutoGraph warns of functions without a file. This is the mark of do_not_convert, without what that adds to a call.
    vars(call).update({**vars(tf.autograph.experimental.do_not_convert(call)), "__wrapped__": op})
    return call
