"""Beam search steps and trees of beams: sizes, inputs, and their definitions in float64."""

import dataclasses
import math

import bindings
import numpy as np
import torch

FLOATS = tuple(bindings.DTYPES)


@dataclasses.dataclass(frozen=True)
class BeamCase:
    """Sizes of a step, its options, and what its inputs are like."""

    batch: int
    beams: int
    vocabulary: int
    width: int
    length_penalty: float = 0.0
    rule: str = "any"
    num_eos: int = 1
    forbids: bool = False
    kind: str = "mixed"  # see make_step
    bad_eos: int | None = None  # an end token outside of the vocabulary, which the processor does not take
    offset: int = 0  # elements by which tensors miss their 16-byte alignment

    @property
    def name(self):
        fields = [f for f in dataclasses.fields(self)[4:] if getattr(self, f.name) != f.default]
        options = [f"{f.name}={getattr(self, f.name)}" for f in fields]
        return " ".join([f"[{self.batch}, {self.beams}, {self.vocabulary}] to {self.width}", *options])

    @property
    def eos_ids(self):
        if self.bad_eos is not None:
            return (self.bad_eos,)
        return (self.vocabulary - 1, self.vocabulary // 2)[: self.num_eos]

    def args(self):
        sizes = (self.batch, self.beams, self.vocabulary, self.width, len(self.eos_ids))
        return bindings.BeamArgs(*sizes, self.length_penalty, bindings.EOS_RULES[self.rule])


# Around the sizes of a warp, of a block's part of a row, of the parts that a row is summed up in; all options.
SMALL = (
    BeamCase(0, 3, 5, 2),
    BeamCase(1, 1, 1, 3),
    BeamCase(2, 3, 4, 0),
    BeamCase(3, 2, 5, 4, 0.6),
    BeamCase(4, 7, 33, 7, 1.0, num_eos=2),
    BeamCase(2, 9, 300, 9, -0.5, rule="none", num_eos=2),
    BeamCase(2, 9, 300, 9, 1.0, rule="only", num_eos=2),
    BeamCase(2, 9, 20, 4, rule="only", num_eos=0),
    BeamCase(2, 9, 20, 40, 0.6, rule="none", num_eos=0),
    BeamCase(1, 8, 300, 5, num_eos=0, forbids=True),
    BeamCase(2, 9, 300, 12, 1.0, rule="none", forbids=True, offset=1),
    BeamCase(1, 3, 40, 200, 0.8),
    BeamCase(2, 9, 4096, 6),
    BeamCase(2, 9, 4097, 6, 0.6, offset=3),
    BeamCase(1, 9, 9001, 40, 1.0),
    BeamCase(1, 7, 40000, 4, 1.0, rule="none", forbids=True),
    BeamCase(1, 1, 40001, 9, offset=1),
    BeamCase(3, 5, 50, 5, kind="first step"),
    BeamCase(2, 5, 5000, 10, 0.6, rule="none", kind="first step"),
    BeamCase(3, 4, 16, 6, kind="twins"),
    BeamCase(2, 4, 1000, 9, 0.6, kind="twins"),
    BeamCase(1, 3, 33024, 7, kind="twins"),
    BeamCase(2, 3, 40, 30, kind="ties"),
    BeamCase(1, 3, 9001, 300, 1.0, kind="ties"),
    BeamCase(1, 2, 40001, 9, forbids=True, kind="ties"),
    BeamCase(1, 3, 8192, 9, rule="none", num_eos=2, kind="ties"),
    BeamCase(1, 3, 8192, 9, rule="only", num_eos=2, kind="ties"),
    BeamCase(2, 3, 70, 9, kind="improbable"),
    BeamCase(1, 3, 9001, 300, kind="improbable"),
    BeamCase(2, 5, 12, 7, 0.8, kind="finished"),
    BeamCase(2, 5, 12, 3, kind="finished"),
    BeamCase(2, 3, 12, 3, kind="dead"),
    BeamCase(2, 5, 6, 4, 0.8, bad_eos=9, kind="finished"),
    BeamCase(2, 9, 6, 20, bad_eos=-1),
)

# Sizes of models, which are timed, too.
REAL = (BeamCase(64, 5, 32000, 5), BeamCase(8, 5, 32000, 5), BeamCase(16, 4, 128000, 4))


@dataclasses.dataclass
class StepProblem:
    """A case's inputs, in one place."""

    case: BeamCase
    logits: torch.Tensor
    log_probs: torch.Tensor
    finished: torch.Tensor
    lengths: torch.Tensor
    eos_ids: torch.Tensor
    forbidden: torch.Tensor | None

    def inputs(self):
        return [self.logits, self.log_probs, self.finished, self.lengths, self.eos_ids, self.forbidden]

    def entries(self, part):
        """Returns the problem of a slice of the batch, in host memory."""
        of_batch = (self.logits, self.log_probs, self.finished, self.lengths)
        tensors = [tensor[part].cpu() for tensor in of_batch]
        case = dataclasses.replace(self.case, batch=len(tensors[0]))
        forbidden = None if self.forbidden is None else self.forbidden[part].cpu()
        return StepProblem(case, *tensors, self.eos_ids.cpu(), forbidden)


def value_dtype(dtype):
    """Returns the dtype of log probabilities."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def make_step(case, dtype, memory="cpu", seed=0):
    """Draws a case's inputs.

    "mixed" beams are some of them finished, dead, with ties, NaNs, infinities or nothing else than -inf. At the "first
    step" all beams but the first are dead. "twins" are beams alike in all; "ties" logits of two values;
    "improbable" beams have log probabilities so large that every candidate's is rounded to its beam's. All beams may be
    "finished", some alike, or "dead". "plain" ones are nothing of all this.
    """
    generator = torch.Generator(memory).manual_seed(seed)
    shape = (case.batch, case.beams, case.vocabulary)
    rows = case.batch * case.beams
    value = value_dtype(dtype)
    logits = torch.randn(shape, generator=generator, device=memory).view(rows, case.vocabulary).to(dtype)
    log_probs = torch.randn(rows, generator=generator, dtype=value, device=memory) - 3
    finished = torch.zeros(rows, dtype=torch.bool, device=memory)
    lengths = (torch.arange(rows, device=memory) * 5 % 17).int()
    of_entry = torch.arange(rows, device=memory) % case.beams
    if case.kind == "mixed":
        logits[2::7] = (2 * logits[2::7]).round() / 2
        logits[3::7, 1::5] = -math.inf
        logits[4::7, 3::11] = math.nan
        logits[5::7, case.vocabulary // 3 : case.vocabulary // 2 + 1] = math.inf
        logits[6::7] = -math.inf
        log_probs[7::11] = -math.inf
        log_probs[8::11] = math.nan
        finished[3::4] = True
    elif case.kind == "first step":
        log_probs[:] = torch.where(of_entry == 0, 0.0, -math.inf)
        lengths[:] = 0
    elif case.kind == "twins":
        logits = logits[:: case.beams].repeat_interleave(case.beams, 0)
        log_probs[:], lengths[:] = -1.5, 3
    elif case.kind == "ties":
        # The best tokens are the first and last of what a block reads, and some far into the row.
        token = torch.arange(case.vocabulary, device=memory)
        best = ((token + 1) % 4096 < 2) | (token % 97 == 5) & (token > case.vocabulary // 3)
        logits = (8 * best).to(dtype).repeat(rows, 1)
        log_probs[:] = -2.0 - of_entry
        lengths[:] = 3
    elif case.kind == "improbable":
        # Steps of 32 between neighbours; log softmax is over -16.
        log_probs[:] = -(2.0**57 if value == torch.float64 else 2.0**28)
    elif case.kind == "finished":
        finished[:] = True
        log_probs[of_entry > 1], lengths[of_entry > 1] = -2.5, 4
    elif case.kind == "dead":
        log_probs[:] = -math.inf
    forbidden = None
    if case.forbids:
        forbidden = (torch.arange(logits.numel(), device=memory) % 3 == 1).view(shape)
    beams = [tensor.view(shape[:2]) for tensor in (log_probs, finished, lengths)]
    eos_ids = torch.tensor(case.eos_ids, dtype=torch.int32, device=memory)
    return StepProblem(case, logits.view(shape), *beams, eos_ids, forbidden)


def step_kinds(problem):
    """Returns the shape and dtype of log probabilities, tokens, parents, finished, lengths."""
    shape = (problem.case.batch, problem.case.width)
    # Of bool every byte but 0 and 1 is wrong, which uint8 shows.
    dtypes = (problem.log_probs.dtype, torch.int32, torch.int32, torch.uint8, torch.int32)
    return [(shape, dtype) for dtype in dtypes]


def scratch_kind(ops, problem):
    """Returns the shape and dtype of the step's scratch memory, None on the processor."""
    if ops.device == "cpu":
        return None
    return (ops.beam_scratch(problem.case.args(), problem.logits.dtype),), torch.uint8


def allocate(ops, problem):
    """Returns the step's outputs and scratch memory, unset, on the device."""
    kinds = [*step_kinds(problem), scratch_kind(ops, problem)]
    return [kind and torch.empty(kind[0], dtype=kind[1], device=ops.memory) for kind in kinds]


@dataclasses.dataclass
class Candidates:
    """What an entry's step chooses from, by the definition: arrays in the order of beam and token."""

    parents: np.ndarray
    tokens: np.ndarray
    log_probs: np.ndarray
    scores: np.ndarray
    divisors: np.ndarray
    ties: np.ndarray  # equal where scores are, whatever the order of adding up

    @property
    def keys(self):
        return self.parents << 32 | self.tokens & 0xFFFFFFFF


def candidates(problem, entry):
    """Returns an entry's Candidates."""
    case = problem.case
    value = problem.log_probs.numpy().dtype
    logits = problem.logits[entry].to(problem.log_probs.dtype).numpy()
    logits = np.where(np.isnan(logits), -np.inf, np.minimum(logits, np.finfo(value).max)).astype(value)
    log_probs, finished, lengths = (t[entry].numpy() for t in (problem.log_probs, problem.finished, problem.lengths))
    eos = list(case.eos_ids)
    may = np.full(case.vocabulary, case.rule != "only")
    if case.rule != "any":
        may[[token for token in eos if 0 <= token < case.vocabulary]] = case.rule == "only"

    def divisor(length):
        return ((5.0 + length) / 6.0) ** case.length_penalty

    # Rows of whole packs are summed up in one order.
    whole_packs = case.vocabulary * problem.logits.element_size() % 16 == 0 and not case.offset
    parts, alike = [], {}
    for k in range(case.beams):
        if not log_probs[k] > -np.inf:
            continue
        wide = float(log_probs[k])
        if finished[k]:
            by = divisor(int(lengths[k]))
            tie = alike.setdefault((wide, by), len(alike))
            tokens, of_tokens = np.array([eos[0] if eos else 0]), np.array([wide])
            ties = np.array([[tie, 0]])
        else:
            x = logits[k].astype(np.float64)
            by = divisor(int(lengths[k]) + 1)
            with np.errstate(over="ignore", invalid="ignore"):
                below = x - x.max()
                softmax = below - np.log(np.exp(below).sum())
                of_tokens = wide + softmax
                # What the log probability's own dtype has no number for is no candidate.
                allowed = may & ((of_tokens / by).astype(value) > -np.inf)
            if problem.forbidden is not None:
                allowed &= ~problem.forbidden[entry, k].numpy()
            tie = alike.setdefault((logits[k].tobytes() if whole_packs else k, wide, by), len(alike))
            [tokens] = np.nonzero(allowed)
            of_tokens = of_tokens[tokens]
            ties = np.stack([np.full(len(tokens), tie), logits[k][tokens].astype(np.float64).view(np.int64)], 1)
            if case.kind == "improbable":
                ties[:] = 0
        parts.append((np.full(len(tokens), k), tokens, of_tokens, of_tokens / by, np.full(len(tokens), by), ties))
    if not parts:
        return Candidates(*(np.zeros(0, t) for t in (np.int64, np.int64, *[np.float64] * 3)), np.zeros((0, 2)))
    return Candidates(*map(np.concatenate, zip(*parts, strict=True)))


def wrong_with_entry(problem, entry, results, tolerance):
    """Says what is wrong with an entry's results, "" if nothing is: how log probabilities are rounded is free."""
    case, every = problem.case, candidates(problem, entry)
    log_probs, tokens, parents, finished, lengths = (tensor[entry].numpy() for tensor in results)
    count = min(case.width, len(every.scores))
    first_eos = case.eos_ids[0] if case.eos_ids else 0
    keys = parents.astype(np.int64) << 32 | tokens.astype(np.int64) & 0xFFFFFFFF
    best = -np.sort(-every.scores)[:count]
    order = np.argsort(every.keys)
    every_keys = every.keys[order]
    chosen = []
    for i in range(count):
        at = np.searchsorted(every_keys, keys[i])
        if at == len(every_keys) or every_keys[at] != keys[i]:
            return f"place {i}: beam {parents[i]} has no candidate {tokens[i]}"
        one = order[at]
        if one in chosen:
            return f"place {i}: beam {parents[i]}, token {tokens[i]} for the second time"
        expected, by = every.log_probs[one], every.divisors[one]
        room = tolerance * (1 + abs(expected))
        if not abs(float(log_probs[i]) - expected) <= room:
            return f"place {i}: log probability {log_probs[i]}, expected {expected}"
        if not abs(every.scores[one] - best[i]) <= 2 * room / by:
            return f"place {i}: score {every.scores[one]}, the definition's {best[i]}"
        alike = (every.ties == every.ties[one]).all(1) & (every.keys < keys[i])
        if alike.sum() != sum(alike[before] for before in chosen):
            return f"place {i}: beam {parents[i]}, token {tokens[i]} is not the first of those as good"
        chosen.append(one)
        was = bool(problem.finished[entry, parents[i]])
        if finished[i] != (was or int(tokens[i]) in case.eos_ids):
            return f"place {i}: finished is {finished[i]}"
        if lengths[i] != problem.lengths[entry, parents[i]] + (not was):
            return f"place {i}: length {lengths[i]}"
        if case.length_penalty == 0 and i and (log_probs[i - 1], -keys[i - 1]) < (log_probs[i], -keys[i]):
            return f"place {i}: is better than the place before"
    rest = slice(count, None)
    padded = (log_probs[rest] == -np.inf) & (tokens[rest] == first_eos) & (parents[rest] == 0) & (finished[rest] == 1)
    if not (padded & (lengths[rest] == int(problem.lengths[entry, 0]))).all():
        return f"places from {count} on, which have no candidate"
    return ""


@dataclasses.dataclass(frozen=True)
class TreeCase:
    """Sizes of a tree of beams."""

    time: int
    batch: int
    beams: int
    wide: bool
    pad_id: int = -1
    offset: int = 0

    @property
    def name(self):
        return f"{list(dataclasses.astuple(self)[:3])} {'int64' if self.wide else 'int32'}"

    @property
    def dtype(self):
        return torch.int64 if self.wide else torch.int32

    def args(self):
        return bindings.TreeArgs(self.time, self.batch, self.beams, self.pad_id, self.wide)


SMALL_TREES = tuple(
    TreeCase(time, batch, beams, wide, pad_id=-(2**40) if wide else -1, offset=time % 3)
    for time in (0, 1, 2, 9, 40)
    for batch, beams in ((0, 3), (1, 1), (3, 7), (90, 2), (2, 200))
    for wide in (False, True)
)
REAL_TREES = (TreeCase(256, 64, 5, False), TreeCase(1024, 4096, 4, True))


def make_tree(case, bad=True, memory="cpu", seed=0):
    """Draws tokens, parents, lengths; of `bad` trees one parent in 20 and some lengths are out of range."""
    generator = torch.Generator(memory).manual_seed(seed)
    shape = (case.time, case.batch, case.beams)

    def whole(low, high, of_shape, dtype):
        return torch.randint(low, high, of_shape, generator=generator, device=memory).to(dtype)

    tokens = whole(0, 2**40 if case.wide else 2**31 - 1, shape, case.dtype)
    parents = whole(0, case.beams, shape, case.dtype)
    lengths = whole(-1 if bad else 0, case.time + 2 if bad else case.time + 1, shape[1:], torch.int32)
    if bad:
        none = [-1, case.beams, 2**31 - 1, -(2**31)]
        none += [2**32, 2**32 + 1, -(2**32), 2**63 - 1, -(2**63)] if case.wide else []
        at = whole(0, 20 * len(none), shape, torch.int64)
        for i, parent in enumerate(none):
            parents[at == i] = parent
        # Some trees are sound.
        parents[:, ::4] %= case.beams
        lengths[:1] = lengths[:1].clamp(0, case.time)
    return tokens, parents, lengths


def tree_reference(case, tokens, parents, lengths):
    """Returns the sequences, and of the first bad beam: its entry, itself, the time of its parent or -1, the value."""
    tokens, parents = tokens.numpy(), parents.numpy()
    output = np.full(tokens.shape, case.pad_id, tokens.dtype)
    bad = None
    for entry, beam in np.ndindex(case.batch, case.beams):
        length, at = int(lengths[entry, beam]), beam
        if not 0 <= length <= case.time:
            bad = bad or (entry, beam, -1, length)
            continue
        for t in reversed(range(length)):
            output[t, entry, beam] = tokens[t, entry, at]
            at = int(parents[t, entry, at])
            if t > 0 and not 0 <= at < case.beams:
                bad = bad or (entry, beam, t, at)
                break
    return torch.from_numpy(output), torch.tensor(bad or (-1, -1, -1, 0))
