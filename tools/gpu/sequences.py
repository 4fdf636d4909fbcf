"""Losses and decoders of label sequences, and random fields, for bench.py: peers, the bytes that must move."""

import functools

import torch


def _normal(*shape):
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(0), device="cuda")


def _num_bytes(*tensors):
    return sum(tensor.nbytes for tensor in tensors)


def _labels(*shape, classes):
    """Returns labels other than 0, the blank."""
    generator = torch.Generator("cuda").manual_seed(1)
    return torch.randint(1, classes, shape, generator=generator, device="cuda", dtype=torch.int32)


def _full(batch, value):
    return torch.full((batch,), value, dtype=torch.int32, device="cuda")


def _gradient(output, leaf, d):
    """Returns a call that computes the gradient as often as it is called."""
    return lambda: torch.autograd.grad(output, leaf, d, retain_graph=True)[0]


def _loss_rows(make_row, name, case, logits, sums, ints, options, peer):
    """Yields a loss and its gradient. peer(logits) returns PyTorch's losses, or is None."""
    batch, dtype = logits.shape[0], logits.dtype
    loss, d_loss = torch.empty(batch, device="cuda"), torch.rand(batch, device="cuda")
    largest, rest = (torch.empty(sums, device="cuda") for _ in range(2))
    d_logits = torch.empty_like(logits)
    peers, grad_peers = (), ()
    if peer is not None:
        wide, leaf = logits.double().requires_grad_(), logits.detach().requires_grad_()
        to_wide, to_leaf = (_gradient(out, x, d_loss.to(out.dtype)) for x in (wide, leaf) for out in (peer(x),))
        peers = (lambda: peer(wide.detach()), lambda: peer(leaf.detach()))
        grad_peers = (to_wide, to_leaf)
    buffers = [logits, *ints, loss, largest, rest]
    yield make_row(name, case, dtype, buffers, options, loss, _num_bytes(*buffers), *peers)
    buffers = [logits, *ints, d_loss, largest, rest, d_logits]
    yield make_row(f"{name}_grad", case, dtype, buffers, options, d_logits, _num_bytes(*buffers), *grad_peers)


def ctc_rows(make_row, batch, frames, classes, max_labels, dtype):
    """Yields ctc_loss; the peer is log_softmax and PyTorch's own loss, in float32 for 16-bit logits."""
    logits = _normal(batch, frames, classes).to(dtype)
    labels, lengths, frame_counts = (
        _labels(batch, max_labels, classes=classes),
        _full(batch, max_labels),
        _full(batch, frames),
    )

    def peer(x):
        of = torch.promote_types(x.dtype, torch.float32)
        log_probs = torch.log_softmax(x.transpose(0, 1), -1, dtype=of)
        counts = frame_counts.long(), lengths.long()
        # Labels as int64: PyTorch's own kernels, which take doubles as well.
        return torch.nn.functional.ctc_loss(log_probs, labels.long(), *counts, reduction="none")

    options = {"batch": batch, "frames": frames, "max_labels": max_labels, "classes": classes, "blank": 0}
    case, ints = f"[{batch}, {frames}, {classes}], {max_labels} labels", [labels, lengths, frame_counts]
    yield from _loss_rows(make_row, "ctc_loss", case, logits, (batch, frames), ints, options, peer)


def ctc_decode_rows(make_row, batch, frames, classes, widths, dtype):
    """Yields decoders of CTC. The peer of the greedy one is PyTorch's log-softmax, maximum and sum."""
    logits, lengths = 3 * _normal(batch, frames, classes).to(dtype), _full(batch, frames)
    labels = torch.empty((batch, frames), dtype=torch.int32, device="cuda")
    counts, log_probs = _full(batch, 0), torch.empty(batch, device="cuda")
    options = {"batch": batch, "frames": frames, "classes": classes, "blank": 0, "pad_id": -1}

    def best(x):
        return torch.log_softmax(x, -1, dtype=torch.promote_types(x.dtype, torch.float32)).amax(-1).sum(-1)

    buffers, case = [logits, lengths, labels, counts, log_probs], f"[{batch}, {frames}, {classes}]"
    peers = lambda: best(logits.double()), lambda: best(logits)
    merge = options | {"merge_repeated": 1}
    yield make_row("ctc_greedy_decode", case, dtype, buffers, merge, log_probs, _num_bytes(*buffers), *peers)
    buffers = [*buffers[:4], torch.empty_like(log_probs), log_probs]
    for width in widths:
        search = options | {"beam_width": width, "top_paths": 1}
        name = f"{case}, width {width}"
        yield make_row("ctc_beam_search", name, dtype, buffers, search, log_probs, _num_bytes(*buffers))


def _torchaudio_rnnt():
    try:
        from torchaudio.functional import rnnt_loss

        return rnnt_loss
    except Exception:  # as torchvision in regions.py
        return None


