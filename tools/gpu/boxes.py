"""Overlaps and suppression of boxes for bench.py: torchvision's functions, the bytes that must move."""

import functools

import torch

IOU = 0.5


def draw(count, seed=0):
    """Returns corners of boxes, of which nms keeps most, whatever their number, and scores without ties."""
    generator = torch.Generator("cuda").manual_seed(seed)
    image = 1000.0 * (count / 1000) ** 0.5
    uniform = torch.rand((2, count, 2), generator=generator, device="cuda")
    low, sides = image * uniform[0], 16 * 10 ** uniform[1]
    scores = torch.randperm(count, generator=generator, device="cuda").float() / count
    return torch.cat([low, low + sides], 1).contiguous(), scores


def _peers():
    try:
        import torchvision

        return torchvision.ops
    except Exception:  # as in regions.py
        return None


def nms_rows(make_row, count, groups):
    """Yields nms, and soft_nms for few boxes; the indices behind the kept ones are compared as zeros."""
    ops = _peers()
    boxes, scores = draw(count)
    indices = torch.zeros(count, dtype=torch.int32, device="cuda")
    ids = torch.randint(0, groups, (count,), device="cuda") if groups else None
    counts = torch.zeros(1, dtype=torch.int32, device="cuda")

    def kept():
        return ops.batched_nms(boxes, scores, ids, IOU) if groups else ops.nms(boxes, scores, IOU)

    def padded():
        found = kept()
        return torch.nn.functional.pad(found, (0, count - len(found)))

    options = {"boxes": count, "iou_threshold": IOU, "score_threshold": "nan", "max_outputs": -1}
    case = f"{count}, {groups} groups" if groups else str(count)
    num_bytes = boxes.nbytes + scores.nbytes + indices.nbytes + (ids.nbytes if groups else 0)
    buffers = [boxes, scores, ids, indices, counts]
    peers = (padded, kept) if ops else ()
    yield make_row("nms", case, torch.float32, buffers, options, indices, num_bytes, *peers)
    if count > 5000 or groups:
        return
    decayed = torch.empty_like(scores)
    soft = options | {"score_threshold": 0, "sigma": 0.5, "method": "gaussian"}
    buffers = [boxes, scores, indices, decayed, counts]
    yield make_row("soft_nms", case, torch.float32, buffers, soft, decayed, num_bytes + decayed.nbytes)


def multiclass_rows(make_row, batch, count, classes, outputs):
    """Yields multiclass_nms."""
    boxes = torch.stack([draw(count, seed)[0] for seed in range(batch)])
    scores = torch.rand((batch, count, classes), device="cuda")
    found = [torch.empty((batch, outputs), dtype=torch.int32, device="cuda") for _ in range(3)]
    counts = torch.empty(batch, dtype=torch.int32, device="cuda")
    options = {"batch": batch, "boxes": count, "classes": classes, "iou_threshold": IOU, "score_threshold": 0.61}
    options |= {"max_outputs": outputs, "max_outputs_per_class": -1}
    num_bytes = sum(t.nbytes for t in (boxes, scores, *found, counts))
    case = f"[{batch}, {count}, {classes}], {outputs} outputs"
    buffers = [boxes, scores, *found, counts]
    yield make_row("multiclass_nms", case, torch.float32, buffers, options, counts, num_bytes)


def overlap_rows(make_row, count):
    """Yields the overlaps of all pairs."""
    ops = _peers()
    (boxes1, _), (boxes2, _) = draw(count), draw(count, 1)
    overlaps = torch.empty((count, count), device="cuda")
    names = {"iou": "box_iou", "giou": "generalized_box_iou", "ciou": "complete_box_iou"}
    for mode, name in names.items():
        peers = (functools.partial(getattr(ops, name), boxes1, boxes2),) if ops else ()
        options = {"batch": 1, "rows": count, "columns": count, "mode": mode}
        buffers, num_bytes = [boxes1, boxes2, overlaps], overlaps.nbytes + 2 * boxes1.nbytes
        case = f"{count} x {count}, {mode}"
        yield make_row("box_iou", case, torch.float32, buffers, options, overlaps, num_bytes, *peers)


def loss_rows(make_row, count):
    """Yields the losses of pairs and their gradients."""
    ops = _peers()
    boxes1 = draw(count)[0]
    boxes2 = boxes1 + 4 * torch.rand_like(boxes1)
    losses, d_losses = torch.empty(count, device="cuda"), torch.rand(count, device="cuda")
    d_boxes1, d_boxes2 = torch.empty_like(boxes1), torch.empty_like(boxes2)
    for mode, name in {"giou": "generalized_box_iou_loss", "ciou": "complete_box_iou_loss"}.items():
        peers = (functools.partial(getattr(ops, name), boxes1, boxes2),) if ops else ()
        case, options, num_bytes = f"{count}, {mode}", {"boxes": count, "mode": mode}, 2 * boxes1.nbytes + losses.nbytes
        buffers = [boxes1, boxes2, losses]
        yield make_row("box_iou_loss", case, torch.float32, buffers, options, losses, num_bytes, *peers)
        buffers = [d_losses, boxes1, boxes2, d_boxes1, d_boxes2]
        yield make_row("box_iou_loss_grad", case, torch.float32, buffers, options, d_boxes1, 2 * num_bytes)


def rows(make_row, quick):
    """Yields the rows of all cases."""
    for count, groups in ((1000, 0), (5000, 0), (20_000, 0), (10_000, 80))[: 2 if quick else None]:
        yield from nms_rows(make_row, count, groups)
    yield from multiclass_rows(make_row, 8, 1000, 80, 100)
    yield from overlap_rows(make_row, 2000)
    yield from loss_rows(make_row, 1_000_000)
