"""Samples, correlation, deformable convolution and attention for bench.py: peers, the bytes that must move."""

import functools

import torch

ATTENTION_LEVELS = {
    "decoder": (300, ((100, 134), (50, 67), (25, 34), (13, 17))),
    "encoder": (4484, ((50, 67), (25, 34), (13, 17), (7, 9))),
}
HEADS, DEPTH, POINTS = 8, 32, 4


def _normal(*shape, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda")


def _in_steps(x):
    """Rounds to multiples of 1 / 256: places are then exact in float32, ours and the peer's."""
    return torch.round(x * 256) / 256


def _gradients(output, inputs, d):
    """Returns a call that computes gradients as often as it is called."""
    return lambda: torch.autograd.grad(output, inputs, d, retain_graph=True)


def _num_bytes(*tensors):
    return sum(tensor.nbytes for tensor in tensors)


def _sample_peer(features, grid, d, **options):
    """Returns torch's samples as [batch, samples, channels], and calls for gradients to features and grid."""
    images = features.permute(0, 3, 1, 2).contiguous().requires_grad_()
    grid = grid[:, None].detach().requires_grad_()
    sample = functools.partial(torch.nn.functional.grid_sample, images, grid, **options)
    output = sample()
    d = d.permute(0, 2, 1)[:, :, None].to(output.dtype).contiguous()
    to_images, to_grid = _gradients(output, images, d), _gradients(output, grid, d)

    def samples():
        with torch.no_grad():
            return sample()

    return {
        "output": lambda: samples()[:, :, 0].permute(0, 2, 1),
        "time": samples,
        "to_features": lambda: to_images()[0].permute(0, 2, 3, 1),
        "to_grid": lambda: to_grid()[0][:, 0],
    }


def sample_rows(make_row, batch, side, channels, dtype, mode):
    """Yields grid_sample and its gradients."""
    features = _normal(batch, side, side, channels).to(dtype)
    # As a small rotation and scaling: neighbors read neighbors.
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, side, device="cuda")] * 2, indexing="ij")
    grid = torch.stack([0.9 * x - 0.1 * y, 0.1 * x + 0.9 * y], -1).reshape(1, -1, 2).repeat(batch, 1, 1)
    # Not on whole pixels, where rounding chooses one of two slopes.
    grid = 2 * (_in_steps((grid + 1) * ((side - 1) / 2)) + 1 / 512) / (side - 1) - 1
    output = torch.empty((batch, side * side, channels), dtype=dtype, device="cuda")
    d, d_features, d_grid = torch.randn_like(output), torch.empty_like(features), torch.empty_like(grid)
    options = {"batch": batch, "height": side, "width": side, "channels": channels, "samples": side * side}
    options |= {"mode": mode, "align_corners": True}
    exact = _sample_peer(features.double(), grid.double(), d, mode=mode, align_corners=True)
    timed = _sample_peer(features, grid.to(dtype), d, mode=mode, align_corners=True)
    case = f"[{batch}, {side}, {side}, {channels}], {mode}"

    def row(kernel, buffers, to, peer, time_peer, **more):
        num_bytes = _num_bytes(*filter(lambda t: t is not None, buffers))
        return make_row(kernel, case, dtype, buffers, options | more, to, num_bytes, exact[peer], timed[time_peer])

    yield row("grid_sample", [features, grid, None, output], output, "output", "time")
    for deterministic in (False, True):
        buffers = [d, grid, d_features]
        yield row("grid_sample_grad", buffers, d_features, "to_features", "to_features", deterministic=deterministic)
    yield row("grid_sample_grid_grad", [d, features, grid, d_grid], d_grid, "to_grid", "to_grid")


def warp_rows(make_row, batch, side, channels, dtype):
    """Yields dense_image_warp, which is grid_sample of pixels minus flow."""
    features, flow = (
        _normal(batch, side, side, channels).to(dtype),
        _in_steps(3 * _normal(batch, side, side, 2, seed=1)),
    )
    pixels = torch.arange(side, device="cuda", dtype=torch.float32)
    y, x = torch.meshgrid(pixels, pixels, indexing="ij")
    place = torch.stack([x - flow[..., 1], y - flow[..., 0]], -1).reshape(batch, -1, 2)
    output = torch.empty((batch, side * side, channels), dtype=dtype, device="cuda")
    grid = 2 * place.double() / (side - 1) - 1
    peers = [
        _sample_peer(features.to(of), grid.to(of), output, padding_mode="border", align_corners=True)
        for of in (torch.float64, dtype)
    ]
    options = {"batch": batch, "height": side, "width": side, "channels": channels, "samples": side * side}
    options |= {"coordinates": "flow", "padding": "border", "flow_columns": side}
    buffers, case = [features, flow, None, output], f"warp of [{batch}, {side}, {side}, {channels}]"
    num_bytes = _num_bytes(features, flow, output)
    yield make_row(
        "grid_sample", case, dtype, buffers, options, output, num_bytes, peers[0]["output"], peers[1]["time"]
    )


