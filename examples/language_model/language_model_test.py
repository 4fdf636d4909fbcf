"""Tests of the example's text, model and generation."""

import data
import generate
import keras
import model
import numpy as np
import pytest

import tensorflow_ops as tfo


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


@pytest.mark.parametrize(
    ("search", "options"), [(tfo.seq2seq.sample, {"seed": [1, 2]}), (tfo.seq2seq.beam_search, {"beam_width": 3})]
)
def test_generation_has_the_probabilities_of_the_model(search, options):
    """The state has read the prompt, and each step one byte; the model reads the whole text."""
    keras.utils.set_random_seed(0)
    network, prompt = model.build("composed", steps=10), b"The statement"
    written = generate.write(network, prompt, 20, search, **options)
    text = np.array([[*prompt, *np.ravel(written.sequences)]])
    log_probs = tfo.nn.label_log_prob(text[:, 1:], network(text[:, :-1]))[0, len(prompt) - 1 :]
    np.testing.assert_allclose(np.ravel(written.log_probs), np.sum(log_probs), rtol=1e-5)
