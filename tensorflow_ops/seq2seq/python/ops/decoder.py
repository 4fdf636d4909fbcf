"""The model that beam_search and sample call, as a step_fn: its state, its shapes, what it has to return."""

import copy
from collections.abc import Callable

import tensorflow as tf

# Paths of leaves are no public API; the package is made for one TensorFlow.
from tensorflow.python.util import nest as nest_lib

from tensorflow_ops.seq2seq.python.ops import seq2seq_arguments as arguments


def converted(function):
    """A user's function as it goes into a graph.

    Where AutoGraph converts the caller it converts the function, so that Python's `if` may
    look at tensors. Eagerly any Python may do that.
    """
    if not callable(function) or tf.executing_eagerly():
        return function
    autograph = tf.__internal__.autograph  # Keras uses it, too
    return autograph.tf_convert(function, autograph.control_status_ctx(), convert_by_default=False)


def processed(process, step, sequences, logits):
    """Logits, and what is forbidden or None, as a logits_processor returns them. Raises ValueError."""
    result, forbidden = process(step, sequences, logits), None
    if isinstance(result, tuple | list):
        if len(result) != 2:
            raise ValueError(f"logits_processor returned {len(result)} values, expected logits or a pair")
        result, forbidden = result
    result = tf.convert_to_tensor(result)
    if result.dtype != logits.dtype:
        raise ValueError(f"logits_processor returned {result.dtype.name}, expected {logits.dtype.name}")
    arguments.check_shape("logits_processor's logits", result, logits.shape, "as it was given")
    if forbidden is not None:
        forbidden = arguments.converted("logits_processor's forbidden tokens", forbidden, tf.bool)
        arguments.check_shape("logits_processor's forbidden tokens", forbidden, logits.shape, "logits' shape")
    return result, forbidden


def allowed(process, step, sequences, logits):
    """Logits as a logits_processor returns them, with -inf for what it forbids. Raises ValueError."""
    logits, forbidden = processed(process, step, sequences, logits)
    logits = without_nan(logits)
    return logits if forbidden is None else tf.where(forbidden, tf.constant(-float("inf"), logits.dtype), logits)


def extended(sequences, step, tokens):
    """The sequences [..., T] that a logits_processor sees, with their tokens [...] of a step."""
    return tf.where(tf.range(tf.shape(sequences)[-1]) == step, tokens[..., tf.newaxis], sequences)


def start_tokens(bos_id, batch_size):
    """The first token of each example, int32 [B]. Raises ValueError."""
    bos = arguments.converted("bos_id", bos_id, tf.int32)
    if bos.shape.rank == 0:
        return tf.fill([batch_size], bos)
    batch = tf.get_static_value(batch_size)
    arguments.check_shape("bos_id", bos, [batch], "a scalar, or one for each example")
    check = tf.debugging.assert_equal(tf.shape(bos)[0], batch_size, "bos_id, expected one for each example")
    with tf.control_dependencies([check] if batch is None or bos.shape[0] is None else []):
        return tf.identity(bos)


