"""The ops by their definitions, in NumPy and slowly: what our CPU algorithms are checked against."""

import itertools
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


def axis_weights(case, low, high, scale, bins, limit):
    """Returns [3, bins, limit]: what a bin takes of each pixel of an axis; that weight's derivatives to low and high.

    low and high are the box's, in feature pixels; positions are computed in their dtype.
    """
    dtype = type(low)
    weights = np.zeros((3, bins, limit))
    if limit == 0:
        return weights
    if case.bins == "pixels":
        start = round_to_pixel(float(low))
        size = max(round_to_pixel(float(high)) - start, 1)
        for p in range(bins):
            begin, end = start + p * size // bins, start - (-(p + 1) * size // bins)
            begin, end = min(max(begin, 0), limit), min(max(end, 0), limit)
            if begin < end:
                weights[0, p, begin:end] = 1 / (end - begin)
        return weights
    start = low - dtype(0.5) if case.aligned else low
    size = high - low
    grown = not case.aligned and size < 1
    if grown:
        size = dtype(1)
    bin_size = size / dtype(bins)
    grid = dtype(case.ratio) if case.ratio > 0 else np.ceil(bin_size)
    if not (np.isfinite(bin_size) and np.isfinite(start) and grid < 1e7):  # so few samples inside that none counts
        return weights
    index = (np.arange(int(grid)) + 0.5).astype(dtype)
    for p in range(bins):
        at = start + dtype(p) * bin_size + index * bin_size / grid
        place = ((dtype(p) + index / grid) / dtype(bins))[(at >= -1) & (at <= limit)]
        at = at[(at >= -1) & (at <= limit)]
        before = np.minimum(np.maximum(at, 0).astype(np.int64), limit - 1)
        last = before == limit - 1
        fraction = np.where(last, 0, np.maximum(at, 0) - before).astype(np.float64)
        moves = (at > 0) & ~last
        to_high = 0 if grown else scale * place
        for kind, at_before, at_after in (
            (0, 1 - fraction, fraction),
            (1, -(scale - to_high) * moves, (scale - to_high) * moves),
            (2, -to_high * moves, to_high * moves),
        ):
            np.add.at(weights[kind, p], before, at_before / grid)
            np.add.at(weights[kind, p], np.minimum(before + 1, limit - 1), at_after / grid)
    return weights


def averaged_boxes(problem):
    """Yields (box, level, image, weights on y, on x) of each well-formed box, in order; weights as axis_weights'."""
    case = problem.case
    boxes = problem.boxes.numpy()
    order = (1, 0, 3, 2) if case.yxyx else (0, 1, 2, 3)
    maps = case.maps()
    for k, image in enumerate(problem.box_indices.tolist()):
        x1, y1, x2, y2 = (boxes[k, i] for i in order)
        if not (0 <= image < case.batch and np.isfinite(boxes[k]).all() and x1 <= x2 and y1 <= y2):
            continue
        area = (float(x2) - float(x1)) * (float(y2) - float(y1)) * 1.000002
        level = 0
        for i in range(1, case.levels):
            if area >= problem.args.levels[i].smallest_box ** 2:
                level = i
        height, width, scale = maps[level]
        scale = boxes.dtype.type(scale)
        with np.errstate(over="ignore", invalid="ignore"):
            on_y = axis_weights(case, y1 * scale, y2 * scale, scale, case.pooled[0], height)
            on_x = axis_weights(case, x1 * scale, x2 * scale, scale, case.pooled[1], width)
        yield k, level, image, on_y, on_x


def averaged_bins(problem):
    """Yields (box, bin y, bin x, level, image, rows, columns, weights [3] of rows and of columns, channels)."""
    case = problem.case
    channels = np.arange(case.channels)
    for k, level, image, on_y, on_x in averaged_boxes(problem):
        for p in range(case.pooled[0]):
            rows = np.flatnonzero(on_y[:, p].any(0))
            for q in range(case.pooled[1]):
                columns = np.flatnonzero(on_x[:, q].any(0))
                own = channels
                if case.order == "channel_major":
                    own = channels[p * case.pooled[1] + q :: case.pooled[0] * case.pooled[1]]
                elif case.order == "bin_major":
                    first = (p * case.pooled[1] + q) * case.pooled_channels
                    own = channels[first : first + case.pooled_channels]
                yield k, p, q, level, image, rows, columns, on_y[:, p, rows], on_x[:, q, columns], own


def wide_maps(problem):
    return [channels_last(problem, features).astype(np.float64) for features in problem.features]


def roi_average(problem):
    """Returns output."""
    case, maps = problem.case, wide_maps(problem)
    output = np.zeros((len(problem.boxes), *case.pooled, case.pooled_channels))
    for k, p, q, level, image, rows, columns, on_y, on_x, own in averaged_bins(problem):
        window = maps[level][image][np.ix_(rows, columns, own)]
        output[k, p, q] = np.einsum("y,x,yxc", on_y[0], on_x[0], window)
    return as_tensor(problem, output, problem.features[0].dtype)


def roi_average_grad(problem):
    """Returns d_features, a tuple."""
    d_output = channels_last(problem, problem.d_output).astype(np.float64)
    sums = [np.zeros_like(features) for features in wide_maps(problem)]
    for k, p, q, level, image, rows, columns, on_y, on_x, own in averaged_bins(problem):
        sums[level][image][np.ix_(rows, columns, own)] += np.einsum("y,x,c->yxc", on_y[0], on_x[0], d_output[k, p, q])
    return tuple(as_tensor(problem, values, problem.features[0].dtype) for values in sums)


