"""Compositions of the ops of tensorflow_ops/image/.

Where a plane, the images of a batch together, or their samples have 2^31 elements or more, indices overflow.
"""

import functools

import numpy as np
import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import widened

# ---- grid_sample


def _clip(value, low, high):
    """As tf.clip_by_value, but NaN stays NaN on every device."""
    value = tf.where(value < low, low, value)
    return tf.where(value > high, high, value)


def _modulo(value, period):
    """`value` modulo a period, as far as it is finite; 0 where the period is 0."""
    is_zero = tf.equal(period, 0)
    remainder = tf.math.floormod(value, tf.where(is_zero, tf.ones_like(period), period))
    return tf.where(is_zero, value - value, remainder)


def _place(coordinate, own, size, coordinates, align_corners):
    if coordinates == "flow":
        return own - coordinate
    if coordinates in ("pixels", "indices"):
        return coordinate
    if not align_corners:
        return ((coordinate + 1) * size - 1) / 2
    half = (coordinate + 1) / 2
    place = half * (size - 1)
    # Infinity stays, on an axis of one pixel, too.
    return tf.where(tf.math.is_nan(place), half, place)


def _reflected(place, size, align_corners, is_rounded_before):
    """Returns the place, as it is inside of the image. What lies in half a pixel around it is left for a clip."""
    edge = 0 if align_corners else 1  # pixels -1 and 1, or -1 and 0
    span = size - 1 + edge
    distance = _modulo(tf.abs(place), 2 * span)
    is_beyond = distance > span
    reflected = tf.where(is_beyond, 2 * span - distance, distance)
    if is_rounded_before and align_corners:
        reflected = tf.where((place > 0) & tf.equal(distance - span, 0.5), reflected - 0.5, reflected)
    return tf.where(tf.not_equal(is_beyond, place < 0), reflected - edge, reflected)


def _wrapped(place, low, size, padding_mode):
    """Moves the pixel `low` of a place by multiples of the period."""
    last = size - 1
    period = size if padding_mode == "grid_wrap" else last
    distance = _modulo(tf.abs(low), period)
    wrapped = tf.where((low < 0) & (distance > 0), period - distance, distance)
    if padding_mode == "grid_wrap":
        return wrapped
    # The last pixel is at each multiple of the period, too, for places before.
    is_before = (place < low) | ((place < 0) & tf.equal(place, low))
    wrapped = tf.where(tf.equal(wrapped, 0) & is_before, last, wrapped)
    return tf.where((place >= 0) & (place <= last), low, wrapped)


def _padded(place, size, mode, padding_mode, align_corners, coordinates):
    """Returns the place after the padding."""
    last = size - 1
    if padding_mode == "zeros":
        return _clip(place, tf.constant(-2, place.dtype), size + 2 + tf.floor(size / 2**21))
    if padding_mode == "constant":
        return tf.where((place < 0) | (place > last), tf.constant(-2, place.dtype), place)
    if padding_mode in ("wrap", "grid_wrap"):
        return tf.where(tf.equal(last, 0) & (padding_mode == "wrap"), place - place, place)
    if padding_mode == "reflection":
        place = _reflected(place, size, align_corners, mode == "nearest" and coordinates == "indices")
    return _clip(place, tf.zeros_like(last), last)


def _rounded(place, coordinates):
    """Rounds halves up with SciPy's coordinates, else to even."""
    if coordinates != "indices":
        return tf.round(place)
    low = tf.floor(place)
    return tf.where(place - low < 0.5, low, low + 1)


def _cubic_taps(place, size, padding_mode, align_corners):
    """Returns the pixels and weights of the cubic convolution with a = -3/4."""
    a, last = -0.75, size - 1
    # Pixels -1 and 0 mirror each other, or -1 and 1.
    edge = 0 if align_corners else 1
    period = 2 * (last + edge)
    if padding_mode == "reflection":
        distance = _modulo(tf.abs(place), period)
        distance = tf.where(distance > size, distance - period, distance)
        place = tf.where(place < 0, -distance, distance)
    else:
        # Farther outside, all taps are the same. Large floats are whole multiples of up to 128.
        place = _clip(place, tf.constant(-3, place.dtype), size + 2 + tf.floor(size / 2**21))
    low = tf.floor(place)
    taps = []
    for i in range(-1, 3):
        tap = low + i
        t = tf.abs(place - tap)
        if i in (0, 1):
            weight = ((a + 2) * t - (a + 3)) * t * t + 1
        else:
            weight = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        if padding_mode == "border":
            tap = _clip(tap, tf.zeros_like(last), last)
        elif padding_mode == "reflection":
            tap = tf.where(tap < 0, -tap - edge, tap)
            tap = tf.where(tap >= period, tap - period, tap)
            tap = tf.where(tap >= period, tap - period, tap)
            tap = tf.where(tap > last, period - tap - edge, tap)
            tap = tf.where(tf.equal(last, 0), tf.zeros_like(tap), tap)
        taps.append((tap, weight))
    return taps, place


