"""Processors of logits, for `beam_search` and `sample`: `tfo.seq2seq.processors`.

Each function returns a `logits_processor(step, sequences, logits)`. Pass it to `beam_search`
or `sample`, or combine several by `chain`. `transformers` has processors of similar names;
their `sequences` include the start token.

>>> import tensorflow as tf, tensorflow_ops as tfo
>>> processors = tfo.seq2seq.processors
>>> processor = processors.chain(processors.no_repeat_ngrams(2), processors.suppress_tokens([3]))
>>> logits, forbidden = processor(3, tf.constant([[1, 2, 1]]), tf.zeros([1, 4]))
>>> forbidden.numpy()
array([[False, False,  True,  True]])
"""

from collections.abc import Callable, Iterable

import tensorflow as tf

from tensorflow_ops.core.python import arguments

__all__ = ["bad_words", "chain", "no_repeat_ngrams", "repetition_penalty", "suppress_tokens"]

_not_converted = tf.autograph.experimental.do_not_convert


def repetition_penalty(penalty: float) -> Callable:
    """Lowers the logits of tokens that a sequence contains: multiplies negative ones by the penalty, divides others.

    The penalty of CTRL (arXiv:1909.05858, section 4.1). It depends on the zero point of the
    logits: use process_log_probs=True in `beam_search` for the result of `transformers`.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> processor = tfo.seq2seq.processors.repetition_penalty(2.0)
    >>> processor(2, tf.constant([[0, 1]]), tf.constant([[3.0, -1.0, 5.0]])).numpy()
    array([[ 1.5, -2. ,  5. ]], dtype=float32)

    Args:
      penalty: a number above 0 or a scalar tensor; 1 changes nothing, above 1 discourages
        repetition.

    Returns:
      A logits_processor.

    Raises:
      ValueError: a penalty that is not above 0.
      InvalidArgumentError: the same errors, found at run time.
    """
    penalty = arguments.number("penalty", penalty, "a number above 0", lambda x: x > 0)

    @_not_converted
    def process(step, sequences, logits):
        del step
        factor = arguments.constant_or_cast(penalty, logits.dtype)
        penalized = tf.where(logits < 0, logits * factor, logits / factor)
        return tf.where(_mask(sequences, tf.ones_like(sequences, tf.bool), logits), penalized, logits)

    return process


def no_repeat_ngrams(size: int) -> Callable:
    """Forbids tokens that would repeat an n-gram of the sequence, of `size` tokens.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> processor = tfo.seq2seq.processors.no_repeat_ngrams(2)
    >>> processor(3, tf.constant([[1, 2, 1]]), tf.zeros([1, 4]))[1].numpy()    # 1 2 is there
    array([[False, False,  True, False]])

    Args:
      size: n, at least 1; 1 forbids all tokens of the sequence.

    Returns:
      A logits_processor; it returns (logits, forbidden).

    Raises:
      ValueError: a size below 1.
    """
    size = arguments.static_int("size", size, 1)

    @_not_converted
    def process(step, sequences, logits):
        before = tf.range(size - 1)
        # More columns, for the gathers of the first steps, which cannot repeat an n-gram.
        padded = tf.pad(sequences, [[0, 0], [0, size]])
        last = tf.gather(padded, tf.maximum(step - (size - 1), 0) + before, axis=1)
        starts = tf.range(tf.shape(sequences)[1])  # XLA needs a range that `step` does not decide
        ngrams = tf.gather(padded, starts[:, tf.newaxis] + before, axis=1)
        repeats = tf.reduce_all(ngrams == last[:, tf.newaxis], -1) & (starts + (size - 1) < step)
        followers = tf.gather(padded, starts + (size - 1), axis=1)
        return logits, _mask(followers, repeats, logits)

    return process


