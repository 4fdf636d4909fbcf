"""The loop of ctc_beam_search_decode with a language model: a call of step_fn and a step op for each frame."""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.nn.python.ops import sequence_arguments
from tensorflow_ops.seq2seq.python.ops import beam_search_ops, decoder

# The sizes of a prefix in the step op (ctc_decode.h): log probabilities of paths that end with blank and with a label,
# and the score's bonus; the last label, and two ids of two numbers.
_WEIGHTS, _IDS = 3, 5


class _Loop(NamedTuple):
    """The loop's variables. K prefixes for each example, best first."""

    frame: tf.Tensor  # frames done
    weights: tf.Tensor  # float64 [B, K, _WEIGHTS]
    prefixes: tf.Tensor  # int64 [B, K, _IDS]
    last_labels: tf.Tensor  # int32 [B * K]; blank for the empty prefix
    states: list  # of prefixes without their last label, each [B * K, ...]
    label_list: tf.Tensor  # decoder.Steps of [B, K]: added labels, or -1
    parent_list: tf.Tensor


class CtcSearch:
    """A search: its logits, its options, and constants of the loop."""

    def __init__(self, logits, lengths, width, attrs):
        """Takes checked options, logits and lengths of any shapes. Raises ValueError."""
        arguments.check_shape("logits", logits, [None, None, None], "[batch, frames, classes]")
        logits = tf.ensure_shape(logits, [None, None, None])
        blank, classes = attrs["blank_index"], logits.shape[2]
        if classes is not None and blank >= classes:
            raise ValueError(f"blank_index is {blank}, expected [0, {classes}), or -1: the last class")
        self._static_batch = logits.shape[0]
        self._batch = tf.shape(logits)[0] if self._static_batch is None else self._static_batch
        lengths = arguments.with_shape("logit_lengths", lengths, [self._batch], "one for each example")
        frames = "logits' frames" if logits.shape[1] is None else logits.shape[1]
        is_valid = (lengths >= 0) & (lengths <= tf.shape(logits, lengths.dtype)[1])
        self._lengths = tf.cast(arguments.checked("logit_lengths", lengths, is_valid, f"[0, {frames}]"), tf.int32)
        self._logits, self._width, self._attrs = logits, width, attrs
        self._beam = tf.stack([self._batch, width])
        self._first_rows = tf.range(self._batch)[:, tf.newaxis] * width
        self._steps = decoder.Steps(self._beam)

    def model(self, step_fn, initial_state):
        """Returns the language model. Raises ValueError."""
        return decoder.Decoder(step_fn, initial_state, self._batch, self._width)

    def run(self, model, lm_weight, label_bonus, paths, pad_id):
        """Returns the fields of a CtcBeamSearchDecode."""
        # 0 without examples, whose maximum is the lowest number.
        frames = tf.maximum(tf.reduce_max(self._lengths), 0)
        start = self._start(model)
        batch, width = self._static_batch, self._width
        rows = None if batch is None else batch * width
        invariants = _Loop(
            frame=tf.TensorShape([]),
            weights=tf.TensorShape([batch, width, _WEIGHTS]),
            prefixes=tf.TensorShape([batch, width, _IDS]),
            last_labels=tf.TensorShape([rows]),
            states=list(map(tf.TensorShape, model.state_shapes)),
            label_list=tf.TensorShape([]),
            parent_list=tf.TensorShape([]),
        )
        with tf.control_dependencies(autograph.last_check()):
            (end,) = tf.while_loop(
                lambda loop: loop.frame < frames,
                lambda loop: [self._step(model, lm_weight, label_bonus, loop)],
                [start],
                shape_invariants=[invariants],
            )
        return self._result(end, frames, paths, pad_id)

    def _start(self, model):
        """Starts from the empty prefix; the others are missing, with log probability -inf."""
        nothing = -float("inf")
        first = [[0.0, nothing, 0.0], *[[nothing, nothing, 0.0]] * (self._width - 1)]
        empty = [[-1, 0, 0, 0, 0]] * self._width
        num_frames = tf.shape(self._logits)[1]
        return _Loop(
            frame=tf.constant(0),
            weights=tf.tile(tf.constant([first], tf.float64), [self._batch, 1, 1]),
            prefixes=tf.tile(tf.constant([empty], tf.int64), [self._batch, 1, 1]),
            last_labels=tf.fill([model.rows], sequence_arguments.blank_class(self._attrs["blank_index"], self._logits)),
            states=model.state,
            label_list=self._steps.reserve(num_frames),
            parent_list=self._steps.reserve(num_frames),
        )

    def _step(self, model, lm_weight, label_bonus, loop):
        """Advances all prefixes by a frame."""
        logits = tf.gather(self._logits, loop.frame, axis=1)
        # A prefix that stayed is read again: its row costs the model nothing more, and needs no cache.
        scores, states = model(loop.last_labels, loop.states)
        scores = tf.cast(scores, self._attrs["Tvalue"])
        scores = tf.reshape(scores, tf.concat([self._beam, tf.shape(scores)[1:]], 0))
        weights, prefixes, parents, labels = ops.tensorflow_ops_ctc_beam_search_step(
            logits,
            loop.frame < self._lengths,
            loop.weights,
            loop.prefixes,
            scores,
            # Within the loop, which would keep constants from outside on a GPU.
            arguments.in_host_memory(lm_weight, tf.float64),
            arguments.in_host_memory(label_bonus, tf.float64),
            blank_index=self._attrs["blank_index"],
        )
        rows = tf.reshape(parents + self._first_rows, [-1])
        added = tf.reshape(labels, [-1])
        is_new = added >= 0
        return _Loop(
            frame=loop.frame + 1,
            weights=weights,
            prefixes=prefixes,
            last_labels=tf.where(is_new, added, tf.gather(loop.last_labels, rows)),
            states=[_choose(is_new, rows, *pair) for pair in zip(states, loop.states, strict=True)],
            label_list=self._steps.write(loop.label_list, loop.frame, labels),
            parent_list=self._steps.write(loop.parent_list, loop.frame, parents),
        )

    def _result(self, end, frames, paths, pad_id):
        dtype = self._attrs["Tvalue"]
        weights = end.weights[:, :paths]
        log_probs = tf.reduce_logsumexp(weights[..., :2], -1)
        added, parents = (self._steps.stack(steps) for steps in (end.label_list, end.parent_list))
        tree = beam_search_ops.gather_tree(added, parents, tf.fill(self._beam, frames), pad_id=-1)
        tree = tf.transpose(tree[:, :, :paths], [1, 2, 0])
        # The tree has the best sequence's labels in place of missing ones.
        is_label = (tree >= 0) & (log_probs > -float("inf"))[..., tf.newaxis]
        lengths = tf.reduce_sum(tf.cast(is_label, tf.int32), -1)
        times = tf.range(tf.shape(tree)[2])
        # The labels to the front, in their order.
        order = tf.argsort(tf.where(is_label, times, times + tf.size(times)))
        labels = beam_search_ops.gather_by_beam(tree, order)
        labels = tf.where(times < lengths[..., tf.newaxis], labels, pad_id)
        shape = [self._static_batch, paths, self._logits.shape[1]]
        return (
            tf.ensure_shape(labels, shape),
            lengths,
            tf.cast(log_probs + weights[..., 2], dtype),
            tf.cast(log_probs, dtype),
        )


def _choose(is_new, rows, after, before):
    """Returns states of prefixes: after their parent's last label, or of those that stayed, before their own."""
    if not after.shape.is_compatible_with(before.shape):
        texts = arguments.shape_text(after.shape), arguments.shape_text(before.shape)
        raise ValueError(f"step_fn's state is {texts[0]}, expected {texts[1]}: the shape it was given")
    mask = tf.reshape(is_new, tf.concat([tf.shape(is_new), tf.ones([tf.rank(after) - 1], tf.int32)], 0))
    return tf.where(mask, tf.gather(after, rows), tf.gather(before, rows))