def _taps(coordinate, own, size, mode, padding_mode, align_corners, coordinates):
    """Returns the pixels and weights on an axis of `size` pixels, the weight of what is outside, and NaN or 0."""
    size_int, size = size, tf.cast(size, coordinate.dtype)
    last = size - 1
    place = _place(coordinate, own, size, coordinates, align_corners)
    if mode == "bicubic":
        taps, place = _cubic_taps(place, size, padding_mode, align_corners)
    else:
        place = _padded(place, size, mode, padding_mode, align_corners, coordinates)
        low = _rounded(place, coordinates) if mode == "nearest" else tf.floor(place)
        fraction = place - low
        if padding_mode in ("wrap", "grid_wrap"):
            low = _wrapped(place, low, size, padding_mode)
        is_nearest = mode == "nearest"
        taps = [(low, tf.ones_like(place))] if is_nearest else [(low, 1 - fraction), (low + 1, fraction)]
    found, outside = [], tf.zeros_like(place)
    for tap, weight in taps:
        if padding_mode == "grid_wrap":
            tap = tf.where(tap > last, tf.zeros_like(tap), tap)
        is_pixel = (tap >= 0) & (tap <= last)
        # `last` may round up.
        pixel = tf.minimum(tf.cast(tf.where(is_pixel, tap, tf.zeros_like(tap)), tf.int32), size_int - 1)
        found.append((pixel, tf.where(is_pixel, weight, tf.zeros_like(weight))))
        outside += tf.where(is_pixel, tf.zeros_like(weight), weight)
    return found, outside, place - place


