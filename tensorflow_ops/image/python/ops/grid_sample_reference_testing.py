"""grid_sample in NumPy float64, written from the definition."""

import numpy as np


def _reflect(p, low, high):
    """Reflects about low and high, one by one. Returns the place and the sign of its slope."""
    if not np.isfinite(p) or high == low:
        return p - p, 0.0
    sign = 1.0
    while not low <= p <= high:
        p = 2 * low - p if p < low else 2 * high - p
        sign = -sign
    return p, sign


def _cubic(x):
    a, x = -0.75, abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a


def _taps(g, size, mode, padding_mode, align_corners, normalized):
    """Returns [(pixel, weight, slope)] of a coordinate on one axis, None if the sample is NaN."""
    p, scale = g, 1.0
    if normalized:
        if np.isfinite(g):
            p = (g + 1) / 2 * (size - 1) if align_corners else ((g + 1) * size - 1) / 2
        scale = (size - 1) / 2 if align_corners else size / 2
    low, high = (0, size - 1) if align_corners else (-0.5, size - 0.5)
    if np.isnan(p) or (np.isinf(p) and padding_mode == "reflection"):
        return None
    if mode == "bicubic":
        if padding_mode != "reflection":
            p = np.clip(p, -5, size + 4)
        first = int(np.floor(p)) - 1
        taps = []
        for i in range(first, first + 4):
            step = 1e-6
            slope = (_cubic(p + step - i) - _cubic(p - step - i)) / (2 * step) * scale
            pixel = i
            if padding_mode == "reflection":
                pixel = round(float(_reflect(i, low, high)[0]))
            if padding_mode != "zeros":
                pixel = min(max(pixel, 0), size - 1)
            taps.append((pixel, _cubic(p - i), slope))
    else:
        if padding_mode == "reflection":
            p, sign = _reflect(p, low, high)
            scale *= sign
        if padding_mode != "zeros":
            p = np.clip(p, 0, size - 1)
            scale = scale if 0 < p < size - 1 else 0.0
        if not -2 < p < size + 1:
            return []
        if mode == "nearest":
            taps = [(int(np.rint(p)), 1.0, 0.0)]
        else:
            at = int(np.floor(p))
            taps = [(at, 1 - (p - at), -scale), (at + 1, p - at, scale)]
    return [tap for tap in taps if 0 <= tap[0] < size]


def grid_sample(
    features, grid, d_output=None, *, mode, padding_mode, align_corners, normalized=True, data_format="NHWC"
):
    """Returns the output; with d_output, also the gradients to features and grid."""
    channels_first = data_format == "NCHW"
    features = np.moveaxis(features, 1, -1) if channels_first else features
    features, places = np.float64(features), np.float64(grid)
    batch, height, width, channels = features.shape
    flat = places.reshape(batch, -1, 2)
    output = np.zeros((*flat.shape[:2], channels))
    if d_output is not None:
        upstream = np.moveaxis(d_output, 1, -1) if channels_first else d_output
        upstream = np.float64(upstream).reshape(output.shape)
    d_features, d_grid = np.zeros_like(features), np.zeros_like(flat)
    options = (mode, padding_mode, align_corners, normalized)
    for n in range(batch):
        for i, (x, y) in enumerate(flat[n]):
            rows, columns = _taps(y, height, *options), _taps(x, width, *options)
            if rows is None or columns is None:
                output[n, i] = np.nan
                continue
            for row, y_weight, y_slope in rows:
                for column, x_weight, x_slope in columns:
                    weight = y_weight * x_weight
                    if weight != 0:
                        output[n, i] += weight * features[n, row, column]
                    if d_output is not None:
                        d_features[n, row, column] += weight * upstream[n, i]
                        dot = (upstream[n, i] * features[n, row, column]).sum()
                        d_grid[n, i] += (y_weight * x_slope * dot, y_slope * x_weight * dot)
    output = output.reshape(*places.shape[:-1], channels)
    if channels_first:
        output, d_features = np.moveaxis(output, -1, 1), np.moveaxis(d_features, -1, 1)
    return output if d_output is None else (output, d_features, d_grid.reshape(places.shape))
