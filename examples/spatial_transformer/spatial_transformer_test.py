"""Tests of the spatial transformer: `python -m pytest examples/spatial_transformer`, with tensorflow_ops installed."""

import affine
import data
import keras
import model
import numpy as np
import tensorflow as tf
import train


def placed(angle, scale, shift):
    """Returns one transform from degrees, a factor and (x, y)."""
    return affine.place(tf.constant([np.deg2rad(angle)], tf.float32), tf.constant([scale]), tf.constant([shift]))


def test_a_transform_moves_a_pixel_where_place_says():
    # The digit's right edge goes down by 90 degrees; the digit of half the size moves to the left.
    transform = placed(90.0, 0.5, [-0.4, 0.1])
    edge = affine.compose(transform, placed(0.0, 1.0, [0.0, 0.0]))[0].numpy() @ [-0.4, 0.1 + 0.5, 1.0]
    np.testing.assert_allclose(edge, [1, 0], atol=1e-6)
    np.testing.assert_allclose(np.rad2deg(affine.angle_of(transform)), [90], rtol=1e-6)


def test_the_inverse_straightens():
    digits = data.load(training=False)
    images = tf.image.resize(digits.images[:20], [data.SIZE, data.SIZE])
    transforms = data.draw_transforms(20, [3, 4])
    undone = affine.compose(transforms, affine.invert(transforms))
    np.testing.assert_allclose(undone, [affine.IDENTITY] * 20, atol=1e-5)
    np.testing.assert_allclose(affine.angle_of(affine.invert(transforms)), -affine.angle_of(transforms), atol=1e-6)
    turned = affine.warp(images, transforms, data.SIZE)
    straight = affine.warp(turned, affine.invert(transforms), data.SIZE)
    # Both warps interpolate, the first one to about half the size.
    assert np.abs(turned - images).mean() > 4 * np.abs(straight - images).mean()
    np.testing.assert_allclose(train.spread(tf.constant([affine.IDENTITY] * 3))["angle, degrees"], 0)


def test_batches_depend_on_the_seed():
    digits = data.load(training=True)
    first, second, other = (next(iter(data.training_batches(digits, seed, 8))) for seed in (1, 1, 2))
    assert first[0].shape == [8, data.SIZE, data.SIZE, 1]
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])
    assert np.abs(first[0] - other[0]).max() > 0.1


def test_an_untrained_transformer_changes_nothing_and_is_loaded(tmp_path):
    network = model.build(transformer=True)
    images = data.evaluation_set(data.load(training=False), seed=0, copies=1).images[:4]
    network.save(tmp_path / "network.keras")
    network = keras.saving.load_model(tmp_path / "network.keras")
    found = model.parts(network)(images)
    np.testing.assert_array_equal(found["transform"], [affine.IDENTITY] * 4)
    np.testing.assert_allclose(found["straightened"], images, atol=1e-5)
    assert network(images).shape == [4, data.CLASSES]
