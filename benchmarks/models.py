"""Measures training steps and predictions of whole models: Keras, the same under tfo.layers.use_fused_ops, PyTorch.

usage: python benchmarks/models.py [--out FOLDER] [--seconds S] [--quick] [MODEL]...
       python benchmarks/models.py --profile MODEL
       python benchmarks/models.py --draw FILE.md

in an environment as described in benchmarks/README.md, with keras-hub. MODEL is a name in
models_keras.py, such as ResNet50; all by default, in 25 minutes on two idle cores. The tables
go to standard output and, with --out, to FOLDER/DATE-models-cpu.md, and a chart of them to
FOLDER/DATE-models.png. --draw draws the chart of a table that exists. --profile prints which
ops take the time of a training step under the switch. If a model fails, the others are still
measured, and the exit status is 1.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import datetime
import functools
import gc
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

import harness
import numpy as np
import peers
import run
import tensorflow as tf

import tensorflow_ops as tfo

NOTE = """\
A training step is Keras's `train_on_batch` and PyTorch's forward, backward and `step` with AdamW; a prediction is
`predict_on_batch` and a call in `eval()` and `no_grad()`. "switch" is the same Keras model under
`tfo.layers.use_fused_ops()`. "torch" is PyTorch without compilation, its images in channels_last; "torch fused" has
`AdamW(fused=True)`. Candidates run in turns in one process for each model, with 2 threads, in float32; columns are
medians of wall time and, after "CPU", of the CPU time of all threads. The last row has geometric means, torch's of the
models that it has."""
FACTS_NOTE = """\
MB are the peak of resident memory during training steps after the first, less what the process held before it made the
model: weights, AdamW's moments, gradients, activations, and in Keras the traced graph. "first loss" is the relative
difference between the losses of the first step without and with the switch, which begin with equal weights and
dropout; D-FINE's losses differ since keras-hub's [matcher](../../docs/upstream.md#the-matcher-of-d-fine) misses the
smallest sum. Calls are counted when a step is traced, which Keras does twice."""
PASSES = {"step": "Training step", "predict": "Prediction"}
CANDIDATES = ["Keras", "switch", "torch", "torch fused"]


# Candidates.


@dataclasses.dataclass
class Candidate:
    """A model's calls.

    Attributes:
      step: a training step, which returns the loss.
      predict: a prediction.
      context: where the first call of each, which traces it, belongs.
      before: the resident memory before the model was made.
    """

    step: Callable
    predict: Callable
    before: int
    context: Callable = contextlib.nullcontext


def resident(key="VmRSS"):
    """Returns the bytes of this process's resident memory, or, for "VmHWM", of its peak."""
    return 1024 * int(re.search(rf"{key}:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())[1])


def in_keras(network, context=contextlib.nullcontext):
    """Returns a Network in Keras."""
    import keras

    before = resident()
    keras.utils.set_random_seed(0)
    model = network.make()
    # keras-hub's own train_on_batch fails for y of dicts; its detectors' predict_on_batch fails, too.
    train = functools.partial(keras.Model.train_on_batch, model, network.x, network.y)
    predictor = keras.Model(model.input, model.output)
    return Candidate(lambda: float(train()), lambda: predictor.predict_on_batch(network.x), before, context)


def in_torch(name, network, **options):
    """Returns the Network of a name in PyTorch."""
    import models_torch
    import torch

    make, x, loss_of = models_torch.MODELS[name](network)
    before = resident()
    torch.manual_seed(0)
    module = make().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-4, weight_decay=0.01, **options)

    def step():
        module.training or module.train()
        optimizer.zero_grad()
        loss = loss_of(module(*x))
        loss.backward()
        optimizer.step()
        return loss.item()

    def predict():
        not module.training or module.eval()
        with torch.no_grad():
            return module(*x)

    return Candidate(step, predict, before)


def candidates_of(name):
    """Returns the batch of a model, and functions that make its candidates."""
    import models_keras

    network = models_keras.MODELS[name]()
    makers = {
        "Keras": lambda: in_keras(network),
        "switch": lambda: in_keras(network, tfo.layers.use_fused_ops),
    }
    if peers.torch():
        makers["torch"] = lambda: in_torch(name, network)
        makers["torch fused"] = lambda: in_torch(name, network, fused=True)
    return network.size, makers


# Measuring, in processes of their own.


def speed(name, options):
    """Returns the times of a model's candidates, their first losses, and the calls that the switch served."""
    size, makers = candidates_of(name)
    candidates = {}
    for candidate, make in makers.items():
        try:
            candidates[candidate] = make()
        except ImportError as error:
            print(f"{name} in {candidate} is omitted: {error}", file=sys.stderr)
    rounds = {"min_rounds": 3, "max_seconds": 5.0} if options.quick else {"max_seconds": 3 * options.seconds}
    answer = {"size": size, "losses": {}}
    for which in PASSES:
        calls = {}
        for candidate, made in candidates.items():
            if which == "predict" and candidate == "torch fused":
                continue
            calls[candidate] = getattr(made, which)
            with made.context():
                result = calls[candidate]()
            if which == "step":
                answer["losses"][candidate] = result
                if candidate == "switch":
                    answer["calls"] = tfo.layers.fused_ops()
        times = harness.time_in_turns(list(calls.values()), options.seconds, pause=harness.PAUSE, **rounds)
        answer[which] = dict(zip(calls, times, strict=True))
    return answer


def memory(name, options):
    """Returns the peak memory of a candidate's training step."""
    candidate = candidates_of(name)[1][options.candidate]()
    with candidate.context():
        candidate.step()
    candidate.step()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # returns what tracing needed
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    for _ in range(2):
        candidate.step()
    return resident("VmHWM") - candidate.before


def profile(name, options):
    """Returns the milliseconds and calls of each type of op in a training step under the switch."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    candidate = candidates_of(name)[1]["switch"]()
    with candidate.context():
        candidate.step()
    candidate.step()
    steps = 3
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for _ in range(steps):
                candidate.step()
        [file] = pathlib.Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
    spent, counts = collections.Counter(), collections.Counter()
    for plane in space.planes:
        for line in plane.lines:
            open_events = []  # (end, type) of those that contain the next
            for event in sorted(line.events, key=lambda event: (event.offset_ps, -event.duration_ps)):
                op = re.fullmatch(r"[^: ]+:([\w>]+)", plane.event_metadata[event.metadata_id].name)  # NODE:TYPE
                if not op:
                    continue
                while open_events and open_events[-1][0] <= event.offset_ps:
                    open_events.pop()
                if open_events:
                    spent[open_events[-1][1]] -= event.duration_ps
                spent[op[1]] += event.duration_ps
                counts[op[1]] += 1
                open_events.append((event.offset_ps + event.duration_ps, op[1]))
    return [[kind, 1e-9 * time / steps, counts[kind] / steps] for kind, time in spent.most_common()]


def work(name, options):
    """Writes a measurement of a model to standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(harness.THREADS)
    answer = {"speed": speed, "memory": memory, "profile": profile}[options.worker](name, options)
    print(json.dumps(answer), file=answers, flush=True)


def ask(kind, name, options, *arguments):
    """Returns a measurement of a model by a new process."""
    command = [sys.executable, __file__, name, "--worker", kind, "--seconds", str(options.seconds), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": str(harness.THREADS), "KERAS_BACKEND": "tensorflow"}
    # PyTorch's default. If its threads slept at once, as peers.py asks, its short ops would take twice as long; the
    # pause between calls is longer than they spin.
    environment |= {"GOMP_SPINCOUNT": "300000"}
    answer = subprocess.run(command + ["--quick"] * options.quick, env=environment, stdout=subprocess.PIPE, check=False)
    if answer.returncode:
        raise RuntimeError(f"{name}: the process that measures {kind} failed")
    return json.loads(answer.stdout)


def measure(name, options):
    """Returns the measurements of a model."""
    print(name, file=sys.stderr, flush=True)
    row = {"model": name} | ask("speed", name, options)
    if options.quick:
        return row
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # memory does not depend on how busy the machine is
        peaks = pool.map(lambda candidate: ask("memory", name, options, "--candidate", candidate), row["step"])
        return row | {"memory": dict(zip(row["step"], peaks, strict=True))}


# Tables and the chart.


def time_rows(measured, which):
    """Returns the rows of a table of times."""
    candidates = [name for name in CANDIDATES if any(name in model[which] for model in measured)]
    rows, ratios = [], collections.defaultdict(list)
    for model in measured:
        times = model[which]
        row = {"model": model["model"], "batch": model["size"]}
        row |= {f"{name}, ms": run.number(1e3 * times[name][0]) if name in times else "" for name in candidates}
        for prefix, clock in (("", 0), ("CPU: ", 1)):
            for name in candidates:
                column = f"{prefix}{name} / switch"
                if name in times and name != "switch":
                    ratios[column].append(times[name][clock] / times["switch"][clock])
                    row[column] = run.number(ratios[column][-1])
                elif name != "switch":
                    row[column] = ""
        rows.append(row)
    means = {column: f"**{run.number(statistics.geometric_mean(values))}**" for column, values in ratios.items()}
    return [*rows, {"model": "geometric mean"} | means]


def fact_rows(measured):
    """Returns the rows of the table of memory, losses and calls."""
    rows = []
    for model in measured:
        row = {"model": model["model"]}
        if peaks := model.get("memory"):
            row |= {f"{name}, MB": round(peaks[name] / 1e6) if name in peaks else "" for name in CANDIDATES}
        losses, calls = model["losses"], sorted(model["calls"].items())
        row["first loss"] = f"{abs(losses['switch'] / losses['Keras'] - 1):.0e}".replace("0e+00", "0")
        row["calls of ops"] = ", ".join(f"`{op}` {counts['fused']}" for op, counts in calls if counts["fused"])
        reasons = [(op, *reason) for op, counts in calls for reason in counts.get("reasons", {}).items()]
        row["of originals"] = ", ".join(f"`{op}` {number} ({reason})" for op, reason, number in reasons)
        rows.append(row)
    return rows


def tables_of(text):
    """Returns the rows of the tables of a Markdown file, as dicts, by the headings before them."""
    tables, heading = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| "):
            tables.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return {heading: [dict(zip(rows[0], row, strict=True)) for row in rows[1:]] for heading, rows in tables.items()}


def draw(text, path):
    """Draws the times of a Markdown file as shares of Keras's; writes a chart for light and dark pages."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    gray, limit, width = "#7d7d7d", 1.5, 0.3
    candidates = {"Keras": ("Keras", "#8c8c8c"), "switch": ("Keras with use_fused_ops()", "#2a9d5c")}
    candidates["torch"] = "PyTorch", "#e07b39"
    pyplot.rcParams.update({"font.size": 10, "text.color": gray, "axes.edgecolor": gray})
    tables = tables_of(text)
    figure, axes = pyplot.subplots(len(PASSES), figsize=(11, 6.4), layout="constrained")
    for area, title in zip(axes, PASSES.values(), strict=True):
        *rows, mean = tables[title]
        for place, (candidate, (label, color)) in enumerate(candidates.items()):
            times = {i: row for i, row in enumerate(rows) if row.get(f"{candidate}, ms")}
            shares = [float(row[f"{candidate}, ms"]) / float(row["Keras, ms"]) for row in times.values()]
            places = [i + (place - 1) * width for i in times]
            bars = area.bar(places, np.minimum(shares, limit), 0.9 * width, color=color, label=label)
            if candidate != "Keras":
                factors = [f"{1 / share:.1f}x" if share > 0.1 else f"{1 / share:.0f}x" for share in shares]
                weight = "bold" if candidate == "switch" else "normal"
                area.bar_label(bars, factors, padding=1, color=color, fontsize=8.5, fontweight=weight)
        factor = mean["Keras / switch"].strip("*")
        area.set_title(f"{title}: {factor}x as fast as Keras (geometric mean)", loc="left", fontsize=12)
        area.set_xticks(range(len(rows)), [row["model"] for row in rows])
        area.set(ylim=(0, limit + 0.15), xlim=(-0.6, len(rows) - 0.4), ylabel=f"time / Keras's, cut at {limit}")
        area.tick_params(colors=gray)
        area.yaxis.label.set_color(gray)
        area.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False)
    figure.savefig(path, dpi=110, transparent=True)


def report(measured, options):
    """Writes the tables of measurements, and the chart; returns the tables."""
    text = f"{NOTE}\n"
    for which, title in PASSES.items():
        text += f"\n## {title}\n\n{run.markdown(time_rows(measured, which))}"
    text += f"\n## Memory, losses and calls\n\n{FACTS_NOTE}\n\n{run.markdown(fact_rows(measured))}"
    if options.out:
        stem = f"{datetime.date.today().isoformat()}-models"
        command = shlex.join(["python", "benchmarks/models.py", *["--quick"] * options.quick, *options.model])
        heading = f"# Whole models, {stem[:10]}\n\n`{command}`: {run.machine()}.\n\n"
        (options.out / f"{stem}-cpu.md").write_text(f"{heading}![Whole models]({stem}.png)\n\n{text}")
        draw(text, options.out / f"{stem}.png")
    return text


def main():
    """Measures models from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="the folder for tables and the chart")
    parser.add_argument("--seconds", type=float, help="duration of a measurement (default: 15; quick: 2)")
    parser.add_argument("--quick", action="store_true", help="measure times only, roughly")
    parser.add_argument("--profile", metavar="MODEL", help="print the ops that take the time of a training step")
    parser.add_argument("--draw", metavar="FILE.md", type=pathlib.Path, help="draw the chart of a table that exists")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--candidate", help=argparse.SUPPRESS)
    parser.add_argument("model", nargs="*")
    options = parser.parse_args()
    options.seconds = options.seconds or (2.0 if options.quick else 15.0)
    if options.draw:
        draw(options.draw.read_text(), options.draw.with_name(f"{options.draw.stem.removesuffix('-cpu')}.png"))
        return
    import models_keras

    names = [options.profile] if options.profile else options.model or list(models_keras.MODELS)
    if unknown := [name for name in names if name not in models_keras.MODELS]:
        parser.error(f"no model is named {unknown[0]!r}; there are {', '.join(models_keras.MODELS)}")
    if options.worker:
        work(names[0], options)
        return
    if options.profile:
        rows = ask("profile", options.profile, options)
        total = sum(milliseconds for _, milliseconds, _ in rows)
        table = [
            {"op": op, "ms": run.number(ms), "%": f"{100 * ms / total:.1f}", "calls": run.number(calls)}
            for op, ms, calls in rows[:20]
        ]
        print(f"{options.profile}: {run.number(total)} ms a step in ops, of all threads\n\n{run.markdown(table)}")
        return
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    measured, failed = [], []
    for name in names:
        try:
            measured.append(measure(name, options))
            text = report(measured, options)
        except RuntimeError as error:
            print(error, file=sys.stderr, flush=True)
            failed.append(name)
    if measured:
        print(text)
    if failed:
        raise SystemExit(f"FAILED: {', '.join(failed)}")


if __name__ == "__main__":
    main()
