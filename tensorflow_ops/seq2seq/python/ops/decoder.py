"""Calls of the user's model: step_fn with its state, prompts, logits processors, lists of steps."""

import copy
from collections.abc import Callable

import tensorflow as tf

# TensorFlow has no public API for paths of leaves; a wheel fits one TensorFlow release.
from tensorflow.python.util import nest as nest_lib

from tensorflow_ops.core.python import arguments
from tensorflow_ops.seq2seq.python.ops import beam_search_ops, seq2seq_arguments
from tensorflow_ops.seq2seq.python.ops.key_value_cache import KeyValueCache


def convert(function):
    """Converts a user's function by AutoGraph if AutoGraph converts the caller.

    Its Python control flow may then depend on tensors, as it may in eager code. The searches
    themselves are not converted.
    """
    if not callable(function) or tf.executing_eagerly():
        return function
    autograph = tf.__internal__.autograph  # Keras uses it, too
    return autograph.tf_convert(function, autograph.control_status_ctx(), convert_by_default=False)


def call_processor(process, step, sequences, logits):
    """Calls a logits_processor. Returns logits, and forbidden tokens or None. Raises ValueError."""
    result, forbidden = process(step, sequences, logits), None
    if isinstance(result, tuple | list):
        if len(result) != 2:
            raise ValueError(f"logits_processor returned {len(result)} values, expected logits or a pair")
        result, forbidden = result
    result = arguments.dense_tensor("logits_processor's logits", result)
    if result.dtype != logits.dtype:
        raise ValueError(f"logits_processor returned {result.dtype.name}, expected {logits.dtype.name}")
    arguments.check_shape("logits_processor's logits", result, logits.shape, "as it was given")
    if forbidden is not None:
        forbidden = arguments.tensor_of_kind("logits_processor's forbidden tokens", forbidden, tf.bool)
        arguments.check_shape("logits_processor's forbidden tokens", forbidden, logits.shape, "logits' shape")
    return result, forbidden


class Processor:
    """A logits_processor, and the sequences that it reads: tokens of the history, then those of a loop.

    The loop carries the sequences as a variable: `first`, then the results of `append`.
    """

    def __init__(self, process, history, rows, max_length):
        """Takes a function or None, a history [rows, H] or None, and the shape of the loop's tokens."""
        self._process, self._rows, self._max_length = process, rows, max_length
        self._history, self._offset = history, 0
        if history is not None:
            size = history.shape[1]
            self._offset = tf.shape(history)[1] if size is None else size

    def first(self):
        """Returns sequences [..., H + T]; () without a processor."""
        if self._process is None:
            return ()
        empty = tf.zeros(tf.concat([self._rows, [self._max_length]], 0), tf.int32)
        if self._history is None:
            return empty
        return tf.concat([tf.reshape(self._history, tf.concat([self._rows, [self._offset]], 0)), empty], -1)

    def shape(self, rows):
        """Returns the static shape of the sequences, for the static shape of the loop's tokens."""
        if self._process is None:
            return ()
        sizes = self._offset, self._max_length
        return tf.TensorShape([*rows, sum(sizes) if all(isinstance(n, int) for n in sizes) else None])

    def append(self, sequences, step, tokens, parents=None):
        """Writes the tokens of a step, int32 [...], after those of their parents [B, K]; None: after their own."""
        if self._process is None:
            return ()
        if parents is not None:
            sequences = beam_search_ops.gather_by_beam(sequences, parents)
        is_column = tf.equal(tf.range(tf.shape(sequences)[-1]), self._offset + step)
        return tf.where(is_column, tokens[..., tf.newaxis], sequences)

    def __call__(self, sequences, step, logits):
        """Returns processed logits, and forbidden tokens or None. Raises ValueError."""
        if self._process is None:
            return logits, None
        # Slices last: XLA compiles slices of unknown size, but no reshapes to one.
        length = tf.shape(sequences)[-1]
        flat = tf.reshape(sequences, tf.stack([tf.reduce_prod(self._rows), length]))
        return call_processor(self._process, step, flat[:, : self._offset + step], logits)

    def masked(self, sequences, step, logits):
        """Returns processed logits, forbidden tokens at -inf. Raises ValueError."""
        if self._process is None:
            return logits
        logits, forbidden = self(sequences, step, logits)
        logits = without_nan(logits)
        return logits if forbidden is None else tf.where(forbidden, tf.constant(-float("inf"), logits.dtype), logits)


