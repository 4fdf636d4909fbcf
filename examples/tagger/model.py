"""Two networks that score tags, each of which can end in a CRF."""

from typing import NamedTuple

import data
import keras
import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

UNITS = 16  # in each direction
LEARNING_RATES = {"table": 0.1, "LSTM": 0.01}


class Tagged(NamedTuple):
    """A model's predictions for records."""

    tags: np.ndarray  # int32 [N, T]
    probabilities: np.ndarray  # float32 [N, T, tags]


def build(network: str, crf: bool, steps: int) -> keras.Model:
    """Returns a compiled model from weather [N, T] to scores of tags [N, T, tags]; its labels are padded with -1.

    The network "table" has a score for each weather and tag, so it sees one day. "LSTM" sees
    the whole record.
    """
    model = keras.Sequential([keras.Input([None], dtype="int32")])
    if network == "table":
        model.add(keras.layers.Embedding(1 + len(data.WEATHERS), len(data.SEASONS)))
    else:
        model.add(keras.layers.Embedding(1 + len(data.WEATHERS), 8, mask_zero=True))
        model.add(keras.layers.Bidirectional(keras.layers.LSTM(UNITS, return_sequences=True)))
        model.add(keras.layers.Dense(len(data.SEASONS)))
    if crf:
        model.add(tfo.layers.CRF(len(data.SEASONS)))
        loss = tfo.losses.CRF()
    else:
        loss = tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=-1)
    schedule = keras.optimizers.schedules.CosineDecay(LEARNING_RATES[network], steps)
    model.compile(keras.optimizers.Adam(schedule), loss)
    return model


def tag(model: keras.Model, records: data.Records) -> Tagged:
    """Tags records: with a CRF by the best sequence of tags, without one by the best tag of each day."""
    scores, last = model(records.weather), model.layers[-1]
    if isinstance(last, tfo.layers.CRF):
        best = last.decode(scores, records.lengths)
        return Tagged(best.labels.numpy(), last.marginals(scores, records.lengths).numpy())
    return Tagged(tf.argmax(scores, -1, tf.int32).numpy(), tfo.nn.softmax(scores).numpy())


def tag_by_truth(records: data.Records) -> Tagged:
    """Tags records by the probabilities that they were drawn with: no model's are better."""
    logits, transitions = data.true_scores(records)
    best = tfo.nn.crf_decode(logits, transitions, lengths=records.lengths)
    return Tagged(best.labels.numpy(), tfo.nn.crf_marginals(logits, transitions, lengths=records.lengths).numpy())
