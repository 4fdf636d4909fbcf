"""Region pooling for bench.py: sizes of models, torchvision's ops, the bytes that must move."""

import dataclasses
import itertools

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# torchvision has no bfloat16 kernels.
PEER_DTYPES = (torch.float32, torch.float16)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model's sizes, on images of 800 x 1216 where nothing else is said."""

    name: str
    batch: int
    height: int
    width: int
    channels: int
    boxes: int
    pooled: int
    stride: int
    ratio: int = 2
    levels: int = 1
    order: str = "all"  # or "channel_major", "bin_major"
    bins: str = "samples"  # or "pixels"

    @property
    def scale(self):
        return 1 / self.stride

    @property
    def pooled_channels(self):
        return self.channels if self.order == "all" else self.channels // self.pooled**2

    def options(self, layout):
        """Returns the kernels' options but those of averages."""
        sizes = {name: getattr(self, name) for name in ("batch", "height", "width", "channels", "boxes", "scale")}
        return {**sizes, "pooled_height": self.pooled, "pooled_width": self.pooled, "layout": layout}

    def sampling(self):
        return {"ratio": self.ratio, "aligned": True}


POOL = (
    Case("FPN stride 4", 1, 200, 304, 256, 1000, 7, 4),
    Case("mask head stride 4", 1, 200, 304, 256, 100, 14, 4),
    Case("FPN stride 16", 1, 50, 76, 256, 1000, 7, 16),
    Case("C4, 4 images", 4, 50, 76, 1024, 1200, 7, 16),
    Case("Light-Head", 1, 50, 76, 490, 1000, 7, 16),
    Case("R-FCN, 600 x 1000", 1, 38, 63, 1029, 300, 7, 16),
)
AVERAGE = (
    Case("RoIAlign, FPN stride 4", 1, 200, 304, 256, 1000, 7, 4),
    Case("RoIAlign, FPN stride 16", 1, 50, 76, 256, 1000, 7, 16),
    Case("RoIAlign, adaptive, FPN stride 16", 1, 50, 76, 256, 1000, 7, 16, ratio=0),
    Case("RoIAlign, C4, 4 images", 4, 50, 76, 1024, 1200, 7, 16),
    Case("multi-scale, FPN", 1, 200, 304, 256, 1000, 7, 4, levels=4),
    Case("multi-scale, mask head", 1, 200, 304, 256, 100, 14, 4, levels=4),
    Case("PS-RoIAlign, Light-Head", 1, 50, 76, 490, 1000, 7, 16, order="channel_major"),
    Case("PS-RoIAlign, Light-Head, bin_major", 1, 50, 76, 490, 1000, 7, 16, order="bin_major"),
    Case("PS-RoI-Pool, R-FCN, 600 x 1000", 1, 38, 63, 1029, 300, 7, 16, order="channel_major", bins="pixels"),
    Case("PS-RoI-Pool, R-FCN, bin_major", 1, 38, 63, 1029, 300, 7, 16, order="bin_major", bins="pixels"),
)


def torchvision_version():
    """Returns torchvision's version, or why it cannot be used."""
    try:
        import torchvision

        return torchvision.__version__ if torch.ops.torchvision.roi_pool else "without ops"
    except Exception as error:  # a torchvision that does not fit torch fails in many ways
        return f"missing ({type(error).__name__}: {error})"


def draw(case, dtype, layout):
    """Returns maps, boxes (x1, y1, x2, y2), their images and a gradient of the output."""
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(batch, height, width, channels):
        shape = (batch, height, width, channels) if layout == "NHWC" else (batch, channels, height, width)
        return torch.randn(shape, generator=generator, device="cuda").to(dtype)

    maps = [normal(case.batch, case.height >> i, case.width >> i, case.channels) for i in range(case.levels)]
    image = torch.tensor([case.width, case.height], device="cuda") / case.scale
    largest = image.clamp(max=512)
    uniform = torch.rand((2, case.boxes, 2), generator=generator, device="cuda")
    sides, centres = 16 * (largest / 16) ** uniform[0], image * uniform[1]
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], 1).contiguous()
    images = torch.randint(0, case.batch, (case.boxes,), generator=generator, device="cuda", dtype=torch.int32)
    return maps, boxes, images, normal(case.boxes, case.pooled, case.pooled, case.pooled_channels)


class Peer:
    """torchvision's ops on one map: NCHW features, boxes in the features' dtype."""

    def __init__(self, case, layout, maps, boxes, images, d_output):
        self.ops, self.case, self.layout = torch.ops.torchvision, case, layout
        self.features, self.d_output = self._to_nchw(maps[0]), self._to_nchw(d_output)
        # Half precision cannot tell such boxes apart: results of float16 are compared with float32's.
        self.rois = torch.cat([images[:, None], boxes], 1).to(maps[0].dtype)
        self.bins = (case.scale, case.pooled, case.pooled)

    @staticmethod
    def has_average(case):
        """Says whether torchvision has the op. Its ps_roi_pool leaves out the last row and column: not the same."""
        return case.levels == 1 and case.bins == "samples" and case.order != "bin_major"

    def _to_nchw(self, tensor):
        return tensor.permute(0, 3, 1, 2).contiguous() if self.layout == "NHWC" else tensor

    def ours(self, tensor):
        """Returns an NCHW result in our layout."""
        return tensor.permute(0, 2, 3, 1) if self.layout == "NHWC" else tensor

    def pool(self):
        return self.ops.roi_pool(self.features, self.rois, *self.bins)

    def pool_grad(self, argmax):
        return self.ops._roi_pool_backward(self.d_output, self.rois, argmax, *self.bins, *self.features.shape)

    def average(self):
        """Returns (output, what its gradient takes)."""
        if self.case.order == "all":
            return self.ops.roi_align(self.features, self.rois, *self.bins, self.case.ratio, True), None
        return self.ops.ps_roi_align(self.features, self.rois, *self.bins, self.case.ratio)

    def average_grad(self, mapping):
        shape = self.features.shape
        if self.case.order == "all":
            tail = (*shape, self.case.ratio, True)
            return self.ops._roi_align_backward(self.d_output, self.rois, *self.bins, *tail)
        tail = (self.case.ratio, *shape)
        return self.ops._ps_roi_align_backward(self.d_output, self.rois, mapping, *self.bins, *tail)