class Prompt:
    """The tokens that sequences have to begin with."""

    @classmethod
    def of(cls, prompt, lengths, batch_size, most):
        """The prompt, or None if there is none. Raises ValueError."""
        if prompt is not None:
            return cls(prompt, lengths, batch_size, most)
        if lengths is not None:
            raise ValueError("prompt_lengths are given, but no prompt")
        return None

    def __init__(self, prompt, lengths, batch_size, most):
        """`prompt` [B, P] with lengths [B] or None, at most `most`. Raises ValueError."""
        batch = tf.get_static_value(batch_size)
        batch = None if batch is None else int(batch)
        self._tokens = arguments.converted("prompt", prompt, tf.int32)
        arguments.check_shape("prompt", self._tokens, [batch, None], "the first tokens of each example")
        shape = tf.shape(self._tokens)
        checks = [tf.debugging.assert_equal(shape[0], batch_size, "prompt, expected one for each example")]
        if lengths is None:
            lengths = tf.fill([batch_size], shape[1])
        lengths = arguments.converted("prompt_lengths", lengths, tf.int32)
        arguments.check_shape("prompt_lengths", lengths, [batch], "one for each example")
        checks += [
            tf.debugging.assert_equal(
                tf.shape(lengths)[0], batch_size, "prompt_lengths, expected one for each example"
            ),
            tf.debugging.assert_non_negative(lengths, "prompt_lengths, expected none below 0"),
            tf.debugging.assert_less_equal(lengths, shape[1], "prompt_lengths, expected at most prompt's size"),
            tf.debugging.assert_less_equal(
                lengths, most, "prompt_lengths, expected room behind the prompt in max_length"
            ),
        ]
        with tf.control_dependencies(checks):
            self._lengths = tf.identity(lengths)
        # A place behind the prompt, which may be empty.
        self._tokens = tf.pad(self._tokens, [[0, 0], [0, 1]])

    def repeated(self, count):
        """The prompt of as many rows for each example."""
        other = copy.copy(self)
        other._tokens, other._lengths = (tf.repeat(x, count, axis=0) for x in (self._tokens, self._lengths))
        return other

    def at(self, step):
        """The tokens int32 [B] of a step, and whether an example has one, bool [B]; else its token is 0."""
        is_given = step < self._lengths
        tokens = self._tokens[:, tf.minimum(step, tf.shape(self._tokens)[1] - 1)]
        return tf.where(is_given, tokens, 0), is_given


