"""Checks of tfo.seq2seq, for check.py."""

import seq2seq_cases
import torch

# What a log probability may be off by, of 1 + its own size. 16-bit logits are computed in float32.
TOLERANCE = {torch.float64: 1e-14, torch.float32: 2e-6, torch.float16: 2e-6, torch.bfloat16: 2e-6}


def run_step(device, problem):
    """Returns the five results of beam_search_step in host memory."""
    kinds = seq2seq_cases.step_kinds(problem)
    scratch = seq2seq_cases.scratch_kind(device.ops, problem)
    kinds.append(scratch and (*scratch, 0))  # poisoned and guarded, as outputs are
    args, offset = problem.case.args(), problem.case.offset
    return device.call("beam_search_step", args, problem.inputs(), kinds, offset)[:5]


def expect_step(checks, problem, results, what):
    """Expects what the definition allows."""
    tolerance = TOLERANCE[problem.logits.dtype]
    for entry in range(problem.case.batch):
        wrong = seq2seq_cases.wrong_with_entry(problem, entry, results, tolerance)
        checks.expect(not wrong, f"{what}, entry {entry}, {wrong}")


def check_steps(device, cpu, some_cases, repeats, dtypes=seq2seq_cases.FLOATS):
    """Compares the device with the definition and the CPU; each run gives the same bits."""
    for case in some_cases:
        if device is cpu and case.bad_eos is not None:
            continue
        for dtype in dtypes:
            name = f"beam_search_step {case.name} {str(dtype).removeprefix('torch.')}"
            problem = seq2seq_cases.make_step(case, dtype)
            results = run_step(device, problem)
            expect_step(device.checks, problem, results, name)
            if device is not cpu and case.bad_eos is None:
                # Which of two candidates nearly as good comes first may differ, but not how good it is, without a
                # length penalty.
                log_probs = run_step(cpu, problem)[0] if case.length_penalty == 0 else results[0]
                near = torch.isclose(results[0], log_probs, TOLERANCE[dtype], TOLERANCE[dtype])
                device.checks.expect(near.all(), f"{name}: other log probabilities than the processor's")
            for run in range(1, repeats):
                for i, again in enumerate(run_step(device, problem)):
                    device.checks.expect_same(again, results[i], f"{name}, result {i}, run {run}")


def check_trees(device, cpu, some_cases):
    """Compares gather_tree with the definition, or the CPU's."""
    for case in some_cases:
        inputs = seq2seq_cases.make_tree(case)
        kind = (inputs[0].shape, case.dtype)
        on_cpu = cpu.call("gather_tree", case.args(), inputs, [kind, ((4,), torch.int64)], case.offset)
        if device is cpu:
            results, expected = on_cpu, seq2seq_cases.tree_reference(case, *inputs)
        else:
            results = device.call("gather_tree", case.args(), inputs, [kind, None], case.offset)[:1]
            expected = on_cpu[:1]
        for what, actual, value in zip(("output", "bad beam"), results, expected, strict=False):
            device.checks.expect_same(actual, value, f"gather_tree {case.name}, {what}")


def check_graph(device):
    """A CUDA graph can be captured: nothing waits or allocates; its replays give the same bits."""
    tree = seq2seq_cases.TreeCase(20, 30, 5, False)
    tree_inputs = seq2seq_cases.make_tree(tree, memory=device.ops.memory)
    for case in (seq2seq_cases.BeamCase(8, 5, 1000, 5), seq2seq_cases.BeamCase(1, 4, 50000, 4, 0.6, forbids=True)):
        problem = seq2seq_cases.make_step(case, torch.float32, memory=device.ops.memory)

        def enqueue(step, sequences, case=case, problem=problem):
            device.ops("beam_search_step", case.args(), *problem.inputs(), *step)
            device.ops("gather_tree", tree.args(), *tree_inputs, sequences, None)

        first, replayed = (
            [*seq2seq_cases.allocate(device.ops, problem), torch.empty_like(tree_inputs[0])] for _ in range(2)
        )
        enqueue(first[:-1], first[-1])
        enqueue(replayed[:-1], replayed[-1])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            enqueue(replayed[:-1], replayed[-1])
        for replay in range(2):
            for tensor in replayed:
                tensor.fill_(9)
            graph.replay()
            torch.cuda.synchronize()
            for i in (0, 1, 2, 3, 4, 6):  # all but the scratch memory
                what = f"result {i} of {case.name} in a CUDA graph, replay {replay}"
                device.checks.expect_same(replayed[i].cpu(), first[i].cpu(), what)


