"""Tests of the optical flow example: `python -m pytest examples/optical_flow`, with tensorflow_ops installed."""

import data
import keras
import model
import numpy as np
import picture
import pytest
import tensorflow as tf

import tensorflow_ops as tfo


@pytest.fixture(scope="module")
def pairs():
    return next(iter(data.pairs(data.photographs(training=False), seed=0, batch_size=8)))


def test_the_flow_brings_the_second_view_back_onto_the_first(pairs):
    back = tfo.image.dense_image_warp(pairs.second, -pairs.flow[..., ::-1])
    # Not to 0: the light differs, there is noise, and some places are outside of the second view.
    assert np.abs(back - pairs.first).mean() < 0.5 * np.abs(pairs.second - pairs.first).mean()


def test_pairs_depend_on_the_seed(pairs):
    again, other = (next(iter(data.pairs(data.photographs(training=False), seed, batch_size=8))) for seed in (0, 1))
    for ours, theirs, different in zip(pairs, again, other, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert np.abs(ours - different).max() > 0.1


def test_mean_displacement_finds_where_a_map_went():
    tf.random.set_seed(0)
    first = tf.random.normal([1, 9, 9, 64])
    second = tf.roll(first, [-1, 2], axis=[1, 2])  # up by 1, to the right by 2
    correlations = tfo.layers.CorrelationCost(3, padding=3)(first, second)
    np.testing.assert_allclose(model.MeanDisplacement()(correlations)[0, 4, 4], [2, -1], atol=1e-3)


@pytest.mark.parametrize("correlate", [False, True])
def test_a_network_is_loaded_and_estimates_alike(correlate, pairs, tmp_path):
    network = model.build(correlate)
    views = {"first": pairs.first, "second": pairs.second}
    expected = network(views)
    network.save(tmp_path / "network.keras")
    found = keras.saving.load_model(tmp_path / "network.keras")(views)
    for name in ("coarse", "fine"):
        assert expected[name].shape == pairs.flow.shape
        np.testing.assert_allclose(found[name], expected[name], atol=1e-4)


def test_colors_are_white_without_motion_and_opposite_for_opposite_flows():
    flow = np.float32([[0, 0], [picture.FASTEST, 0], [-picture.FASTEST, 0]])
    white, right, left = picture.color(flow).astype(int)
    assert white.tolist() == [255] * 3
    assert right.tolist() == [255, 0, 0]
    np.testing.assert_allclose(left, [0, 255, 255], atol=3)
