"""Measures how the region pooling ops scale with boxes, channels, output area and threads: PNG plots and tables.

usage: python benchmarks/detection/scaling.py [--out FOLDER] [OP]
with the wheel and matplotlib installed (benchmarks/README.md).
"""

import argparse
import collections
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Adds the harness's folder, not the repository's root, whose package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import cases
import harness
import numpy as np
import ours
import peers
import theirs

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
THREADS = (1, 2)
PASSES = ("forward", "backward")
_ROUNDS = {"seconds": 0.7, "min_rounds": 5, "max_seconds": 6.0}
# Where torchvision's curve ends: it is serial and grows linearly.
_MAX_TORCHVISION_SECONDS = 2.0
AXES = {
    "boxes": (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000),
    "channels": (16, 32, 64, 128, 256, 512, 1024),
    "output area": tuple(bins**2 for bins in (1, 2, 3, 4, 5, 7, 10, 14, 20)),
}
# The case of each op that is varied, with the op's first setting.
BASES = {
    "roi_pool": "FPN stride 4",
    "roi_align": "FPN stride 4",
    "ps_roi_pool": "Light-head",
    "ps_roi_align": "Light-head",
    "multiscale_roi_align": "FPN",
}


def vary(case, axis, value):
    """Returns the case with another number of boxes, output channels or bins."""
    if axis == "boxes":
        return dataclasses.replace(case, boxes=value)
    outputs, bins = case.output_channels, case.bins
    if axis == "channels":
        outputs = value
    else:
        bins = round(value**0.5)
    return dataclasses.replace(case, bins=bins, channels=outputs * (bins**2 if case.position_sensitive else 1))