def goes_on(step, max_length, finished):
    """Returns whether a loop runs another step: the first, and while there is an unfinished sequence."""
    return (step < max_length) & (tf.equal(step, 0) | tf.reduce_any(tf.logical_not(finished)))


def start(batch_size, max_length, bos_id):
    """Returns batch_size and max_length, ints or tensors, and each example's first token, [B]. Raises ValueError."""
    batch_size = arguments.int_scalar("batch_size", batch_size, 0, decides_shape=True)
    max_length = seq2seq_arguments.max_length(max_length)
    bos = arguments.tensor_of_kind("bos_id", bos_id, tf.int32)
    if bos.shape.rank == 0:
        return batch_size, max_length, tf.fill([batch_size], bos)
    bos = arguments.with_shape("bos_id", bos, [batch_size], "a scalar, or one for each example")
    return batch_size, max_length, bos


def history_or_none(history, process, batch_size, count):
    """Returns the tokens that only the processor reads, int32 [B * count, H], or None. Raises ValueError."""
    if history is None or process is None:
        return None
    history = arguments.tensor_of_kind("history", history, tf.int32)
    history = arguments.with_shape("history", history, [batch_size, None], "tokens before each example")
    return tf.repeat(history, count, axis=0)


class Prompt:
    """The given first tokens of sequences."""

    @classmethod
    def or_none(cls, prompt, lengths, batch_size, max_length, needs_room=False):
        """Returns a Prompt, or None without a prompt. Raises ValueError."""
        if prompt is not None:
            return cls(prompt, lengths, batch_size, max_length, needs_room)
        if lengths is not None:
            raise ValueError("prompt_lengths are given, but no prompt")
        return None

    def __init__(self, prompt, lengths, batch_size, max_length, needs_room):
        """Takes a prompt [B, P], and lengths [B] or None: up to max_length, less if needs_room. Raises ValueError."""
        tokens = arguments.tensor_of_kind("prompt", prompt, tf.int32)
        tokens = arguments.with_shape("prompt", tokens, [batch_size, None], "the first tokens of each example")
        size = tf.shape(tokens)[1]
        lengths = tf.fill([batch_size], size) if lengths is None else lengths
        lengths = arguments.tensor_of_kind("prompt_lengths", lengths, tf.int32)
        lengths = arguments.with_shape("prompt_lengths", lengths, [batch_size], "one for each example")
        in_prompt = (lengths >= 0) & (lengths <= size)
        known = tokens.shape[1]
        sizes = "[0, the size of prompt]" if known is None else f"[0, {known}]: the size of prompt"
        lengths = arguments.checked("prompt_lengths", lengths, in_prompt, sizes)
        fits = lengths < max_length if needs_room else lengths <= max_length
        expected = f"{'less than' if needs_room else 'at most'} max_length"
        if isinstance(max_length, int):
            expected += f", {max_length}"
        self._lengths = arguments.checked("prompt_lengths", lengths, fits, expected)
        # A column more, so that `at` can index an empty prompt.
        self._tokens = tf.pad(tokens, [[0, 0], [0, 1]])

    def repeat(self, count):
        """Returns the Prompt with `count` rows for each example."""
        other = copy.copy(self)
        other._tokens, other._lengths = (tf.repeat(x, count, axis=0) for x in (self._tokens, self._lengths))
        return other

    def at(self, step):
        """Returns the tokens of a step, int32 [B], and whether each is given, bool [B]; others are 0."""
        is_given = step < self._lengths
        tokens = self._tokens[:, tf.minimum(step, tf.shape(self._tokens)[1] - 1)]
        return tf.where(is_given, tokens, 0), is_given


