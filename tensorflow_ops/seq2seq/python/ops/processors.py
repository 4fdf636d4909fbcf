"""Processors of logits, for `beam_search` and `sample`: `tfo.seq2seq.processors`.

Each function returns a `logits_processor(step, sequences, logits)`. Pass it to `beam_search`
or `sample`, or combine several by `chain`. The `sequences` that they read begin with the
search's `history`. Ids outside of the vocabulary, such as padding, match no token.

>>> import tensorflow as tf, tensorflow_ops as tfo
>>> processors = tfo.seq2seq.processors
>>> processor = processors.chain(processors.no_repeat_ngrams(2), processors.suppress_tokens([3]))
>>> logits, forbidden = processor(3, tf.constant([[1, 2, 1]]), tf.zeros([1, 4]))
>>> forbidden.numpy()
array([[False, False,  True,  True]])
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.core.python.type_aliases import IntLike, NumberLike
from tensorflow_ops.seq2seq.python.ops import decoder, sampling_filters, seq2seq_arguments
from tensorflow_ops.seq2seq.python.ops.seq2seq_arguments import LogitsProcessor

__all__ = [
    "bad_words",
    "chain",
    "force_tokens",
    "min_p",
    "no_repeat_ngrams",
    "repetition_penalty",
    "sequence_bias",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
]

# A LogitsProcessor of logits only, and one that returns forbidden tokens, too.
ChangesLogits: TypeAlias = Callable[[Any, tf.Tensor, tf.Tensor], tf.Tensor]
ForbidsTokens: TypeAlias = Callable[[Any, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]

_not_converted = tf.autograph.experimental.do_not_convert


def repetition_penalty(penalty: NumberLike) -> ChangesLogits:
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


def no_repeat_ngrams(size: int) -> ForbidsTokens:
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
        del step
        length = tf.shape(sequences)[1]
        before = tf.range(size - 1)
        # More columns, for the gathers of the first steps, which cannot repeat an n-gram.
        padded = tf.pad(sequences, [[0, 0], [0, size]])
        last = tf.gather(padded, tf.maximum(length - (size - 1), 0) + before, axis=1)
        starts = tf.range(length)
        ngrams = tf.gather(padded, starts[:, tf.newaxis] + before, axis=1)
        repeats = tf.reduce_all(tf.equal(ngrams, last[:, tf.newaxis]), -1) & (starts + (size - 1) < length)
        followers = tf.gather(padded, starts + (size - 1), axis=1)
        return logits, _mask(followers, repeats, logits)

    return process


def bad_words(words: Iterable[Iterable[int]]) -> ForbidsTokens:
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
      InvalidArgumentError: an id that is no token of the logits.
    """
    words = _Words("words", [_word("words", word) for word in words])

    @_not_converted
    def process(step, sequences, logits):
        del step
        return logits, _mask(words.last(logits), words.are_next(sequences), logits)

    return process


def sequence_bias(biases: Mapping[Any, float] | Iterable[tuple[Iterable[int], float]]) -> ChangesLogits:
    """Adds a bias to the logit of the last token of each sequence, after the tokens before it.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> processor = tfo.seq2seq.processors.sequence_bias({(1, 0): 2.0, (2, 3): -1.5, (3,): 0.5})
    >>> processor(1, tf.constant([[2], [1]]), tf.zeros([2, 4])).numpy()
    array([[ 0. ,  0. ,  0. , -1. ],
           [ 2. ,  0. ,  0. ,  0.5]], dtype=float32)

    Args:
      biases: a dict from tuples of token ids, each of one at least, to numbers; or pairs of
        them. -inf forbids the token.

    Returns:
      A logits_processor.

    Raises:
      ValueError: a sequence without a token, an id below 0, a bias that is NaN or +inf.
      InvalidArgumentError: an id that is no token of the logits.
    """
    pairs = [(_word("biases", word), _bias(bias)) for word, bias in _pairs(biases)]
    words = _Words("biases", [word for word, _ in pairs])

    @_not_converted
    def process(step, sequences, logits):
        del step
        values = tf.constant([[bias for _, bias in pairs]], logits.dtype)
        values = tf.where(words.are_next(sequences), values, tf.zeros_like(values))
        return logits + _scatter(words.last(logits), values, tf.shape(logits))

    return process


