"""Cases of the region pooling benchmarks: sizes of real detectors, boxes, and each op's settings."""

import dataclasses
from typing import NamedTuple

import ml_dtypes
import numpy as np


class Level(NamedTuple):
    """A feature map and its stride in image pixels."""

    height: int
    width: int
    stride: int


@dataclasses.dataclass(frozen=True)
class Case:
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
SINGLE_LEVEL = {f"FPN stride {level.stride}": Case((level,), 256, 1000, 7) for level in PYRAMID}
SINGLE_LEVEL["mask head"] = Case(PYRAMID[:1], 256, 100, 14)
MULTISCALE = {"FPN": Case(PYRAMID, 256, 1000, 7), "mask head": Case(PYRAMID, 256, 100, 14)}
POSITION_SENSITIVE = {
    "R-FCN": Case((Level(38, 63, 16),), 21 * 49, 300, 7, position_sensitive=True),
    "Light-head": Case((Level(50, 76, 16),), 490, 1000, 7, position_sensitive=True),
}
OTHER_CHANNELS = {
    name: dataclasses.replace(case, position_sensitive=False) for name, case in POSITION_SENSITIVE.items()
}


class Op(NamedTuple):
    """An op's cases, and the attributes to time it with, by name."""

    cases: dict[str, Case]
    settings: dict[str, dict]


_CHANNEL_ORDERS = {order: {"channel_order": order} for order in ("channel_major", "bin_major")}

OPS = {
    "roi_pool": Op(SINGLE_LEVEL | OTHER_CHANNELS, {"": {}}),
    "roi_align": Op(
        SINGLE_LEVEL,
        {
            "sampling 2": {"sampling_ratio": 2, "aligned": True},
            "adaptive": {"sampling_ratio": 0, "aligned": True},
            "max": {"sampling_ratio": 2, "aligned": True, "mode": "max"},
        },
    ),
    "ps_roi_pool": Op(POSITION_SENSITIVE, _CHANNEL_ORDERS),
    "ps_roi_align": Op(
        POSITION_SENSITIVE, {name: {"sampling_ratio": 2, **order} for name, order in _CHANNEL_ORDERS.items()}
    ),
    # Not aligned, like torchvision's MultiScaleRoIAlign.
    "multiscale_roi_align": Op(MULTISCALE, {"sampling 2": {"sampling_ratio": 2, "aligned": False}}),
}

BOXES = (
    "Boxes: sides log-uniform from 32 to 512 image pixels, drawn per axis, anywhere inside the image except for a "
    "rim of one feature pixel, where peers differ from the definition."
)


def random_boxes(count, height, width, seed=0):
    """Returns boxes inside the image with log-uniform sides of 32 to 512 pixels."""
    random = np.random.default_rng(seed)
    sides = np.exp(random.uniform(np.log(32), np.log(512), [count, 2]))
    sides = np.minimum(sides, [width - 1, height - 1])
    corner = random.uniform(0, 1, [count, 2]) * ([width - 1, height - 1] - sides)
    return np.concatenate([corner, corner + sides], 1).astype(np.float32)


@dataclasses.dataclass
class Inputs:
    """A case's tensors: float32, NHWC, channel_major, with values that every timed dtype can represent."""

    case: Case
    maps: list[np.ndarray]
    boxes: np.ndarray
    d_output: np.ndarray


def make_inputs(case):
    """Draws a case's inputs: normal values rounded to bfloat16, and boxes as in `BOXES`."""
    random = np.random.default_rng(1)

    def normal(*shape):
        return random.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)

    finest, rim = case.levels[0], case.levels[-1].stride
    height, width = finest.height * finest.stride, finest.width * finest.stride
    return Inputs(
        case,
        maps=[normal(1, level.height, level.width, case.channels) for level in case.levels],
        boxes=random_boxes(case.boxes, height - 2 * rim, width - 2 * rim) + np.float32(rim),
        d_output=normal(case.boxes, case.bins, case.bins, case.output_channels),
    )
