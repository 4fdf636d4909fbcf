"""ONNX's operators of recurrent layers."""

import numpy as np
import tensorflow as tf

from tensorflow_ops.onnx.python.operators import dims, operator

# The operators' names of activations; alpha and beta of those that have them.
_ACTIVATIONS = {
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "relu": "Relu",
    "linear": "Affine",
    "hard_sigmoid": "HardSigmoid",
}
_NUMBERS = {"linear": (1.0, 0.0), "hard_sigmoid": (1 / 6, 0.5)}


def _recurrent_fits(states):
    """Returns the `fits` of an op with this many states; its other outputs are for its gradient."""

    def fits(op):
        for_gradient = any(output.consumers() for output in op.outputs[1 + states :])
        return op.inputs[0].dtype == tf.float32 and bool(dims(op.inputs[1], 3)[0]) and not for_gradient

    return fits


def _inputs_and_kernel(nodes, sums):
    """Returns inputs [B, T, D] and a kernel [D, gates * units] of which the sums [B, T, gates, units] are the product.

    The operators multiply, too: without a product to take over, the kernel is a diagonal.
    """
    reshape = nodes.producer(sums)
    product = nodes.producer(reshape.input[0]) if reshape.type == "Reshape" else reshape
    if product.type == "MatMul" and not any(product.get_attr_value(f"transpose_{x}") for x in "ab"):
        (inputs, kernel), shape = product.input, nodes.to_int64(reshape.input[1])
    else:
        columns = int(np.prod(nodes.shape(sums)[2:]))
        inputs, kernel, shape = sums, nodes.like(sums, np.eye(columns)), nodes.Shape(sums)
    features = nodes.Slice(nodes.Shape(kernel), nodes.ints(0), nodes.ints(1))
    shape = nodes.Concat(nodes.Slice(shape, nodes.ints(0), nodes.ints(2)), features, axis=0)
    return nodes.Reshape(inputs, shape, allowzero=1), kernel


def _recurrent(nodes, operator, order, activations, bias, states, mask, **attrs):
    """Returns the outputs [B, T, U] and last states [B, U] of an operator whose gates are ours in another order.

    The operators end early, but leave out no steps in between: those of a mask follow the others, in the operator.
    """
    sums, recurrent_kernel = nodes.inputs[:2]
    units, gates, _ = nodes.shape(recurrent_kernel)
    inputs, kernel = _inputs_and_kernel(nodes, sums)

    def reordered(weights):
        """Returns weights [rows, gates, units] as [1, gates * units, rows]."""
        by_gates = nodes.Gather(nodes.Transpose(weights, perm=[1, 2, 0]), nodes.ints(*order))
        return nodes.Reshape(by_gates, nodes.ints(1, gates * units, -1))

    steps, zero, one = nodes.Slice(nodes.Shape(inputs), nodes.ints(1), nodes.ints(2)), nodes.ints(0), nodes.ints(1)
    lengths = ""
    if mask:
        is_step = nodes.to_int64(mask[0])
        places = nodes.Range(nodes.scalar(0), nodes.Squeeze(steps, zero), nodes.scalar(1))
        _, first_steps = nodes.TopK(nodes.Sub(nodes.Mul(is_step, steps), places), steps, axis=1, outputs=2)
        inputs = nodes.GatherND(inputs, nodes.Unsqueeze(first_steps, nodes.ints(2)), batch_dims=1)
        done = nodes.CumSum(is_step, nodes.scalar(1))
        steps = nodes.ReduceSum(is_step, one, keepdims=1)
        lengths = nodes.to_int32(nodes.Squeeze(steps, one))
    numbers = [_NUMBERS[name] for name in activations if name in _NUMBERS]
    if numbers:
        attrs["activation_alpha"], attrs["activation_beta"] = map(list, zip(*numbers, strict=True))
    outputs, *last = getattr(nodes, operator)(
        nodes.Transpose(inputs, perm=[1, 0, 2]),
        reordered(nodes.Reshape(kernel, nodes.ints(-1, gates, units))),
        reordered(recurrent_kernel),
        bias,
        lengths,
        *(nodes.Unsqueeze(x, zero) for x in states),
        outputs=1 + len(states),
        hidden_size=units,
        activations=[_ACTIVATIONS[name] for name in activations],
        **attrs,
    )
    outputs = nodes.Transpose(nodes.Squeeze(outputs, one), perm=[1, 0, 2])
    if mask:
        place = nodes.Unsqueeze(nodes.Max(nodes.Sub(done, one), zero), nodes.ints(2))
        is_done = nodes.Unsqueeze(nodes.Greater(done, zero), nodes.ints(2))
        outputs = nodes.Where(is_done, nodes.GatherND(outputs, place, batch_dims=1), nodes.like(outputs, 0))
    # ONNX Runtime returns states of 0 without a step.
    is_first = nodes.Equal(steps, zero)
    return outputs, *(nodes.Where(is_first, x, nodes.Squeeze(y, zero)) for x, y in zip(states, last, strict=True))


@operator("Lstm", 14, _recurrent_fits(2))
def _lstm(nodes):
    _, _, bias, *states = nodes.inputs[:5]
    order = 0, 3, 1, 2  # i, o, f, g
    bias = nodes.Reshape(nodes.Gather(bias, nodes.ints(*order)), nodes.ints(1, -1))
    bias = nodes.Concat(bias, nodes.Sub(bias, bias), axis=1)
    gate, activation = nodes.attr("recurrent_activation"), nodes.attr("activation")
    results = _recurrent(nodes, "LSTM", order, [gate, activation, activation], bias, states, nodes.inputs[5:])
    return [*results, None, None]


@operator("Gru", 14, _recurrent_fits(1))
def _gru(nodes):
    _, _, bias, state = nodes.inputs[:4]
    bias = nodes.Reshape(bias, nodes.ints(1, -1))
    activations, is_after = [nodes.attr("recurrent_activation"), nodes.attr("activation")], nodes.attr("reset_after")
    order = 0, 1, 2  # z, r, g
    results = _recurrent(
        nodes, "GRU", order, activations, bias, [state], nodes.inputs[4:], linear_before_reset=int(is_after)
    )
    return [*results, None, None]