def suppress_tokens(ids: Iterable[int], *, first_steps: int | None = None) -> ForbidsTokens:
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
      InvalidArgumentError: an id that is no token of the logits.
    """
    ids = _ids(ids)
    if first_steps is not None:
        first_steps = arguments.static_int("first_steps", first_steps, 0)

    @_not_converted
    def process(step, sequences, logits):
        del sequences
        is_listed = _is_listed(ids, logits)
        if first_steps is not None:
            is_listed &= step < first_steps
        return logits, tf.broadcast_to(is_listed, tf.shape(logits))

    return process


def force_tokens(ids: int | Iterable[int], *, step: IntLike) -> ChangesLogits:
    """Forces a token in one step: its logit becomes 0, those of others -inf.

    Step 0 forces the first token; step max_length - 1 the last one, such as the end token.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> processor = tfo.seq2seq.processors.force_tokens(1, step=0)
    >>> processor(0, tf.zeros([1, 0], tf.int32), tf.constant([[3.0, 2.0]])).numpy()
    array([[-inf,   0.]], dtype=float32)
    >>> processor(1, tf.constant([[1]]), tf.constant([[3.0, 2.0]])).numpy()
    array([[3., 2.]], dtype=float32)

    Args:
      ids: the token, or several that are allowed in this step. Several have equal
        probabilities; with process_log_probs=True in `beam_search`, each has probability 1,
        as in `transformers`.
      step: an int, or an int32 scalar tensor: the number of tokens before, without the
        history.

    Returns:
      A logits_processor.

    Raises:
      ValueError: no id, an id or a step below 0.
      InvalidArgumentError: the same errors, found at run time; an id that is no token of the
        logits.
    """
    ids = _ids([ids] if arguments.is_int(ids) else ids)
    if not ids:
        raise ValueError("ids is empty, expected at least one token")
    forced_step = arguments.int_scalar("step", step, 0)

    @_not_converted
    def process(step, sequences, logits):
        del sequences
        nothing = tf.constant(-float("inf"), logits.dtype)
        forced = tf.where(_is_listed(ids, logits), tf.zeros([], logits.dtype), nothing)
        return tf.where(tf.equal(step, forced_step), forced, logits)

    process.lifts = lambda step: tf.equal(step, forced_step)
    return process


def temperature(value: NumberLike) -> ChangesLogits:
    """Divides logits by a temperature, as the option of `sample` does.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.seq2seq.processors.temperature(0.5)(0, tf.zeros([1, 0], tf.int32), tf.constant([[1.0, 2.0]])).numpy()
    array([[2., 4.]], dtype=float32)

    Args:
      value: a number above 0 or a scalar tensor.

    Returns:
      A logits_processor.

    Raises:
      ValueError: a temperature that is not above 0.
      InvalidArgumentError: the same error, found at run time.
    """
    value = arguments.number("temperature", value, "a finite number above 0", lambda x: x > 0)

    @_not_converted
    def process(step, sequences, logits):
        del step, sequences
        return logits / arguments.constant_or_cast(value, logits.dtype)

    return process


def top_k(k: int) -> ChangesLogits:
    """Keeps the k likeliest tokens, as the option of `sample` does: the logits of others become -inf.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.seq2seq.processors.top_k(2)(0, tf.zeros([1, 0], tf.int32), tf.constant([[3.0, 1.0, 2.0]])).numpy()
    array([[  3., -inf,   2.]], dtype=float32)

    Args:
      k: the number of tokens, at least 1. Of equal logits the lower tokens are kept.

    Returns:
      A logits_processor.

    Raises:
      ValueError: a k below 1.
    """
    k = arguments.static_int("top_k", k, 1)

    @_filter
    def process(step, sequences, logits):
        del step, sequences
        tokens = tf.math.top_k(decoder.without_nan(logits), tf.minimum(k, tf.shape(logits)[-1])).indices
        return _kept(_mask(tokens, tf.ones_like(tokens, tf.bool), logits), logits)

    return process


def top_p(p: NumberLike) -> ChangesLogits:
    """Keeps the smallest set of likeliest tokens with a total probability of at least p, as in `sample`.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = tf.constant([[2.0, 0.0, 1.0]])    # probabilities 0.67, 0.09, 0.24
    >>> tfo.seq2seq.processors.top_p(0.8)(0, tf.zeros([1, 0], tf.int32), logits).numpy()
    array([[  2., -inf,   1.]], dtype=float32)

    Args:
      p: in (0, 1]; a float or a scalar tensor.

    Returns:
      A logits_processor. The logits of removed tokens are -inf.

    Raises:
      ValueError: a p out of its range.
      InvalidArgumentError: the same error, found at run time.
    """
    p = seq2seq_arguments.positive_probability("top_p", p)
    if _keeps_all(p):
        return chain()

    @_filter
    def process(step, sequences, logits):
        del step, sequences
        best, tokens = tf.math.top_k(decoder.without_nan(logits), tf.shape(logits)[-1])
        kept = sampling_filters.top_p(tf.exp(sampling_filters.shifted(best)[0]), p)
        return _kept(_mask(tokens, kept, logits), logits)

    return process


def min_p(p: NumberLike) -> ChangesLogits:
    """Keeps tokens at least p times as likely as the likeliest, as the option of `sample` does.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = tf.constant([[2.0, 0.0, 1.0]])    # relative to the likeliest: 1, 0.14, 0.37
    >>> tfo.seq2seq.processors.min_p(0.3)(0, tf.zeros([1, 0], tf.int32), logits).numpy()
    array([[  2., -inf,   1.]], dtype=float32)

    Args:
      p: in [0, 1]; a float or a scalar tensor.

    Returns:
      A logits_processor. The logits of removed tokens are -inf.

    Raises:
      ValueError: a p out of its range.
      InvalidArgumentError: the same error, found at run time.
    """
    return _filter_of_weights(sampling_filters.min_p, seq2seq_arguments.probability("min_p", p))


def typical_p(p: NumberLike) -> ChangesLogits:
    """Keeps the most typical tokens with a total probability of at least p, as the option of `sample` does.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = tf.math.log([[0.5, 0.3, 0.15, 0.05]])    # -log p is 0.69, 1.2, 1.9, 3; the entropy 1.14
    >>> tfo.seq2seq.processors.typical_p(0.2)(0, tf.zeros([1, 0], tf.int32), logits).numpy().round(1)
    array([[-inf, -1.2, -inf, -inf]], dtype=float32)

    Args:
      p: in (0, 1]; a float or a scalar tensor.

    Returns:
      A logits_processor. The logits of removed tokens are -inf.

    Raises:
      ValueError: a p out of its range.
      InvalidArgumentError: the same error, found at run time.
    """
    p = seq2seq_arguments.positive_probability("typical_p", p)
    return chain() if _keeps_all(p) else _filter_of_weights(sampling_filters.typical_p, p)


def chain(*processors: LogitsProcessor) -> LogitsProcessor:
    """Combines processors: each reads the logits of the one before; a token that one forbids is forbidden.

    Forbidden tokens keep their logits, but `top_k`, `top_p`, `min_p` and `typical_p` choose
    among the others. `force_tokens` overrules in its step what processors before it forbid.

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

    # Those of a chain in this chain, whose filters leave out what is forbidden before it.
    processors = [part for processor in processors for part in getattr(processor, "chained", [processor])]

    def process(step, sequences, logits):
        forbidden = None
        for processor in processors:
            before = forbidden
            hides = before is not None and hasattr(processor, "is_filter")
            given = _kept(tf.logical_not(before), logits) if hides else logits
            result, more = decoder.call_processor(processor, step, sequences, given)
            # Their own logits again, which are part of the softmax.
            logits = tf.where(before, logits, result) if hides else result
            if before is not None and hasattr(processor, "lifts"):
                before &= tf.logical_not(processor.lifts(step))
            forbidden = before if more is None else more if before is None else before | more
        return logits if forbidden is None else (logits, forbidden)

    process.chained = processors
    return process


