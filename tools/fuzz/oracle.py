"""Decides whether two ways of making a call agree: the same bits, or the same error."""

import math
import re

import numpy as np
import tensorflow as tf

from tensorflow_ops.testing.python import compare


class DisagreementError(Exception):
    """Two ways of making the same call have different results."""


def bits(value):
    """Returns a value's tensors as (shape, dtype, bytes), and the types of other objects.

    Every NaN becomes the same one. Of two NaNs a sum keeps the sign and payload of its first operand, and compilers
    swap operands: in loops of vectors and their remainders, which differ with the number of threads, and in XLA.
    """
    return [_bits(leaf) for leaf in tf.nest.flatten(value, expand_composites=True)]


def tensors(value):
    """Returns a value's tensors."""
    return [
        leaf for leaf in tf.nest.flatten(value, expand_composites=True) if isinstance(leaf, tf.Tensor | tf.Variable)
    ]


def _bits(leaf):
    if isinstance(leaf, tuple) or not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
        return leaf if isinstance(leaf, tuple | str | bytes | int) else type(leaf).__name__  # bits of bits are these
    if 0 in leaf.shape:  # NumPy refuses some empty shapes
        return tuple(leaf.shape), tf.as_dtype(leaf.dtype).name, b""
    array = np.array(leaf)
    if tf.as_dtype(array.dtype).is_floating:
        array[np.isnan(array)] = np.nan
    return compare.bits(array)


def core_message(error):
    """Returns an error's message without what TensorFlow adds for the way of the call."""
    text = re.sub(r"^\s*\{\{[^}]*\}\} ?|Graph execution error:.*?\n\n", "", str(error), flags=re.DOTALL)
    # An error of several attrs names any of them. A null character in it ends the text.
    attr = "Value for attr '.*|.*; NodeDef:.*"
    text = re.sub(rf" ?\[Op:[^]]*\].*$|\n.*\[\[\{{\{{.*$| for '\{{\{{node.*$|{attr}", "", text, flags=re.DOTALL)
    return text.strip()


def text_of_error(error):
    """Returns an error's class and message, without names and addresses that differ between processes.

    Protobuf marks its debug text with "goo.gle/debug" and any letters and spaces. Of two attrs of one name, TensorFlow
    names any.
    """
    differs = r"function_operation(_\d+)?|0x[0-9a-f]+|_\d+\b|id=\d+|/tmp/\S+|goo\.gle/debug\w*\s*|attr=\w+:[^;>]*"
    return f"{type(error).__name__}: {re.sub(differs, '...', core_message(error))}"


UNCLEAR = (tf.errors.InternalError, tf.errors.UnknownError, AttributeError, AssertionError, KeyError, IndexError)
_DTYPE_ERRORS = (TypeError, ValueError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError)


def largest(inputs):
    """Returns the largest finite absolute value of floating inputs, at least 1, times the root of their number."""
    arrays = [x.numpy().astype(np.float64) for x in tf.nest.flatten(inputs) if x.dtype.is_floating and 0 not in x.shape]
    return max((np.abs(x[np.isfinite(x)]).max(initial=1) * math.sqrt(x.size) for x in arrays), default=1)


