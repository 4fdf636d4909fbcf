"""Region pooling, for the sizes of real detectors: each pass, dtype and layout, and how times scale. 40 min.

`_scaling`: over 1 to 10,000 boxes, channels, output area, with one and two threads.
Boxes have log-uniform sides of 32 to 512 image pixels, drawn per axis, anywhere inside the image except for a rim of
one feature pixel, where peers differ from the definition. Values are bfloat16 numbers in every dtype.
"""

import dataclasses
import functools
from typing import NamedTuple

import ml_dtypes
import numpy as np
import peers
import tensorflow as tf
from harness import Case, channels_first, channels_last, in_graph, in_torch, num_bytes, table

import tensorflow_ops as tfo


class Level(NamedTuple):
    """A feature map and its stride in image pixels."""

    height: int
    width: int
    stride: int


@dataclasses.dataclass(frozen=True)
class Regions:
    """One image's feature maps, and the boxes and bins pooled from them."""

    levels: tuple[Level, ...]
    channels: int
    boxes: int
    bins: int  # per box on each axis
    position_sensitive: bool = False  # each bin has its own channels

    @property
    def output_channels(self):
        return self.channels // self.bins**2 if self.position_sensitive else self.channels


PYRAMID = (Level(200, 304, 4), Level(100, 152, 8), Level(50, 76, 16), Level(25, 38, 32))  # for an image of 800 x 1216
SINGLE_LEVEL = {f"FPN stride {level.stride}": Regions((level,), 256, 1000, 7) for level in PYRAMID}
SINGLE_LEVEL["mask head"] = Regions(PYRAMID[:1], 256, 100, 14)
MULTISCALE = {"FPN": Regions(PYRAMID, 256, 1000, 7), "mask head": Regions(PYRAMID, 256, 100, 14)}
POSITION_SENSITIVE = {
    "R-FCN": Regions((Level(38, 63, 16),), 21 * 49, 300, 7, position_sensitive=True),
    "Light-head": Regions((Level(50, 76, 16),), 490, 1000, 7, position_sensitive=True),
}
OTHER_CHANNELS = {
    name: dataclasses.replace(case, position_sensitive=False) for name, case in POSITION_SENSITIVE.items()
}
CHANNEL_ORDERS = {order: {"channel_order": order} for order in ("channel_major", "bin_major")}

# Each op's cases and settings. The first setting and the case named last are those whose sizes vary.
OPS = {
    "roi_pool": (SINGLE_LEVEL | OTHER_CHANNELS, {"": {}}, "FPN stride 4"),
    "roi_align": (
        SINGLE_LEVEL,
        {
            "sampling 2": {"sampling_ratio": 2, "aligned": True},
            "adaptive": {"sampling_ratio": 0, "aligned": True},
        },
        "FPN stride 4",
    ),
    "ps_roi_pool": (POSITION_SENSITIVE, CHANNEL_ORDERS, "Light-head"),
    "ps_roi_align": (
        POSITION_SENSITIVE,
        {name: {"sampling_ratio": 2, **order} for name, order in CHANNEL_ORDERS.items()},
        "Light-head",
    ),
    # Not aligned, like torchvision's MultiScaleRoIAlign.
    "multiscale_roi_align": (MULTISCALE, {"sampling 2": {"sampling_ratio": 2, "aligned": False}}, "FPN"),
}
# Peers support float32 only, torchvision in NCHW, tf.image in NHWC. Every variant is compared with them.
VARIANTS = [(dtype, layout) for layout in ("NHWC", "NCHW") for dtype in ("float32", "bfloat16", "float16")]
ROUNDING = {"float32": 1e-4, "bfloat16": 1e-2, "float16": 2e-3}
AXES = {
    "boxes": (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000),
    "channels": (16, 32, 64, 128, 256, 512, 1024),
    "output area": tuple(bins**2 for bins in (1, 2, 3, 4, 5, 7, 10, 14, 20)),
}


