"""lstm and gru, compared with Keras's layers, also compiled by XLA, and PyTorch. 10 min.

Also with the products outside of the op: inference, training; parts of the time of lstm; curves over batch and units.
"""

import functools

import keras
import peers
import tensorflow as tf
from harness import Case, in_graph, in_torch, normal, table

import tensorflow_ops as tfo


def _in_keras(layer, inputs, *weights):
    return layer.stateless_call(weights, layer.non_trainable_variables, inputs)[0]


def _case(kind, batch, steps, features, units, to):
    """Returns a case of all outputs; with `to`, with the gradients to these of inputs and weights."""
    layer = getattr(keras.layers, kind)(units, return_sequences=True)
    layer.build((batch, steps, features))
    inputs = normal(batch, steps, features), *map(tf.constant, layer.trainable_variables)
    gates = inputs[1].shape[1]
    original = functools.partial(_in_keras, layer)
    rivals = {"Keras": in_graph(original, inputs, to), "XLA": in_graph(original, inputs, to, jit_compile=True)}
    if torch := peers.torch():
        module = getattr(torch.nn, kind)(features, units, batch_first=True)

        def of_torch(weights):
            """Returns weights [.., gates] with PyTorch's gates first: r, z, n of z, r, n."""
            weights = weights.movedim(-1, 0)
            if kind == "LSTM":
                return weights
            z, r, n = weights.chunk(3)
            return torch.cat([r, z, n])

        def in_pytorch(x, kernel, recurrent_kernel, bias):
            of_inputs, of_states = bias if bias.ndim == 2 else (bias, torch.zeros_like(bias))
            weights = {"weight_ih_l0": of_torch(kernel), "weight_hh_l0": of_torch(recurrent_kernel)}
            weights |= {"bias_ih_l0": of_torch(of_inputs), "bias_hh_l0": of_torch(of_states)}
            return torch.func.functional_call(module, weights, (x,))[0]

        rivals["PyTorch"] = in_torch(torch, in_pytorch, inputs, to)
    flat, states = normal(batch * steps, features), normal(batch * steps, units)
    to_gates = normal(batch * steps, gates)
    products = [in_graph(tf.matmul, (flat, inputs[1]))]
    if to:
        of_gradients = [(flat, to_gates), (states, to_gates)]
        products += [in_graph(functools.partial(tf.matmul, transpose_a=True), pair) for pair in of_gradients]
    return Case(
        {"[batch, steps, features]": [batch, steps, features], "units": units},
        in_graph(lambda *x: getattr(tfo.nn, kind.lower())(*x).outputs, inputs, to),
        rivals,
        floor=tuple(products),
        arrays=dict.fromkeys(("ours", *rivals), (lambda result: result[0]) if to else (lambda result: result)),
    )


_INFERENCE = (1, 50, 10, 64), (1, 50, 128, 256), (32, 400, 14, 80), (64, 100, 128, 256)
_TRAINING = (1, 50, 128, 256), (32, 400, 14, 80), (64, 100, 128, 256), (16, 200, 256, 512)


@table()
def lstm_inference():
    """Lstm without gradient. The floor is the product of inputs and kernel."""
    for sizes in _INFERENCE:
        yield _case("LSTM", *sizes, ())


@table()
def lstm_training():
    """Lstm with the gradients to its weights. The floor is that of the products outside of the op."""
    for sizes in _TRAINING:
        yield _case("LSTM", *sizes, (1, 2, 3))


@table()
def gru_inference():
    """Gru without gradient. The floor is the product of inputs and kernel."""
    for sizes in _INFERENCE:
        yield _case("GRU", *sizes, ())


@table()
def gru_training():
    """Gru with the gradients to its weights. The floor is that of the products outside of the op."""
    for sizes in _TRAINING:
        yield _case("GRU", *sizes, (1, 2, 3))


def _shares(batch, steps, features, units, to):
    """Returns a case of lstm, and of the work that it cannot do without: each is one call."""
    case = _case("LSTM", batch, steps, features, units, to)
    inputs = normal(batch, steps, features)
    states, to_gates = (normal(batch * steps, size) for size in (units, 4 * units))
    weights = normal(units, 4 * units)
    recurrent = [in_graph(tf.matmul, (states, weights))]
    if to:
        recurrent.append(in_graph(functools.partial(tf.matmul, transpose_b=True), (to_gates, weights)))
    flat, outside = weights.numpy().reshape(-1), case.floor
    case.peers = {
        "a call": in_graph(tf.identity, (inputs,)),
        "products of inputs": lambda: [product() for product in outside],
        "products of states": lambda: [product() for product in recurrent],
        "reading the weights": lambda: [flat @ flat for _ in range(steps * len(recurrent))],
    }
    case.off, case.floor = (), ()
    return case


@table()
def lstm_shares():
    """Parts of lstm's time.

    A call of an op that does nothing; the products outside of the op; those with the recurrent kernel, of all steps at
    once; reading that kernel on one thread, once for each step. Products contain calls.
    """
    for kind, sizes, to in (("inference", _INFERENCE, ()), ("training", _TRAINING, (1, 2, 3))):
        for size in sizes:
            case = _shares(*size, to)
            case.where = {"lstm": kind} | case.where
            yield case


def _curve(kind, axis, sizes):
    """Yields cases over a size of a layer: without gradient, with those to its weights."""
    for passes, to in (("inference", ()), ("training", (1, 2, 3))):
        for size in sizes:
            layer = {"batch": 16, "steps": 100, "features": 64, "units": 128, axis: size}
            case = _case(kind, *layer.values(), to)
            case.where = {kind.lower(): passes, axis: size}
            yield case


_BATCHES, _UNITS = (1, 2, 4, 8, 16, 32, 64), (16, 32, 64, 128, 256, 512)


@table(axis="batch")
def lstm_over_batch():
    """Sequences of 100 steps and 64 features, 128 units."""
    yield from _curve("LSTM", "batch", _BATCHES)


@table(axis="units")
def lstm_over_units():
    """16 sequences of 100 steps and 64 features."""
    yield from _curve("LSTM", "units", _UNITS)


@table(axis="batch")
def gru_over_batch():
    """Sequences of 100 steps and 64 features, 128 units."""
    yield from _curve("GRU", "batch", _BATCHES)


@table(axis="units")
def gru_over_units():
    """16 sequences of 100 steps and 64 features."""
    yield from _curve("GRU", "units", _UNITS)