def _rnnt_by_definition(logits, labels):
    """The loss in plain PyTorch, in logits' dtype: labels and frames have full lengths, blank is 0."""
    frames, nodes = logits.shape[1:3]
    log_probs = torch.log_softmax(logits, -1)
    blanks = log_probs[..., 0]
    index = labels.long()[:, None, :, None].expand(-1, frames, -1, 1)
    emissions = log_probs[:, :, :-1].gather(-1, index)[..., 0]
    before = torch.nn.functional.pad(emissions.cumsum(-1), (1, 0))  # of labels in a row at a frame
    ways = before[:, 0]
    for t in range(1, frames):
        ways = torch.logcumsumexp(ways + blanks[:, t - 1] - before[:, t], -1) + before[:, t]
    return -(ways[:, nodes - 1] + blanks[:, -1, nodes - 1])


def rnnt_rows(make_row, batch, frames, max_labels, classes, dtype):
    """Yields rnnt_loss; timed beside torchaudio's, if it is installed."""
    logits = _normal(batch, frames, max_labels + 1, classes).to(dtype)
    labels, lengths, frame_counts = (
        _labels(batch, max_labels, classes=classes),
        _full(batch, max_labels),
        _full(batch, frames),
    )
    loss_of = _torchaudio_rnnt()

    def peer(x):
        if loss_of is not None and x.dtype in (torch.float32, torch.float16):
            return loss_of(x.contiguous(), labels, frame_counts, lengths, blank=0, reduction="none")
        return _rnnt_by_definition(x.to(torch.promote_types(x.dtype, torch.float32)), labels)

    options = {"batch": batch, "frames": frames, "max_labels": max_labels, "classes": classes, "blank": 0}
    case, ints = f"[{batch}, {frames}, {max_labels + 1}, {classes}]", [labels, lengths, frame_counts]
    sums = (batch, frames, max_labels + 1)
    yield from _loss_rows(make_row, "rnnt_loss", case, logits, sums, ints, options, peer)


def _crf_total(logits, transitions, reduce):
    """Returns `reduce` of the scores of all label sequences, of full length."""
    total = logits[:, 0]
    for t in range(1, logits.shape[1]):
        total = reduce(total[:, :, None] + transitions, 1) + logits[:, t]
    return reduce(total, -1)


def _crf_likelihood(logits, transitions, labels):
    index = labels.long()
    score = logits.gather(-1, index[..., None]).sum((1, 2)) + transitions[index[:, :-1], index[:, 1:]].sum(-1)
    return score - _crf_total(logits, transitions, torch.logsumexp)


def crf_rows(make_row, batch, frames, tags, dtype):
    """Yields log likelihoods, their gradients, marginals and the best labels, beside a loop over frames."""
    logits, transitions = _normal(batch, frames, tags).to(dtype), _normal(tags, tags)
    lengths, labels = _full(batch, frames), _labels(batch, frames, classes=tags)
    values, d = torch.empty(batch, device="cuda"), torch.rand(batch, device="cuda")
    d_logits, d_transitions = torch.empty_like(logits), torch.empty_like(transitions)
    marginals, found = torch.empty_like(logits, dtype=torch.float32), torch.empty_like(labels)
    leaves = [[x.to(of).requires_grad_() for x in (logits, transitions)] for of in (torch.float64, torch.float32)]
    outputs = [_crf_likelihood(*of, labels) for of in leaves]
    grads = [_gradient(output, of[0], d.to(output.dtype)) for output, of in zip(outputs, leaves, strict=True)]
    totals = [_crf_total(*of, torch.logsumexp) for of in leaves]
    shares = [_gradient(total, of[0], torch.ones_like(total)) for total, of in zip(totals, leaves, strict=True)]

    def likelihood(of):
        with torch.no_grad():
            return _crf_likelihood(*of, labels)

    def best(of):
        with torch.no_grad():
            return _crf_total(*of, torch.amax)

    options, case = {"batch": batch, "frames": frames, "tags": tags}, f"[{batch}, {frames}, {tags}]"
    inputs = [logits, transitions, lengths]

    def row(kernel, outputs, compared, peers):
        buffers = [*inputs, *outputs]
        return make_row(kernel, case, dtype, buffers, options, compared, _num_bytes(*buffers), *peers)

    both = [functools.partial(likelihood, of) for of in leaves]
    yield row("crf_log_likelihood", [labels, values], values, both)
    yield row("crf_log_likelihood_grad", [labels, d, d_logits, d_transitions], d_logits, grads)
    yield row("crf_marginals", [marginals], marginals, shares)
    yield row("crf_decode", [found, values], values, [functools.partial(best, of) for of in leaves])


def rows(make_row, quick):
    """Yields the rows of all cases."""
    for dtype in (torch.float32, torch.bfloat16):
        yield from ctc_rows(make_row, 32, 400, 128, 60, dtype)
        yield from ctc_decode_rows(make_row, 32, 400, 128, (10, 100), dtype)
        yield from rnnt_rows(make_row, 4, 150, 30, 1000, dtype)
        yield from crf_rows(make_row, 64, 128, 20, dtype)
        if not quick:
            yield from ctc_rows(make_row, 16, 400, 5000, 60, dtype)
            yield from ctc_decode_rows(make_row, 16, 400, 5000, (10, 100, 1000), dtype)
            yield from crf_rows(make_row, 32, 512, 50, dtype)