def values_of(case, axis):
    """Returns an axis's values. Position-sensitive ops have few output channels, but many input channels."""
    shrink = 16 if axis == "channels" and case.position_sensitive else 1
    return [value // shrink for value in AXES[axis]]


def work(op, threads):
    """Reads lines [axis, value], measures each point, and writes lines {name: seconds, "torchvision / PASS": ratio}."""
    raw, attrs = ours.load(threads), next(iter(cases.OPS[op].settings.values()))
    # torchvision's ops always use one thread.
    torch, torchvision = peers.torchvision_ops(threads) if threads == max(THREADS) else (None, None)
    slow = set()  # axes on which torchvision takes too long
    for line in sys.stdin:
        axis, value = json.loads(line)
        inputs = cases.make_inputs(vary(cases.OPS[op].cases[BASES[op]], axis, value))
        mine = ours.candidate(raw, op, attrs, inputs, "float32", "NHWC")
        calls = {which: mine.passes[which] for which in PASSES}
        # Without torchvision in the turns, so that all thread counts find the same caches.
        times = harness.interleave(calls, **_ROUNDS)
        if torch is not None and axis not in slow:
            rival = theirs.torchvision(torch, torchvision, op, attrs, inputs)
            rivals = {f"torchvision {which}": rival.passes[which] for which in PASSES}
            turns = harness.interleave(calls | rivals, **_ROUNDS)
            times |= {name: turns[name] for name in rivals}
            times |= {f"torchvision / {which}": turns[f"torchvision {which}"] / turns[which] for which in PASSES}
            if sum(turns[name] for name in rivals) > _MAX_TORCHVISION_SECONDS:
                slow.add(axis)
        print(json.dumps(times), flush=True)


@contextlib.contextmanager
def worker(op, threads):
    """Runs `work` in a new process, because TensorFlow's threads are set once. Yields (axis, value) -> times."""
    command = [sys.executable, __file__, op, "--worker", str(threads)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(axis, value):
            print(json.dumps([axis, value]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            if not answer:
                raise RuntimeError(f"the process that measures {op} with {threads} threads ended at {axis} {value}")
            return json.loads(answer)

        yield ask


def measure(op):
    """Returns {threads: {axis: {name: [(value, seconds)]}}}. Alternates between thread counts, because times drift."""
    curves = {threads: {axis: collections.defaultdict(list) for axis in AXES} for threads in THREADS}
    with contextlib.ExitStack() as stack:
        workers = {threads: stack.enter_context(worker(op, threads)) for threads in THREADS}
        for axis in AXES:
            for value in values_of(cases.OPS[op].cases[BASES[op]], axis):
                print(f"{op}: {value} {axis}", file=sys.stderr, flush=True)
                for threads, ask in workers.items():
                    for name, seconds in ask(axis, value).items():
                        curves[threads][axis][name].append((value, seconds))
    return curves


def _decorate(panel, axis, values, unit):
    panel.set_xscale("log")
    panel.set_xticks(values, [f"{round(value):,}" for value in values], fontsize=8)
    panel.minorticks_off()
    panel.set_xlabel(axis)
    panel.set_ylabel(unit)
    panel.grid(True, which="major", color="0.85")
    panel.set_axisbelow(True)


def _plot_times(panel, axis, by_threads, colors):
    """Plots our times for each number of threads, torchvision's, and lines of linear growth."""
    most = max(by_threads)
    for which in PASSES:
        for threads, curves in by_threads.items():
            values, times = np.array(curves[axis][which]).T
            style = "-" if threads == most else "--"
            label = f"{which}, {threads} thread{'s' * (threads > 1)}"
            panel.plot(values, 1e3 * times, style, marker="o", markersize=4, color=colors[which], label=label)
            if threads == most:
                panel.plot(values, 1e3 * times[-1] * values / values[-1], ":", color=colors[which], linewidth=1)
        label = f"torchvision {which}"
        if label in by_threads[most][axis]:
            values, times = np.array(by_threads[most][axis][label]).T
            panel.plot(values, 1e3 * times, marker="s", markersize=4, color=colors[label], label=label)
    panel.set_yscale("log")
    _decorate(panel, axis, values, "ms")


def plot(op, by_threads, subtitle, path):
    """Plots an op's times, and below them the ratios to torchvision and to one thread."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    colors = {"forward": "tab:blue", "backward": "tab:red"}
    colors |= {"torchvision forward": "tab:cyan", "torchvision backward": "tab:orange"}
    figure, panels = pyplot.subplots(
        3, 3, figsize=(15, 12), height_ratios=(2, 1, 1), layout="constrained", sharex="col"
    )
    fewest, most = min(by_threads), max(by_threads)
    for column, axis in enumerate(AXES):
        times, ratio, speedup = panels[:, column]
        _plot_times(times, axis, by_threads, colors)
        for which in PASSES:
            curves = {threads: np.array(by_threads[threads][axis][which]).T for threads in by_threads}
            values, mine = curves[most]
            ratios = by_threads[most][axis].get(f"torchvision / {which}")
            if ratios:
                ratio.plot(*np.array(ratios).T, marker="o", markersize=4, color=colors[which])
            speedup.plot(values, curves[fewest][1] / mine, marker="o", markersize=4, color=colors[which])
        ratio.set_ylim(bottom=0)
        speedup.set_ylim(0, most / fewest + 0.2)
        speedup.axhline(most / fewest, linestyle=":", color="0.4")
        _decorate(ratio, axis, values, "torchvision's time / ours")
        _decorate(speedup, axis, values, f"time with {fewest} thread / with {most}")
        for panel in (times, ratio):
            panel.set_xlabel("")
        times.yaxis.set_major_formatter(ticker.FuncFormatter(lambda ms, _: f"{ms:g}"))
    panels[0, 0].legend(fontsize=9)
    figure.suptitle(f"{op}: {subtitle}")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def growth(points):
    """Returns the growth exponent over the last four points: 1 means linear growth."""
    values, times = np.log(points[-4:]).T
    return np.polyfit(values, times, 1)[0]


def rows(curves):
    """Yields a table row per axis and pass."""
    fewest, most = min(curves), max(curves)
    for axis in AXES:
        for which in PASSES:
            mine, slow = curves[most][axis][which], curves[fewest][axis][which]
            row = {"axis": axis, "pass": which}
            row["from"], row["to"] = (f"{value:,}: {1e3 * seconds:.2f} ms" for value, seconds in (mine[0], mine[-1]))
            row["growth at the end"] = f"{growth(mine):.2f}"
            speedups = [one[1] / two[1] for one, two in zip(slow, mine, strict=True)]
            row[f"{fewest} thread / {most}"] = f"{min(speedups):.2f} to {max(speedups):.2f}"
            ratios = [ratio for _, ratio in curves[most][axis].get(f"torchvision / {which}", [])]
            if ratios:
                row["torchvision / ours"] = f"{min(ratios):.1f} to {max(ratios):.1f}"
            yield row


def main():
    """Measures each op with each number of threads; plots and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", nargs="?", choices=["all", *cases.OPS], default="all")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS, help="the folder for the plots")
    parser.add_argument("--worker", type=int, metavar="THREADS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.op, args.worker)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    torch, why_not = peers.torchvision_ops(max(THREADS))
    if torch is None:
        print(why_not)
    print(f"{harness.machine()}. {cases.BOXES}")
    for op in cases.OPS if args.op == "all" else [args.op]:
        curves = measure(op)
        setting = next(iter(cases.OPS[op].settings))
        case = cases.OPS[op].cases[BASES[op]]
        subtitle = (
            f"{', '.join(filter(None, [setting, 'float32 NHWC', BASES[op]]))}; where not varied {case.boxes} boxes, "
            f"{case.output_channels} output channels, {case.bins} x {case.bins} bins (dotted: linear growth)"
        )
        path = args.out / f"{datetime.date.today()}-{op}-scaling.png"
        plot(op, curves, subtitle, path)
        table = list(rows(curves))
        print(f"\n## {op}: {subtitle}\n\n![{op}]({path.name})\n")
        harness.table(table, list(table[0]))


if __name__ == "__main__":
    main()
