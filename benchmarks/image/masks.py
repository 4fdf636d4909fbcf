"""The distance transform and connected components, beside scipy.ndimage, which is serial and takes one plane. 4 min.

Eight masks, a curve, one of 16384 x 16384 with one and two threads. Masks are blobs (smoothed noise above its mean)
and noise (each pixel at random).
"""

import numpy as np
from harness import Case, in_graph, table

import tensorflow_ops as tfo

try:
    import scipy.ndimage
except ImportError:
    scipy = None


def make_masks(kind, batch, side):
    """Returns bool masks [batch, side, side], about half of them set."""
    rng = np.random.default_rng(0)
    tile = min(side, 1024)  # repeated: large images are slow to make
    if kind == "noise":
        masks = rng.random((batch, tile, tile), np.float32) < 0.5
    else:
        masks = scipy.ndimage.gaussian_filter(rng.normal(size=(batch, tile, tile)).astype(np.float32), (0, 6, 6)) > 0
    return np.tile(masks, (1, side // tile, side // tile))


def masks_of(batch, side, with_peers=True):
    """Yields the cases of masks of one size."""
    for kind in ("blobs", "noise") if scipy else ("noise",):
        masks = make_masks(kind, batch, side)
        ops = {
            "distance": (tfo.image.euclidean_distance_transform, lambda m: scipy.ndimage.distance_transform_edt(m)),
            "components": (
                lambda m: tfo.image.connected_components(m).labels,
                lambda m: scipy.ndimage.label(m)[0].astype(np.int32),
            ),
        }
        for op, (ours, theirs) in ops.items():
            yield Case(
                {"op": op, "mask": kind, "masks": batch, "side": side},
                in_graph(ours, (masks,)),
                {"SciPy": lambda f=theirs, m=masks: np.stack([f(x) for x in m])} if scipy and with_peers else {},
                moved=(masks.nbytes, 4 * masks.size),
            )


@table()
def batch():
    yield from masks_of(8, 512)


@table(axis="side")
def sizes():
    for side in (64, 128, 256, 512, 1024, 2048, 4096):
        yield from masks_of(1, side)


@table(threads=True)
def large():
    yield from masks_of(1, 16384, with_peers=False)