def _filter(process):
    """Marks a processor that compares tokens, in a chain only those that are not forbidden."""
    process = _not_converted(process)
    process.is_filter = True
    return process


def _filter_of_weights(find, p):
    """Returns a processor that keeps the tokens that a function of sampling_filters finds."""

    @_filter
    def process(step, sequences, logits):
        del step, sequences
        weights = tf.exp(sampling_filters.shifted(decoder.without_nan(logits))[0])
        return _kept(find(weights, p), logits)

    return process


def _keeps_all(p):
    """Returns whether a filter keeps all tokens, like a top_p of 1."""
    return isinstance(p, float) and p == 1


def _kept(mask, logits):
    return tf.where(mask, logits, tf.constant(-float("inf"), logits.dtype))


def _ids(ids):
    """Returns token ids as a tuple, each once. Raises ValueError."""
    return tuple(dict.fromkeys(arguments.static_int("ids: an id", i, 0) for i in ids))


def _word(name, word):
    """Returns the token ids of a sequence as a tuple. Raises ValueError."""
    word = tuple(arguments.static_int(f"{name}: an id", i, 0) for i in word)
    if not word:
        raise ValueError(f"{name} contains an empty sequence, expected at least one token in each")
    return word


def _pairs(biases):
    """Returns (tuple, number) of a mapping, or of pairs. Raises ValueError."""
    pairs = biases.items() if isinstance(biases, Mapping) else biases
    try:
        return [(tuple(word), bias) for word, bias in pairs]
    except (TypeError, ValueError):
        raise ValueError(f"biases is {biases!r}, expected a dict from tuples of ids to numbers") from None


