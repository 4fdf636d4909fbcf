"""Error rates of sequences as a Keras metric."""

from typing import Any, Literal

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, ragged
from tensorflow_ops.metrics.python.ops import metric_arguments, ratio
from tensorflow_ops.nn.python.ops import sequence_arguments
from tensorflow_ops.seq2seq.python.ops import ctc_decode

_NORMALIZATIONS = ("total", "sequence", None)
_TOKENS = ("ids", "characters", "words")
_LOGITS = "; logits? Decode them: tfo.seq2seq.ctc_greedy_decode, or EditDistance(decode='ctc')"
# Python's str.isspace; tf.strings.split knows ASCII's.
_WHITESPACE = r"[\s\v\x{1c}-\x{1f}\x{85}\p{Z}]"


def _ids(name, value):
    """Returns numbers [N, L]. Raises ValueError."""
    ids = arguments.int_tensor(name, value)
    if ids.dtype == tf.string:
        raise ValueError(f'{name} are string, expected ids; tokens="words" or "characters" takes strings [N]')
    meaning = f"[N, L], padded ids{_LOGITS if ids.shape.rank == 3 else ''}"
    return arguments.with_shape(name, ids, [None, None], meaning)


def _from_lengths(name, ids, lengths):
    """Returns the sequences of padded ids [N, L] as a RaggedTensor."""
    ids = _ids(name, ids)
    rows, size = tf.unstack(tf.shape(ids, tf.int64))
    text = f"{name}'s lengths"
    lengths = arguments.tensor_of_kind(text, lengths, tf.int64)
    lengths = arguments.with_shape(text, lengths, [tf.cast(rows, tf.int32)], "[N] with the ids' N")  # fits: a size
    lengths = arguments.checked(text, lengths, (lengths >= 0) & (lengths <= size), "[0, L] of ids [N, L]")
    return tf.RaggedTensor.from_tensor(ids, lengths)


def _from_sparse(name, ids):
    """Returns the ids of each row as a RaggedTensor: in order, wherever in the row they are. Raises ValueError."""
    sizes = arguments.with_shape(f"{name}'s dense_shape", ids.dense_shape, [2], "[N, L]")
    ids = tf.sparse.reorder(tf.SparseTensor(ids.indices, ids.values, sizes))
    return tf.RaggedTensor.from_value_rowids(ids.values, ids.indices[:, 0], sizes[0])


