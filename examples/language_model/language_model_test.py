"""Tests of the example's text and model."""

import data
import keras
import model
import numpy as np


def test_text():
    text = data.load()
    assert text.training.tobytes().startswith(b'The "assert" statement')
    assert len(text.held_out) > 10_000
    for batches in (data.batches(text.training, 50, 3, seed=1), data.in_order(text.training, 50, 3)):
        inputs, labels = next(iter(batches))
        assert inputs.shape == labels.shape == (3, 50)
        np.testing.assert_array_equal(inputs[:, 1:], labels[:, :-1])
        for piece in inputs.numpy():
            assert piece.tobytes() in text.training.tobytes()


def test_attention_is_causal_and_the_same():
    text = np.random.default_rng(0).integers(model.BYTES, size=[2, 100], dtype=np.uint8)
    logits = []
    for attention in model.ATTENTIONS:
        keras.utils.set_random_seed(0)
        network = model.build(attention, steps=10)
        logits.append(network(text).numpy())
        np.testing.assert_allclose(network(text[:, :60]), logits[-1][:, :60], atol=1e-5)
    np.testing.assert_allclose(*logits, atol=1e-5)
