"""Steps of optimizers under the switch and LazyAdam, compared with Keras's, also by XLA, and PyTorch's. 5 min.

Dense gradients of all variables of a model, IndexedSlices of a large table, training steps of a recommender.
"""

import contextlib
import functools
import os

import keras
import numpy as np
import peers
import tensorflow as tf
from harness import PAUSE, THREADS, Case, num_bytes, on_threads, reader, table

import tensorflow_ops as tfo

_switch = functools.partial(tfo.layers.use_fused_ops, ["optimizers"])


def _torch():
    # PyTorch's default. If its threads slept after each loop, as peers.py asks, small variables would take longer.
    os.environ["GOMP_SPINCOUNT"] = "300000"
    return peers.torch()


def _in_keras(optimizer, weights, gradients, context=contextlib.nullcontext, **options):
    """Returns a call of an optimizer's step, which returns the variables."""
    variables = [keras.Variable(w) for w in weights]
    optimizer.build(variables)
    # Own copies, which no other call has just read into the cache.
    gradients = tf.nest.map_structure(lambda x: tf.raw_ops.DeepCopy(x=x), gradients, expand_composites=True)

    @tf.function(autograph=False, **options)
    def step():
        optimizer.apply(gradients)

    def call():
        step()
        return variables

    with context():
        call()
    for slot in optimizer.variables:
        if slot.ndim:
            slot.assign_add(0.01)  # as in training, where no entry stays zero
    return call


def _in_torch(torch, kind, weights, gradients, gradient_of=None, **options):
    """Returns the same in PyTorch; `gradient_of` makes the gradient of the only variable anew in each step."""
    parameters = [torch.nn.Parameter(torch.tensor(w)) for w in weights]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimizer = getattr(torch.optim, kind)(parameters, **{"lr": 1e-3} | options)

    def call():
        if gradient_of:
            parameters[0].grad = gradient_of()
        optimizer.step()
        return parameters

    call()
    for slots in optimizer.state.values():
        for slot in slots.values():
            if torch.is_tensor(slot) and slot.ndim:
                slot += 0.01
    return call


def _nothing(gradients, others):
    """Returns a call of a tf.function that captures gradients and a number of other variables, and does nothing."""
    gradients, held = list(map(tf.constant, gradients)), [tf.Variable(1.0) for _ in range(others)]
    captured = lambda: [*gradients, *(v.handle for v in held)]  # noqa: E731
    return tf.function(lambda: tf.raw_ops.IdentityN(input=captured()) and None, autograph=False)


def _rewriter(count):
    """Returns a call that reads and writes as many numbers."""
    parts = np.array_split(np.ones(count, np.float32), THREADS)
    return on_threads(lambda part: np.negative(part, out=part), parts)  # NumPy releases the GIL


def _of_application(kind):
    return [tuple(v.shape) for v in kind(weights=None, classes=100).trainable_variables]


def _of_transformer(embeddings, units, blocks, head=()):
    matrices = [(units, units)] * 4 + [(units, 4 * units), (4 * units, units)]
    vectors = [(units,)] * 9 + [(4 * units,)]  # biases, normalizations
    return [*((rows, units) for rows in embeddings), (units,), (units,), *blocks * (matrices + vectors), *head]


SHAPES = {
    "ResNet50": lambda: _of_application(keras.applications.ResNet50),
    "MobileNetV2": lambda: _of_application(keras.applications.MobileNetV2),
    "BERT-base / 4": lambda: _of_transformer((7630, 128, 2), 768, 3),  # three of twelve blocks, a quarter of the words
    "GPT": lambda: _of_transformer((8000, 256), 256, 4, [(256, 8000), (8000,)]),  # of models.py
}


def _case(where, model, kind, options, of_torch):
    """Returns a case of Keras's optimizer; of_torch has, by name, peers as (name in torch, arguments)."""
    random, shapes = np.random.default_rng(0), SHAPES[model]()
    weights = [random.standard_normal(shape, np.float32) for shape in shapes]
    gradients = [np.float32(0.01) * random.standard_normal(shape, np.float32) for shape in shapes]
    numbers, variables = num_bytes(weights) // 4, len(weights)
    first, *others = (getattr(keras.optimizers, kind)(1e-3, **options) for _ in range(3))
    ours = _in_keras(first, weights, gradients, _switch)
    rivals = {"Keras": _in_keras(others[0], weights, gradients)}
    rivals["XLA"] = _in_keras(others[1], weights, gradients, jit_compile=True)
    if torch := _torch():
        for name, (torch_kind, torch_options) in of_torch.items():
            copies = map(torch.tensor, gradients)
            rivals[name] = _in_torch(torch, torch_kind, weights, copies, **torch_options)
    rivals["call"] = _nothing(gradients, variables + len(first.variables))
    slots = len(first.variables) // variables  # beside iterations and learning rate
    floor = _rewriter((1 + slots) * numbers), reader(np.ones(numbers, np.float32))
    where |= {"variables": variables, "numbers, M": f"{numbers / 1e6:.1f}"}
    return Case(where, ours, rivals, floor=floor, off=("Keras",))


@table(pause=PAUSE)
def adamw():
    """AdamW with weight decay of all variables; ours is Keras's under the switch.

    "call" is a tf.function that captures the same gradients and variables and does nothing. The floor reads and writes
    weights and moments, and reads gradients, once. "torch" is the CPU's default, a loop over the variables.
    """
    options = {"weight_decay": 0.01, "eps": 1e-7}
    of_torch = {"torch fused": ("AdamW", options | {"fused": True}), "torch": ("AdamW", options)}
    for model in SHAPES:
        yield _case({"model": model}, model, "AdamW", {"weight_decay": 0.01}, of_torch)