class Decoder:
    """A step_fn with its state as a flat list of tensors, and a row for each beam.

    Attributes:
      rows: B * K, an int32 scalar tensor.
      state: the first state, each [rows, ...].
      state_shapes: shapes that hold for the state in all steps of a loop.
      logits_dtype: in a graph; None in eager execution, before the first call.
    """

    def __init__(self, step_fn: Callable, initial_state, batch_size, beams: int):
        """Repeats each example's state. Raises ValueError."""
        if not callable(step_fn):
            raise ValueError(f"step_fn is {step_fn!r}, expected a function")
        self._step_fn = step_fn
        batch = tf.get_static_value(batch_size)
        self._static_rows = None if batch is None else int(batch) * beams
        self.rows = batch_size * beams
        self._paths = [path for path, _ in nest_lib.flatten_with_joined_string_paths(initial_state)]
        leaves = zip(self._paths, tf.nest.flatten(initial_state), strict=True)
        leaves = [self._first(path, leaf, batch_size, beams) for path, leaf in leaves]
        self._structure = tf.nest.pack_sequence_as(initial_state, leaves)
        # Of a KeyValueCache: its tensors.
        self.state = _tensors(leaves)
        self._is_history = [is_history for leaf in leaves for is_history in _are_histories(leaf)]
        rows = tf.TensorShape([self._static_rows])
        self.state_shapes = [
            rows.concatenate(leaf.shape[1:]) if leaf.shape.rank is not None else leaf.shape for leaf in self.state
        ]
        self.logits_dtype = None
        self._traced = self._first_logits = None
        if not tf.executing_eagerly():
            self._trace()

    def _first(self, path, leaf, batch_size, beams):
        name = f"initial_state[{path}]" if path else "initial_state"
        if isinstance(leaf, KeyValueCache):
            cache = leaf if beams == 1 else leaf.repeated(beams)
            lengths = arguments.with_shape(f"{name}.lengths", leaf.lengths, [batch_size], "batch_size examples")
            lengths = lengths if beams == 1 else tf.repeat(lengths, beams)
            return KeyValueCache(cache.keys, cache.values, lengths, cache.ancestors, cache.counts, cache.beam_width)
        leaf = arguments.dense_tensor(name, leaf)
        leaf = arguments.with_shape(name, leaf, [batch_size, ...], "batch_size examples")
        if beams == 1:
            return leaf
        repeated = tf.repeat(leaf, beams, axis=0)
        return repeated if leaf.shape.rank is None else tf.ensure_shape(repeated, [self._static_rows, *leaf.shape[1:]])

    def _trace(self):
        """Finds state shapes that hold in all steps: a cache may grow with each step."""
        tokens = tf.TensorSpec([self._static_rows], tf.int32)
        dtypes = [leaf.dtype for leaf in self.state]
        while True:
            specs = [tf.TensorSpec(shape, dtype) for shape, dtype in zip(self.state_shapes, dtypes, strict=True)]
            traced = tf.function(self._call_flat, autograph=False).get_concrete_function(tokens, *specs)
            logits, state = traced.structured_outputs
            self.logits_dtype = logits.dtype
            shapes = [
                old.most_specific_compatible_shape(new.shape) for old, new in zip(self.state_shapes, state, strict=True)
            ]
            # Compared as text: unknown dims are not equal to each other.
            if list(map(repr, shapes)) == list(map(repr, self.state_shapes)):
                self._traced = traced
                return
            self.state_shapes = shapes

    def _call_flat(self, tokens, *state):
        return self(tokens, list(state))

    def __call__(self, tokens, state):
        """Returns logits [rows, V] and the next state, for tokens [rows]. Raises ValueError."""
        state = tf.nest.pack_sequence_as(self._structure, state, expand_composites=True)
        result = self._step_fn(tokens, state)
        if not isinstance(result, tuple | list) or len(result) != 2:
            got = f"{len(result)} values" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
            raise ValueError(f"step_fn returned {got}, expected a pair (logits, state)")
        logits, state = result
        logits = self._logits(logits)
        if self._first_logits is None and tf.executing_eagerly():
            self._first_logits = logits
        return logits, self._state(state)

    def reordered(self, state, rows):
        """Returns the state of rows int32 [rows] of it."""
        pairs = zip(state, self._is_history, strict=True)
        return [tf.gather(leaf, rows) if is_history else leaf for leaf, is_history in pairs]

    def differentiable(self):
        """Returns tensors outside of the loop through which gradients reach what step_fn closes over.

        In a graph they are what it closes over; eagerly the logits of the first call, if there was one.
        """
        if self._traced is None:
            return [] if self._first_logits is None else [self._first_logits]
        return [*self._traced.captured_inputs, *map(tf.convert_to_tensor, self._traced.variables)]

    def _logits(self, logits):
        meaning = "one row for each token that step_fn was given"
        logits = seq2seq_arguments.logits_tensor(logits, [self._static_rows, None], meaning)
        return arguments.with_shape("logits", logits, [self.rows, None], meaning)

    def _state(self, state):
        try:
            tf.nest.assert_same_structure(self._structure, state, check_types=False)
        except (ValueError, TypeError) as error:
            raise ValueError(f"step_fn returned a state of another structure than initial_state: {error}") from None
        leaves = []
        firsts = tf.nest.flatten(self._structure)
        for path, first, leaf in zip(self._paths, firsts, tf.nest.flatten(state), strict=True):
            name = f"step_fn's state[{path}]" if path else "step_fn's state"
            if isinstance(first, KeyValueCache):
                # A check of its shape could copy it.
                if not isinstance(leaf, KeyValueCache) or leaf.beam_width != first.beam_width:
                    found = f"a {type(leaf).__name__}, expected the KeyValueCache that it was given, after append"
                    raise ValueError(f"{name} is {found}")
                leaves.append(leaf)
                continue
            leaf = arguments.dense_tensor(name, leaf)
            if leaf.dtype != first.dtype:
                raise ValueError(f"{name} is {leaf.dtype.name}, expected {first.dtype.name} as in initial_state")
            leaf = arguments.with_shape(name, leaf, [self.rows, ...], "the rows it was given")
            leaves.append(leaf)
        return _tensors(leaves)