def touched_elements(kernels, case, layout, options):
    """Counts the features that the boxes' averages depend on: those that must be read."""
    maps, boxes, images, d_output = draw(case, torch.float32, layout)
    kernels.run("roi_average_grad", torch.float32, [boxes, images, torch.ones_like(d_output), *maps], options)
    return sum(int((of_map != 0).sum()) for of_map in maps)


def pool_rows(kernels, make_row, case, dtype, layout):
    """Yields roi_pool and its gradient."""
    maps, boxes, images, d_output = draw(case, dtype, layout)
    [features], output, options = maps, torch.empty_like(d_output), case.options(layout)
    argmax, d_features = torch.empty_like(output, dtype=torch.int32), torch.empty_like(maps[0])
    forward, backward, gradient = None, None, None
    if dtype in PEER_DTYPES and torchvision_version()[0].isdigit():
        peer = Peer(case, layout, maps, boxes, images, d_output)
        exact = dtype == torch.float32  # float16 rounds torchvision's boxes to other pixels
        theirs = peer.pool()[1]
        forward, gradient = peer.pool, lambda: peer.pool_grad(theirs)
        backward = (lambda: peer.ours(gradient())) if exact else None
    whole = options | {"bins": "pixels"}
    read = touched_elements(kernels, case, layout, whole) * dtype.itemsize
    pooled = output.numel() * (dtype.itemsize + 4) + boxes.nbytes + images.nbytes
    name = f"{case.name}, {layout}"
    buffers = [features, boxes, images, output, argmax]
    compared = (lambda: peer.ours(peer.pool()[0])) if backward else None
    yield make_row("roi_pool", name, dtype, buffers, options, output, pooled + read, compared, forward)
    buffers = [d_output, argmax, boxes, images, d_features]
    num_bytes = pooled + d_features.nbytes
    yield make_row("roi_pool_grad", name, dtype, buffers, options, d_features, num_bytes, backward, gradient)


def average_rows(kernels, make_row, case, dtype, layout):
    """Yields an average, its gradients, and roi_align_max with its own where it exists."""
    maps, boxes, images, d_output = draw(case, dtype, layout)
    output, d_boxes, d_maps = torch.empty_like(d_output), torch.empty_like(boxes), list(map(torch.empty_like, maps))
    single = case.options(layout) | case.sampling()
    options = single | {"levels": case.levels, "smallest_box": 14, "order": case.order, "bins": case.bins}
    forward, backward, gradient = None, None, None
    if dtype in PEER_DTYPES and Peer.has_average(case) and torchvision_version()[0].isdigit():
        peer = Peer(case, layout, maps, boxes, images, d_output)
        exact = dtype == torch.float32
        mapping = peer.average()[1]
        forward, gradient = peer.average, lambda: peer.average_grad(mapping)
        backward = (lambda: peer.ours(gradient())) if exact else None
    read = touched_elements(kernels, case, layout, options) * dtype.itemsize
    pooled = output.nbytes + boxes.nbytes + images.nbytes
    written = sum(of_map.nbytes for of_map in maps)

    def row(kernel, buffers, to, num_bytes, *peers, **more):
        of_kernel = single if kernel.startswith("roi_align_max") else options
        return make_row(
            kernel, f"{case.name}, {layout}", dtype, buffers, of_kernel | more, to, pooled + num_bytes, *peers
        )

    compared = (lambda: peer.ours(peer.average()[0])) if backward else None
    yield row("roi_average", [boxes, images, output, *maps], output, read, compared, forward)
    buffers = [boxes, images, d_output, *d_maps]
    for deterministic in (False, True):
        more = {"deterministic": deterministic}
        yield row("roi_average_grad", buffers, d_maps[0], written, backward, gradient, **more)
    if case.bins == "samples":
        yield row("roi_average_boxes_grad", [boxes, images, d_output, d_boxes, *maps], d_boxes, read)
    if case.bins == "samples" and case.levels == 1 and case.order == "all":
        features, d_features = maps[0], d_maps[0]
        yield row("roi_align_max", [features, boxes, images, output], output, read)
        buffers = [d_output, features, boxes, images]
        yield row("roi_align_max_grad", [*buffers, d_features], d_features, read + written)
        yield row("roi_align_max_boxes_grad", [*buffers, d_boxes], d_boxes, read)


def rows(kernels, make_row, quick):
    """Yields the rows of all cases."""
    for some, family in ((POOL, pool_rows), (AVERAGE, average_rows)):
        for case, dtype, layout in itertools.product(some[: 2 if quick else None], DTYPES, ("NHWC", "NCHW")):
            yield from family(kernels, make_row, case, dtype, layout)
