"""What sample and stochastic_beam_search are asked for: options, seeds, which tokens may be drawn."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensorflow_ops.seq2seq.python.ops import seq2seq_arguments as arguments


def row_seeds(seed, batch_size):
    """Seeds [B, 2]. Raises ValueError."""
    seed = tf.convert_to_tensor(seed, dtype_hint=tf.int32)
    if not seed.dtype.is_integer:
        raise ValueError(f"seed is {seed.dtype.name}, expected int32")
    seed = tf.cast(seed, tf.int32)
    if seed.shape.rank == 2:
        arguments.check_shape("seed", seed, [tf.get_static_value(batch_size), 2], "two numbers for each example")
        check = tf.debugging.assert_equal(
            tf.shape(seed), [batch_size, 2], "seed, expected two numbers for each example"
        )
        with tf.control_dependencies([check]):
            return tf.identity(seed)
    if not seed.shape.is_fully_defined() or seed.shape != [2]:
        raise ValueError(f"seed is of shape {arguments.text(seed.shape)}, expected [2] or [batch_size,2]")
    return tf.random.split(seed, batch_size, alg="philox")


def split_seeds(seeds, count):
    """`count` seeds for each seed of [B, 2]: [B * count, 2]."""
    return tf.reshape(_in_a_graph(_split, seeds, tf.convert_to_tensor(count)), [-1, 2])


def uniform(seeds, shape):
    """Numbers in [0, 1), float64 [B, *shape]: an example's depend on its seed alone.

    They have 53 bits, or rare tokens would never come.
    """
    return _in_a_graph(_uniform, seeds, tf.stack(shape))


def uniform_of_step(seeds, shape, step):
    """`uniform` of seeds that have the step folded in."""
    return _in_a_graph(_uniform_of_step, seeds, tf.stack(shape), tf.convert_to_tensor(step))


# TensorFlow draws for one seed at a time. In a graph that takes microseconds for each, eagerly milliseconds.


def _split(seeds, count):
    spec = tf.TensorSpec([None, 2], tf.int32)
    return tf.map_fn(lambda seed: tf.random.split(seed, count, alg="philox"), seeds, fn_output_signature=spec)


def _uniform(seeds, shape):
    return _of_each(lambda seed: seed, seeds, shape)


def _uniform_of_step(seeds, shape, step):
    return _of_each(lambda seed: tf.random.fold_in(seed, step, alg="philox"), seeds, shape)


def _of_each(seed_of, seeds, shape):
    def draw(seed):
        return tf.random.stateless_uniform(shape, seed_of(seed), dtype=tf.float64, alg="philox")

    spec = tf.TensorSpec([None] * shape.shape[0], tf.float64)
    # Without a seed, map_fn does not know the shape of what it makes.
    return tf.map_fn(draw, tf.pad(seeds, [[0, 1], [0, 0]]), fn_output_signature=spec)[:-1]


_TRACED = {f: tf.function(f, autograph=False, reduce_retracing=True) for f in (_split, _uniform, _uniform_of_step)}


def _in_a_graph(function, *tensors):
    return _TRACED[function](*tensors) if tf.executing_eagerly() else function(*tensors)


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
    """What sample or stochastic_beam_search was asked for, checked."""

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
    def checked(
        cls,
        *,
        max_length,
        eos_ids,
        temperature,
        top_k,
        top_p,
        min_p,
        typical_p,
        pad_id,
        min_length,
        num_return_sequences,
        logits_processor,
    ):
        """Raises ValueError."""
        eos_ids = arguments.eos_tuple(eos_ids)
        if num_return_sequences is not None:
            num_return_sequences = arguments.static_int("num_return_sequences", num_return_sequences, 1)
        return cls(
            num_return_sequences=num_return_sequences,
            logits_processor=arguments.function_or_none("logits_processor", logits_processor),
            min_p=arguments.number_in_range("min_p", min_p, "a number in [0, 1]", lambda x: (x >= 0) & (x <= 1)),
            typical_p=arguments.number_in_range(
                "typical_p", typical_p, "a number above 0, at most 1", lambda x: (x > 0) & (x <= 1)
            ),
            max_length=arguments.int_scalar("max_length", max_length, 1),
            eos_ids=eos_ids,
            temperature=arguments.number_in_range(
                "temperature", temperature, "a finite number that is not negative", lambda x: (x >= 0) & (x < math.inf)
            ),
            top_k=arguments.static_int("top_k", top_k, 0),
            top_p=arguments.number_in_range(
                "top_p", top_p, "a number above 0, at most 1", lambda x: (x > 0) & (x <= 1)
            ),
            pad_id=arguments.pad(pad_id, eos_ids),
            min_length=arguments.int_scalar("min_length", min_length, 0),
        )

    @property
    def is_greedy(self):
        return isinstance(self.temperature, float) and self.temperature == 0

    def has(self, name, everything):
        """Whether a filter takes anything away; a tensor may."""
        value = getattr(self, name)
        return not (isinstance(value, float) and value == everything)

    def without_ends(self, logits, forbidden):
        """Logits [B, V], the end tokens' at -inf where a bool scalar says so. An end that is no token is an error."""
        if not self.eos_ids:
            return logits
        largest, tokens = max(self.eos_ids), tf.shape(logits)[-1]
        check = tf.debugging.assert_less(largest, tokens, f"one of eos_ids is {largest}, expected a token of logits")
        with tf.control_dependencies([check]):
            is_eos = tf.reduce_any(tf.range(tokens)[:, tf.newaxis] == tf.constant(self.eos_ids), -1)
        return tf.where(forbidden & is_eos, tf.constant(-float("inf"), logits.dtype), logits)

    def weights(self, logits):
        """What tokens are drawn by, float64 [B, N], of logits that are sorted for top_p; and whether there are any."""
        logits = tf.stop_gradient(tf.cast(logits, tf.float64))
        largest = tf.reduce_max(logits, -1, keepdims=True)
        exists = largest[:, 0] > -float("inf")
        # Where there is no token, the rest is computed on zeros.
        logits = tf.where(exists[:, tf.newaxis], logits - largest, tf.zeros_like(logits))
        if isinstance(self.temperature, float) and self.temperature > 0:
            weights = tf.exp(logits / self.temperature)
        else:
            positive = tf.where(self.temperature > 0, self.temperature, tf.ones([], tf.float64))
            first = tf.one_hot(tf.argmax(logits, -1), tf.shape(logits)[-1], dtype=tf.float64)
            weights = tf.where(self.temperature > 0, tf.exp(logits / positive), first)
        return self._filtered(weights), exists

    def _filtered(self, weights):
        """Weights [B, N], the largest first for top_p, with 0 for what the filters behind top_k take away."""
        nothing = tf.zeros_like(weights)
        if self.has("top_p", 1):
            before = tf.cumsum(weights, axis=-1, exclusive=True)
            weights = tf.where(before < self.top_p * tf.reduce_sum(weights, -1, keepdims=True), weights, nothing)
        if self.has("min_p", 0):
            least = self.min_p * tf.reduce_max(weights, -1, keepdims=True)
            weights = tf.where(weights >= least, weights, nothing)
        if self.has("typical_p", 1):
            p = weights / tf.reduce_sum(weights, -1, keepdims=True)
            surprise = -tf.math.log(p)
            distance = tf.abs(surprise - tf.reduce_sum(tf.math.multiply_no_nan(surprise, p), -1, keepdims=True))
            order = tf.argsort(distance, stable=True)
            of_order = tf.gather(p, order, batch_dims=1)
            is_kept = tf.cumsum(of_order, axis=-1, exclusive=True) < self.typical_p
            # As many as the last one that is kept is far.
            farthest = tf.reduce_max(
                tf.where(is_kept, tf.gather(distance, order, batch_dims=1), nothing), -1, keepdims=True
            )
            weights = tf.where(distance <= farthest, weights, nothing)
        return weights