def _tensors(leaves):
    return tf.nest.flatten(leaves, expand_composites=True)


def _are_histories(leaf):
    """Returns for each tensor of a leaf whether a beam that goes on takes its parent's."""
    if not isinstance(leaf, KeyValueCache):
        return [True]
    return [tensor is leaf.lengths or tensor is leaf.ancestors for tensor in _tensors(leaf)]


class Steps:
    """A list with an int32 tensor for each step, written in place: a loop carries its handle."""

    def __init__(self, shape):
        """Takes the shape of each tensor, which may be a tensor itself."""
        self._shape = shape

    def reserve(self, steps):
        return tf.raw_ops.TensorListReserve(element_shape=self._shape, num_elements=steps, element_dtype=tf.int32)

    def write(self, handle, step, tensor):
        return tf.raw_ops.TensorListSetItem(input_handle=handle, index=step, item=tensor)

    def stack(self, handle):
        """Returns [steps, *shape], with zeros for steps that were not written."""
        return tf.raw_ops.TensorListStack(input_handle=handle, element_shape=self._shape, element_dtype=tf.int32)


def without_nan(logits):
    """Replaces NaN by -inf and +inf by the largest finite number, as the kernel of beam search does."""
    return tf.where(
        tf.math.is_nan(logits), tf.constant(-float("inf"), logits.dtype), tf.minimum(logits, logits.dtype.max)
    )
