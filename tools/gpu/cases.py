"""What is checked and timed: sizes, inputs, and the peers to compare with. Shared by check.py and bench.py."""

import dataclasses
import functools
import math

import bindings
import torch

FLOATS = tuple(bindings.DTYPES)
LAYOUTS = ("NHWC", "NCHW")


@dataclasses.dataclass(frozen=True)
class RoiCase:
    """Sizes of a region pooling problem, and where its boxes lie."""

    name: str
    batch: int
    height: int
    width: int
    channels: int
    num_boxes: int
    pooled: tuple
    scale: float  # feature pixels per image pixel; a power of two
    boxes: str = "proposals"  # or "whole_pixels", "bad"
    features: str = "normal"  # or "ties", "nonfinite"
    yxyx: bool = False
    offset: int = 0  # elements by which tensors miss their 16-byte alignment

    def with_boxes(self, kind):
        return dataclasses.replace(self, boxes=kind)


# For comparison with a reference and on a host that emulates a GPU: small, and odd where it matters.
SMALL = (
    RoiCase("packed", 2, 9, 12, 64, 20, (7, 7), 0.5, features="ties"),
    RoiCase("one_channel", 1, 7, 5, 1, 6, (2, 3), 1.0, features="ties"),
    RoiCase("odd_channels", 2, 10, 10, 37, 20, (5, 5), 1.0, features="ties"),
    RoiCase("over_a_tile", 1, 17, 19, 133, 12, (3, 3), 0.25, features="ties"),
    RoiCase("unaligned", 1, 8, 8, 16, 8, (3, 3), 1.0, offset=1),
    RoiCase("yxyx", 1, 8, 14, 8, 8, (3, 2), 0.5, yxyx=True),
    RoiCase("wide_bins", 1, 3, 40, 3, 2, (2, 300), 1.0),
    RoiCase("nonfinite", 1, 9, 9, 20, 10, (3, 3), 1.0, features="nonfinite"),
    RoiCase("bad_boxes", 2, 9, 12, 24, 0, (3, 4), 0.5, boxes="bad"),
    RoiCase("many_boxes", 3, 6, 6, 8, 300, (2, 2), 1.0, features="ties"),
    RoiCase("no_boxes", 2, 5, 5, 8, 0, (3, 3), 1.0),
    RoiCase("no_channels", 2, 5, 5, 0, 4, (3, 3), 1.0),
    RoiCase("no_batch", 0, 5, 5, 8, 4, (3, 3), 1.0),
    RoiCase("no_height", 1, 0, 5, 8, 4, (3, 3), 1.0),
    RoiCase("no_width", 1, 5, 0, 8, 4, (3, 3), 1.0),
)

# Of real models, on images of 800 x 1216 where nothing else is said.
REAL = (
    RoiCase("FPN stride 4", 1, 200, 304, 256, 1000, (7, 7), 1 / 4),
    RoiCase("mask head stride 4", 1, 200, 304, 256, 100, (14, 14), 1 / 4),
    RoiCase("FPN stride 16", 1, 50, 76, 256, 1000, (7, 7), 1 / 16),
    RoiCase("C4, 4 images", 4, 50, 76, 1024, 1200, (7, 7), 1 / 16),
    RoiCase("Light-Head", 1, 50, 76, 490, 1000, (7, 7), 1 / 16),
    RoiCase("R-FCN, 600 x 1000", 1, 38, 63, 1029, 300, (7, 7), 1 / 16),
)


@dataclasses.dataclass(frozen=True)
class AverageCase(RoiCase):
    """The same for the ops whose bins are weighted averages, or maxima of samples."""

    bins: str = "samples"  # or "pixels"
    ratio: int = 2
    aligned: bool = True
    order: str = "all"  # or "channel_major", "bin_major"
    levels: int = 1  # maps, each half as high and wide as the one before
    box_strides: float = 14.0  # side of the smallest box of a map, in its strides; the first map has smaller ones, too

    @property
    def pooled_channels(self):
        return self.channels if self.order == "all" else self.channels // (self.pooled[0] * self.pooled[1])

    def maps(self):
        """Returns each map's (height, width, scale)."""
        return [(self.height >> i, self.width >> i, self.scale / 2**i) for i in range(self.levels)]