def roi_average_boxes_grad(problem):
    """Returns d_boxes."""
    maps = wide_maps(problem)
    d_output = channels_last(problem, problem.d_output).astype(np.float64)
    d_boxes = np.zeros((len(problem.boxes), 4))
    for k, p, q, level, image, rows, columns, on_y, on_x, own in averaged_bins(problem):
        window = maps[level][image][np.ix_(rows, columns, own)] @ d_output[k, p, q]
        for i, (of_y, of_x) in enumerate(((0, 1), (1, 0), (0, 2), (2, 0))):  # x1, y1, x2, y2
            to = i ^ 1 if problem.case.yxyx else i
            d_boxes[k, to] += on_y[of_y] @ window @ on_x[of_x]
    return torch.from_numpy(d_boxes).to(problem.boxes.dtype)


def bin_samples(case, low, high, bins, limit):
    """Yields, for each bin of an axis, its samples inside, and the number of all samples.

    A sample is two times (pixel, weight, that weight's derivatives to low and high, in image pixels).
    """
    dtype = type(low)
    start = low - dtype(0.5) if case.aligned else low
    size = high - low
    grown = not case.aligned and size < 1
    size = dtype(1) if grown else size
    bin_size = size / dtype(bins)
    grid = dtype(case.ratio) if case.ratio > 0 else np.ceil(bin_size)
    if not (np.isfinite(bin_size) and np.isfinite(start)):
        grid = dtype(0)
    for p in range(bins):
        samples = []
        for i in range(int(grid) if grid < 1e7 else 0):
            at = start + dtype(p) * bin_size + dtype(i + 0.5) * bin_size / grid
            if not -1 <= at <= limit or limit == 0:
                continue
            moves = case.scale if 0 < at < limit - 1 else 0.0
            of_high = 0.0 if grown else moves * (p + (i + 0.5) / float(grid)) / bins
            of_low = moves - of_high
            at = min(max(float(at), 0.0), limit - 1.0)
            before = int(at)
            after = min(before + 1, limit - 1)
            samples.append([(before, 1 - (at - before), -of_low, -of_high), (after, at - before, of_low, of_high)])
        yield samples, float(grid)


def roi_align_max(problem, values):
    """Returns (output, output of `values` at the same samples, d_features, d_boxes of `values`) of roi_align_max."""
    case = problem.case
    [features] = wide_maps(problem)
    values = channels_last(problem, values).astype(np.float64)
    d_output = channels_last(problem, problem.d_output).astype(np.float64)
    output, output_of_values, d_features = np.zeros_like(d_output), np.zeros_like(d_output), np.zeros_like(features)
    boxes = problem.boxes.numpy()
    d_boxes = np.zeros((len(boxes), 4))
    order = (1, 0, 3, 2) if case.yxyx else (0, 1, 2, 3)
    channel = np.arange(case.channels)
    for k, _, image, _, _ in averaged_boxes(problem):
        with np.errstate(over="ignore", invalid="ignore"):
            x1, y1, x2, y2 = (boxes[k, i] * boxes.dtype.type(case.scale) for i in order)
            rows = list(bin_samples(case, y1, y2, case.pooled[0], case.height))
            columns = list(bin_samples(case, x1, x2, case.pooled[1], case.width))
        for (p, (on_y, all_y)), (q, (on_x, all_x)) in itertools.product(enumerate(rows), enumerate(columns)):
            # A sample is four pixels, their weights, and these weights' derivatives to x1, y1, x2, y2.
            samples = [
                [
                    (y, x, wy * wx, (wy * low_x, wx * low_y, wy * high_x, wx * high_y))
                    for (y, wy, low_y, high_y), (x, wx, low_x, high_x) in itertools.product(*pair)
                ]
                for pair in itertools.product(on_y, on_x)
            ]
            if not samples:
                continue
            at = np.array([[(y, x) for y, x, *_ in sample] for sample in samples])
            weights = np.array([[w for _, _, w, _ in sample] for sample in samples])
            # Samples outside are zeros, after all others.
            zeros = np.zeros((int(len(samples) < all_y * all_x), case.channels))

            def interpolate(values, at=at, weights=weights, zeros=zeros, image=image):
                return np.concatenate([np.einsum("sw,swc->sc", weights, values[image, at[..., 0], at[..., 1]]), zeros])

            of_samples = interpolate(features)
            best = np.argmax(of_samples, axis=0)
            output[k, p, q] = of_samples[best, channel]
            output_of_values[k, p, q] = interpolate(values)[best, channel]
            for c in np.flatnonzero(best < len(samples)):
                for y, x, weight, slopes in samples[best[c]]:
                    d_features[image, y, x, c] += weight * d_output[k, p, q, c]
                    d_boxes[k, list(order)] += d_output[k, p, q, c] * values[image, y, x, c] * np.array(slopes)
    dtype = problem.features[0].dtype
    maps = (as_tensor(problem, of_map, dtype) for of_map in (output, output_of_values, d_features))
    return (*maps, torch.from_numpy(d_boxes).to(problem.boxes.dtype))
