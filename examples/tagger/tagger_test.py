"""Tests of the example's data and measures."""

import data
import metrics
import numpy as np


def test_spans():
    assert metrics.spans([2, 2, 0, 1, 1, 1]) == [(2, 0, 2), (0, 2, 3), (1, 3, 6)]
    assert metrics.overlap(metrics.Span(0, 0, 4), metrics.Span(0, 2, 6)) == 1 / 3
    assert metrics.overlap(metrics.Span(0, 0, 2), metrics.Span(0, 5, 6)) == 0


def test_span_f1():
    truth = np.array([[0, 0, 0, 0, 1, 1], [2, 2, 3, -1, -1, -1]])
    # Right: three of the first four days, and the whole last day; wrong: a half of the two
    # days of tag 1, and the two days of tag 2.
    tags = np.array([[0, 0, 0, 1, 1, 1], [0, 0, 3, 0, 0, 0]])
    tags[0, 5] = 2
    assert metrics.span_f1(tags, truth, np.array([6, 3])) == 2 * 2 / (5 + 4)
    assert metrics.span_f1(truth, truth, np.array([6, 3])) == 1


def test_records():
    records = data.draw_records(200, seed=0)
    inside = np.arange(data.LONGEST) < records.lengths[:, np.newaxis]
    np.testing.assert_array_equal(records.seasons >= 0, inside)
    np.testing.assert_array_equal(records.weather > 0, inside)
    # Each season follows the one before it.
    change = np.diff(records.seasons)[inside[:, 1:]] % 4
    assert set(change) == {0, 1}
    assert abs(change.mean() - data.CHANGE) < 0.005
    # Spring and autumn have the same weather.
    share = [np.bincount(records.weather[records.seasons == season])[1:] for season in range(4)]
    np.testing.assert_allclose([row / row.sum() for row in share], data.WEATHER, atol=0.02)