def _with_last_row(sequences):
    """Returns a RaggedTensor as a SparseTensor with one empty row more: tf.edit_distance refuses no rows."""
    sparse = sequences.to_sparse()
    return tf.SparseTensor(sparse.indices, sparse.values, sparse.dense_shape + tf.constant([1, 0], tf.int64))


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class EditDistance(ratio.Ratio):
    """Edit distance of sequences to references: word, character or label error rate.

    The least number of insertions, deletions and replacements of tokens that change a
    sequence into its reference (Levenshtein), as of `tf.edit_distance`, in relation to the
    length of the reference.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> rate = tfo.metrics.EditDistance("words")
    >>> rate.update_state(["the cat sat", "on the mat"], ["the cat sat", "on a mat"])
    >>> round(float(rate.result()), 4)    # 1 of 6 words
    0.1667
    >>> rate = tfo.metrics.EditDistance()
    >>> rate.update_state(np.array([[1, 2, 3, -1]]), np.array([[1, 3, -1, -1]]))
    >>> round(float(rate.result()), 4)    # 1 of 3 labels
    0.3333

    `update_state(y_true, y_pred)` takes N references and N sequences, each as

    - ids [N, L], whole numbers of any dtype, of which negative ones and `pad_id` are left out;
    - a pair (ids, lengths), such as the result of `tfo.seq2seq.ctc_greedy_decode`;
    - a RaggedTensor or SparseTensor of ids or of strings, which are tokens; those of a row
      of a SparseTensor in their order, without the places between them;
    - with tokens "characters" or "words": strings [N].

    With decode="ctc", `y_pred` are logits [N, T, C] of a model with the CTC loss:

    >>> rate = tfo.metrics.EditDistance(decode="ctc")
    >>> rate.update_state(np.array([[1, 2, -1]]), np.eye(4)[[[1, 1, 0, 3]]])    # decoded: 1, 3
    >>> float(rate.result())
    0.5

    They may be a pair (logits, lengths) or a RaggedTensor; otherwise the frames are those of
    their Keras mask, or all. In references [N, L], blanks are padding, too.

    Args:
      tokens: "ids"; "characters", Unicode's of UTF-8 strings, for the character error rate;
        "words", separated by Unicode's whitespace as by `str.split`, for the word error rate.
      normalization: "total": all errors as a fraction of all tokens of references;
        "sequence": the mean over sequences of each one's errors as a fraction of its
        reference's tokens; None: the mean number of errors of a sequence. An empty
        reference counts as one token for "sequence".
      pad_id: an int that is left out of ids [N, L], besides negative ones.
      decode: "ctc": decodes `y_pred` with `tfo.seq2seq.ctc_greedy_decode`. Needs tokens "ids".
      blank_index: for decode: the class of blank, or -1, the last class.
      name: name of the metric.
      dtype: dtype of the result. None is `keras.config.floatx()`.

    Raises:
      ValueError: an option, a shape or a dtype that is not as above; weights.
      NotImplementedError: under ParameterServerStrategy.
      tf.errors.InvalidArgumentError: lengths out of their range; ids that are not whole
        numbers, or 2^63 and greater.
      tf.errors.UnimplementedError: compiled by XLA, which has no `tf.edit_distance`.
    """

    def __init__(
        self,
        tokens: Literal["ids", "characters", "words"] = "ids",
        *,
        normalization: Literal["total", "sequence"] | None = "total",
        pad_id: int = -1,
        decode: Literal["ctc"] | None = None,
        blank_index: int = 0,
        name: str = "edit_distance",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.tokens = arguments.one_of("tokens", tokens, _TOKENS)
        if not isinstance(normalization, str | None) or normalization not in _NORMALIZATIONS:
            raise ValueError(f"normalization is {normalization!r}, expected one of 'total', 'sequence', None")
        self.normalization = normalization
        self.pad_id = arguments.static_int("pad_id", pad_id, -(2**31))
        self.decode = None if decode is None else arguments.one_of("decode", decode, ("ctc",))
        if self.decode and self.tokens != "ids":
            raise ValueError(f"decode is {decode!r}, expected None for tokens={tokens!r}")
        self.blank_index = sequence_arguments.blank_index(blank_index)

    @autograph.ordered
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: None = None) -> None:
        """Adds sequences; the class describes the arguments."""
        metric_arguments.check_update(self, sample_weight)
        with tf.device("CPU:0"):
            truth = self._read("y_true", y_true)
        if self.decode:
            y_pred, blank = self._decoded(y_pred)
            if not isinstance(y_true, tuple) and not ragged.is_ragged_or_sparse(y_true):
                is_label = tf.not_equal(truth, tf.cast(blank, tf.int64))  # fits: an int32
                truth = tf.ragged.boolean_mask(truth, is_label)
        with tf.device("CPU:0"):
            found = self._read("y_pred", y_pred)
            if truth.dtype != found.dtype:
                raise ValueError(f"y_pred are {found.dtype.name}, expected {truth.dtype.name} as y_true")
            lengths = tf.cast(truth.row_lengths(), tf.float64)
            count = arguments.with_shape("y_pred", found.row_lengths(), [tf.shape(lengths)[0]], "as many as y_true")
            with tf.control_dependencies([count]):
                errors = tf.edit_distance(_with_last_row(found), _with_last_row(truth), normalize=False)[:-1]
            errors = tf.cast(errors, tf.float64)
            if self.normalization == "sequence":
                errors /= tf.maximum(lengths, 1)
            total = tf.reduce_sum(lengths) if self.normalization == "total" else tf.cast(tf.size(lengths), tf.float64)
            self._add(tf.reduce_sum(errors), total)

    def _merged_options(self):
        return {"normalization": self.normalization}

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        options = ("tokens", "normalization", "pad_id", "decode", "blank_index")
        return {**super().get_config(), **{name: getattr(self, name) for name in options}}

    def _decoded(self, logits):
        """Returns the labels of logits, as ids and lengths, and the class of blank. Raises ValueError."""
        lengths, mask = None, getattr(logits, "_keras_mask", None)
        if isinstance(logits, tuple):
            if len(logits) != 2:
                raise ValueError(f"y_pred is a tuple of {len(logits)}, expected (logits, lengths)")
            logits, lengths = logits
        elif mask is not None:
            logits = tf.ragged.boolean_mask(logits, tf.cast(mask, tf.bool))
        logits, lengths = ragged.padded("y_pred", logits, "y_pred's lengths", lengths, padding=None)
        logits = arguments.float_tensor("y_pred", logits)
        logits = arguments.with_shape("y_pred", logits, [None] * 3, "[N, T, C], logits of CTC")
        best = ctc_decode.ctc_greedy_decode(logits, lengths, blank_index=self.blank_index)
        return (best.labels, best.lengths), sequence_arguments.blank_class(self.blank_index, logits)

    def _read(self, name, value):
        """Returns N sequences, without ids that are padding, as a RaggedTensor of int64 or of strings."""
        if self.tokens != "ids" and not ragged.is_ragged_or_sparse(value):
            texts = arguments.dense_tensor(name, value)
            if texts.dtype != tf.string:
                raise ValueError(f"{name} are {texts.dtype.name}, expected strings for tokens={self.tokens!r}")
            texts = arguments.with_shape(name, texts, [None], "[N], a string for each sequence")
            if self.tokens == "words":
                return tf.strings.split(tf.strings.regex_replace(texts, _WHITESPACE, " "))
            return tf.strings.unicode_split(texts, "UTF-8")
        if isinstance(value, tuple):
            if len(value) != 2 and not hasattr(value, "lengths"):
                raise ValueError(f"{name} is a tuple of {len(value)}, expected (ids, lengths)")
            sequences = _from_lengths(name, value[0], getattr(value, "lengths", value[1]))
        elif isinstance(value, tf.SparseTensor):
            sequences = _from_sparse(name, value)
        elif isinstance(value, tf.RaggedTensor):
            sequences = value
        else:
            ids = metric_arguments.whole_numbers(name, _ids(name, value))
            sequences = tf.ragged.boolean_mask(ids, (ids >= 0) & tf.not_equal(ids, self.pad_id))
        rank = sequences.shape.rank
        if sequences.ragged_rank != 1 or rank not in (2, None):
            logits = _LOGITS if rank == 3 else ""
            raise ValueError(f"{name} has shape {sequences.shape}, expected [N, None]: a sequence in each row{logits}")
        values = arguments.with_shape(f"{name}'s values", sequences.values, [None], "a token in each place")
        is_text = values.dtype is tf.string
        return sequences.with_values(values if is_text else metric_arguments.whole_numbers(name, values))