SMALL_AVERAGE = (
    AverageCase("packed", 2, 9, 12, 64, 20, (7, 7), 0.5),
    AverageCase("packs of two", 1, 9, 12, 10, 20, (3, 3), 0.5),
    AverageCase("one_channel", 1, 7, 5, 1, 6, (2, 3), 1.0, ratio=3),
    AverageCase("adaptive, not aligned", 2, 10, 10, 37, 20, (5, 5), 0.5, ratio=0, aligned=False),
    AverageCase("over_a_tile", 1, 17, 19, 133, 12, (3, 3), 0.25),
    AverageCase("unaligned", 1, 8, 8, 16, 8, (3, 3), 1.0, offset=1),
    AverageCase("yxyx", 1, 8, 14, 8, 8, (3, 2), 0.5, yxyx=True),
    AverageCase("wide_bins", 1, 3, 40, 3, 2, (2, 300), 1.0),
    AverageCase("large_bins", 1, 6, 700, 3, 2, (1, 7), 0.5, ratio=0),
    AverageCase("bad_boxes", 2, 9, 12, 24, 0, (3, 4), 0.5, boxes="bad"),
    AverageCase("bad_boxes, adaptive", 2, 9, 12, 24, 0, (3, 4), 0.5, boxes="bad", ratio=0, aligned=False),
    AverageCase("many_boxes", 3, 6, 6, 8, 300, (2, 2), 1.0),
    AverageCase("pyramid", 2, 32, 40, 24, 60, (3, 3), 0.5, levels=3, box_strides=4.0),
    AverageCase("ps_roi_align", 2, 9, 12, 36, 20, (3, 3), 0.5, order="channel_major"),
    AverageCase("ps_roi_align, bin_major", 2, 9, 12, 72, 20, (3, 3), 0.5, order="bin_major", ratio=0),
    AverageCase("ps_roi_pool", 2, 9, 12, 45, 20, (3, 3), 0.5, order="channel_major", bins="pixels"),
    AverageCase("ps_roi_pool, bin_major", 2, 9, 12, 72, 20, (3, 3), 0.5, order="bin_major", bins="pixels"),
    AverageCase("ps_roi_pool, bad_boxes", 2, 9, 12, 24, 0, (3, 4), 0.5, "bad", order="bin_major", bins="pixels"),
    AverageCase("no_boxes", 2, 5, 5, 8, 0, (3, 3), 1.0),
    AverageCase("no_channels", 2, 5, 5, 0, 4, (3, 3), 1.0),
    AverageCase("no_batch", 0, 5, 5, 8, 4, (3, 3), 1.0),
    AverageCase("no_height", 1, 0, 5, 8, 4, (3, 3), 1.0),
    AverageCase("no_width", 1, 5, 0, 8, 4, (3, 3), 1.0),
)

REAL_AVERAGE = (
    AverageCase("RoIAlign, FPN stride 4", 1, 200, 304, 256, 1000, (7, 7), 1 / 4),
    AverageCase("RoIAlign, FPN stride 16", 1, 50, 76, 256, 1000, (7, 7), 1 / 16),
    AverageCase("RoIAlign, adaptive, FPN stride 16", 1, 50, 76, 256, 1000, (7, 7), 1 / 16, ratio=0),
    AverageCase("RoIAlign, C4, 4 images", 4, 50, 76, 1024, 1200, (7, 7), 1 / 16),
    AverageCase("multi-scale, FPN", 1, 200, 304, 256, 1000, (7, 7), 1 / 4, levels=4),
    AverageCase("multi-scale, mask head", 1, 200, 304, 256, 100, (14, 14), 1 / 4, levels=4),
    AverageCase("PS-RoIAlign, Light-Head", 1, 50, 76, 490, 1000, (7, 7), 1 / 16, order="channel_major"),
    AverageCase("PS-RoIAlign, Light-Head, bin_major", 1, 50, 76, 490, 1000, (7, 7), 1 / 16, order="bin_major"),
    AverageCase(
        "PS-RoI-Pool, R-FCN, 600 x 1000", 1, 38, 63, 1029, 300, (7, 7), 1 / 16, order="channel_major", bins="pixels"
    ),
    AverageCase(
        "PS-RoI-Pool, R-FCN, bin_major", 1, 38, 63, 1029, 300, (7, 7), 1 / 16, order="bin_major", bins="pixels"
    ),
)