class Inputs:
    """A case's arrays: float32, NHWC, channel_major."""

    def __init__(self, op, regions, attrs):
        self.op, self.regions, self.attrs = op, regions, attrs
        random = np.random.default_rng(1)

        def normal(*shape):
            return random.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)

        self.maps = [normal(1, level.height, level.width, regions.channels) for level in regions.levels]
        finest, rim = regions.levels[0], regions.levels[-1].stride
        size = np.array([finest.width, finest.height]) * finest.stride - 2 * rim
        random_boxes = np.random.default_rng(0)
        sides = np.exp(random_boxes.uniform(np.log(32), np.log(512), [regions.boxes, 2]))
        sides = np.minimum(sides, size - 1)
        corner = random_boxes.uniform(0, 1, [regions.boxes, 2]) * (size - 1 - sides)
        self.boxes = np.concatenate([corner, corner + sides], 1).astype(np.float32) + np.float32(rim)
        self.upstream = normal(regions.boxes, regions.bins, regions.bins, regions.output_channels)
        self.scales = [1 / level.stride for level in regions.levels]

    def reorder(self, array, to_bin_major):
        """Permutes channels from [C, ph, pw] to [ph, pw, C], or back."""
        bins, channels = [self.regions.bins] * 2, self.regions.output_channels
        if to_bin_major:
            parts, axes = [channels, *bins], (0, 1, 2, 4, 5, 3)
        else:
            parts, axes = [*bins, channels], (0, 1, 2, 5, 3, 4)
        return array.reshape(*array.shape[:3], *parts).transpose(axes).reshape(array.shape)


def our_passes(inputs, dtype, layout):
    """Returns {pass: (call, bytes read and written, how its result becomes comparable)}."""
    op, attrs, regions = inputs.op, inputs.attrs, inputs.regions
    bin_major = attrs.get("channel_order") == "bin_major"

    def tensor(array, is_map=False):
        array = inputs.reorder(array, to_bin_major=True) if is_map and bin_major else array
        return tf.cast(channels_first(array) if layout == "NCHW" else array, dtype)

    def arrays(result, is_map=False):
        result = [tf.cast(t, tf.float32).numpy() for t in tf.nest.flatten(result)]
        result = [channels_last(t) if layout == "NCHW" else t for t in result]
        return [inputs.reorder(t, to_bin_major=False) if is_map and bin_major else t for t in result]

    maps, upstream = [tensor(m, is_map=True) for m in inputs.maps], tensor(inputs.upstream)
    boxes, indices = tf.constant(inputs.boxes), tf.zeros([regions.boxes], tf.int32)
    scale = {"spatial_scale": inputs.scales[0]}
    if op == "multiscale_roi_align":
        scale = {"strides": [level.stride for level in regions.levels]}
    function = getattr(tfo.detection, op)

    def pool(boxes, *maps):
        features = list(maps) if op == "multiscale_roi_align" else maps[0]
        return function(features, boxes, indices, regions.bins, data_format=layout, **scale, **attrs)

    def forward():
        return pool(boxes, *maps)

    if op == "roi_pool":  # its gradient reads the argmax of the forward pass
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(maps)
            pooled = forward()
        backward = functools.partial(tape.gradient, pooled, maps, upstream)
    else:  # in a graph, which leaves out the forward pass
        to = range(1, len(maps) + 1)
        backward = in_graph(pool, (boxes, *maps), to, upstream, only_gradients=True)
    read, pooled = num_bytes(maps), num_bytes(upstream)
    argmax = 4 * inputs.upstream.size if op == "roi_pool" else 0
    moved = (read, pooled + argmax), (pooled + argmax, read)
    passes = {
        "forward": (forward, moved[0], arrays),
        "backward": (backward, moved[1], functools.partial(arrays, is_map=True)),
        "forward+backward": (lambda: (forward(), backward()), tuple(map(sum, zip(*moved, strict=True))), None),
    }
    if op == "roi_pool":  # a graph that is not differentiated writes no argmax
        passes["infer"] = (in_graph(pool, (boxes, *maps)), (read, pooled), arrays)
    elif op != "ps_roi_pool":
        box_gradient = in_graph(pool, (boxes, *maps), [0], upstream, only_gradients=True)
        passes["box gradient"] = (box_gradient, (read + pooled, 0), None)
    return passes