# Name: Keras's class, its arguments, torch's class, what it takes beyond these.
OPTIMIZERS = {
    "Adam, amsgrad": ("Adam", {"amsgrad": True}, "Adam", {"fused": True}),
    "SGD, momentum": ("SGD", {"momentum": 0.9}, "SGD", {"fused": True}),
    "SGD, Nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}, "SGD", {"fused": True}),
    "RMSprop": ("RMSprop", {}, "RMSprop", {}),
    "RMSprop, centered, momentum": ("RMSprop", {"centered": True, "momentum": 0.9}, "RMSprop", {}),
    "Adagrad": ("Adagrad", {}, "Adagrad", {"fused": True}),
    "Adamax": ("Adamax", {}, "Adamax", {}),
    "Nadam": ("Nadam", {}, "NAdam", {}),
    "Lion": ("Lion", {}, None, {}),
}


@table(pause=PAUSE)
def others():
    """The GPT's variables by Keras's other optimizers. torch's Adam, SGD and Adagrad are fused; it has no Lion."""
    for name, (kind, options, torch_kind, more) in OPTIMIZERS.items():
        rivals = {"torch": (torch_kind, options | more)} if torch_kind else {}
        yield _case({"optimizer": name}, "GPT", kind, options, rivals)


@table(pause=PAUSE)
def sparse():
    """Adam of a table [1,000,000, 64] with gradients of 4096 lookups.

    Keras's moments decay in all rows, also under the switch; LazyAdam's and torch's SparseAdam's in rows that were
    looked up. "torch fused" makes a dense gradient, as its embedding does. The floor of Adam reads and writes the table
    and its moments once; that of LazyAdam, the rows that were looked up. Keras squares repeated ids, then sums them.
    """
    random, rows, width, lookups = np.random.default_rng(0), 1_000_000, 64, 4096
    weights, values = [random.standard_normal([rows, width], np.float32)], random.uniform(0.5, 1.5, [lookups, width])
    values, places = values.astype(np.float32), random.permutation(rows)
    for name, ids in {"unique": places[:lookups], "zipf": places[random.zipf(1.2, lookups) % rows]}.items():
        parts = values, ids.astype(np.int32), np.array([rows, width])
        gradients = [tf.IndexedSlices(*map(tf.constant, parts))]
        different = np.unique(ids).size
        rivals, lazy_rivals = {"Keras": _in_keras(keras.optimizers.Adam(1e-3), weights, gradients)}, {}
        if torch := _torch():
            torch.sparse.check_sparse_tensor_invariants.disable()  # the default, but for a warning
            pair = torch.tensor(values), torch.tensor(ids)
            dense = functools.partial(torch.ops.aten.embedding_dense_backward, *pair, rows, -1, False)
            rivals["torch fused"] = _in_torch(torch, "Adam", weights, [dense()], dense, eps=1e-7, fused=True)
            slices = torch.sparse_coo_tensor(pair[1][None], pair[0], [rows, width])
            lazy_rivals["torch SparseAdam"] = _in_torch(torch, "SparseAdam", weights, [slices], eps=1e-7)
        where, touched = {"ids": f"{name}, {different} different"}, 4 * different * width
        exact = _in_keras(keras.optimizers.Adam(1e-3), weights, gradients, _switch)
        lazy = _in_keras(tfo.optimizers.LazyAdam(1e-3), weights, gradients)
        yield [
            Case(where | {"ours": "Adam"}, exact, rivals, floor=(_rewriter(3 * rows * width),)),
            Case(where | {"ours": "LazyAdam"}, lazy, lazy_rivals, moved=(num_bytes(values) + 3 * touched, 3 * touched)),
        ]


@table(pause=PAUSE)
def recommender():
    """Training steps of models.py's recommender: three tables [300,000, 32], 1024 examples, no weight decay.

    In PyTorch, the tables have sparse gradients for SparseAdam, and the other weights a fused Adam.
    """
    import models_keras

    network = models_keras.MODELS["recommender"]()

    def in_keras(optimizer, context=contextlib.nullcontext):
        keras.utils.set_random_seed(0)
        model = network.make()
        model.compile(optimizer, model.loss)
        step = functools.partial(model.train_on_batch, network.x, network.y)
        with context():
            step()
        return step

    rivals = {"Keras": in_keras(keras.optimizers.Adam(1e-3))}
    if torch := _torch():
        import models_torch

        make, x, loss_of = models_torch.MODELS["recommender"](network)
        module = make()
        for embedding in module.tables:
            embedding.sparse = True
        of_tables = torch.optim.SparseAdam(module.tables.parameters(), 1e-3, eps=1e-7)
        of_others = torch.optim.Adam(module.dense.parameters(), 1e-3, eps=1e-7, fused=True)

        def step():
            module.zero_grad()
            loss = loss_of(module(*x))
            loss.backward()
            of_tables.step()
            of_others.step()
            return loss.item()

        rivals["torch SparseAdam"] = step
    exact, lazy = in_keras(keras.optimizers.Adam(1e-3), _switch), in_keras(tfo.optimizers.LazyAdam(1e-3))
    yield [Case({"ours": "Adam"}, exact, rivals, off=("Keras",)), Case({"ours": "LazyAdam"}, lazy, rivals, off=())]