def has_maximum(case):
    """Tells whether roi_align_max, too, takes the case: one map, its samples, all channels."""
    return case.levels == 1 and case.bins == "samples" and case.order == "all"


def bad_boxes(case):
    """Returns boxes (xyxy) and their images: malformed, far away, empty, then good ones."""
    width, height = case.width / case.scale, case.height / case.scale
    nan, inf = math.nan, math.inf
    good = [0.0, 0.0, width - 1, height - 1]
    boxes = [[*good[:i], value, *good[i + 1 :]] for value in (nan, inf, -inf) for i in range(4)]
    boxes += [
        [5, 0, 4, 3],  # inverted
        [0, 5, 3, 4],
        [3, 3, 3, 3],  # one pixel
        [-9, -9, -5, -5],  # outside
        [2 * width, 0, 3 * width, 3],
        [-5, -5, 2 * width, 2 * height],  # over the edge
        [-1e30, -1e30, 1e30, 1e30],
        [1e30, 1e30, 2e30, 2e30],
        [0.5 / case.scale, 1.5 / case.scale, 2.5 / case.scale, 3.5 / case.scale],  # halves
        [-0.5 / case.scale, -1.5 / case.scale, 2.5 / case.scale, 3.5 / case.scale],
    ]
    images = [0] * len(boxes)
    for image in (-1, case.batch, 2**31 - 1, -(2**31)):
        boxes.append(good)
        images.append(image)
    return torch.tensor([*boxes, good], dtype=torch.float64), torch.tensor([*images, case.batch - 1])


def proposals(case, whole_pixels, generator):
    """Returns boxes (xyxy) and their images: sides log-uniform from 16 to 512 pixels, all over and past the edges."""
    k = case.num_boxes
    image = torch.tensor([case.width, case.height], dtype=torch.float64) / case.scale
    largest = torch.minimum(image, torch.tensor(512.0, dtype=torch.float64)).clamp(min=1)
    smallest = torch.minimum(largest, torch.tensor(16.0, dtype=torch.float64))
    uniform = torch.rand((3, k, 2), generator=generator, dtype=torch.float64)
    sides = smallest * (largest / smallest) ** uniform[0]
    centres = image * uniform[1]
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], 1)
    if whole_pixels:
        boxes = (boxes * case.scale).round() / case.scale
    return boxes, torch.randint(0, max(case.batch, 1), (k,), generator=generator)


@dataclasses.dataclass
class RoiProblem:
    """A case's inputs, in host memory: features and d_output of one dtype, boxes of its coordinates'."""

    case: RoiCase
    layout: str
    args: bindings.RoiArgs
    features: torch.Tensor
    boxes: torch.Tensor
    box_indices: torch.Tensor
    d_output: torch.Tensor

    @property
    def output_shape(self):
        return self.d_output.shape

    def whole_d_output(self):
        """Returns whole numbers, whose sums are exact in any order."""
        return (2 * self.d_output).round()


def in_layout(layout, outer, height, width, channels):
    return (outer, height, width, channels) if layout == "NHWC" else (outer, channels, height, width)


def draw_boxes(case, dtype, generator):
    """Returns a case's boxes and their images, as its ops take them with features of this dtype."""
    if case.boxes == "bad":
        boxes, box_indices = bad_boxes(case)
    else:
        boxes, box_indices = proposals(case, case.boxes == "whole_pixels", generator)
    if case.yxyx:
        boxes = boxes[:, [1, 0, 3, 2]]
    coordinate = torch.float64 if dtype == torch.float64 else torch.float32
    return boxes.to(coordinate).contiguous(), box_indices.to(torch.int32)


def make_roi_args(case, layout, num_boxes):
    return bindings.RoiArgs(
        case.batch,
        case.height,
        case.width,
        case.channels,
        num_boxes,
        *case.pooled,
        case.scale,
        layout == "NCHW",
        case.yxyx,
    )