def bad_words(words: Iterable[Iterable[int]]) -> Callable:
    """Forbids sequences of tokens: the last token of each, after the tokens before it.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> processor = tfo.seq2seq.processors.bad_words([[1, 0], [2, 3]])
    >>> processor(1, tf.constant([[2]]), tf.zeros([1, 4]))[1].numpy()
    array([[False, False, False,  True]])

    Args:
      words: sequences of token ids, each of one token at least.

    Returns:
      A logits_processor; it returns (logits, forbidden).

    Raises:
      ValueError: a word without a token, an id below 0.
      InvalidArgumentError: on the CPU, an id that is no token of the logits.
    """
    words = [tuple(arguments.static_int("words: an id", i, 0) for i in word) for word in words]
    if not all(words):
        raise ValueError("words have an empty one, expected at least one token in each")

    @_not_converted
    def process(step, sequences, logits):
        forbidden = tf.zeros_like(logits, tf.bool)
        for *before, last in words:
            count = len(before)
            padded = tf.pad(sequences, [[0, 0], [0, count]])
            latest = tf.gather(padded, tf.maximum(step - count, 0) + tf.range(count), axis=1)
            matches = tf.reduce_all(latest == tf.constant(before, sequences.dtype), -1) & (step >= count)
            forbidden |= _mask(tf.fill([tf.shape(logits)[0], 1], last), matches[:, tf.newaxis], logits)
        return logits, forbidden

    return process


def suppress_tokens(ids: Iterable[int], *, first_steps: int | None = None) -> Callable:
    """Forbids tokens in all steps, or in the first ones.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> processor = tfo.seq2seq.processors.suppress_tokens([0], first_steps=2)
    >>> processor(1, tf.constant([[2]]), tf.zeros([1, 4]))[1].numpy()
    array([[ True, False, False, False]])

    Args:
      ids: the tokens.
      first_steps: the number of steps; None is all.

    Returns:
      A logits_processor; it returns (logits, forbidden).

    Raises:
      ValueError: an id or first_steps below 0.
      InvalidArgumentError: on the CPU, an id that is no token of the logits.
    """
    ids = tuple(dict.fromkeys(arguments.static_int("ids: an id", i, 0) for i in ids))
    if first_steps is not None:
        first_steps = arguments.static_int("first_steps", first_steps, 0)

    @_not_converted
    def process(step, sequences, logits):
        del sequences
        rows = tf.tile(tf.constant([ids], tf.int32), [tf.shape(logits)[0], 1])
        is_on = tf.ones_like(rows, tf.bool) if first_steps is None else tf.fill(tf.shape(rows), step < first_steps)
        return logits, _mask(rows, is_on, logits)

    return process


def chain(*processors: Callable) -> Callable:
    """Combines processors: each reads the logits of the one before; a token that one forbids is forbidden.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> processors = tfo.seq2seq.processors
    >>> processor = processors.chain(processors.suppress_tokens([3]), processors.bad_words([[1, 0]]))
    >>> processor(1, tf.constant([[1]]), tf.zeros([1, 4]))[1].numpy()
    array([[ True, False, False,  True]])

    Args:
      *processors: logits_processors.

    Returns:
      A logits_processor.

    Raises:
      ValueError: a processor is no function.
    """
    for processor in processors:
        if not callable(processor):
            raise ValueError(f"a processor is {processor!r}, expected a function")

    def process(step, sequences, logits):
        forbidden = None
        for processor in processors:
            result = processor(step, sequences, logits)
            more = None
            if isinstance(result, tuple | list):
                result, more = result
            logits = result
            if more is not None:
                forbidden = more if forbidden is None else forbidden | more
        return logits if forbidden is None else (logits, forbidden)

    return process


def _mask(tokens, is_on, logits):
    """Returns a mask of logits' shape [rows, V], True at those tokens [rows, N] whose is_on [rows, N] is True."""
    shape = tf.shape(logits)
    rows = tf.broadcast_to(tf.range(shape[0])[:, tf.newaxis], tf.shape(tokens))
    indices = tf.stack([rows, tokens], -1)
    mask = tf.scatter_nd(indices, tf.cast(is_on, tf.int32), shape) > 0
    return tf.ensure_shape(mask, logits.shape)
