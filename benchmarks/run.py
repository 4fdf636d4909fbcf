"""Measures the cases of benchmarks/NAMESPACE/*.py and writes their tables and plots.

usage: python benchmarks/run.py [--out FOLDER] [--case TEXT] [--seconds S] [--quick] TABLE...
       python benchmarks/run.py --all [--out FOLDER]
       python benchmarks/run.py --against PYTHON [--quick] TABLE...
       python benchmarks/run.py --list

in an environment as described in benchmarks/README.md. TABLE is a table's name or a part of
one: "nn", "nn/rows/softmax". --case keeps the rows that contain TEXT; --quick measures the
first rows of each table, roughly. Tables go to standard output and, with --out, each to
FOLDER/DATE-NAME.md. If a table fails, the others are still measured, and the exit status is 1.
--against compares this environment's wheel with that of another one, whose Python it names: if a
row takes over 1.15 times as long as there, the exit status is 1.
Run it on an idle machine; all tables take an hour or more.
"""

import argparse
import collections
import contextlib
import datetime
import importlib
import importlib.metadata
import inspect
import itertools
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import harness
import numpy as np
import tensorflow as tf

HERE = pathlib.Path(__file__).resolve().parent
SLOWER = 1.15  # the ratio of times that fails


def load_tables(files="*/*"):
    """Returns the tables of files in the folders beside this one, by name."""
    for path in sorted(HERE.glob(f"{files}.py")):
        importlib.import_module(".".join(path.relative_to(HERE).with_suffix("").parts))
    return harness.TABLES