def make_problem(case, dtype, layout, seed=0):
    """Draws a case's inputs."""
    generator = torch.Generator().manual_seed(seed)
    boxes, box_indices = draw_boxes(case, dtype, generator)
    args = make_roi_args(case, layout, len(boxes))
    features = torch.randn(in_layout(layout, case.batch, case.height, case.width, case.channels), generator=generator)
    if case.features == "ties":
        features = (2 * features).round() / 2
    elif case.features == "nonfinite":
        pick = torch.randint(0, 12, features.shape, generator=generator)
        for code, value in enumerate((math.nan, math.inf, -math.inf, -math.inf)):
            features[pick == code] = value
    d_output = torch.randn(
        in_layout(layout, len(boxes), *case.pooled, case.channels), generator=generator, dtype=torch.float64
    )
    return RoiProblem(
        case,
        layout,
        args,
        features.to(dtype),
        boxes,
        box_indices,
        d_output.to(dtype),
    )


@dataclasses.dataclass
class AverageProblem(RoiProblem):
    """The same of an AverageCase: args are RoiAverageArgs, features a tuple of maps."""


def make_average_problem(case, dtype, layout, seed=0):
    """Draws a case's inputs."""
    generator = torch.Generator().manual_seed(seed)
    boxes, box_indices = draw_boxes(case, dtype, generator)
    args = bindings.RoiAverageArgs(
        make_roi_args(case, layout, len(boxes)),
        bindings.BINS[case.bins],
        case.ratio,
        case.aligned,
        bindings.ORDERS[case.order],
        case.levels,
    )
    features = []
    for i, (height, width, scale) in enumerate(case.maps()):
        args.levels[i] = bindings.RoiLevel(height, width, scale, case.box_strides / scale if i else 0)
        shape = in_layout(layout, case.batch, height, width, case.channels)
        features.append(torch.randn(shape, generator=generator).to(dtype))
    d_output = torch.randn(
        in_layout(layout, len(boxes), *case.pooled, case.pooled_channels), generator=generator, dtype=torch.float64
    )
    return AverageProblem(case, layout, args, tuple(features), boxes, box_indices, d_output.to(dtype))


def covered_pixels(problem):
    """Counts the feature pixels that some box covers: those that must be read."""
    case, boxes = problem.case, problem.boxes.double() * problem.case.scale
    corners = (boxes.abs() + 0.5).floor() * boxes.sign()
    edges = torch.zeros((case.batch, case.height + 1, case.width + 1), dtype=torch.int64)
    for (x1, y1, x2, y2), image in zip(corners.long().tolist(), problem.box_indices.tolist(), strict=True):
        top, bottom = (min(max(y, 0), case.height) for y in (y1, y2 + 1))
        left, right = (min(max(x, 0), case.width) for x in (x1, x2 + 1))
        edges[image, top, left] += 1
        edges[image, top, right] -= 1
        edges[image, bottom, left] -= 1
        edges[image, bottom, right] += 1
    return int((edges.cumsum(1).cumsum(2)[:, :-1, :-1] > 0).sum())


@functools.cache
def torchvision_ops():
    """Returns torchvision's registered ops and its version, or (None, why not)."""
    try:
        import torchvision

        return torch.ops.torchvision.roi_pool and torch.ops.torchvision, torchvision.__version__
    except Exception as error:  # a torchvision that does not fit torch fails in many ways
        return None, f"{type(error).__name__}: {error}"


def has_torchvision_twin(case):
    """Tells whether torchvision takes the case and defines its result as we do."""
    pixels = case.batch * case.height * case.width * case.channels
    return case.boxes != "bad" and case.features != "nonfinite" and not case.yxyx and pixels > 0


class TorchvisionRoiPool:
    """torchvision's own roi_pool on a problem: NCHW features, boxes in the features' dtype. No bfloat16."""

    dtypes = (torch.float32, torch.float64, torch.float16)

    def __init__(self, problem, memory):
        self.case = problem.case
        self.dtype = problem.features.dtype
        rois = torch.cat([problem.box_indices[:, None].to(problem.boxes.dtype), problem.boxes], 1)
        to_nchw = (0, 3, 1, 2) if problem.layout == "NHWC" else (0, 1, 2, 3)
        self.features = problem.features.permute(to_nchw).contiguous().to(memory)
        self.d_output = problem.d_output.permute(to_nchw).contiguous().to(memory)
        self.rois = rois.to(self.dtype).to(memory)

    def forward(self):
        """Returns (output, argmax), NCHW."""
        return torchvision_ops()[0].roi_pool(self.features, self.rois, self.case.scale, *self.case.pooled)

    def backward(self, argmax):
        """Returns d_features, NCHW."""
        return torchvision_ops()[0]._roi_pool_backward(
            self.d_output, self.rois, argmax, self.case.scale, *self.case.pooled, *self.features.shape
        )