def _correlation(a, b, radius):
    """Composes correlation_cost of NHWC maps, with windows of a pixel."""
    height, width = a.shape[1:3]
    padded = torch.nn.functional.pad(b, (0, 0, radius, radius, radius, radius))
    steps = range(2 * radius + 1)
    return torch.stack([(a * padded[:, y : y + height, x : x + width]).mean(-1) for y in steps for x in steps], -1)


def correlation_rows(make_row, batch, height, width, channels, radius, dtype):
    """Yields correlation_cost and its gradients."""
    a, b = (_normal(batch, height, width, channels, seed=seed).to(dtype) for seed in range(2))
    costs = torch.empty((batch, height, width, (2 * radius + 1) ** 2), dtype=dtype, device="cuda")
    d, gradient = torch.randn_like(costs), torch.empty_like(a)

    def gradient_of(to_b, of):
        leaves = [x.to(of).requires_grad_() for x in (a, b)]
        return _gradients(_correlation(*leaves, radius), leaves[to_b], d.to(of))

    options = {"batch": batch, "height": height, "width": width, "channels": channels, "padding": radius}
    options |= {"max_displacement": radius, "kernel_size": 1, "stride_1": 1, "stride_2": 1}
    case = f"[{batch}, {height}, {width}, {channels}], {costs.shape[-1]} displacements"

    def exact():
        return _correlation(a.double(), b.double(), radius)

    yield make_row(
        "correlation_cost", case, dtype, [a, b, costs], options, costs, _num_bytes(a, b, costs), exact,
        lambda: _correlation(a, b, radius),
    )  # fmt: skip
    for to_b in (False, True):
        to_double, to_dtype = gradient_of(to_b, torch.float64), gradient_of(to_b, dtype)
        num_bytes = _num_bytes(d, a, gradient)
        yield make_row(
            "correlation_cost_grad", f"{case}, to {'b' if to_b else 'a'}", dtype, [d, a if to_b else b, gradient],
            options | {"to_b": to_b}, gradient, num_bytes, lambda call=to_double: call()[0], to_dtype,
        )  # fmt: skip


def _torchvision():
    try:
        import torchvision

        return torchvision.ops
    except Exception:  # as in regions.py
        return None


def _convolution(ops, inputs):
    """Returns torchvision's deform_conv2d of our layouts, for tensors of one dtype, as a call; and its leaves."""
    features, offsets, filters, mask = inputs
    leaves = [x.permute(0, 3, 1, 2).contiguous().requires_grad_() for x in (features, offsets, mask)]
    leaves.append(filters.permute(3, 2, 0, 1).contiguous().requires_grad_())
    images, places, masks, weights = leaves
    return lambda: ops.deform_conv2d(images, places, weights, padding=1, mask=masks), leaves


def convolution_rows(make_row, height, width, channels, dtype):
    """Yields deform_conv with a mask, 3 x 3, and its gradient; without torchvision, without peers."""
    features, filters = _normal(1, height, width, channels).to(dtype), _normal(3, 3, channels, channels).to(dtype) / 32
    offsets = _in_steps(_normal(1, height, width, 18, seed=1))
    mask = torch.rand((1, height, width, 9), device="cuda").to(dtype)
    inputs = [features, offsets, filters, mask]
    output = torch.empty_like(features)
    d, grads = torch.randn_like(output), [torch.empty_like(x) for x in inputs]
    options = {"batch": 1, "height": height, "width": width, "channels": channels, "filters": channels}
    options |= {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 1, "groups": 1, "offset_groups": 1}
    case = f"[1, {height}, {width}, {channels}], 3 x 3"
    peers, grad_peers, ops = (), (), _torchvision()
    if ops:
        d_nchw = d.permute(0, 3, 1, 2)
        calls, to_leaves = [], []
        for of in (torch.float64, dtype):
            call, leaves = _convolution(ops, [x.to(of) for x in inputs])
            calls.append(call)
            to_leaves.append(_gradients(call(), leaves, d_nchw.to(of).contiguous()))
        peers = (lambda: calls[0]().detach().permute(0, 2, 3, 1), calls[1])
        grad_peers = (lambda: to_leaves[0]()[0].permute(0, 2, 3, 1), to_leaves[1])
    buffers = [*inputs, None, output]
    yield make_row("deform_conv", case, dtype, buffers, options, output, _num_bytes(*inputs, output), *peers)
    for deterministic in (False, True):
        buffers, more = [*inputs, None, d, *grads, None], options | {"deterministic": deterministic}
        num_bytes = _num_bytes(*inputs, d, *grads)
        yield make_row("deform_conv_grad", case, dtype, buffers, more, grads[0], num_bytes, *grad_peers)


