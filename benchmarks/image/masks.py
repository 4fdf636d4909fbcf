"""Times the distance transform and connected components against scipy.ndimage.

    python benchmarks/image/masks.py [batch | sizes | large]... [--out FOLDER]

`batch`: 8 masks of 512 x 512. `sizes`: one mask of each size, also as a plot. `large`: one
mask of 16384 x 16384, with 1 and 2 threads. SciPy is serial, handles one plane a call, and
is timed with such a loop. Masks are blobs (smoothed noise above its mean) and noise (each
pixel at random). "x floor" is the time divided by that of reading the mask and writing the
result once.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import harness
import numpy as np
import scipy.ndimage

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"
PARTS = ("batch", "sizes", "large")
SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
LARGE = 16384
OPS = ("distance", "components")


def make_masks(kind, batch, side, seed=0):
    """Returns bool masks [batch, side, side], about half of them set."""
    rng = np.random.default_rng(seed)
    # One tile, repeated: large images are slow to make.
    tile = min(side, 1024)
    if kind == "noise":
        masks = rng.random((batch, tile, tile), np.float32) < 0.5
    else:
        masks = scipy.ndimage.gaussian_filter(rng.normal(size=(batch, tile, tile)).astype(np.float32), (0, 6, 6)) > 0
    return np.tile(masks, (1, side // tile, side // tile))


def our_calls(masks):
    """Returns calls of our ops on masks."""
    import tensorflow as tf  # after the worker has set the threads

    import tensorflow_ops as tfo

    images = tf.constant(masks)
    distance = tf.function(tfo.image.euclidean_distance_transform)
    components = tf.function(lambda images: tfo.image.connected_components(images).labels)
    # A call returns after its work is done; .numpy() would copy the result.
    return {"distance": lambda: distance(images), "components": lambda: components(images)}


def peer_calls(masks):
    """Returns calls of SciPy on each mask."""
    return {
        "distance": lambda: [scipy.ndimage.distance_transform_edt(mask) for mask in masks],
        "components": lambda: [scipy.ndimage.label(mask)[0] for mask in masks],
    }


def compare(kind, batch, side, rates, seconds):
    """Returns a table row for each op."""
    masks = make_masks(kind, batch, side)
    ours, theirs = our_calls(masks), peer_calls(masks)
    rows = []
    for op, call in ours.items():
        peer = theirs[op]
        times = harness.interleave({"ours": call, "SciPy": peer}, seconds, min_rounds=5)
        rows.append(
            {
                "op": op,
                "mask": kind,
                "[N, H, W]": [batch, side, side],
                "ms": f"{1e3 * times['ours']:.2f}",
                "SciPy ms": f"{1e3 * times['SciPy']:.1f}",
                "SciPy / ours": f"{times['SciPy'] / times['ours']:.1f}",
                "x floor": f"{times['ours'] / rates.floor(masks.nbytes, 4 * masks.size):.1f}",
                "off SciPy": f"{np.abs(call().numpy() - peer()).max():.1e}",
            }
        )
    return rows


def plot_sizes(rows, path):
    """Writes a plot of the times by size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for panel, op in zip(panels, OPS, strict=True):
        for kind, style in (("blobs", "-"), ("noise", "--")):
            some = [row for row in rows if (row["op"], row["mask"]) == (op, kind)]
            for name, color in (("ms", "tab:blue"), ("SciPy ms", "tab:red")):
                label = f"{'ours' if name == 'ms' else 'SciPy'}, {kind}"
                panel.loglog(
                    [row["[N, H, W]"][1] for row in some],
                    [float(row[name]) for row in some],
                    style,
                    color=color,
                    marker="o",
                    markersize=3,
                    label=label,
                )
        panel.set(title=op, xlabel="height and width of a mask")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("milliseconds")
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def time_large(kind, threads):
    """Runs in a process of its own: prints the seconds of each op on one large mask."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    calls = our_calls(make_masks(kind, 1, LARGE)[0])
    print(json.dumps({op: harness.interleave({op: call}, 1.0, min_rounds=3)[op] for op, call in calls.items()}))


def large_rows():
    """Returns rows for one large mask with 1 and 2 threads."""
    rows = []
    for kind in ("blobs", "noise"):
        times = []
        for threads in (1, 2):
            command = [sys.executable, __file__, "--worker", kind, str(threads)]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            times.append(json.loads(output.splitlines()[-1]))
        for op in OPS:
            one, two = (of_threads[op] for of_threads in times)
            rows.append(
                {
                    "op": op,
                    "mask": kind,
                    "1 thread ms": f"{1e3 * one:.0f}",
                    "2 threads ms": f"{1e3 * two:.0f}",
                    "speedup": f"{one / two:.2f}",
                    "ns a pixel, 2 threads": f"{1e9 * two / LARGE**2:.2f}",
                }
            )
    return rows


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help="all by default")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS, help="the folder for the plot")
    parser.add_argument("--seconds", type=float, default=4.0, help="per op and mask")
    parser.add_argument("--worker", nargs=2, metavar=("MASK", "THREADS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return time_large(args.worker[0], int(args.worker[1]))
    if not {*args.part} <= {*PARTS}:
        parser.error(f"expected some of {', '.join(PARTS)}")
    parts = args.part or PARTS

    print(f"{harness.machine()}, SciPy {scipy.__version__}\n")
    rates = harness.memory_rates()
    print(f"{rates}.\n")
    columns = ("op", "mask", "[N, H, W]", "ms", "SciPy ms", "SciPy / ours", "x floor", "off SciPy")
    if "batch" in parts:
        print("## Eight masks\n")
        rows = [row for kind in ("blobs", "noise") for row in compare(kind, 8, 512, rates, args.seconds)]
        harness.table(rows, columns)
    if "sizes" in parts:
        print("\n## Sizes\n")
        rows = [
            row
            for side in SIZES
            for kind in ("blobs", "noise")
            for row in compare(kind, 1, side, rates, args.seconds / 4)
        ]
        harness.table(rows, columns)
        plot = f"{datetime.date.today().isoformat()}-masks-sizes.png"
        plot_sizes(rows, args.out / plot)
        print(f"\n![Times by size]({plot})")
    if "large" in parts:
        print(f"\n## One mask of {LARGE} x {LARGE}\n")
        harness.table(large_rows(), ("op", "mask", "1 thread ms", "2 threads ms", "speedup", "ns a pixel, 2 threads"))


if __name__ == "__main__":
    main()
