"""Error rates of sequences as a Keras metric."""

from typing import Any, Literal

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.metrics.python.ops import metric_arguments

_NORMALIZATIONS = ("total", "sequence", None)
_TOKENS = ("ids", "characters", "words")


def _ids(name, value):
    """Returns numbers [N, L]. Raises ValueError."""
    ids = arguments.int_tensor(name, value)
    if ids.dtype == tf.string:
        raise ValueError(f'{name} are string, expected ids; tokens="words" or "characters" takes strings [N]')
    return arguments.with_shape(name, ids, [None, None], "[N, L], padded ids")


def _from_lengths(name, ids, lengths):
    """Returns the sequences of padded ids [N, L] as a RaggedTensor."""
    ids = _ids(name, ids)
    rows, size = tf.unstack(tf.shape(ids, tf.int64))
    text = f"{name}'s lengths"
    lengths = arguments.tensor_of_kind(text, lengths, tf.int64)
    lengths = arguments.with_shape(text, lengths, [tf.cast(rows, tf.int32)], "[N] with the ids' N")
    lengths = arguments.checked(text, lengths, (lengths >= 0) & (lengths <= size), "[0, L] of ids [N, L]")
    return tf.RaggedTensor.from_tensor(ids, lengths)


def _with_last_row(sequences):
    """Returns a RaggedTensor as a SparseTensor with one empty row more: tf.edit_distance refuses no rows."""
    sparse = sequences.to_sparse()
    return tf.SparseTensor(sparse.indices, sparse.values, sparse.dense_shape + tf.constant([1, 0], tf.int64))


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class EditDistance(keras.metrics.Metric):
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
    - a RaggedTensor or SparseTensor of ids or of strings, which are tokens;
    - with tokens "characters" or "words": strings [N].

    Args:
      tokens: "ids"; "characters", Unicode's of UTF-8 strings, for the character error rate;
        "words", separated by whitespace, for the word error rate.
      normalization: "total": all errors as a fraction of all tokens of references;
        "sequence": the mean over sequences of each one's errors as a fraction of its
        reference's tokens; None: the mean number of errors of a sequence. An empty
        reference counts as one token for "sequence".
      pad_id: an int that is left out of ids [N, L], besides negative ones.
      name: name of the metric.
      dtype: dtype of the result. None is `keras.config.floatx()`.

    Raises:
      ValueError: an option, a shape or a dtype that is not as above; weights.
      NotImplementedError: under ParameterServerStrategy.
      tf.errors.InvalidArgumentError: lengths out of their range.
      tf.errors.UnimplementedError: compiled by XLA, which has no `tf.edit_distance`.
    """

    def __init__(
        self,
        tokens: Literal["ids", "characters", "words"] = "ids",
        *,
        normalization: Literal["total", "sequence"] | None = "total",
        pad_id: int = -1,
        name: str = "edit_distance",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.tokens = arguments.one_of("tokens", tokens, _TOKENS)
        if normalization not in _NORMALIZATIONS:
            raise ValueError(f"normalization is {normalization!r}, expected one of 'total', 'sequence', None")
        self.normalization = normalization
        self.pad_id = arguments.static_int("pad_id", pad_id, -(2**31))
        self._errors = self.add_variable((), "zeros", "float64", name="errors")
        self._total = self.add_variable((), "zeros", "float64", name="total")

    @autograph.marked
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: None = None) -> None:
        """Adds sequences; the class describes the arguments."""
        metric_arguments.check_update(self, sample_weight)
        with tf.device("CPU:0"):
            truth, found = (self._read(name, value) for name, value in (("y_true", y_true), ("y_pred", y_pred)))
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
            self._errors.assign_add(tf.reduce_sum(errors))
            self._total.assign_add(total)

    @autograph.marked
    def merge_state(self, metrics: Any) -> None:
        """Adds the sequences of other metrics of the same normalization."""
        for other in metrics:
            if not isinstance(other, EditDistance) or other.normalization != self.normalization:
                text = f"tfo.metrics.EditDistance(normalization={self.normalization!r})"
                raise ValueError(f"metrics contains {other!r}, expected {text}")
            self._errors.assign_add(other._errors)
            self._total.assign_add(other._total)

    @autograph.marked
    def result(self) -> tf.Tensor:
        """Returns the rate, a scalar of the metric's dtype: 0 before the first sequence."""
        # Without tokens in references, the number of errors.
        errors, total = (tf.convert_to_tensor(variable) for variable in (self._errors, self._total))
        return tf.cast(errors / tf.maximum(total, 1), self.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        options = {"tokens": self.tokens, "normalization": self.normalization, "pad_id": self.pad_id}
        return {**super().get_config(), **options}

    def _read(self, name, value):
        """Returns N sequences as a RaggedTensor of int64 or of strings. Raises ValueError."""
        if self.tokens != "ids" and not isinstance(value, tf.RaggedTensor | tf.SparseTensor):
            texts = arguments.dense_tensor(name, value)
            if texts.dtype != tf.string:
                raise ValueError(f"{name} are {texts.dtype.name}, expected strings for tokens={self.tokens!r}")
            texts = arguments.with_shape(name, texts, [None], "[N], a string for each sequence")
            return tf.strings.split(texts) if self.tokens == "words" else tf.strings.unicode_split(texts, "UTF-8")
        if isinstance(value, tuple):
            if len(value) != 2 and not hasattr(value, "lengths"):
                raise ValueError(f"{name} is a tuple of {len(value)}, expected (ids, lengths)")
            sequences = _from_lengths(name, value[0], getattr(value, "lengths", value[1]))
        elif isinstance(value, tf.SparseTensor):
            sequences = tf.RaggedTensor.from_sparse(value)
        elif isinstance(value, tf.RaggedTensor):
            sequences = value
        else:
            ids = tf.cast(_ids(name, value), tf.int64)
            sequences = tf.ragged.boolean_mask(ids, (ids >= 0) & tf.not_equal(ids, self.pad_id))
        if sequences.shape.rank != 2:
            raise ValueError(f"{name} has shape {sequences.shape}, expected [N, None]: a sequence in each row")
        return sequences if sequences.dtype == tf.string else tf.cast(sequences, tf.int64)
