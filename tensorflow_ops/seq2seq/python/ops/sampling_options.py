"""The options of sample and stochastic_beam_search: checks, seeds, the filters of tokens."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.seq2seq.python.ops import sampling_filters, seq2seq_arguments


def row_seeds(seed, batch_size):
    """Returns a seed for each example, [B, 2]. Raises ValueError."""
    seed = arguments.dense_tensor("seed", seed, dtype_hint=tf.int32)
    if not seed.dtype.is_integer:
        raise ValueError(f"seed is {seed.dtype.name}, expected int32")
    seed = tf.cast(seed, tf.int32)  # fits: the lower bits are the result
    if seed.shape.rank == 2:
        return arguments.with_shape("seed", seed, [batch_size, 2], "two numbers for each example")
    if not seed.shape.is_fully_defined() or seed.shape != [2]:
        raise ValueError(f"seed is of shape {arguments.shape_text(seed.shape)}, expected [2] or [batch_size,2]")
    return tf.random.split(seed, batch_size, alg="philox")


def split_seeds(seeds, count):
    """Splits each seed of [B, 2] into `count` seeds. Returns [B * count, 2]."""
    return tf.reshape(_in_a_graph(_split, seeds, tf.convert_to_tensor(count)), [-1, 2])


def uniform(seeds, shape):
    """Returns random numbers in [0, 1), float64 [B, *shape]: an example's depend on its seed only.

    They have 52 bits: with fewer, rare tokens would never be drawn.
    """
    return _as_uniform(_in_a_graph(_bits, seeds, tf.stack(shape)))


def uniform_of_step(seeds, shape, step):
    """Returns `uniform` of the seeds with the step folded in."""
    return _as_uniform(_in_a_graph(_bits_of_step, seeds, tf.stack(shape), tf.convert_to_tensor(step)))


def _as_uniform(bits):
    """Converts random bits, uint64, to the numbers of tf.random.stateless_uniform.

    Under XLA, TensorFlow draws the same bits and makes other numbers of them.
    """
    high = tf.bitwise.bitwise_and(bits, tf.constant(2**20 - 1, tf.uint64))
    low = tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64))
    return (tf.cast(high, tf.float64) * 2.0**32 + tf.cast(low, tf.float64)) * 2.0**-52


# TensorFlow's random ops take one seed at a time: microseconds for each in a graph, milliseconds eagerly.


def _split(seeds, count):
    return _by_row(lambda seed: tf.random.split(seed, count, alg="philox"), seeds, tf.TensorSpec([None, 2], tf.int32))


def _bits(seeds, shape):
    return _bits_by_row(lambda seed: seed, seeds, shape)


def _bits_of_step(seeds, shape, step):
    return _bits_by_row(lambda seed: tf.random.fold_in(seed, step, alg="philox"), seeds, shape)


def _bits_by_row(derive, seeds, shape):
    def draw(seed):
        return tf.random.stateless_uniform(shape, derive(seed), None, None, tf.uint64, alg="philox")

    return _by_row(draw, seeds, tf.TensorSpec([None] * shape.shape[0], tf.uint64))


def _by_row(function, seeds, spec):
    # A row more: for no rows map_fn would not know the results' shape.
    return tf.map_fn(function, tf.pad(seeds, [[0, 1], [0, 0]]), fn_output_signature=spec)[:-1]


_TRACED = {f: tf.function(f, autograph=False, reduce_retracing=True) for f in (_split, _bits, _bits_of_step)}


def _in_a_graph(function, *tensors):
    return _TRACED[function](*tensors) if tf.executing_eagerly() else function(*tensors)


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
    """The checked options of sample or stochastic_beam_search."""

    max_length: Any
    eos_ids: tuple[int, ...]
    temperature: Any
    top_k: int
    top_p: Any
    min_p: Any
    typical_p: Any
    pad_id: int
    min_length: Any
    num_return_sequences: int | None
    logits_processor: Callable | None

    @classmethod
    def checked(cls, **options):
        """Checks and converts the options; max_length has been checked. Raises ValueError."""
        options["eos_ids"] = seq2seq_arguments.eos_tuple(options["eos_ids"])
        options["top_k"] = arguments.static_int("top_k", options["top_k"], 0)
        options["temperature"] = arguments.number(
            "temperature", options["temperature"], "a finite number that is not negative", lambda x: x >= 0
        )
        options["top_p"] = seq2seq_arguments.positive_probability("top_p", options["top_p"])
        options["min_p"] = seq2seq_arguments.probability("min_p", options["min_p"])
        options["typical_p"] = seq2seq_arguments.positive_probability("typical_p", options["typical_p"])
        options["pad_id"] = seq2seq_arguments.pad_id_or_default(options["pad_id"], options["eos_ids"])
        options["min_length"] = arguments.int_scalar("min_length", options["min_length"], 0)
        if options["num_return_sequences"] is not None:
            options["num_return_sequences"] = arguments.static_int(
                "num_return_sequences", options["num_return_sequences"], 1
            )
        seq2seq_arguments.function_or_none("logits_processor", options["logits_processor"])
        return cls(**options)

    @property
    def is_greedy(self):
        return isinstance(self.temperature, float) and self.temperature == 0

    def has(self, name, keep_all):
        """Returns whether a filter may remove tokens: it is a tensor, or not the value that keeps all."""
        value = getattr(self, name)
        return not (isinstance(value, float) and value == keep_all)

    def without_ends(self, logits, is_forbidden):
        """Returns logits [B, V] with end tokens at -inf if the bool scalar is True; checks that they are tokens."""
        if not self.eos_ids:
            return logits
        eos_ids = seq2seq_arguments.tokens("eos_ids", self.eos_ids, logits)
        is_eos = tf.reduce_any(tf.equal(tf.range(tf.shape(logits)[-1])[:, tf.newaxis], eos_ids), -1)
        return tf.where(is_forbidden & is_eos, tf.constant(-float("inf"), logits.dtype), logits)

    def weights(self, logits):
        """Returns unnormalized probabilities after temperature and filters.

        Args:
          logits: [B, N], in decreasing order if there is top_p.

        Returns:
          float64 [B, N], and bool [B]: whether a row has a token.
        """
        logits, exists = sampling_filters.shifted(logits)
        if isinstance(self.temperature, float) and self.temperature > 0:
            weights = tf.exp(logits / self.temperature)
        else:
            positive = tf.where(self.temperature > 0, self.temperature, tf.ones([], tf.float64))
            first = tf.one_hot(tf.argmax(logits, -1), tf.shape(logits)[-1], dtype=tf.float64)
            weights = tf.where(self.temperature > 0, tf.exp(logits / positive), first)
        return self._filtered(weights), exists

    def _filtered(self, weights):
        """Returns weights [B, N], with 0 for tokens that the filters after top_k remove."""
        filters = (("top_p", 1), ("min_p", 0), ("typical_p", 1))
        for name, keep_all in filters:
            if self.has(name, keep_all):
                kept = getattr(sampling_filters, name)(weights, getattr(self, name))
                weights = tf.where(kept, weights, tf.zeros_like(weights))
        return weights
