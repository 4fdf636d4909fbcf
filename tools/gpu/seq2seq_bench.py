"""Beam search steps and trees of beams for bench.py: what runs beside what, and the bytes that must move."""

import dataclasses

import seq2seq_cases
import torch

DTYPES = (torch.float32, torch.bfloat16)


def composed_step(problem):
    """Returns PyTorch's functions for a step: log softmax in the log probabilities' dtype, add, the best of each entry.

    They leave out what finished beams, end tokens and lengths ask for.
    """
    case = problem.case
    log_p = torch.log_softmax(problem.logits, -1, dtype=problem.log_probs.dtype)
    return (log_p + problem.log_probs[..., None]).view(case.batch, -1).topk(case.width)


def rows(ops, make_row, some_cases, some_trees):
    """Yields make_row(op, case, dtype, run, peer, bytes); a row's memory lives until the next."""
    for case in some_cases:
        for dtype in DTYPES:
            problem = seq2seq_cases.make_step(dataclasses.replace(case, kind="plain"), dtype, ops.memory)
            outputs = seq2seq_cases.allocate(ops, problem)
            tensors = [*problem.inputs(), *outputs]
            moved = [*problem.inputs()[:4], *outputs[:5]]  # all but end tokens and scratch memory
            yield make_row(
                "beam search step",
                case.name,
                dtype,
                lambda case=case, tensors=tensors: ops("beam_search_step", case.args(), *tensors),
                lambda problem=problem: composed_step(problem),
                sum(tensor.nbytes for tensor in moved),
            )
            del problem, outputs, tensors, moved
    for tree in some_trees:
        inputs = seq2seq_cases.make_tree(tree, bad=False, memory=ops.memory)
        output = torch.empty_like(inputs[0])
        tensors = [*inputs, output, None]
        yield make_row(
            "gather tree",
            tree.name,
            tree.dtype,
            lambda tree=tree, tensors=tensors: ops("gather_tree", tree.args(), *tensors),
            None,
            sum(tensor.nbytes for tensor in tensors[:4]),
        )