def both(forward, backward):
    """Returns a peer's passes."""
    return {"forward": forward, "backward": backward, "forward+backward": lambda: (forward(), backward())}


def torchvision_passes(inputs):
    """Returns torchvision's op: float32, NCHW."""
    if peers.torchvision() is None:
        return {}
    torch, ops = peers.torchvision()
    regions, first = inputs.regions, inputs.regions.levels[0]
    boxes = torch.from_numpy(inputs.boxes)
    rois = torch.cat([torch.zeros(regions.boxes, 1), boxes], 1)
    names = [str(level.stride) for level in regions.levels]
    image = (first.height * first.stride, first.width * first.stride)
    # It has no channel_order; its order is channel_major.
    attrs = {key: value for key, value in inputs.attrs.items() if key != "channel_order"}

    def pool(*maps):
        if inputs.op == "multiscale_roi_align":
            pooler = ops.MultiScaleRoIAlign(names, regions.bins, attrs["sampling_ratio"])
            return pooler(dict(zip(names, maps, strict=True)), [boxes], [image])
        return getattr(ops, inputs.op)(maps[0], rois, regions.bins, inputs.scales[0], **attrs)

    maps, to = [channels_first(m) for m in inputs.maps], range(len(inputs.maps))
    upstream = channels_first(inputs.upstream)
    passes = both(in_torch(torch, pool, maps), in_torch(torch, pool, maps, to, upstream, only_gradients=True))
    # Not the sum of both: autograd records the forward pass.
    return passes | {"forward+backward": in_torch(torch, pool, maps, to, upstream)}


def crop_and_resize_passes(inputs):
    """Returns tf.image.crop_and_resize at the samples of a RoIAlign, without the pooling: float32, NHWC."""
    if inputs.op != "roi_align" or inputs.attrs["sampling_ratio"] == 0:
        return {}
    regions, ratio, [level] = inputs.regions, inputs.attrs["sampling_ratio"], inputs.regions.levels
    samples, image = ratio * regions.bins, tf.constant(inputs.maps[0])
    corners = inputs.boxes.astype(np.float64).reshape(-1, 2, 2)[:, :, ::-1] / level.stride - 0.5
    half_step = (corners[:, 1] - corners[:, 0]) / samples / 2
    ends = np.concatenate([corners[:, 0] + half_step, corners[:, 1] - half_step], 1)
    boxes = tf.constant(ends / (2 * [level.height - 1, level.width - 1]), tf.float32)
    of = {"boxes": boxes, "box_ind": tf.zeros([regions.boxes], tf.int32)}
    upstream = tf.constant(inputs.upstream.repeat(ratio, 1).repeat(ratio, 2) / ratio**2)

    def forward():
        return tf.raw_ops.CropAndResize(image=image, crop_size=tf.constant([samples, samples]), **of)

    def backward():
        return tf.raw_ops.CropAndResizeGradImage(grads=upstream, image_size=tf.shape(image), T=tf.float32, **of)

    box_gradient = {"box gradient": lambda: tf.raw_ops.CropAndResizeGradBoxes(grads=upstream, image=image, **of)}
    return both(forward, backward) | box_gradient