class TorchvisionAlign:
    """torchvision's own roi_align or ps_roi_align on an AverageProblem of one map, in float32 or float64."""

    dtypes = (torch.float32, torch.float64, torch.float16)

    def __init__(self, problem, memory):
        self.case = problem.case
        to_nchw = (0, 3, 1, 2) if problem.layout == "NHWC" else (0, 1, 2, 3)
        [features] = problem.features
        self.features = features.permute(to_nchw).contiguous().to(memory)
        self.d_output = problem.d_output.permute(to_nchw).contiguous().to(memory)
        rois = torch.cat([problem.box_indices[:, None].to(problem.boxes.dtype), problem.boxes], 1)
        self.rois = rois.to(features.dtype).to(memory)
        self.bins = (self.case.scale, *self.case.pooled)

    @staticmethod
    def takes(case):
        """Tells whether torchvision has this op. Its ps_roi_pool leaves out the last row and column: not the same."""
        return (
            case.levels == 1
            and case.bins == "samples"
            and has_torchvision_twin(case)
            and (case.order == "all" or (case.order == "channel_major" and case.aligned))
        )

    def forward(self):
        """Returns output, NCHW, and the channels that backward takes."""
        ops = torchvision_ops()[0]
        if self.case.order == "all":
            return ops.roi_align(self.features, self.rois, *self.bins, self.case.ratio, self.case.aligned), None
        return ops.ps_roi_align(self.features, self.rois, *self.bins, self.case.ratio)

    def backward(self, mapping):
        """Returns d_features, NCHW."""
        ops = torchvision_ops()[0]
        if self.case.order == "all":
            sampling = (self.case.ratio, self.case.aligned)
            return ops._roi_align_backward(self.d_output, self.rois, *self.bins, *self.features.shape, *sampling)
        return ops._ps_roi_align_backward(
            self.d_output, self.rois, mapping, *self.bins, self.case.ratio, *self.features.shape
        )


def torchvision_agrees(problem):
    """Tells of each box whether torchvision's bins, computed in the features' dtype, are the exact ones.

    The exact ones are whole-number arithmetic on whole-pixel corners, so the boxes must be such and have x1 <= x2.
    """
    dtype, case = problem.features.dtype, problem.case
    same = torch.ones(len(problem.boxes), dtype=torch.bool)
    scaled = problem.boxes.double() * case.scale
    same &= (problem.boxes.to(dtype).double() == problem.boxes.double()).all(1)
    same &= (scaled == scaled.round()).all(1)
    for axis, bins, limit in ((0, case.pooled[1], case.width), (1, case.pooled[0], case.height)):
        start = scaled[:, axis].long()
        size = scaled[:, axis + 2].long() - start + 1
        p = torch.arange(bins + 1)
        whole = p * size[:, None]
        exact = {"begin": whole[:, :-1] // bins, "end": (whole[:, 1:] + bins - 1) // bins}
        in_dtype = p.to(dtype) * (size.to(dtype) / torch.tensor(bins, dtype=dtype))[:, None]
        theirs = {"begin": in_dtype[:, :-1].double().floor(), "end": in_dtype[:, 1:].double().ceil()}
        for edge in ("begin", "end"):
            pixels = [(start[:, None] + edges[edge].long()).clamp(0, limit) for edges in (exact, theirs)]
            same &= (pixels[0] == pixels[1]).all(1)
    return same


def select_boxes(problem, keep):
    """Returns the problem with some of its boxes."""
    args = bindings.RoiArgs.from_buffer_copy(problem.args)
    args.num_boxes = int(keep.sum())
    return dataclasses.replace(
        problem,
        args=args,
        boxes=problem.boxes[keep].contiguous(),
        box_indices=problem.box_indices[keep].contiguous(),
        d_output=problem.d_output[keep].contiguous(),
    )
