"""The ops by their definitions, in NumPy and slowly: what our CPU algorithms are checked against."""

import math

import numpy as np
import torch


def channels_last(problem, tensor):
    """Returns a tensor's values as NHWC in the dtype that sums are made in."""
    values = tensor.to(torch.float64 if tensor.dtype == torch.float64 else torch.float32).numpy()
    return values if problem.layout == "NHWC" else values.transpose(0, 2, 3, 1)


def as_tensor(problem, values, dtype):
    """Returns NHWC values in the problem's layout and a dtype, rounded to nearest even."""
    values = values if problem.layout == "NHWC" else values.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(values)).to(dtype)


def round_to_pixel(coordinate):
    """Rounds halves away from zero; stops at 2^31, where no feature map is."""
    near = max(-(2.0**31), min(coordinate, 2.0**31))
    return int(math.copysign(math.floor(abs(near) + 0.5), near))


def roi_pool_bins(problem):
    """Yields (box, bin y, bin x, image, rows, columns) of each bin of each well-formed box, in order."""
    case = problem.case
    boxes = problem.boxes.numpy()
    scaled = boxes * boxes.dtype.type(case.scale)
    order = (1, 0, 3, 2) if case.yxyx else (0, 1, 2, 3)
    for k, image in enumerate(problem.box_indices.tolist()):
        x1, y1, x2, y2 = (float(scaled[k, i]) for i in order)
        if not (0 <= image < case.batch and np.isfinite(boxes[k]).all() and x1 <= x2 and y1 <= y2):
            continue
        ranges = []
        for low, high, bins, limit in ((y1, y2, case.pooled[0], case.height), (x1, x2, case.pooled[1], case.width)):
            start, end = round_to_pixel(low), round_to_pixel(high)
            size = end - start + 1
            axis = []
            for p in range(bins):
                begin, stop = start + p * size // bins, start - (-(p + 1) * size // bins)
                axis.append((min(max(begin, 0), limit), min(max(stop, 0), limit)))
            ranges.append(axis)
        for p, rows in enumerate(ranges[0]):
            for q, columns in enumerate(ranges[1]):
                yield k, p, q, image, rows, columns


def roi_pool(problem):
    """Returns (output, argmax)."""
    case = problem.case
    features = channels_last(problem, problem.features)
    shape = (len(problem.boxes), *case.pooled, case.channels)
    output, argmax = np.zeros(shape, features.dtype), np.full(shape, -1, np.int32)
    channel = np.arange(case.channels)
    for k, p, q, image, (top, bottom), (left, right) in roi_pool_bins(problem):
        if top >= bottom or left >= right:
            continue
        window = features[image, top:bottom, left:right]
        window = window.reshape(window.shape[0] * window.shape[1], case.channels)
        first = np.argmax(window, axis=0)  # a NaN is NumPy's maximum, too
        output[k, p, q] = window[first, channel]
        argmax[k, p, q] = (top + first // (right - left)) * case.width + left + first % (right - left)
    return as_tensor(problem, output, problem.features.dtype), as_tensor(problem, argmax, torch.int32)


def roi_pool_grad(problem, d_output, argmax):
    """Returns d_features."""
    case = problem.case
    d_output, at = channels_last(problem, d_output), channels_last_int(problem, argmax)
    sums = np.zeros((case.batch, case.height * case.width, case.channels), d_output.dtype)
    channel = np.arange(case.channels)
    for k, p, q, image, _, _ in roi_pool_bins(problem):
        some = at[k, p, q] >= 0
        sums[image, at[k, p, q][some], channel[some]] += d_output[k, p, q][some]
    sums = sums.reshape(case.batch, case.height, case.width, case.channels)
    return as_tensor(problem, sums, problem.features.dtype)


def roi_pool_grad_grad(problem, argmax):
    """Returns dd_output, of dd_features = features."""
    case = problem.case
    features, at = channels_last(problem, problem.features), channels_last_int(problem, argmax)
    pixels = features.reshape(case.batch, case.height * case.width, case.channels)
    result = np.zeros(at.shape, features.dtype)
    channel = np.arange(case.channels)
    for k, p, q, image, _, _ in roi_pool_bins(problem):
        some = at[k, p, q] >= 0
        result[k, p, q][some] = pixels[image, at[k, p, q][some], channel[some]]
    return as_tensor(problem, result, problem.features.dtype)


def channels_last_int(problem, argmax):
    return argmax.numpy() if problem.layout == "NHWC" else argmax.numpy().transpose(0, 2, 3, 1)