def composed_passes(inputs):
    """Returns multiscale_roi_align composed of roi_align on each level's boxes: float32, NHWC."""
    if inputs.op != "multiscale_roi_align":
        return {}
    finest = np.log2(16 * inputs.scales[0])  # number of levels below that of boxes of 224 pixels

    def pool(boxes, *maps):
        sides = tf.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
        level = tf.floor(finest + tf.math.log(sides / 224) / np.log(2) + 1e-6)
        level = tf.clip_by_value(tf.cast(level, tf.int32), 0, len(maps) - 1)
        at = [tf.cast(tf.where(tf.equal(level, i))[:, 0], tf.int32) for i in range(len(maps))]
        pooled = [
            tfo.detection.roi_align(
                features,
                tf.gather(boxes, some),
                tf.zeros(tf.shape(some), tf.int32),
                inputs.regions.bins,
                spatial_scale=scale,
                **inputs.attrs,
            )
            for features, some, scale in zip(maps, at, inputs.scales, strict=True)
        ]
        return tf.dynamic_stitch(at, pooled)

    of = (inputs.boxes, *inputs.maps)
    gradients = in_graph(pool, of, range(1, len(of)), inputs.upstream, only_gradients=True)
    return both(in_graph(pool, of), gradients)


def pool_samples(inputs, samples):
    """Returns what a RoIAlign makes of crop_and_resize's samples."""
    ratio = inputs.attrs["sampling_ratio"]
    return tf.nn.avg_pool2d(samples, ratio, ratio, "VALID")


def cases_of(where, inputs, variants, only=None, with_torchvision=True):
    """Returns the cases of all passes of an op's inputs, in turns."""
    theirs = {"torchvision": torchvision_passes(inputs) if with_torchvision else {}}
    theirs |= {"crop_and_resize": crop_and_resize_passes(inputs), "composed": composed_passes(inputs)}
    cases = []
    for dtype, layout in variants:
        for which, (call, moved, arrays) in our_passes(inputs, dtype, layout).items():
            if only and which not in only:
                continue
            # Peers have no infer pass; their forward pass is the closest.
            which_of_peers = "forward" if which == "infer" else which
            rivals = {name: passes[which_of_peers] for name, passes in theirs.items() if which_of_peers in passes}
            convert = {"ours": arrays, "torchvision": lambda result: [channels_last(t) for t in as_list(result)]}
            if which_of_peers == "forward":
                convert["crop_and_resize"] = functools.partial(pool_samples, inputs)
            cases.append(
                Case(
                    where | {"variant": f"{dtype} {layout}", "pass": which},
                    call,
                    rivals,
                    moved=moved,
                    off=() if arrays is None else None,
                    arrays=convert,
                    rounding=ROUNDING[dtype],
                )
            )
    return cases


def as_list(result):
    """Returns the tensors of a result."""
    return list(result) if isinstance(result, (list, tuple)) else [result]


def op_cases(op):
    """Yields the cases of an op, in all settings and variants."""
    regions, settings, _ = OPS[op]
    for name in regions:
        for setting, attrs in settings.items():
            yield cases_of({"case": name, "setting": setting}, Inputs(op, regions[name], attrs), VARIANTS)


def scaling_cases(op):
    """Yields cases of an op's first setting with other numbers of boxes, channels or bins."""
    regions, settings, base = OPS[op]
    base, attrs = regions[base], next(iter(settings.values()))
    for axis, values in AXES.items():
        for value in values:
            # Position-sensitive ops have few output channels, but many input channels.
            size = value // 16 if axis == "channels" and base.position_sensitive else value
            bins = round(size**0.5) if axis == "output area" else base.bins
            outputs = size if axis == "channels" else base.output_channels
            channels = outputs * (bins**2 if base.position_sensitive else 1)
            varied = dataclasses.replace(base, bins=bins, channels=channels)
            if axis == "boxes":
                varied = dataclasses.replace(varied, boxes=size)
            # torchvision is serial, grows linearly and takes seconds for more.
            few = varied.boxes * bins**2 * outputs <= 2e7
            where = {"axis": axis, "value": size}
            yield cases_of(where, Inputs(op, varied, attrs), VARIANTS[:1], ("forward", "backward"), few)


for _op in OPS:
    table(_op, memory=("ours",))(functools.wraps(op_cases)(functools.partial(op_cases, _op)))
    table(f"{_op}_scaling", threads=True, axis="value")(
        functools.wraps(scaling_cases)(functools.partial(scaling_cases, _op))
    )