def difference(expected, actual, *, compiled, one_op, rounds=False, largest_input=1):
    """Returns None if two outcomes agree, else what differs. An outcome is an exception, or what `bits` returns.

    `expected` is of the eager call; `compiled`: `actual` is XLA's; `one_op`: the call is of one raw op of ours;
    `rounds`: graphs may round differently, too; `largest_input`: as `largest` returns.
    What may differ:
    - Memory may suffice for one way only.
    - XLA refuses ops whose results have sizes that depend on values, by UnimplementedError, and, where other ops
      compute it, an argument that decides a shape (docs/xla.md). It rounds TensorFlow's own ops differently,
      so that a sum that cancels is any number up to about 1e-6 of the inputs and of the root of their number. It has
      no strings, and takes the nearest index where TensorFlow's gather refuses one. It has no RaggedTensors of
      unknown sizes, and does not sort SparseTensors.
    - XLA (core/cc/xla/xla_compile.cc) leaves out a refused gradient without elements, and TensorFlow's optimizer does
      where shapes are known.
    - vectorized_map refuses arguments that differ between iterations and must not, by ValueError.
    - A wrong shape is a ValueError, whose text ends differently in an eager call and in a graph. Without static shapes
      the kernel raises InvalidArgumentError (core/cc/glue/shape_check.h).
    - TensorFlow converts NumPy arrays of objects, and lists of uint64 beyond int64, in graphs only, and lists of arrays
      in eager calls only.
    - A function may refuse graphs of TensorFlow 1, by a sentence that says so.
    - TensorFlow checks dtypes and the types of attrs itself: by several classes, in several places, once by
      AssertionError: Unreachable. An eager call of a raw op checks an attr's value before the shapes, by
      InvalidArgumentError; a graph checks shapes first, and attrs by ValueError.
    - TensorFlow's optimizer computes 0 - x as -x, so that the sign of a zero differs.
    - A gradient that an eager tape finds unused is None; a graph computes it (core/python/gradients.py).
    - A Keras tensor has no values: without the sizes of other arguments, nothing refuses its shape.
    - Of several errors in a call of many ops, including TensorFlow's, graphs may find another one first.
    """
    errors = [outcome for outcome in (expected, actual) if isinstance(outcome, Exception)]
    if not errors and not one_op and expected.count("NoneType") != actual.count("NoneType"):
        return None
    if not errors:
        if one_op or not (compiled or rounds):
            return _different_bits(expected, actual, None, signs=one_op)
        return _different_bits(expected, actual, 1e-6 * largest_input)
    if any(isinstance(e, tf.errors.ResourceExhaustedError | MemoryError) for e in errors):
        return None
    if not isinstance(actual, Exception) and _is_refused_without_elements(expected, actual):
        return None
    if not isinstance(actual, Exception) and "automatically infer the output shape" in str(expected):
        return None
    if compiled and _xla_may_differ(expected, actual, one_op):
        return None
    if re.search("Unsupported object type|sequence with out-of-range integer", str(expected)):
        return None
    if re.search(
        "between the iterations of vectorized_map|needs TensorFlow 2's behavior|to be a dense tensor with", str(actual)
    ):
        return None
    # fuzz.py decides whether the eager call's error is clear.
    clear = type(actual) is type(expected) or not isinstance(actual, UNCLEAR) or str(actual) == "Unreachable"
    if len(errors) == 2 and (_same_error(*errors) if one_op else clear):
        return None
    return f"{_text(actual)}, expected as in the eager call {_text(expected)}"


def _is_refused_without_elements(expected, actual):
    refused = isinstance(expected, LookupError) or "RefuseGradient" in str(expected)
    return refused and any(not isinstance(result, str) and not result[2] for result in actual)


def _xla_may_differ(expected, actual, one_op):
    if not isinstance(actual, Exception):
        return not one_op and re.search(r"indices\[.*\] = .* is not in \[", str(expected)) is not None
    if isinstance(actual, tf.errors.UnimplementedError):
        return "TensorflowOps>" in str(actual) or "XLA cannot compile tfo." in str(actual)
    if isinstance(actual, tf.errors.InvalidArgumentError) and not _is_of_shapes(expected):
        if isinstance(expected, ValueError) or "with input shapes" in str(actual):
            return True  # of the shape function, with the arguments' values
    if "No registered '_Arg' OpKernel for XLA" in str(actual):
        return True  # a string
    lacks = "must be known when XLA compiles|RaggedTensorToTensor|SparseReorder"
    return not one_op and re.search(lacks, str(actual)) is not None


def _is_of_shapes(error):
    return b"tensorflow_ops/shape_error" in getattr(error, "experimental_payloads", ())


