"""Continues a text: a step computes one byte, whose attention reads keys and values of earlier bytes from a cache."""

from collections.abc import Callable

import keras
import tensorflow as tf
from model import HEADS, LAYERS, WIDTH

import tensorflow_ops as tfo


def read(network: keras.Model, text, state):
    """Returns the model's logits for the next bytes of a text, [N, T], and the state after them.

    The state holds what later bytes read: three bytes before the convolution, a cache of each block.
    """
    embed, convolve, *blocks, normalize, to_logits = [layer for layer in network.layers if layer.weights]
    x = embed(text)
    near, caches = tf.concat([state["near"], x], 1), []
    x = convolve(near)[:, 3:]
    # Five layers, and a cache, of each block.
    layers = zip(*[iter(blocks)] * 5, state["caches"], strict=True)
    for normalize_attended, attention, normalize_hidden, expand, project, cache in layers:
        normalized = normalize_attended(x)
        cache = cache.append(attention.key_dense(normalized), attention.value_dense(normalized))
        x += attention.output_dense(cache.attend(attention.query_dense(normalized)))
        x += project(expand(normalize_hidden(x)))
        caches.append(cache)
    return to_logits(normalize(x)), {"near": near[:, -3:], "caches": caches}


def search(network: keras.Model, text, max_length: int, function: Callable, cache=tfo.seq2seq.KeyValueCache, **options):
    """Returns the result of tfo.seq2seq.sample, or of another search, which adds max_length bytes to a text, [1, T]."""
    first = cache.create(1, tf.shape(text)[1] + max_length, HEADS, WIDTH // HEADS)
    _, state = read(network, text[:, :-1], {"near": tf.zeros([1, 3, WIDTH]), "caches": [first] * LAYERS})

    def step_fn(token_ids, state):
        logits, state = read(network, token_ids[:, tf.newaxis], state)
        return logits[:, 0], state

    return function(step_fn, state, batch_size=1, bos_id=text[:, -1], eos_ids=[], max_length=max_length, **options)


def write(network: keras.Model, prompt: bytes, max_length: int, function: Callable = tfo.seq2seq.sample, **options):
    """Returns the result of `search` in a graph."""
    call = tf.function(lambda text: search(network, text, max_length, function, **options), autograph=False)
    return call(tf.constant([list(prompt)]))