def check_large(device, elements=1 << 31, vocabulary=(1 << 31) - 1):
    """Over 2^31 elements: the last entries, and the last tokens of the largest vocabulary."""
    memory = device.ops.memory
    if memory == "cuda":
        torch.cuda.empty_cache()
        needed = 14 * elements  # of the trees
        free = torch.cuda.mem_get_info()[0]
        if free < 1.1 * needed:
            print(f"  not run: trees over 2^31 need {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB are free")
            return

    case = seq2seq_cases.BeamCase(elements // (5 * 32000) + 2, 5, 32000, 5, 0.6, kind="plain")
    few = seq2seq_cases.BeamCase(0, 5, 32000, 5, kind="plain")
    problem = seq2seq_cases.make_step(few, torch.bfloat16, memory)
    problem.case = case
    shape = (case.batch, case.beams)
    problem.logits = torch.empty((*shape, case.vocabulary), dtype=torch.bfloat16, device=memory).normal_()
    problem.log_probs = torch.empty(shape, device=memory).normal_()
    problem.finished = torch.arange(case.batch * case.beams, device=memory).view(shape) % 7 == 3
    problem.lengths = torch.ones(shape, dtype=torch.int32, device=memory)
    outputs = seq2seq_cases.allocate(device.ops, problem)
    device.ops("beam_search_step", case.args(), *problem.inputs(), *outputs)
    last = slice(-2, None)
    results = [tensor[last].cpu() for tensor in outputs[:5]]
    expect_step(device.checks, problem.entries(last), results, f"the last of {case.name}")
    del problem, outputs

    row = seq2seq_cases.BeamCase(1, 1, vocabulary, 3, kind="plain")
    logits = torch.empty(vocabulary, dtype=torch.bfloat16, device=memory).uniform_(-1, 1)
    logits[-2:] = 24
    logits[vocabulary // 2] = 20
    lse = torch.stack([part.double().logsumexp(0) for part in logits.split(1 << 26)]).logsumexp(0)
    problem = seq2seq_cases.StepProblem(
        row,
        logits.view(1, 1, -1),
        torch.zeros((1, 1), device=memory),
        torch.zeros((1, 1), dtype=torch.bool, device=memory),
        torch.zeros((1, 1), dtype=torch.int32, device=memory),
        torch.tensor(row.eos_ids, dtype=torch.int32, device=memory),
        None,
    )
    outputs = seq2seq_cases.allocate(device.ops, problem)
    device.ops("beam_search_step", row.args(), *problem.inputs(), *outputs)
    log_probs, tokens = (tensor[0].cpu() for tensor in outputs[:2])
    expected = torch.tensor([24, 24, 20], dtype=torch.float64) - lse.cpu()
    near = torch.isclose(log_probs.double(), expected, 1e-5, 1e-5).all()
    device.checks.expect(near, f"{row.name}: {log_probs.tolist()}, expected {expected.tolist()}")
    last = [vocabulary - 2, vocabulary - 1, vocabulary // 2]
    device.checks.expect(tokens.tolist() == last, f"{row.name}: {tokens.tolist()}")
    device.checks.expect(outputs[3][0].tolist() == [0, 1, 0], f"{row.name}: finished")
    del problem, outputs, logits

    tree = seq2seq_cases.TreeCase(5, elements // 25 + 1000, 5, False)
    tokens = torch.empty((tree.time, tree.batch, tree.beams), dtype=torch.int32, device=memory).random_(0, 1 << 30)
    parents = torch.empty_like(tokens).random_(0, tree.beams + 1)  # some are no beam
    lengths = torch.empty(tokens.shape[1:], dtype=torch.int32, device=memory).random_(0, tree.time + 1)
    output = torch.empty_like(tokens)
    bad = torch.empty(4, dtype=torch.int64) if device.ops.device == "cpu" else None
    device.ops("gather_tree", tree.args(), tokens, parents, lengths, output, bad)
    few = seq2seq_cases.TreeCase(tree.time, 1000, tree.beams, False)
    last = [tensor[..., -few.batch :, :].cpu() for tensor in (tokens, parents, lengths, output)]
    expected, _ = seq2seq_cases.tree_reference(few, *last[:3])
    device.checks.expect_same(last[3], expected, f"the last of gather_tree {tree.name}")


def check_all(device, cpu, full, only_kernels):
    """Checks what the device can show."""
    check_steps(device, cpu, seq2seq_cases.SMALL, repeats=3 if full else 1)
    check_trees(device, cpu, seq2seq_cases.SMALL_TREES)
    if full:
        check_steps(device, cpu, seq2seq_cases.REAL, repeats=2, dtypes=(torch.float32, torch.bfloat16))
        check_trees(device, cpu, seq2seq_cases.REAL_TREES)
        check_large(device)
    if device.ops.device == "cuda" and not only_kernels:
        check_graph(device)
