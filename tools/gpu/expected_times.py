"""Calculates the times of the kernels' benchmarks, without a GPU; prints one table.

usage: expected_times.py [--card h100] [--only TEXT] [--loops TEXT] OBJECTS

OBJECTS is a folder with the objects that tools/gpu/build.sh compiles with ARCH=90. cuobjdump and nvdisasm, of CUDA's
toolkit, and g++ must be in PATH. Without --only, the table has the first case of each kernel and dtype, and all that
have a peer; with it, all whose names contain TEXT. --loops prints the loops of kernels whose names contain TEXT.

Sources of the numbers:

- Launches, block sizes and shared memory: each test program is linked with record_launches.cc in place of CUDA's
  runtime and runs its benchmarks, which also state the bytes to move.
- Registers, spills and static shared memory: cuobjdump --dump-resource-usage. They decide how many warps an SM holds.
- Loops: the machine code. A pass of a loop by a warp takes the longest of: the instructions, a cycle each; the busiest
  unit (PIPES); and its latency, divided by the warps that run beside each other. The latency follows from the stalls
  and the dependences in the code, with LATENCIES for loads and special functions. A branch forward is not taken,
  unless it leads around a call nearby. Passes: WORK, from the definitions of the ops.
- The card: CARDS. Copies and L2 by published measurements, the rest by the data sheet.

A case takes its launches (LAUNCH_US each), and the longest of: bytes by copies, bytes by L2, atomics and operations;
and then the steps that wait for each other. None of it models caches, bank conflicts, clocks or divergence: expect a
factor of two.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import functools
import json
import math
import pathlib
import re
import subprocess
import tempfile

LAUNCH_US = 2.5  # a kernel that does nothing, and the gap before the next


@dataclasses.dataclass(frozen=True)
class Card:
    name: str
    sms: int
    ghz: float
    fma_cycles: float  # of a warp's FFMA in a quarter of an SM
    mma_cycles: float  # of a warp's mma.sync m16n8k16
    copy_gbs: float
    l2_gbs: float
    atomic_sectors: float  # 10^9 of 32 bytes a second
    shared_bytes: int  # of an SM
    warps: int = 64


CARDS = {
    "h100": Card("H100 SXM", 132, 1.70, 1, 6.5, 3000, 5500, 160, 228 << 10),
    "a100": Card("A100 SXM 80 GB", 108, 1.41, 2, 8, 1700, 4000, 110, 164 << 10),
    "v100": Card("V100 SXM", 80, 1.53, 2, math.inf, 790, 2100, 100, 96 << 10),
}

# Cycles until a result can be used, by the instruction's first letters; others say so by their stalls.
LOAD = None  # L2_CYCLES; in steps, which read what the SM wrote just before, NEAR_CYCLES
L2_CYCLES, NEAR_CYCLES, OTHER_CYCLES = 300, 100, 20
LATENCIES = {
    "LDGSTS": LOAD,
    "LDG": LOAD,
    "LD.": LOAD,
    "ATOMS": 60,
    "ATOM": 500,
    "LDSM": 33,
    "LDS": 30,
    "LDL": 100,
    "LDC": 40,
    "MUFU": 25,
    "SHFL": 25,
    "I2F": 25,
    "F2I": 25,
    "BAR": 30,
    "DFMA": 20,
}

# Cycles that a warp's instruction occupies a unit of a quarter of an SM; a quarter has a quarter of the SM's loads.
PIPES = (
    (r"HMMA\.16816", "tensor", 6.5),
    (r"HMMA\.1688", "tensor", 3.3),
    (r"FFMA|FADD|FMUL|HFMA2", "fma", 1),
    (r"IMAD", "fma", 2),
    (r"DFMA|DADD|DMUL", "double", 2),
    (r"IADD|LOP|ISETP|SHF|SEL|FSETP|FMNMX|IMNMX|PRMT|LEA", "integer", 2),
    (r"MUFU|I2F|F2I|F2F", "special", 8),
    (r"LDSM", "memory", 16),
    (r"LDS.*\.128", "memory", 8),  # half of the lanes read the same
    (r"(LDG|STG|STS|RED|LDGSTS).*\.128", "memory", 16),
    (r"(LDG|STG|STS|RED|LDGSTS).*\.64", "memory", 8),
    (r"LD|ST|RED|ATOM|SHFL", "memory", 4),
)

MULTIPLY_ADDS = {"HMMA.16816": 64, "HMMA.1688": 32, "HFMA2": 2, "FFMA": 1, "DFMA": 1}  # of a lane


@dataclasses.dataclass
class Instruction:
    at: int
    text: str
    name: str  # opcode
    predicated: bool
    target: int | None
    control: int  # stall, barriers that it sets or waits for

    @property
    def stall(self):
        return self.control & 15

    def waits(self):
        return [i for i in range(6) if self.control >> 11 >> i & 1]

    def of_result(self):  # the barrier that waits for it; 7: none
        return self.control >> 5 & 7

    def of_operands(self):  # for its having read them
        return self.control >> 8 & 7


@dataclasses.dataclass(eq=False)
class Loop:
    body: list  # of a pass, with called functions
    inner: bool  # contains no other loop

    def barriers(self):
        return sum(i.name.startswith("BAR") for i in self.body)

    def multiply_adds(self):
        return sum(next((n for op, n in MULTIPLY_ADDS.items() if i.name.startswith(op)), 0) for i in self.body)

    def pipes(self, card):
        """Returns cycles of each unit of a quarter of an SM, for a pass by a warp."""
        busy = {"issue": len(self.body)}
        for i in self.body:
            for pattern, pipe, cycles in PIPES:
                if re.match(pattern, i.name):
                    cycles *= {"fma": card.fma_cycles, "tensor": card.mma_cycles / 6.5}.get(pipe, 1)
                    busy[pipe] = busy.get(pipe, 0) + cycles
                    break
        return busy

    @functools.lru_cache  # noqa: B019
    def latency(self, load):
        """Returns the cycles from a pass to the next, of a warp alone, if a load takes `load`."""
        now, ready, passes = 0.0, [0.0] * 8, []
        for _ in range(3):
            for i in self.body:
                now = max([now, *(ready[b] for b in i.waits())])
                delay = next((c for name, c in LATENCIES.items() if i.name.startswith(name)), OTHER_CYCLES)
                delay = load if delay is LOAD else delay
                ready[i.of_result()], ready[i.of_operands()] = now + delay, now + OTHER_CYCLES
                now += max(i.stall, 1) + (delay if i.name.startswith("BAR") else 0)
            passes.append(now)
        return passes[2] - passes[1]


@dataclasses.dataclass
class Kernel:
    registers: int = 0
    spills: int = 0
    shared: int = 0
    code: list = dataclasses.field(default_factory=list)

    @functools.cached_property
    def loops(self):
        """Returns the loops, by their ends."""
        index = {i.at: n for n, i in enumerate(self.code)}
        ranges = [
            (index[i.target], n)
            for n, i in enumerate(self.code)
            if i.name == "BRA" and i.target in index and i.target < i.at
        ]
        starts = {}
        for begin, end in ranges:  # a loop that continues in several places ends in the last
            starts[begin] = max(end, starts.get(begin, 0))
        ranges = sorted(starts.items())
        return [
            Loop(self._pass(index, b, e + 1), not any(b <= x and y <= e and (x, y) != (b, e) for x, y in ranges))
            for b, e in ranges
        ]

    @property
    def densest_loop(self):
        """Returns the loop that has most multiply-adds for its length, of those that have many; or None."""
        many = 0.4 * max((loop.multiply_adds() for loop in self.loops), default=0)
        loops = [loop for loop in self.loops if many and loop.multiply_adds() >= many]
        return max(loops, key=lambda loop: loop.multiply_adds() / len(loop.body), default=None)

    def _pass(self, index, begin, end, depth=0):
        body, n = [], begin
        while begin <= n < end:
            i = self.code[n]
            body.append(i)
            n += 1
            to = index.get(i.target)
            if to is None or depth > 3:
                continue
            if i.name.startswith("CALL"):
                returns = (m for m in range(to, len(self.code)) if self.code[m].name.startswith("RET"))
                body += self._pass(index, to, next(returns, to), depth + 1)
            elif i.name == "BRA" and n < to < end:
                around = self.code[n:to]
                # A division in 64 bits has a short way beside its call.
                if not i.predicated or (len(around) < 32 and any(j.name.startswith("CALL") for j in around)):
                    n = to
        return body


def parse_code(text):
    """Returns {name: Kernel} of the output of cuobjdump --dump-resource-usage or --dump-sass."""
    kernels, kernel = {}, None
    for line in text.splitlines():
        if match := re.search(r"Function\s*:?\s+(\w+)", line):
            kernel = kernels.setdefault(match[1], Kernel())
        elif match := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            kernel.registers, kernel.spills, kernel.shared = int(match[1]), int(match[2]) + int(match[4]), int(match[3])
        elif match := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ )?\s*([^;]+?)\s*;", line):
            text = match[3]
            to = re.search(r"0x([0-9a-f]+)$", text) if text.startswith(("BRA", "CALL")) else None
            name = text.split()[0]
            target = int(to[1], 16) if to else None
            predicated = bool(match[2]) or bool(re.match(r"BRA !?U?P\d", text))
            kernel.code.append(Instruction(int(match[1], 16), text, name, predicated, target, 0))
        elif kernel and kernel.code and (match := re.match(r"\s+/\* 0x([0-9a-f]{16}) \*/$", line)):
            kernel.code[-1].control = int(match[1], 16) >> 41
    return kernels


def disassemble(path):
    kernels = {}
    for option in ("--dump-resource-usage", "--dump-sass"):
        text = subprocess.run(["cuobjdump", option, path], capture_output=True, text=True, check=True).stdout
        for name, kernel in parse_code(text).items():
            if option == "--dump-sass":
                kernels.setdefault(name, Kernel()).code = kernel.code
            else:
                kernels[name] = kernel
    return kernels


def record(objects, scratch):
    """Returns [(benchmark's row, its launches)] of all test programs."""
    sources = [p for p in sorted(objects.glob("*.o")) if not p.name.endswith("_test.o")]
    library = scratch / "libkernels.a"
    subprocess.run(["ar", "qc", library, *sources], check=True)

    def run(test):
        program = scratch / test.stem
        shim = pathlib.Path(__file__).with_name("record_launches.cc")
        subprocess.run(["g++", "-O1", "-o", program, test, shim, library, "-lpthread"], check=True)
        done = subprocess.run([program, "--benchmark"], capture_output=True, text=True)
        program.unlink()
        if done.returncode:
            raise SystemExit(f"{test.stem} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    tests = sorted(objects.glob("*_test.o"))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return parse_launches("\n".join(pool.map(run, tests)))


def parse_launches(text):
    cases, launches = [], []
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        if "name" not in row:
            launches.append(row)
        elif row["device"] == "cuda":
            cases.append((row, launches))
            launches = []
    return cases


def work(name, size, n):
    """Returns what a case computes by its definition, from the bytes of a value and the numbers in its name.

    fma: multiply-adds, in the loops that have many. passes: of the longest inner loop, one by each thread. steps:
    passes of each loop with barriers that a block makes one after another, in all launches of a kernel; inner loops
    count once. barriers: instead, the barriers that it passes. kernel: a pattern of its name; without barriers,
    the longest loop counts. l2: bytes. sectors: atomic additions to 32 bytes.
    """
    match name.removesuffix("_deterministic"):
        case "deform_conv" | "deform_conv_grad":
            _, height, width, channels = n
            samples = height * width * 9 * channels
            if name == "deform_conv":
                return {"fma": samples * channels, "l2": 4 * samples * size}
            return {"fma": 2 * samples * channels, "l2": 8 * samples * size, "sectors": samples / 2}
        case "deformable_attention" | "deformable_attention_grad":
            queries, heads, channels, points, *levels = n
            taps = 4 * queries * heads * channels * points * len(levels) // 2
            if name == "deformable_attention":
                return {"fma": taps, "l2": taps * size}
            return {"fma": 3 * taps, "l2": taps * size, "sectors": taps / 8}
        case "correlation_cost" | "correlation_cost_grad":
            *shape, radius = n
            return {"fma": math.prod(shape) * (2 * radius + 1) ** 2 * (2 if "grad" in name else 1)}
        case "roi_pool":
            _, _, _, channels, boxes, bins, _, stride = n
            pixels = boxes * channels * max(bins**2, 40**2 / stride**2)  # boxes of about 40 x 40 at stride 1
            return {"passes": pixels * size / 16, "l2": pixels * size}
        case "roi_pool_grad":
            values = n[3] * n[4] * n[5] ** 2
            return {"sectors": values, "l2": (size + 4) * values}
        case region if "roi_align" in region:
            taps = 16 * n[3] * n[4] * (1 if region.startswith("ps_") else n[5] ** 2)
            if region.endswith("boxes_grad") or name != region:
                return {"fma": 2 * taps, "l2": taps * size}
            if region.endswith("grad"):
                return {"fma": taps, "l2": taps * size / 4, "sectors": taps / 8}
            return {"fma": taps, "l2": taps * size}
        case "grid_sample":
            return {"l2": 4 * math.prod(n) * size}
        case "grid_sample_grad":
            return {"l2": 5 * math.prod(n) * size, "sectors": 4 * math.prod(n) / min(n[-1], 8)}
        case "ctc_loss":
            return {"barriers": n[1], "kernel": "Losses|Paths"}
        case "rnnt_loss":
            return {"barriers": n[1] + n[3], "kernel": "Losses|Paths"}
        case "ctc_loss_grad" | "rnnt_loss_grad":  # a block each way, at once: each of the two loops counts half
            both = work(name.removesuffix("_grad"), size, n)
            return {**both, "barriers": both["barriers"] / 2}
        case crf if crf.startswith("crf_"):
            return {"steps": n[1], "kernel": "Likelihoods|Gradients|Marginals|Decode"}
        case "nms":
            return {"steps": n[0] / 32, "kernel": "SweepChunk"}
        case "distance_transform":
            # Of its loops over columns, the longest takes about as long as the others together.
            return {"passes": math.prod(n), "kernel": "FindDistances"}
    return {}


# Their time follows from data, or from chains that work() does not count.
UNKNOWN = {"ctc_beam_search", "gather_tree", "multiclass_nms", "soft_nms"}

# Peers, ms on an H100: calculated by reading their sources, never run either.
PEERS = {
    "float32 roi_align [1, 200": 0.3,
    "float32 roi_align_grad [1, 200": 1.5,
    "float32 roi_pool [1, 200": 1.2,
    "float32 roi_pool_grad [1, 200": 0.15,
    "float32 softmax [4096": 0.4,
    "float32 label_loss [4096": 0.45,
    "float32 label_loss_grad [4096": 0.8,
    "float32 nms 1000,": 0.25,
    "float32 nms 5000,": 1,
    "float32 nms 20000,": 6,
    "float32 box_iou [2000, 2000] iou": 0.1,
    "float32 box_iou_loss 1000000 giou": 1,
    "float32 deform_conv [1, 100": 0.22,
    "float16 deform_conv [1, 100": 0.12,
    "float32 deform_conv [1, 25": 0.2,
    "float32 deform_conv_grad [1, 100": 1,
    "float32 deformable_attention 4484": 0.25,
    "float32 deformable_attention_grad 4484": 0.8,
    "float32 correlation_cost [4": 1,
    "float32 correlation_cost_grad [4": 2,
    "float32 grid_sample [4, 128": 0.04,
    "float32 grid_sample_grad [4, 128": 0.25,
    "float32 ctc_loss [32": 0.3,
    "float32 ctc_loss_grad [32": 0.35,
    "float32 rnnt_loss [4": 0.12,
    "float32 crf_log_likelihood [64": 5,
    "float32 crf_log_likelihood [32": 20,
    "float32 beam_search_step [64": 0.25,
    "float32 distance_transform [8": 0.1,
    "float32 distance_transform [1": 0.2,
}


@dataclasses.dataclass
class Occupancy:
    blocks: int  # that run at once
    warps: int  # of a block
    rounds: float  # of blocks, if there are few; the last may be partly empty

    @property
    def per_sm(self):
        return self.warps * self.blocks


def occupancy(card, kernel, launch):
    warps = -(-launch["block"] // 32)
    of_registers = 4 * (16384 // (-(-kernel.registers * 32 // 256) * 256))
    shared = kernel.shared + launch["shared"] + 1024
    blocks = max(1, min(32, card.warps // warps, of_registers // warps, card.shared_bytes // shared))
    rounds = launch["grid"] / (blocks * card.sms)
    return Occupancy(blocks, warps, math.ceil(rounds) if rounds < 8 else rounds)


def seconds_of_passes(card, kernel, launch, loop, passes):
    """Returns the time of `passes` of a loop by warps, shared by the blocks of a launch."""
    fits = occupancy(card, kernel, launch)
    of_block = passes / launch["grid"]  # warps' passes
    blocks = min(fits.blocks, -(-launch["grid"] // card.sms))  # of an SM at once
    busy = max(loop.pipes(card).values())
    cycles = max(busy * blocks * of_block / 4, loop.latency(L2_CYCLES) * of_block / fits.warps)
    return fits.rounds * cycles / card.ghz / 1e9


def seconds_of_steps(card, kernel, launch, loop, steps):
    fits = occupancy(card, kernel, launch)
    cycles = max(loop.latency(NEAR_CYCLES), max(loop.pipes(card).values()) * fits.warps / 4)
    return fits.rounds * steps * cycles / card.ghz / 1e9


def estimate(card, kernels, row, launches):
    """Returns the case's milliseconds by part, and the launch that its row describes."""
    dtype, name, rest = re.match(r"((?:int|b?float)\d+ )?(\w+) ?(.*)", row["name"]).groups()
    size = int(re.search(r"\d+", dtype)[0]) // 8 if dtype else 4
    amounts = work(name, size, [int(n) for n in re.findall(r"\d+", rest)])
    runs = [(kernels[launch["kernel"]], launch) for launch in launches if "kernel" in launch]
    parts = {
        "bytes": row["bytes"] / card.copy_gbs / 1e6,
        "L2": amounts.get("l2", 0) / card.l2_gbs / 1e6,
        "atomics": amounts.get("sectors", 0) / card.atomic_sectors / 1e6,
    }
    shown = max(runs, key=lambda run: run[1]["grid"] * run[1]["block"])
    named = [run for run in runs if re.search(amounts.get("kernel", ""), run[1]["kernel"])] or runs
    if "fma" in amounts:
        loops = [(kernel.densest_loop, kernel, launch) for kernel, launch in runs if kernel.densest_loop]
        most = max((found[0].multiply_adds() for found in loops), default=0)
        loops = [found for found in loops if most and 2 * found[0].multiply_adds() >= most]
        for loop, kernel, launch in loops:
            passes = amounts["fma"] / len(loops) / 32 / loop.multiply_adds()
            seconds = seconds_of_passes(card, kernel, launch, loop, passes)
            parts["operations"] = parts.get("operations", 0) + 1e3 * seconds
            shown = (kernel, launch)
    if "passes" in amounts:
        run = max(named, key=lambda run: max((len(x.body) for x in run[0].loops if x.inner), default=0))
        loop = max((x for x in run[0].loops if x.inner), key=lambda x: len(x.body))
        parts["operations"] = 1e3 * seconds_of_passes(card, *run, loop, amounts["passes"] / 32)
        shown = run
    serial = 0.0
    counts = collections.Counter(launch["kernel"] for _, launch in runs)
    for kernel, launch in named if {"steps", "barriers"} & amounts.keys() else ():
        outer = [x for x in kernel.loops if x.barriers() and launch["grid"] < 8 * card.sms]
        if "kernel" in amounts and not outer:
            outer = [max(kernel.loops, key=lambda loop: len(loop.body))]
        for loop in outer:
            if any(x is not loop and set(map(id, x.body)) < set(map(id, loop.body)) for x in outer):
                continue  # the loop over blocks
            passes = amounts["steps"] if "steps" in amounts else amounts["barriers"] / loop.barriers()
            serial += 1e3 * seconds_of_steps(card, kernel, launch, loop, passes / counts[launch["kernel"]])
            shown = (kernel, launch)
    parts["steps"] = serial
    parts["launches"] = LAUNCH_US * len(launches) / 1e3
    return parts, shown


def total(parts):
    apart = ("steps", "launches")
    return max(v for k, v in parts.items() if k not in apart) + sum(parts[k] for k in apart)


def kernel_of(name):
    return re.match(r"(?:(?:int|b?float)\d+ )?(\w+)", name)[1]


def peer_of(name):
    return next((ms for start, ms in PEERS.items() if name.startswith(start)), None)


def chosen(cases):
    """Returns the first case of each kernel and dtype, and all that have a peer."""
    seen = set()
    for case in cases:
        name = case[0]["name"]
        key = name.split()[0], kernel_of(name)
        if key not in seen or peer_of(name):
            yield case
        seen.add(key)


def table(card, kernels, cases):
    lines = [
        f"# Calculated times on {card.name}",
        "",
        f"Calculated for {card.name} by `tools/gpu/expected_times.py`; **no GPU has run it**. Expect a factor of two.",
        "The peers' times are calculated, too, from their sources. Registers, spilled bytes and shared memory are",
        "those of the kernel that decides; warps is how many an SM runs at once, of 64.",
        "",
        "| case | registers, spilled, shared | warps | floor, ms | ms | decides | peer, ms | times as fast |",
        "|---|---|--:|--:|--:|---|--:|--:|",
    ]
    for row, launches in cases:
        parts, (kernel, launch) = estimate(card, kernels, row, launches)
        fits = occupancy(card, kernel, launch)
        warps = min(fits.blocks, -(-launch["grid"] // card.sms)) * fits.warps
        shared = (kernel.shared + launch["shared"]) / 1024
        peer = peer_of(row["name"])
        if kernel_of(row["name"]) in UNKNOWN:
            ms, decides, times = "?", "the data", "-"
        else:
            ms, decides = f"{total(parts):.2g}", max(parts, key=parts.get)
            times = f"{peer / total(parts):.1f}" if peer else "-"
        lines.append(
            f"| {row['name']} | {kernel.registers}, {kernel.spills}, {shared:.0f} kB | {warps} | "
            f"{parts['bytes']:.2g} | {ms} | {decides} | {peer or '-'} | {times} |"
        )
    return lines


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--card", choices=CARDS, default="h100")
    parser.add_argument("--only", default="")
    parser.add_argument("--loops")
    parser.add_argument("objects", type=pathlib.Path)
    args = parser.parse_args()
    card, kernels = CARDS[args.card], {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for found in pool.map(disassemble, sorted(args.objects.glob("*.cu.o"))):
            kernels.update(found)
    if args.loops is not None:
        for name, kernel in kernels.items():
            if args.loops not in name:
                continue
            print(f"{name}: {kernel.registers} registers, {kernel.spills} bytes spilled, {kernel.shared} shared")
            for loop in kernel.loops:
                pipes = ", ".join(f"{p} {c:.0f}" for p, c in loop.pipes(card).items())
                kind = ("inner, " if loop.inner else "") + f"barriers {loop.barriers()}, "
                latency, multiply_adds = loop.latency(L2_CYCLES), loop.multiply_adds()
                print(
                    f"  at {loop.body[0].at:04x}: {kind}latency {latency:.0f}, multiply-adds {multiply_adds}, {pipes}"
                )
        return
    with tempfile.TemporaryDirectory() as scratch:
        cases = record(args.objects, pathlib.Path(scratch))
    cases = [case for case in cases if args.only in case[0]["name"]] if args.only else chosen(cases)
    print("\n".join(table(card, kernels, cases)))


if __name__ == "__main__":
    main()