@composition("GridSample", [4, None])
def _grid_sample(features, grid, *, mode, padding_mode, align_corners, coordinates, fill_value):
    images, height, width, channels = tf.unstack(tf.shape(features), num=4)
    result_shape = tf.concat([tf.shape(grid)[:-1], [channels]], 0)
    samples = tf.reduce_prod(tf.shape(grid)[1:-1])
    grid = tf.reshape(grid, tf.stack([images, samples, 2]))
    first, second = grid[..., 0], grid[..., 1]
    on_y, on_x = (first, second) if coordinates in ("flow", "indices") else (second, first)
    own = tf.range(samples)
    axis = functools.partial(
        _taps, mode=mode, padding_mode=padding_mode, align_corners=align_corners, coordinates=coordinates
    )
    y_taps, y_outside, y_nan = axis(on_y, tf.cast(own // width, grid.dtype), height)
    x_taps, x_outside, x_nan = axis(on_x, tf.cast(own % width, grid.dtype), width)
    pixels = tf.reshape(features, tf.stack([images * height * width, channels]))
    base = tf.range(images)[:, tf.newaxis] * height
    start = y_nan + x_nan
    if fill_value:
        outside = y_outside + (1 - y_outside) * x_outside
        fill = tf.cast(np.float64(sum(fill_value)), grid.dtype)
        start += tf.where(tf.equal(outside, 0), tf.zeros_like(outside), outside * fill)
    result = tf.zeros(tf.stack([images, samples, channels]), grid.dtype) + start[..., tf.newaxis]
    for y, y_weight in y_taps:
        for x, x_weight in x_taps:
            weight = (y_weight * x_weight)[..., tf.newaxis]
            values = tf.cast(tf.gather(pixels, (base + y) * width + x), grid.dtype)
            # A pixel of weight 0 is not read: it may be NaN.
            result += tf.where(tf.equal(weight, 0), tf.zeros_like(values), weight * values)
    return tf.cast(tf.reshape(result, result_shape), features.dtype)


# ---- correlation_cost


@composition("CorrelationCost", [4, 4])
def _correlation_cost(features_a, features_b, *, max_displacement, kernel_size, stride_1, stride_2, padding):
    """A displacement at a time: the products summed over channels, then over windows."""
    channels = tf.shape(features_a)[3]
    pads = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
    a, b = (tf.pad(widened(x), pads) for x in (features_a, features_b))
    # 1 inside of the maps. A product with a pixel outside is 0, whatever the other pixel.
    inside = tf.pad(tf.ones(tf.concat([tf.shape(features_a)[:3], [1]], 0), a.dtype), pads)
    reach = max_displacement // stride_2
    side = 2 * reach + 1
    border = max_displacement + (kernel_size - 1) // 2
    size = tf.shape(a)[1:3]
    output = (size - 2 * border + stride_1 - 1) // stride_1
    region = (output - 1) * stride_1 + kernel_size

    def window(maps, y, x):
        depth = tf.shape(maps)[3:]
        begin = tf.stack([0, max_displacement + y * stride_2, max_displacement + x * stride_2, 0])
        return tf.slice(maps, begin, tf.concat([tf.shape(maps)[:1], region, depth], 0))

    a, inside_a = window(a, 0, 0), window(inside, 0, 0)

    def one_displacement(i, costs):
        y, x = i // side - reach, i % side - reach
        products = tf.reduce_sum(a * window(b, y, x), 3, keepdims=True)
        is_inside = inside_a * window(inside, y, x)
        products = tf.where(is_inside > 0, products, tf.zeros_like(products))
        sums = tf.add_n(
            [
                products[
                    :, j : region[0] - kernel_size + 1 + j : stride_1, k : region[1] - kernel_size + 1 + k : stride_1
                ]
                for j in range(kernel_size)
                for k in range(kernel_size)
            ]
        )
        return i + 1, tf.where(tf.equal(tf.range(side * side), i), sums, costs)

    costs = tf.zeros(tf.concat([tf.shape(a)[:1], output, [side * side]], 0), a.dtype)
    i = tf.constant(0)
    _, costs = tf.while_loop(
        lambda i, _: i < side * side,
        one_displacement,
        (i, costs),
        shape_invariants=(i.shape, tf.TensorShape([None, None, None, side * side])),
    )
    terms = tf.cast(kernel_size * kernel_size * tf.maximum(channels, 1), a.dtype)
    return tf.cast(costs / terms, features_a.dtype)


# ---- Masks


def _planes(images):
    """Returns images [H, W], [N, H, W] or [N, H, W, C] as [N, H, W, C]."""
    shape = tf.shape(images)
    rank = tf.size(shape)
    ones = tf.ones([1], tf.int32)
    dims = [ones[: tf.cast(rank < 3, tf.int32)], shape, ones[: tf.cast(rank < 4, tf.int32)]]
    planes = tf.reshape(images, tf.concat(dims, 0))
    planes.set_shape([None] * 4)
    return planes


def _nearest(squares, spacing):
    """Returns min over v of squares[:, v] + (spacing (y - v))^2."""
    height = tf.shape(squares)[1]
    rows = tf.reshape(tf.range(height), [1, -1, 1, 1])

    def one_row(v, nearest):
        distance = tf.cast(rows - v, tf.float64) * spacing
        return v + 1, tf.minimum(nearest, tf.gather(squares, [v], axis=1) + distance * distance)

    v = tf.constant(0)
    shapes = v.shape, tf.TensorShape([None] * 4)
    return tf.while_loop(lambda v, _: v < height, one_row, (v, squares), shape_invariants=shapes)[1]


@composition("EuclideanDistanceTransform", [None, 1])
def _euclidean_distance_transform(images, spacing, *, T):  # noqa: N803  (the attr)
    """Of columns, then of rows, in float64: H + W steps over all pixels."""
    infinity = tf.constant(float("inf"), tf.float64)
    squares = tf.where(tf.cast(_planes(images), tf.bool), infinity, tf.zeros_like(infinity))
    squares = _nearest(squares, spacing[0])
    squares = tf.transpose(_nearest(tf.transpose(squares, [0, 2, 1, 3]), spacing[1]), [0, 2, 1, 3])
    return tf.reshape(tf.cast(tf.sqrt(squares), T), tf.shape(images))


@composition("ConnectedComponents", [None])
def _connected_components(images, *, connectivity):
    """The least index in each component spreads to neighbors, then along the indices reached so far."""
    image_shape = tf.shape(images)
    planes = tf.transpose(tf.cast(_planes(images), tf.int64), [0, 3, 1, 2])
    shape = tf.shape(planes)
    count, height, width = shape[0] * shape[1], shape[2], shape[3]
    planes = tf.reshape(planes, tf.stack([count, height, width]))
    is_set = tf.not_equal(planes, 0)
    own = tf.reshape(tf.range(tf.size(planes)), tf.shape(planes))

    def shifted(values, y, x):
        padded = tf.pad(values, [[0, 0], [1, 1], [1, 1]])
        return padded[:, 1 + y : 1 + y + height, 1 + x : 1 + x + width]

    shifts = [(-1, 0), (0, -1), (0, 1), (1, 0)]
    if connectivity == 8:
        shifts += [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    same = [tf.equal(planes, shifted(planes, y, x)) & is_set for y, x in shifts]

    def spread(labels, _):
        new = labels
        for (y, x), is_same in zip(shifts, same, strict=True):
            new = tf.where(is_same, tf.minimum(new, shifted(labels, y, x)), new)
        flat = tf.reshape(new, [-1])
        flat = tf.gather(flat, tf.gather(flat, flat))
        new = tf.reshape(flat, tf.shape(labels))
        return new, tf.reduce_any(tf.not_equal(new, labels))

    shapes = tf.TensorShape([None] * 3), tf.TensorShape([])
    labels, _ = tf.while_loop(lambda _, changes: changes, spread, (own, tf.constant(True)), shape_invariants=shapes)
    is_first = tf.reshape(tf.equal(labels, own) & is_set, tf.stack([count, height * width]))
    numbers = tf.cumsum(tf.cast(is_first, tf.int32), axis=1)
    labels = tf.gather(tf.reshape(numbers, [-1]), tf.reshape(labels, [-1]))
    labels = tf.where(is_set, tf.reshape(labels, tf.shape(planes)), tf.zeros_like(own))
    labels = tf.transpose(tf.reshape(labels, shape), [0, 2, 3, 1])
    counts = tf.reduce_sum(tf.cast(is_first, tf.int32), 1)
    counts_shape = tf.concat([image_shape[: tf.cast(tf.size(image_shape) > 2, tf.int32)], image_shape[3:]], 0)
    return tf.reshape(labels, image_shape), tf.reshape(counts, counts_shape)