def _bias(bias):
    bias = arguments.to_python(bias)
    is_float = isinstance(bias, float) and not math.isnan(bias)
    return bias if is_float and bias == -math.inf else arguments.static_number("a bias", bias, "a number below +inf")


def _is_listed(ids, logits):
    """Returns which tokens are among the ids, bool [V]; checks that all ids are tokens."""
    ids = seq2seq_arguments.tokens("ids", ids, logits)
    is_listed = tf.reduce_any(tf.equal(tf.range(tf.shape(logits)[-1])[:, tf.newaxis], ids), -1)
    return tf.ensure_shape(is_listed, logits.shape[-1:])


class _Words:
    """Sequences of tokens, and where they may end in the next step."""

    def __init__(self, name, words):
        self._name, self._largest = f"{name}: an id", max((i for word in words for i in word), default=0)
        self._last = [word[-1] for word in words]
        self._count = max((len(word) - 1 for word in words), default=0)
        before = [[-1] * (self._count - len(word) + 1) + list(word[:-1]) for word in words]
        self._before = np.reshape(np.array(before, np.int32), [len(words), self._count])

    def last(self, logits):
        """Returns the last token of each sequence, int32 [1, N]; checks that all ids are tokens."""
        largest = seq2seq_arguments.tokens(self._name, self._largest, logits)
        # Changes nothing, but uses the checked id.
        return tf.minimum(tf.constant([self._last], tf.int32), largest)

    def are_next(self, sequences):
        """Returns whether the tokens before the last one are there, bool [rows, N]."""
        # More columns in front, which match no token.
        padded = tf.pad(sequences, [[0, 0], [self._count, 0]], constant_values=-1)
        latest = tf.gather(padded, tf.shape(sequences)[1] + tf.range(self._count), axis=1)[:, tf.newaxis]
        return tf.reduce_all(tf.equal(latest, self._before) | (self._before < 0), -1)


def _mask(tokens, is_on, logits):
    """Returns a mask of logits' shape [rows, V], True at those tokens [rows, N] whose is_on [rows, N] is True."""
    shape = tf.shape(logits)
    is_on &= (tokens >= 0) & (tokens < shape[1])
    mask = _scatter(tf.where(is_on, tokens, 0), tf.cast(is_on, tf.int32), shape) > 0
    return tf.ensure_shape(mask, logits.shape)


def _scatter(tokens, values, shape):
    """Returns the sums of values [rows, N] at their tokens [rows, N], or [1, N]: of a shape [rows, V]."""
    tokens = tf.broadcast_to(tokens, tf.shape(values))
    rows = tf.broadcast_to(tf.range(shape[0])[:, tf.newaxis], tf.shape(tokens))
    return tf.scatter_nd(tf.stack([rows, tokens], -1), values, shape)