def machine():
    """Returns a line with the processor and the relevant versions."""
    info = pathlib.Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    parts = [
        f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores",
        f"Python {platform.python_version()}",
    ]
    for package in ("tensorflow_cpu", "tensorflow", "keras", "keras_hub", "torch", "torchvision", "scipy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            parts.append(f"{package} {importlib.metadata.version(package)}")
    return ", ".join(parts)


def memory_rates(megabytes=256):
    """Returns the bytes per second that this machine reads and writes, in arrays that exceed the caches."""
    array = np.ones(megabytes << 18, np.float32)
    write = harness.on_threads(lambda part: part.fill(1), np.array_split(array, harness.THREADS))
    return [array.nbytes / seconds for seconds in harness.interleave([harness.reader(array), write], 2.0)]


# Measuring, in processes of their own.


def flat(result, convert=None):
    """Returns a call's result as a list of arrays."""
    result = convert(result) if convert else result
    arrays = [t.detach().numpy() if hasattr(t, "detach") else np.asarray(t) for t in tf.nest.flatten(result)]
    return [a.astype(np.float64) for a in arrays]


def difference(results, expected, rounding):
    """Returns the largest difference of two lists of arrays, and the share of values that differ beyond rounding."""
    largest, off, count = 0.0, 0, 0
    for a, b in zip(results, expected, strict=False):  # some peers return more
        if a.shape != b.shape:
            return "other shape"
        apart = np.abs(a - b)
        largest, count = max(largest, apart.max(initial=0)), count + apart.size
        if rounding is not None:
            off += np.count_nonzero(~(apart <= rounding * np.maximum(np.abs(b), 1)))  # counts NaN
    return f"{largest:.1e}" + (f" ({100 * off / count:.2g}% off)" if off else "")


def time_calls(cases, calls_of, table, options):
    """Times the calls of cases in turns, each once; returns a list of times for each case."""
    calls = list(dict.fromkeys(call for case in cases for call in calls_of(case)))
    rounds = {"min_rounds": 3, "max_seconds": 5.0} if options.quick else {}
    times = harness.interleave(calls, options.seconds, pause=table.pause, **rounds)
    seconds = dict(zip(calls, times, strict=True))
    return [[seconds[call] for call in calls_of(case)] for case in cases]


def alone(cases, table, options):
    """Returns a measurement of each case without peers in the turns, so that all processes find the same caches."""
    times = time_calls(cases, lambda case: [case.ours], table, options)
    return [{"where": case.where, "alone": ours} for case, (ours,) in zip(cases, times, strict=True)]


def speed(cases, table, options):
    """Returns a measurement of each case."""
    rows = alone(cases, table, options) if table.threads else [{"where": case.where} for case in cases]
    times = time_calls(cases, lambda case: [case.ours, *case.peers.values(), *case.floor], table, options)
    for row, case, (ours, *others) in zip(rows, cases, times, strict=True):
        results = {"ours": case.ours(), **{name: call() for name, call in case.peers.items()}}
        compared = case.peers if case.off is None else case.off
        arrays = {name: flat(results[name], case.arrays.get(name)) for name in ("ours", *compared) if compared}
        row |= {"ours": ours, "peers": dict(zip(case.peers, others, strict=False))}
        row["floor"], row["moved"] = sum(others[len(case.peers) :]), case.moved
        if case.moved is None and case.inputs:
            row["moved"] = harness.num_bytes(case.inputs), harness.num_bytes(results["ours"])
        row["off"] = {name: difference(arrays["ours"], arrays[name], case.rounding) for name in compared}
        row["facts"] = case.facts(results) if case.facts else {}
    return rows


def peak(call):
    """Returns a call's peak memory beyond prior memory and its result, and the bytes of the result."""
    import memray

    call()  # starts threads, traces
    peaks = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "allocations"
            with memray.Tracker(file):
                result = call()
            written = harness.num_bytes(result)
            del result
            peaks.append(memray.FileReader(file).metadata.peak_memory - written)
    return min(peaks), written


def memory(cases, table, _):
    """Returns a measurement of each case."""
    rows = []
    for case in cases:
        calls = {"ours": case.ours, **case.peers}
        peaks = {name: peak(calls[name]) for name in table.memory if name in calls}
        known = harness.num_bytes(case.inputs) + peaks["ours"][1] if case.inputs else sum(case.moved)
        rows.append({"where": case.where, "known": known, "peaks": {name: extra for name, (extra, _) in peaks.items()}})
    return rows


def groups_of(table, options):
    """Yields lists of cases that are timed in turns."""
    found = ([group] if isinstance(group, harness.Case) else group for group in table.cases())
    kept = ([c for c in group if options.case in ", ".join(map(str, c.where.values()))] for group in found)
    yield from itertools.islice(filter(None, kept), 1 if options.quick else None)


def work(table, options):
    """Measures a list of cases for each line of standard input, the same one for "again"; writes a line of results."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # cases may print
    harness.THREADS = options.threads
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    measure = {"alone": alone, "memory": memory, "speed": speed}[options.worker]
    if measure is memory:
        x = tf.ones([1 << 23])
        extra, size = peak(lambda: tf.exp(x) + 1)
        if not 1 <= extra / size < 1.01:
            raise SystemExit(f"a temporary of {size} bytes is seen as {extra}: memory cannot be measured here")
    groups, cases = groups_of(table, options), None
    for line in sys.stdin:
        cases = cases if line == "again\n" else next(groups, None)
        print(json.dumps(cases and measure(cases, table, options)), file=answers, flush=True)


def measurements(name, options, kinds, repeats=1):
    """Measures a table in a process for each of the kinds (KIND, threads, Python).

    Yields, for each list of cases, `repeats` lists of the processes' answers. That of an earlier wheel is None if the
    wheel lacks what the table calls.
    """
    with contextlib.ExitStack() as stack:
        processes = []
        for kind, threads, python in kinds:
            command = [python, __file__, "--worker", kind, "--threads", str(threads), name]
            command += ["--case", options.case, "--seconds", str(options.seconds)] + ["--quick"] * options.quick
            environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
            if kind == "memory":  # oneDNN allocates large blocks and distributes them itself
                environment["TF_ENABLE_ONEDNN_OPTS"] = "0"
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            processes.append(stack.enter_context(subprocess.Popen(command, text=True, env=environment, **pipes)))

        def answers(line):
            found = []
            for process in processes:  # in turns, because times drift
                if process.poll() is None:
                    process.stdin.write(f"{line}\n")
                    process.stdin.flush()
                answer = process.stdout.readline()
                if not answer and process.args[0] != options.against:
                    raise RuntimeError(f"{name}: the process that measures it failed")
                found.append(json.loads(answer or "null"))
            return found

        while (first := answers("next"))[0] is not None:
            print(name, *first[0][0]["where"].values(), file=sys.stderr, flush=True)
            yield [first, *(answers("again") for _ in range(repeats - 1))]


# Tables and plots.


def number(x):
    """Returns three digits of a number, without an exponent."""
    return f"{x:.{max(0, 2 - int(np.floor(np.log10(abs(x)))))}f}" if x else "0"


def speed_row(row, rates):
    """Returns the columns of a measurement of speed."""
    ours = row["ours"]
    columns = {**row["where"], "ms": number(1e3 * ours)}
    floor = row["floor"] or (row["moved"] and sum(b / rate for b, rate in zip(row["moved"], rates, strict=True)))
    if floor:
        columns["x floor"] = number(ours / floor)
    if "one" in row:
        columns["1 thread / 2"] = number(row["one"] / row["alone"])
    for name, seconds in row["peers"].items():
        columns[f"{name} / ours"] = number(seconds / ours)
        if name in row["off"]:
            columns[f"off {name}"] = row["off"][name]
    return columns | row["facts"]


def memory_row(row):
    """Returns the columns of a measurement of memory."""
    ours, *_ = row["peaks"].values()
    columns = {**row["where"], "inputs and outputs, MB": number(row["known"] / 1e6)}
    columns |= {"beyond them, MB": number(ours / 1e6), "%": f"{100 * ours / row['known']:.1f}"}
    return columns | {f"{name}, MB": number(extra / 1e6) for name, extra in list(row["peaks"].items())[1:]}


def markdown(rows):
    """Returns dicts as a Markdown table with all of their columns."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def plot(measured, axis, path):
    """Plots times over a column, with a panel for each combination of the others; returns rows of their growth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels, growth = collections.defaultdict(lambda: collections.defaultdict(list)), []
    for row in measured:
        panel = panels[", ".join(str(value) for column, value in row["where"].items() if column != axis)]
        one = {"ours, 1 thread": row["one"]} if "one" in row else {}
        for name, seconds in ({"ours": row["ours"]} | one | row["peers"]).items():
            panel[name].append((row["where"][axis], 1e3 * seconds))
    columns = min(len(panels), 4)
    size = (-(-len(panels) // columns), columns)
    figure, axes = pyplot.subplots(*size, figsize=(5 * size[1], 4 * size[0]), squeeze=False, layout="constrained")
    for area, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        for name, points in curves.items():
            area.loglog(*zip(*points, strict=True), marker="o", markersize=3, label=name)
        area.set(title=title, xlabel=axis, ylabel="ms")
        area.grid(alpha=0.3)
        area.legend()
        if len(curves["ours"]) > 1:
            exponent = np.polyfit(*np.log(curves["ours"][-4:]).T, 1)[0]
            growth.append({"curve": title, "growth at the end (1 is linear)": f"{exponent:.2f}"})
    figure.savefig(path, dpi=100)
    return growth


def measure(name, table, rates, options):
    """Measures a table; returns its text."""
    stem = f"{datetime.date.today().isoformat()}-{name.replace('/', '-')}"
    note = " ".join((table.cases.__doc__ or "").split())
    text = f"{note}\n" if note else ""
    if table.speed:
        measured = []
        kinds = [("speed", harness.THREADS, sys.executable), *[("alone", 1, sys.executable)] * table.threads]
        for ((rows, *one),) in measurements(name, options, kinds):
            for i, row in enumerate(rows):
                measured.append(row | ({"one": one[0][i]["alone"]} if one else {}))
        if measured:
            text += "\n" + markdown([speed_row(row, rates) for row in measured])
        if measured and table.axis and options.out:
            growth = plot(measured, table.axis, options.out / f"{stem}.png")
            text += f"\n![{name}]({stem}.png)\n\n" + markdown(growth)
    if table.memory:
        kinds = [("memory", harness.THREADS, sys.executable)]
        rows = [memory_row(row) for ((group,),) in measurements(name, options, kinds) for row in group]
        if rows:
            text += "\nPeak memory:\n\n" + markdown(rows)
    text = text.lstrip()
    if options.out:
        heading = f"# {name}, {stem[:10]}\n\n`python benchmarks/run.py {name}`: {machine()}.\n\n"
        (options.out / f"{stem}.md").write_text(heading + text)
    return f"\n## {name}\n\n{text}"


def compare(name, options):
    """Compares a table's times with those of options.against; returns its text.

    Raises RuntimeError if a row is slower than there.
    """
    kinds = [("alone", harness.THREADS, python) for python in (sys.executable, options.against)]
    rows, slower = [], []
    for repeats in measurements(name, options, kinds, repeats=5):
        if None in repeats[0]:
            return f"\n## {name}\n\nNot in {options.against}.\n"
        for i, case in enumerate(repeats[0][0]):
            ratio = statistics.median(ours[i]["alone"] / theirs[i]["alone"] for ours, theirs in repeats)
            rows.append(case["where"] | {"ms": number(1e3 * case["alone"]), "ours / theirs": number(ratio)})
            if ratio > SLOWER:
                slower.append(f"{', '.join(map(str, case['where'].values()))} {number(ratio)}")
    text = f"\n## {name}\n\n{markdown(rows)}"
    if slower:
        raise RuntimeError(f"{text}\n{name}: slower than in {options.against}: {'; '.join(slower)}")
    return text


def main():
    """Measures tables from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="measure every table")
    parser.add_argument("--list", action="store_true", help="print the tables' names, and what they show")
    parser.add_argument("--out", type=pathlib.Path, help="the folder for tables and plots")
    parser.add_argument("--case", default="", help="measure only rows that contain this text")
    parser.add_argument("--seconds", type=float, help="duration of a measurement (default: 4; quick: 0.3)")
    parser.add_argument("--quick", action="store_true", help="measure only the first rows of each table, roughly")
    parser.add_argument("--against", metavar="PYTHON", help="compare with the wheel of PYTHON's environment")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    parser.add_argument("table", nargs="*")
    options = parser.parse_args()
    options.seconds = options.seconds or (0.3 if options.quick else 4.0)
    if options.worker:
        [name] = options.table
        work(load_tables(name.rpartition("/")[0])[name], options)
        return
    tables = load_tables()
    if options.list:
        for file, names in itertools.groupby(tables, lambda name: name.rpartition("/")[0]):
            print(inspect.getdoc(sys.modules[file.replace("/", ".")]), *names, sep="\n  ", end="\n\n")
        return
    chosen = list(tables) if options.all else []
    for wanted in options.table:
        found = [wanted] if wanted in tables else [name for name in tables if wanted in name]
        if not found:
            parser.error(f"no table matches {wanted!r}; --list prints the names")
        chosen += [name for name in found if name not in chosen]
    if not chosen:
        parser.error("name a table, or --all")
    if options.against and options.out:
        parser.error("--against writes no files: leave --out away")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    rates = memory_rates()
    read, write = (f"{rate / 1e9:.1f} GB/s" for rate in rates)
    print(f"{machine()}; {harness.THREADS} threads; memory reads {read}, writes {write}.", flush=True)
    failed = []
    for name in chosen:
        try:
            text = compare(name, options) if options.against else measure(name, tables[name], rates, options)
            print(text, flush=True)
        except RuntimeError as error:
            print(error, file=sys.stderr, flush=True)
            failed.append(name)
    if failed:
        raise SystemExit(f"FAILED: {', '.join(failed)}")


if __name__ == "__main__":
    main()
