"""Tests of the example's lines and rule."""

import data
import numpy as np


def test_check_digit_finds_every_wrong_digit():
    assert data.is_valid(np.array([7, 3, 5, 1, 3, 5, 3, 7]))  # 7351353-7, the usual example of EAN-8
    number = data.with_check_digit(np.arange(8))
    for place in range(data.DIGITS):
        wrong = np.tile(number, [10, 1])
        wrong[:, place] = np.arange(10)
        assert data.is_valid(wrong).sum() == 1


def test_lines():
    lines = data.draw_lines(20, training=False, seed=[0])
    assert lines.images.shape == (20, data.HEIGHT, data.WIDTH, 1)
    assert data.is_valid(lines.numbers).all()
