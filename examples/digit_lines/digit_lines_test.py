"""Tests of the example's measure and rule."""

import data
import metrics
import numpy as np


def test_edit_distance():
    assert metrics.edit_distance("", "123") == metrics.edit_distance("123", "") == 3
    assert metrics.edit_distance("12345", "1345") == 1
    assert metrics.edit_distance("1234", "2341") == 2
    assert metrics.edit_distance("kitten", "sitting") == 3
    assert metrics.label_error_rate(["12", "3"], ["12", "45"]) == 2 / 4


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