def _attention(values, locations, weights, levels):
    """Deformable DETR's composition of grid_sample."""
    parts = values.split([h * w for h, w in levels], 1)
    samples = []
    for i, (height, width) in enumerate(levels):
        image = parts[i].flatten(2).transpose(1, 2).reshape(HEADS, DEPTH, height, width)
        grid = 2 * locations[:, :, :, i].transpose(1, 2).flatten(0, 1) - 1
        samples.append(torch.nn.functional.grid_sample(image, grid, align_corners=False))
    weights = weights.transpose(1, 2).reshape(HEADS, 1, weights.shape[1], len(levels) * POINTS)
    output = (torch.stack(samples, -2).flatten(-2) * weights).sum(-1)
    return output.view(1, HEADS * DEPTH, -1).transpose(1, 2)


def attention_rows(make_row, case, dtype):
    """Yields deformable_attention and its gradient."""
    queries, levels = ATTENTION_LEVELS[case]
    pixels, shape = sum(h * w for h, w in levels), (1, queries, HEADS, len(levels), POINTS)
    values = _normal(1, pixels, HEADS, DEPTH).to(dtype)
    centers = torch.rand((1, queries, 1, 1, 1, 2), device="cuda")
    locations = (centers + 0.05 * _normal(*shape, 2, seed=1)).contiguous()
    weights = torch.softmax(_normal(*shape, seed=2).flatten(3), -1).reshape(shape).contiguous()
    output = torch.empty((1, queries, HEADS * DEPTH), dtype=dtype, device="cuda")
    inputs = [values, locations, weights]
    d, grads = torch.randn_like(output), [torch.empty_like(x) for x in inputs]

    def peers_in(of):
        leaves = [x.to(of).requires_grad_() for x in inputs]
        return leaves, _gradients(_attention(*leaves, levels), leaves, d.to(of))

    (exact, to_exact), (timed, to_timed) = peers_in(torch.float64), peers_in(dtype)

    def attend(leaves):
        with torch.no_grad():
            return _attention(*leaves, levels)

    options = {
        "batch": 1,
        "heads": HEADS,
        "channels": DEPTH,
        "queries": queries,
        "levels": len(levels),
        "points": POINTS,
    }
    for i, (height, width) in enumerate(levels):
        options |= {f"height{i}": height, f"width{i}": width}
    buffers, num_bytes = [*inputs, output], _num_bytes(*inputs, output)
    peers = (functools.partial(attend, exact), functools.partial(attend, timed))
    yield make_row("deformable_attention", case, dtype, buffers, options, output, num_bytes, *peers)
    for deterministic in (False, True):
        buffers, more = [d, *inputs, *grads], options | {"deterministic": deterministic}
        num_bytes = _num_bytes(*buffers)
        grad_peers = (lambda: to_exact()[0], to_timed)
        yield make_row("deformable_attention_grad", case, dtype, buffers, more, grads[0], num_bytes, *grad_peers)


def rows(make_row, quick):
    """Yields the rows of all cases."""
    for dtype in (torch.float32, torch.bfloat16):
        yield from sample_rows(make_row, 4, 128, 64, dtype, "bilinear")
        yield from correlation_rows(make_row, 4, 64, 112, 64, 4, dtype)
        for sizes in ((100, 152, 128), (50, 76, 256), (25, 38, 512))[: 1 if quick else None]:
            # torchvision has float16, not bfloat16.
            yield from convolution_rows(make_row, *sizes, torch.float16 if dtype == torch.bfloat16 else dtype)
        for case in ATTENTION_LEVELS:
            yield from attention_rows(make_row, case, dtype)
    yield from sample_rows(make_row, 4, 128, 64, torch.float32, "bicubic")
    yield from warp_rows(make_row, 4, 512, 3, torch.float32)
