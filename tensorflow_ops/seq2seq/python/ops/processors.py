"""Processors of logits, for `beam_search` and `sample`: `tfo.seq2seq.processors`.

Each function returns a `logits_processor(step, sequences, logits)`, to be given to
`beam_search` or `sample` alone, or several as a `chain`. They are those of `transformers` of
like names; there, `sequences` has the start token, too.

>>> import tensorflow as tf, tensorflow_ops as tfo
>>> processors = tfo.seq2seq.processors
>>> processor = processors.chain(processors.no_repeat_ngrams(2), processors.suppress_tokens([3]))
>>> logits, forbidden = processor(3, tf.constant([[1, 2, 1]]), tf.zeros([1, 4]))
>>> forbidden.numpy()
array([[False, False,  True,  True]])
"""

from collections.abc import Callable, Iterable

import tensorflow as tf

from tensorflow_ops.seq2seq.python.ops import seq2seq_arguments as arguments

__all__ = ["bad_words", "chain", "no_repeat_ngrams", "repetition_penalty", "suppress_tokens"]

_not_converted = tf.autograph.experimental.do_not_convert


def repetition_penalty(penalty: float) -> Callable:
    """Makes tokens that a sequence has less likely: logits below 0 times the penalty, others divided by it.

    The penalty of CTRL (arXiv:1909.05858, section 4.1). What it does depends on where the
    logits' zero is: in `beam_search` give process_log_probs=True for that of `transformers`.

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
      InvalidArgumentError: the same where only the run tells.
    """
    penalty = arguments.number_in_range("penalty", penalty, "a number above 0", lambda x: x > 0)

    @_not_converted
    def process(step, sequences, logits):
        del step
        factor = arguments.of_dtype(penalty, logits.dtype)
        penalized = tf.where(logits < 0, logits * factor, logits / factor)
        return tf.where(_marked(sequences, tf.ones_like(sequences, tf.bool), logits), penalized, logits)

    return process


def no_repeat_ngrams(size: int) -> Callable:
    """Forbids a token with which the last `size` tokens would be what the sequence has already.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> processor = tfo.seq2seq.processors.no_repeat_ngrams(2)
    >>> processor(3, tf.constant([[1, 2, 1]]), tf.zeros([1, 4]))[1].numpy()    # 1 2 is there
    array([[False, False,  True, False]])

    Args:
      size: n, at least 1; 1 forbids each token that the sequence has.

    Returns:
      A logits_processor; it returns (logits, forbidden).

    Raises:
      ValueError: a size below 1.
    """
    size = arguments.static_int("size", size, 1)

    @_not_converted
    def process(step, sequences, logits):
        before = tf.range(size - 1)
        # A column more, for what is gathered in steps that are too early to repeat anything.
        padded = tf.pad(sequences, [[0, 0], [0, size]])
        last = tf.gather(padded, tf.maximum(step - (size - 1), 0) + before, axis=1)
        starts = tf.range(tf.maximum(step - (size - 1), 0))
        ngrams = tf.gather(padded, starts[:, tf.newaxis] + before, axis=1)
        repeats = tf.reduce_all(ngrams == last[:, tf.newaxis], -1)
        followers = tf.gather(padded, starts + (size - 1), axis=1)
        return logits, _marked(followers, repeats, logits)

    return process


def bad_words(words: Iterable[Iterable[int]]) -> Callable:
    """Forbids sequences of tokens: the last token of each, where those before it stand.

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
        raise ValueError("words have an empty one, expected one token at least")

    @_not_converted
    def process(step, sequences, logits):
        forbidden = tf.zeros_like(logits, tf.bool)
        for *before, last in words:
            count = len(before)
            padded = tf.pad(sequences, [[0, 0], [0, count]])
            latest = tf.gather(padded, tf.maximum(step - count, 0) + tf.range(count), axis=1)
            stands = tf.reduce_all(latest == tf.constant(before, sequences.dtype), -1) & (step >= count)
            forbidden |= _marked(tf.fill([tf.shape(logits)[0], 1], last), stands[:, tf.newaxis], logits)
        return logits, forbidden

    return process


def suppress_tokens(ids: Iterable[int], *, first_steps: int | None = None) -> Callable:
    """Forbids tokens, in all steps or in the first ones.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> processor = tfo.seq2seq.processors.suppress_tokens([0], first_steps=2)
    >>> processor(1, tf.constant([[2]]), tf.zeros([1, 4]))[1].numpy()
    array([[ True, False, False, False]])

    Args:
      ids: the tokens.
      first_steps: in how many steps; None is all.

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
        acts = tf.ones_like(rows, tf.bool) if first_steps is None else tf.fill(tf.shape(rows), step < first_steps)
        return logits, _marked(rows, acts, logits)

    return process


def chain(*processors: Callable) -> Callable:
    """Several processors as one: each gets the logits of the one before; what any forbids is forbidden.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> processors = tfo.seq2seq.processors
    >>> processor = processors.chain(processors.suppress_tokens([3]), processors.bad_words([[1, 0]]))
    >>> processor(1, tf.constant([[1]]), tf.zeros([1, 4]))[1].numpy()
    array([[ True, False, False,  True]])

    Args:
      *processors: functions as beam_search and sample take them.

    Returns:
      A logits_processor.

    Raises:
      ValueError: one that is no function.
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


def _marked(tokens, counts, logits):
    """A mask of logits' shape [rows, V]: the tokens [rows, N] that count."""
    shape = tf.shape(logits)
    rows = tf.broadcast_to(tf.range(shape[0])[:, tf.newaxis], tf.shape(tokens))
    places = tf.stack([rows, tokens], -1)
    found = tf.scatter_nd(places, tf.cast(counts, tf.int32), shape) > 0
    return tf.ensure_shape(found, logits.shape)
