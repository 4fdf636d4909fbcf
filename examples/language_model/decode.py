"""Decodes by beam search with weights of 4 bits: with caches that the search copies, with KeyValueCache, and fused."""

import contextlib
import pathlib
import time
from typing import NamedTuple

import generate
import keras
import numpy as np
import tensorflow as tf
import training

import tensorflow_ops as tfo

BEAMS, LENGTH = 4, 200


class Reordered(NamedTuple):
    """Keys and values [N, T, heads, depth], which a beam search copies after each step."""

    keys: tf.Tensor
    values: tf.Tensor

    @classmethod
    def create(cls, batch_size, max_length, num_heads, depth):
        del max_length
        none = tf.zeros([batch_size, 0, num_heads, depth])
        return cls(none, none)

    def append(self, key, value):
        return Reordered(tf.concat([self.keys, key], 1), tf.concat([self.values, value], 1))

    def attend(self, query):
        return tfo.nn.attention(query, self.keys, self.values, causal=True)


def program(network: keras.Model, cache: type):
    """Returns a tf.function from a prompt, uint8 [T], to the likeliest LENGTH bytes after it, and their log_prob."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.uint8, "prompt")], autograph=False)
    def write(prompt):
        text = tf.cast(prompt, tf.int32)[tf.newaxis]
        written = generate.search(network, text, LENGTH, tfo.seq2seq.beam_search, cache, beam_width=BEAMS)
        return {"text": tf.cast(written.sequences[0, 0], tf.uint8), "log_prob": written.log_probs[0, 0]}

    return write


def compare(network: keras.Model, prompt: bytes, folder: pathlib.Path) -> None:
    """Times three programs, and saves the last, which a new process runs. Exits if they write different texts."""
    network.quantize("int4")
    print(f"\n{f'{LENGTH} bytes, {BEAMS} beams, 4 bits':30}{'bytes/s':>10}{'log probability':>18}")
    texts = {}
    for name, cache, switch in (
        ("reordered caches", Reordered, contextlib.nullcontext()),
        ("KeyValueCache", tfo.seq2seq.KeyValueCache, contextlib.nullcontext()),
        ("KeyValueCache, use_fused_ops", tfo.seq2seq.KeyValueCache, tfo.layers.use_fused_ops()),
    ):
        with switch:
            write = program(network, cache)
            start_of_text = tf.constant(np.frombuffer(prompt, np.uint8))
            write(start_of_text)  # traces
            start = time.monotonic()
            written = write(start_of_text)
            texts[name] = prompt + written["text"].numpy().tobytes()
            seconds = time.monotonic() - start
        print(f"{name:30}{LENGTH / seconds:10.0f}{written['log_prob']:18.4f}", flush=True)
    tf.saved_model.save(network, str(folder), signatures=write)
    texts["served"] = bytes.fromhex(training.call("serve.py", folder, prompt.hex()))
    print(texts["served"].decode(errors="replace"))
    if len(set(texts.values())) > 1:
        raise SystemExit("NOT THE SAME: the programs write different texts")