def _same_error(expected, actual):
    classes = type(expected), type(actual)
    if {TypeError, tf.errors.NotFoundError} & {*classes} or str(actual) == "Unreachable":
        return type(expected) in _DTYPE_ERRORS and (type(actual) in _DTYPE_ERRORS or str(actual) == "Unreachable")
    if classes == (ValueError, ValueError):
        return True
    if classes == (tf.errors.InvalidArgumentError, ValueError):  # of an attr
        # Shape functions, which read attrs, too, say the same of them.
        return not (_is_of_shapes(expected) and core_message(expected) in str(actual))
    same = classes in ((ValueError, tf.errors.InvalidArgumentError), (type(expected), type(expected)))
    return same and core_message(expected) in str(actual)


def _text(outcome):
    return f"{type(outcome).__name__} ({outcome})" if isinstance(outcome, Exception) else "a value"


def _different_bits(expected, actual, rounding, signs=False):
    """Returns what differs: any bit if `rounding` is None, else more than such a number and a part of the largest.

    `signs`: those of zeros count.
    """
    if len(expected) != len(actual):
        return f"{len(actual)} results, expected {len(expected)}"
    for i, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if one == other:
            continue
        if isinstance(one, str) or isinstance(other, str) or one[:2] != other[:2]:
            return f"result {i} is {other[:2]}, expected as in the eager call {one[:2]}"
        if rounding is None or not _close(_array(one), _array(other), rounding):
            what = compare.difference(f"result {i}", _array(other), _array(one), 0)
            if what or signs:
                return f"other bits than in the eager call: {what or f'signs of zeros in result {i}'}"
    return None


def same_values(expected, actual):
    """Returns whether two results of `bits` have the same values, rounded to any dtype."""
    pairs = [[_array(x).astype(np.complex128) for x in pair] for pair in zip(expected, actual, strict=True)]
    return all(one.shape == other.shape and np.allclose(one, other, 1e-6, 1e-6, equal_nan=True) for one, other in pairs)


def check_close(expected, actual, what, rounding=1e-4):
    """Raises DisagreementError if two results of `bits` differ by more than rounding, or in dtype."""
    for one, other in zip(expected, actual, strict=True):
        a, b = (_array(x).astype(np.float64) for x in (one, other))
        if one[:2] != other[:2] or not np.allclose(a, b, rounding, rounding / 10, equal_nan=True):
            raise DisagreementError(f"{what}: {_array(other)}, expected {_array(one)}")


def check_accurate(narrow, wide, rounded, may_overflow):
    """Raises DisagreementError if `narrow`, results of float32, differ from `wide` by more than all of `rounded` do.

    These are of float64 and of inputs that are rounded. `may_overflow`: NaN and 0 may follow from infinite numbers.
    """
    for i, (one, other) in enumerate(zip(narrow, wide, strict=True)):
        if one[:2] != (other[0], "float32") or other[1] != "float64":
            continue
        expected, *others = (_array(result[i]) for result in (wide, *rounded))
        actual = _array(one).astype(np.float64)
        counts = np.all([np.abs(y) < np.finfo(np.float32).max for y in (expected, *others)], 0)
        if may_overflow:
            counts &= np.isfinite(actual) & (actual != 0)
        one, other = actual[counts], expected[counts]
        spread = np.max([np.abs(y[counts] - other) for y in others], 0)
        if not np.all(np.abs(one - other) <= 16 * spread + 1e-5 * np.abs(other).max(initial=1e-30)):
            raise DisagreementError(f"float32 differs from float64 in result {i}: {actual}, expected {expected}")


def _array(result):
    shape, dtype, data = result
    if dtype == "object":
        return np.array(data, object).reshape(shape)
    return np.frombuffer(data, tf.as_dtype(dtype).as_numpy_dtype).reshape(shape)


def _close(one, other, rounding):
    """Returns whether finite floats agree to a part of the largest. Rounding may decide whether one overflows."""
    if one.dtype.kind in "biuSO":
        return False
    one, other = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(one) & np.isfinite(other)
    one, other = one[finite], other[finite]
    scale = np.abs(one).max(initial=0)
    return np.abs(one - other).max(initial=0) <= max(0.02 * scale, rounding)