class Decoder:
    """A step_fn with its state as a flat list of tensors, and a row for each beam.

    Attributes:
      rows: B * K, an int32 scalar tensor.
      state: the first state, each [rows, ...].
      state_shapes: what loops keep of the state's shapes.
      logits_dtype: in a graph; None when run eagerly, where the first call tells.
    """

    def __init__(self, step_fn: Callable, initial_state, batch_size, beams: int):
        """Repeats each example's state. Raises ValueError."""
        if not callable(step_fn):
            raise ValueError(f"step_fn is {step_fn!r}, expected a function")
        self._step_fn = step_fn
        self._structure = initial_state
        self._paths = [path for path, _ in nest_lib.flatten_with_joined_string_paths(initial_state)]
        batch = tf.get_static_value(batch_size)
        self._static_rows = None if batch is None else int(batch) * beams
        self.rows = batch_size * beams
        leaves = tf.nest.flatten(initial_state)
        self.state = [
            self._first(path, leaf, batch_size, beams) for path, leaf in zip(self._paths, leaves, strict=True)
        ]
        self.state_shapes = [leaf.shape for leaf in self.state]
        self.logits_dtype = None
        if not tf.executing_eagerly():
            self._trace()

    def _first(self, path, leaf, batch_size, beams):
        name = f"initial_state[{path}]" if path else "initial_state"
        if leaf is None:
            raise ValueError(f"{name} is None, expected a tensor")
        leaf = tf.convert_to_tensor(leaf)
        batch = tf.get_static_value(batch_size)
        if leaf.shape.rank == 0 or (leaf.shape.rank and not leaf.shape[:1].is_compatible_with([batch])):
            expected = f"[{'?' if batch is None else batch},...]: batch_size examples"
            raise ValueError(f"{name} is {arguments.text(leaf.shape)}, expected {expected}")
        if leaf.shape.rank is None or leaf.shape[0] is None or batch is None:
            check = tf.debugging.assert_equal(tf.shape(leaf)[0], batch_size, f"{name}, expected batch_size examples")
            with tf.control_dependencies([check]):
                leaf = tf.identity(leaf)
        if beams == 1:
            return leaf
        repeated = tf.repeat(leaf, beams, axis=0)
        return repeated if leaf.shape.rank is None else tf.ensure_shape(repeated, [self._static_rows, *leaf.shape[1:]])

    def _trace(self):
        """Finds shapes that a loop can keep: a cache may grow with each step."""
        tokens = tf.TensorSpec([self._static_rows], tf.int32)
        dtypes = [leaf.dtype for leaf in self.state]
        while True:
            specs = [tf.TensorSpec(shape, dtype) for shape, dtype in zip(self.state_shapes, dtypes, strict=True)]
            traced = tf.function(self._call_flat, autograph=False).get_concrete_function(tokens, *specs)
            logits, state = traced.structured_outputs
            self.logits_dtype = logits.dtype
            shapes = [_common(old, new.shape) for old, new in zip(self.state_shapes, state, strict=True)]
            # Shapes know when they are equal only if they are known.
            if list(map(repr, shapes)) == list(map(repr, self.state_shapes)):
                return
            self.state_shapes = shapes

    def _call_flat(self, tokens, *state):
        return self(tokens, list(state))

    def __call__(self, tokens, state):
        """Logits [rows, V] and the next state, for tokens [rows]. Raises ValueError."""
        result = self._step_fn(tokens, tf.nest.pack_sequence_as(self._structure, state))
        if not isinstance(result, tuple | list) or len(result) != 2:
            got = f"{len(result)} values" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
            raise ValueError(f"step_fn returned {got}, expected a pair (logits, state)")
        logits, state = result
        return self._logits(logits), self._state(state)

    def _logits(self, logits):
        logits = arguments.logits_tensor(
            logits, [self._static_rows, None], "one row for each token that step_fn was given"
        )
        if logits.shape.rank is not None and None not in (logits.shape[0], self._static_rows):
            return logits
        expected = "expected one row of logits for each token that step_fn was given"
        checks = [
            tf.debugging.assert_rank(logits, 2, expected),
            tf.debugging.assert_equal(tf.shape(logits)[0], self.rows, expected),
        ]
        with tf.control_dependencies(checks):
            return tf.ensure_shape(logits, [self._static_rows, None])

    def _state(self, state):
        try:
            tf.nest.assert_same_structure(self._structure, state, check_types=False)
        except (ValueError, TypeError) as error:
            raise ValueError(f"step_fn returned a state of another structure than initial_state: {error}") from None
        leaves = []
        for path, first, leaf in zip(self._paths, self.state, tf.nest.flatten(state), strict=True):
            leaf = tf.convert_to_tensor(leaf)
            name = f"step_fn's state[{path}]" if path else "step_fn's state"
            if leaf.dtype != first.dtype:
                raise ValueError(f"{name} is {leaf.dtype.name}, expected {first.dtype.name} as in initial_state")
            if leaf.shape.rank is not None and not leaf.shape[:1].is_compatible_with([self._static_rows]):
                rows = "?" if self._static_rows is None else self._static_rows
                raise ValueError(
                    f"{name} is {arguments.text(leaf.shape)}, expected [{rows},...]: the rows it was given"
                )
            leaves.append(leaf)
        return leaves


def _common(old, new):
    """The most that is known of both shapes."""
    return old.most_specific_compatible_shape(new)


class Steps:
    """A list of one int32 tensor for each step, written in place, as what loops carry."""

    def __init__(self, shape):
        """Of tensors of a shape, which may be known only at run time."""
        self._shape = shape

    def reserve(self, steps):
        return tf.raw_ops.TensorListReserve(element_shape=self._shape, num_elements=steps, element_dtype=tf.int32)

    def write(self, handle, step, tensor):
        return tf.raw_ops.TensorListSetItem(input_handle=handle, index=step, item=tensor)

    def stack(self, handle):
        """[steps, *shape], zeros where nothing was written."""
        return tf.raw_ops.TensorListStack(input_handle=handle, element_shape=self._shape, element_dtype=tf.int32)


def without_nan(logits):
    """NaN as -inf, and +inf as the largest finite number: as the kernel of beam search has it."""
    return tf.where(
        tf.math.is_nan(logits), tf.constant(-float("inf"), logits.dtype), tf.minimum(logits, logits.dtype.max)
    )
