"""Relations between calls, which need no reference. Each draws its values from a seed, and raises DisagreementError."""

import tempfile
import types

import calls
import keras
import numpy as np
import oracle
import tensorflow as tf
from calls import agree, eager, known_shapes, public_call, session, unknown_batches
from example_calls import examples, measured

import tensorflow_ops as tfo

_WAYS = [eager, known_shapes, session]
_TRANSITIONS = tf.constant(np.random.default_rng(0).normal(size=[4, 4]), tf.float32)
_GATES = tf.constant(np.random.default_rng(0).normal(size=[4, 16]), tf.float32)
_CRF = tfo.layers.CRF(4)
_CRF.build([None, None, 4])


def _masked(x, mask):
    """Returns x with a mask of Keras's."""
    x = tf.identity(x)
    x._keras_mask = mask
    return x


def _grid(x, labels):
    """Returns RNN-T's logits [batch, frames, labels + 1, classes]."""
    return x[:, :, tf.newaxis] * tf.cos(tf.range(tf.cast(tf.shape(labels)[1] + 1, x.dtype)))[:, tf.newaxis]


def _boxes(x):
    return tf.concat([x[..., :2], x[..., :2] + tf.exp(x[..., 2:])], -1)


# Of labels [batch, size], 1 to 3, or -1: padding; mask: what is none; x [batch, size, 4]. Of frames [batch, 9, 4] and
# pairs of labels [batch, 2], without padding.
WITH_PADDING = {
    "nn.ctc_loss": lambda of: tfo.nn.ctc_loss(of.labels, of.frames),
    "nn.rnnt_loss": lambda of: tfo.nn.rnnt_loss(of.labels, _grid(of.frames, of.labels)),
    "nn.crf_log_likelihood": lambda of: tfo.nn.crf_log_likelihood(of.labels, of.x, _TRANSITIONS),
    "nn.attention": lambda of: tfo.nn.attention(
        *(x[:, :, tf.newaxis] for x in (of.frames, of.x, of.x)), mask=of.mask[:, tf.newaxis, tf.newaxis]
    ),
    "nn.gru": lambda of: tfo.nn.gru(of.x, _GATES[:, :12], _GATES[:, :12], mask=of.mask).h,
    "nn.lstm": lambda of: tfo.nn.lstm(of.x, _GATES, _GATES, mask=of.mask).h,
    "losses.CRF": lambda of: tfo.losses.CRF(reduction=None)(of.labels, _CRF(of.x)),
    "losses.CTC": lambda of: tfo.losses.CTC(reduction=None)(of.labels, of.frames),
    "losses.CTC, mask": lambda of: tfo.losses.CTC(reduction=None)(of.pairs, _masked(of.x, of.mask)),
    "losses.RNNT": lambda of: tfo.losses.RNNT(reduction=None)(of.labels, _grid(of.frames, of.labels)),
    "losses.RNNT, mask": lambda of: tfo.losses.RNNT(reduction=None)(of.pairs, _masked(_grid(of.x, of.pairs), of.mask)),
    "losses.SparseSoftmaxCrossEntropy": lambda of: tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=-1)(
        of.labels, of.x
    ),
    "losses.SparseSoftmaxCrossEntropy, mask": lambda of: tfo.losses.SparseSoftmaxCrossEntropy()(
        tf.abs(of.labels), _masked(of.x, of.mask)
    ),
    "losses.BoxIoU, mask": lambda of: tfo.losses.BoxIoU("giou")(_boxes(of.x + 1), _masked(_boxes(of.x), of.mask)),
    "metrics.EditDistance, y_true": lambda of: measured(tfo.metrics.EditDistance, {}, of.labels, of.pairs),
    "metrics.EditDistance, y_pred": lambda of: measured(tfo.metrics.EditDistance, {}, of.pairs, of.labels),
    "metrics.EditDistance, mask": lambda of: measured(
        tfo.metrics.EditDistance, {"decode": "ctc"}, of.pairs, _masked(of.x, of.mask)
    ),
    "metrics.TagAccuracy": lambda of: measured(tfo.metrics.TagAccuracy, {}, of.labels, tf.ones_like(of.labels)),
    "metrics.MeanAveragePrecision": lambda of: measured(
        tfo.metrics.MeanAveragePrecision,
        {},
        {"boxes": _boxes(of.x), "classes": of.labels},
        {"boxes": _boxes(of.frames), "classes": tf.ones_like(of.frames[..., 0]), "scores": of.frames[..., 0]},
    ),
}


def padded(name, seed):
    """Calls with padding at any place: an error, or the same as with padding at the end."""
    rng = np.random.default_rng(seed)
    batch, size = rng.integers(1, [3, 7], endpoint=True)
    mask = rng.random([batch, size]) < rng.choice([0.3, 0.7])
    mask[:, rng.integers(size)] |= rng.random() < 0.9
    items = {
        "labels": np.where(mask, rng.integers(1, 4, mask.shape), -1),
        "mask": mask,
        "x": rng.normal(size=[*mask.shape, 4]).astype(np.float32),
    }
    others = {"frames": rng.normal(size=[batch, 9, 4]).astype(np.float32), "pairs": np.tile([1, 2], [batch, 1])}
    to_front = np.argsort(~mask, 1, kind="stable")
    at_end = {
        key: np.take_along_axis(item, to_front.reshape(to_front.shape + (1,) * (item.ndim - 2)), 1)
        for key, item in items.items()
    }
    expected, actual = (
        agree(
            lambda **inputs: WITH_PADDING[name](types.SimpleNamespace(**inputs)),
            tf.nest.map_structure(tf.constant, given | others),
            ways=_WAYS,
        )
        for given in (at_end, items)
    )
    where = np.argwhere(~mask).tolist()
    oracle.check_close(expected, actual, f"padding that is not at the end changes a result, at {where}")
    return actual


def _average_precision(row):
    return measured(
        tfo.metrics.MeanAveragePrecision,
        {},
        {"boxes": row(0, "boxes"), "classes": row(1, "ones"), "area": row(2, "scores"), "is_crowd": row(3, "ones")},
        {"boxes": row(0, "boxes"), "classes": row(4, "ones"), "scores": row(5, "scores")},
    )


# Of RaggedTensors [N, (R), ...] of values by name. Those of different numbers may have other rows.
FROM_ROWS = {
    "detection.nms": lambda row: tfo.detection.nms(row(0, "boxes"), row(1, "scores"), 0.5),
    "detection.multiclass_nms": lambda row: tfo.detection.multiclass_nms(row(0, "boxes"), row(1, "x")),
    "nn.attention": lambda row: tfo.nn.attention(*(row(i, "heads") for i in (0, 0, 1))),
    "nn.crf_log_likelihood": lambda row: tfo.nn.crf_log_likelihood(row(0, "ones"), row(1, "x"), _TRANSITIONS),
    "losses.BoxIoU": lambda row: tfo.losses.BoxIoU()(row(0, "boxes"), row(1, "boxes")),
    "losses.SoftmaxCrossEntropy": lambda row: tfo.losses.SoftmaxCrossEntropy()(row(0, "x"), row(1, "x")),
    "losses.SparseSoftmaxCrossEntropy": lambda row: tfo.losses.SparseSoftmaxCrossEntropy()(row(0, "ones"), row(1, "x")),
    "metrics.MeanAveragePrecision": _average_precision,
}


def from_rows(name, seed):
    """Calls with RaggedTensors of which one may have other rows, which is an error, or which have no rows."""
    rng = np.random.default_rng(seed)
    lengths = np.tile(rng.integers(0, 4, rng.integers(1, 4)) * rng.integers(2), [6, 1])
    lengths[rng.integers(6), 0] = rng.integers(4)
    used = set()

    def function(x, lengths):
        ones = tf.ones(16, tf.int32)
        values = {"x": x, "boxes": _boxes(x), "heads": x[:, tf.newaxis], "scores": x[:, 0], "ones": ones}

        def row(i, key):
            used.add(i)
            return tf.RaggedTensor.from_row_lengths(values[key][: tf.reduce_sum(lengths[i])], lengths[i])

        return oracle.tensors(FROM_ROWS[name](row))

    inputs = {"x": tf.constant(rng.normal(size=[16, 4]), tf.float32), "lengths": tf.constant(lengths)}
    result = agree(function, inputs, ways=_WAYS)
    if len({tuple(lengths[i]) for i in used}) > 1:
        raise oracle.DisagreementError(f"a value, expected an error: the rows are {lengths[sorted(used)].tolist()}")
    return result


def accurate(name, number, options, seed):
    """Repeats an example's call with other options and floats, in float32 and float64.

    An exact algorithm's results differ as much as those of float64 with inputs that are rounded.
    """
    call = public_call(name, number, {k: lambda _, value=value: value for k, value in options.items()})
    rng = np.random.default_rng(seed)
    repeats, exponent = rng.choice([1, 1, 2, 3, 8]), rng.choice([0, 0, 1, 4, 5, 9, 15])
    largest = []

    def of(dtype, rounding=None):
        rng = np.random.default_rng(seed + 1)

        def change(x):
            if isinstance(x, float | tuple) or not (tf.is_tensor(x) or isinstance(x, np.ndarray | list)):
                return x
            given, x = x, np.array(x)
            if x.dtype.kind != "f":
                return given
            shape = (*x.shape[:-1], repeats * x.shape[-1]) if x.ndim > 1 else x.shape
            x = (rng.normal(size=shape) * 10.0**exponent).astype(np.float32).astype(np.float64)
            largest.append(np.abs(x).max(initial=1))
            if rounding is not None:
                x *= 1 + 2**-22 * np.random.default_rng(rounding).uniform(-1, 1, shape)
            return tf.constant(x, dtype)

        return oracle.bits(call(edit=lambda arguments: {k: change(v) for k, v in arguments.items()}))

    narrow = of(tf.float32)
    may_overflow = np.prod([*largest, *(v for v in options.values() if isinstance(v, float))]) > 1e36
    oracle.check_accurate(narrow, of(tf.float64), [of(tf.float64, i) for i in range(3)], may_overflow)
    return narrow


def _in_lists(array, row):
    """Returns nested lists of what `row` makes of rows."""
    return row(array) if array.ndim < 2 else [_in_lists(inner, row) for inner in array]


# Forms of the same integers, or fractions.
FORMS = {
    "array": lambda array: array,
    "list": lambda array: array.tolist(),
    "tensor": tf.constant,
    "arrays in lists": lambda array: _in_lists(array, lambda row: row),
    "buffers in lists": lambda array: _in_lists(array, lambda row: memoryview(row) if row.ndim else row),
    "tensors in lists": lambda array: _in_lists(array, lambda row: [tf.constant(x) for x in row] if row.ndim else row),
}


def integers(name, number, argument, form, added):
    """Adds a fraction, or what 32 bits drop, to the last of an example's integers: errors, or other results.

    In which form they are changes none.
    """

    def outcome(change):
        def changed(value):
            array = np.array(value, np.uint64 if added == 2**63 else np.int64)
            last = (-1,) * array.ndim
            array = array.astype(np.result_type(array, change(array[last])))
            array[last] = change(array[last])
            return FORMS[form](array)

        try:
            return agree(public_call(name, number, {argument: changed}), {}, ways=ways)
        except (ValueError, TypeError, tf.errors.OpError) as error:  # which fuzz.py looks at, if it is the last one
            return error

    def is_same(outcome):
        return not isinstance(outcome, Exception) and oracle.same_values(outcome, expected)

    is_option = not tf.is_tensor(examples().public[name][number].arguments[argument])
    # A session would pass arrays as placeholders, and without the layer.
    ways = _WAYS[:2] if is_option or name.startswith("losses.CRF") else _WAYS
    expected = agree(public_call(name, number, {}), {}, ways=[eager])
    actual = outcome(lambda last: last + added)
    if isinstance(actual, Exception):  # some options refuse arrays
        raise actual
    is_found = not is_same(actual)
    if added:  # an integer of no influence may be any
        largest = 2**31 - 1 if added > 0 else -(2**31)
        other = (lambda last: last * 0 + largest) if abs(added) > 1 else (lambda last: last + 1)
        is_found = is_same(actual) and not is_same(outcome(other))
    if is_found:
        raise oracle.DisagreementError(f"{argument} plus {added}, {form}: {actual}, without {expected}")
    return actual


def cached(seed):
    """Appends to a KeyValueCache, attends and reorders beams, several times: as with a list for each beam."""
    rng = np.random.default_rng(seed)
    beams, batch, heads = (int(n) for n in rng.integers(1, 4, 3))
    rows, inputs, expected = beams * batch, {}, []
    past = [np.zeros([0, 2, heads, 3])] * rows
    for i in range(rng.integers(1, 6)):
        size = int(rng.integers(4))
        new = rng.normal(size=[rows, size, 3, heads, 3]).astype(np.float32)
        counts = np.repeat(rng.integers(0, size + 1, batch) if rng.random() < 0.5 else [size] * batch, beams)
        parents = np.repeat(np.arange(batch), beams) * beams + rng.integers(0, beams, rows)
        output = np.zeros([rows, size, heads, 3])
        for row, count in enumerate(counts):
            past[row] = np.concatenate([past[row], new[row, :count, 1:]])
            for t in range(count):
                key, value = np.moveaxis(past[row][: len(past[row]) - count + t + 1], 1, 0)
                weights = np.exp(np.sum(new[row, t, 0] * key, -1, keepdims=True) / np.sqrt(3))
                output[row, t] = (weights * value).sum(0) / weights.sum(0)
        past = [past[parent] for parent in parents]
        expected.append(output.astype(np.float32))
        inputs |= {f"new{i}": new, f"parents{i}": parents.astype(np.int32)}
        inputs |= {f"counts{i}": counts} if rng.random() < 0.5 or np.any(counts < size) else {}

    def function(**inputs):
        length = sum(output.shape[1] for output in expected)
        cache, outputs = tfo.seq2seq.KeyValueCache.create(batch, length, heads, 3).repeated(beams), []
        for i in range(len(expected)):
            query, key, value = tf.unstack(inputs[f"new{i}"], 3, 2)
            cache = cache.append(key, value, counts=inputs.get(f"counts{i}"))
            outputs.append(cache.attend(query))
            of_parents = (tf.gather(x, inputs[f"parents{i}"]) for x in (cache.lengths, cache.ancestors))
            cache = type(cache)(cache.keys, cache.values, *of_parents, cache.counts, beams)
        return outputs

    result = agree(function, tf.nest.map_structure(tf.constant, inputs))
    oracle.check_close(oracle.bits(expected), result, "a KeyValueCache differs from lists")
    return result


def _or_one(rng, count):
    """Returns a size that broadcasts to count."""
    return rng.choice([count, count, 1])


def _normal(rng, *shape):
    return tf.constant(rng.normal(size=shape), tf.float32)


def _attention(rng):
    batch, queries, keys, heads = rng.integers(1, 4, size=4)
    shape = [_or_one(rng, n) for n in (batch, heads, queries, keys)]
    mask = rng.random(shape) < 0.7
    mask[..., 0] = True  # docs/keras.md: queries without a key differ
    masks = {"mask": tf.constant(mask), "bias": _normal(rng, *shape)}
    inputs = {"q": _normal(rng, batch, queries, heads, 2), "k": _normal(rng, batch, keys, heads, 2)}
    chosen = {name: masks[name] for name in masks if rng.random() < 0.5}
    return lambda q, k, **masks: keras.ops.dot_product_attention(q, k, k + 1, **masks), inputs | chosen


def _slice_update(rng):
    sizes, rows = rng.integers(1, 5, size=[2, 3])
    start = rng.integers(0, 3, size=3) * (rng.random(3) < 0.4)
    inputs = {"table": _normal(rng, *sizes), "rows": _normal(rng, *np.minimum(rows, sizes))}
    return lambda table, rows: keras.ops.slice_update(table, start.tolist(), rows), inputs


def _map_coordinates(rng):
    order, mode = int(rng.integers(2)), rng.choice(["nearest", "wrap"])
    places = rng.integers(-18, 18, [2, 5]) / 2
    if order == 0:  # Keras rounds halves to even numbers
        places = np.nextafter(places, rng.choice([-99, 99], places.shape), dtype=np.float32)
    inputs = {"image": _normal(rng, *rng.integers(1, 5, size=2)), "places": tf.constant(places, tf.float32)}
    return lambda image, places: keras.ops.image.map_coordinates(image, places, order, mode), inputs


def _recurrent(layer):
    def of(rng):
        batch, steps, depth, units = rng.integers(1, 5, size=4)
        options = {name: bool(rng.integers(2)) for name in ("return_sequences", "go_backwards", "use_bias")}
        called = layer(int(units), **options)
        called.build([None, None, int(depth)])
        inputs = {"sequences": _normal(rng, batch, steps, depth)}
        if rng.random() < 0.6:
            inputs["mask"] = tf.constant(rng.random([_or_one(rng, batch), steps]) < 0.7)
        if rng.random() < 0.5:
            state = _normal(rng, _or_one(rng, batch), units)
            inputs["initial_state"] = state if layer is keras.layers.GRU else [state, 2 * state]
        return lambda **inputs: called(**inputs), inputs

    return of


def _dense(rng):
    depth, units = rng.integers(1, 9, size=2)
    policy = str(rng.choice(["float32", "mixed_bfloat16"]))
    called = keras.layers.Dense(int(units), str(rng.choice(["linear", "relu"])), dtype=policy)
    called.build([None, int(depth)])
    called.quantize(str(rng.choice(["int8", "int4"])))
    return lambda x: called(x), {"x": _normal(rng, *rng.integers(1, 4, size=rng.integers(1, 3)), depth)}


def _conv(rng):
    rank, groups, in_group = (int(n) for n in rng.integers([1, 2, 1], [3, 5, 4]))
    shape = [*rng.integers(1, 4, size=rank), in_group, groups * rng.integers(1, 4)]
    inputs = {
        "images": _normal(rng, rng.integers(4), *rng.integers(1, 9, size=rank), groups * in_group),
        "kernel": _normal(rng, *shape),
    }
    strides, dilations = (int(n) for n in rng.permutation([1, rng.integers(1, 4)]))
    padding = str(rng.choice(["same", "valid"]))

    def call(images, kernel):
        kernel = tf.ensure_shape(kernel, shape)  # as that of a layer
        return tf.sin(keras.ops.conv(images, kernel, strides, padding, "channels_last", dilations))

    return calls.gradient(call), inputs


def _depthwise_conv(rng):
    rank, channels, multiplier = (int(n) for n in rng.integers([1, 1, 1], [3, 20, 3]))
    sizes, taps = rng.integers(1, 12, size=rank), rng.integers(1, 8, size=rank)
    # docs/keras.md: no images differ
    inputs = {
        "images": _normal(rng, rng.integers(1, 4), *sizes, channels),
        "kernel": _normal(rng, *taps, channels, multiplier),
    }
    if rng.integers(2):
        inputs["pointwise"] = _normal(rng, *[1] * rank, channels * multiplier, 3)
    strides, dilations = (int(n) for n in rng.permutation([1, rng.integers(1, 4)]))
    padding = str(rng.choice(["same", "valid"]))

    def call(images, kernel, **pointwise):
        function = keras.ops.separable_conv if pointwise else keras.ops.depthwise_conv
        kernels = (tf.ensure_shape(x, inputs[name].shape) for name, x in {"kernel": kernel, **pointwise}.items())
        return tf.sin(function(images, *kernels, strides, padding, "channels_last", dilations))

    return calls.gradient(call), inputs


def _activation(name):
    def of(rng):
        approximate = {"approximate": bool(rng.integers(2))} if name == "gelu" else {}
        x = 4 * _normal(rng, *rng.integers(1, 20, size=rng.integers(4)))
        return calls.gradient(lambda x: tf.sin(getattr(keras.ops, name)(x, **approximate))), {"x": x}

    return of


def _bias_activation(rng):
    depth, units = (int(n) for n in rng.integers(1, 20, size=2))
    activation, sizes = str(rng.choice(["gelu", "silu"])), rng.integers(1, 5, size=rng.integers(1, 4))
    if len(sizes) == 2 and rng.integers(2):
        layer = keras.layers.EinsumDense("abc,cd->abd", [None, units], activation=activation, bias_axes="d")
    else:
        layer = keras.layers.Dense(units, activation)
    return _trained(layer, _normal(rng, *sizes, depth))


def _dropout(rng):
    x = _normal(rng, *rng.integers(1, 40, size=rng.integers(4)))
    rate, seed = float(rng.choice([1e-9, 0.1, 0.5, 0.999])), int(rng.integers(2**31))
    return calls.gradient(lambda x: tf.sin(keras.random.dropout(x, rate, seed=seed))), {"x": x}


def _crossentropy(name):
    def of(rng):
        *sizes, classes = rng.integers(1, 6, size=rng.integers(1, 4))
        labels = rng.integers(classes, size=sizes)
        if name == "categorical_crossentropy":
            labels = rng.dirichlet(np.ones(classes), sizes).astype(np.float32)
        inputs = {"labels": tf.constant(labels), "logits": _normal(rng, *sizes, classes) * 10.0 ** rng.integers(3)}
        from_logits = bool(rng.integers(2))

        def call(labels, logits):
            output = logits if from_logits else tf.nn.softmax(logits)
            return getattr(keras.ops, name)(labels, output, from_logits)

        return calls.gradient(call), inputs

    return of


def _batch_normalization(rng):
    batch, channels = (int(n) for n in rng.integers([1, 4], 65))
    # At least 65,536 numbers, as the row needs, where an unknown batch counts as 32.
    steps = -(-65536 // (min(batch, 32) * channels))
    sizes = [batch, steps, *rng.integers(1, 3, size=rng.integers(3)), channels]
    options = {name: bool(rng.integers(2)) for name in ("scale", "center")}
    called = keras.layers.BatchNormalization(momentum=0.5, epsilon=float(rng.choice([1e-3, 0.1])), **options)
    called.build([None, *sizes[1:]])
    start = [v.numpy() + rng.uniform(size=channels) for v in called.weights]

    def call(x):
        for variable, value in zip(called.weights, start, strict=True):
            variable.assign(value)
        outputs = called(x, training=True)
        return [tf.sin(outputs), *(v + 0 for v in called.non_trainable_variables)]

    return calls.gradient(call), {"x": 3 * _normal(rng, *sizes) + 2}


def _trained(layer, x):
    """Returns a call of a layer, with the gradients to x and to its variables of random values, and x."""
    layer.build([None, *x.shape[1:]])
    for seed, variable in enumerate(layer.trainable_variables):
        variable.assign(np.random.default_rng(seed).normal(1, 1, variable.shape))

    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = tf.sin(layer(x))
        return outputs, tape.gradient(outputs, [x, *(v.value for v in layer.trainable_variables)])

    return call, {"x": x}


def _normalization(name):
    def of(rng):
        channels, groups = (int(n) for n in rng.integers(1, 5, size=2))
        sizes = [*rng.integers(1, 6, size=rng.integers(1, 4)), groups * channels]
        options = {
            "LayerNormalization": {"axis": list(range(-int(rng.integers(1, len(sizes))), 0))},
            "GroupNormalization": {"groups": groups},
            "RMSNormalization": {},
        }[name]
        if name != "RMSNormalization":
            options |= {option: bool(rng.integers(2)) for option in ("scale", "center")}
        layer = getattr(keras.layers, name)(epsilon=float(rng.choice([1e-2, 1.0])), **options)
        return _trained(layer, 3 * _normal(rng, *sizes) + 2)

    return of


# Options that float32 has exactly, since Keras rounds those of float64 variables to it.
_OPTIMIZERS = {
    "Adam": {"beta_1": [0.5, 0.75], "beta_2": [0.875], "amsgrad": [False, True], "epsilon": [2**-10]},
    "SGD": {"momentum": [0.0, 0.5], "nesterov": [False, True]},
    "RMSprop": {"rho": [0.5, 0.875], "momentum": [0.0, 0.5], "centered": [False, True], "epsilon": [2**-10]},
    "Adagrad": {"initial_accumulator_value": [0.5], "epsilon": [2**-10]},
    "Adamax": {"beta_1": [0.5, 0.75], "beta_2": [0.875], "epsilon": [2**-10]},
    "Nadam": {"beta_1": [0.5, 0.75], "beta_2": [0.875], "epsilon": [2**-10]},
    "Lion": {"beta_1": [0.5, 0.75], "beta_2": [0.875]},
}


def _optimizer(rng):
    def chosen(options):
        return {name: values[rng.integers(len(values))] for name, values in options.items()}

    name = str(rng.choice(sorted(_OPTIMIZERS)))
    options = chosen(_OPTIMIZERS[name] | {"weight_decay": [None, 0.125], "learning_rate": [0.25]})
    options |= chosen({str(rng.choice(["clipnorm", "global_clipnorm", "clipvalue"])): [None, 0.5]})
    options |= chosen({str(rng.choice(["use_ema", "gradient_accumulation_steps"])): [None, 2]})
    optimizer = inner = getattr(keras.optimizers, name)(**options)
    if rng.random() < 0.3:
        optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0)
    dtype = str(rng.choice(["float32", "float64"]))
    rows, width = (int(n) for n in rng.integers(1, 9, size=2))
    table, *others = (
        keras.Variable(rng.normal(size=shape), dtype=dtype)
        for shape in ([rows, width], rng.integers(1, 70, size=rng.integers(3)), [])
    )
    optimizer.build([table, *others])
    changed = [table, *others, *optimizer.variables, *([inner._u_product] if name == "Nadam" else [])]
    start = [v.numpy() for v in changed]
    ids = rng.permutation(rows)[: rng.integers(rows + 1)]  # unique: docs/keras.md
    inputs = {"ids": tf.constant(ids), "values": tf.constant(rng.normal(size=[len(ids), width]), dtype)}
    inputs |= {f"dense{i}": tf.constant(rng.normal(size=v.shape), dtype) for i, v in enumerate(others)}

    def call(ids, values, **dense):
        for variable, value in zip(changed, start, strict=True):
            variable.assign(value)
        for _ in range(3):
            optimizer.apply(
                [tf.IndexedSlices(values, ids, tf.constant([rows, width])), *dense.values()], [table, *others]
            )
        return [v + 0 for v in changed if v.dtype == dtype]

    return call, inputs


# Functions of random numbers, which return a call of Keras whose values `use_fused_ops` must not change, and its
# inputs.
SWITCHED = {
    "dot_product_attention": _attention,
    "slice_update": _slice_update,
    "map_coordinates": _map_coordinates,
    "lstm": _recurrent(keras.layers.LSTM),
    "gru": _recurrent(keras.layers.GRU),
    "quantized_matmul": _dense,
    "conv": _conv,
    "sparse_categorical_crossentropy": _crossentropy("sparse_categorical_crossentropy"),
    "categorical_crossentropy": _crossentropy("categorical_crossentropy"),
    "batch_normalization": _batch_normalization,
    "depthwise_conv": _depthwise_conv,
    "gelu": _activation("gelu"),
    "silu": _activation("silu"),
    "bias_activation": _bias_activation,
    "dropout": _dropout,
    "layer_normalization": _normalization("LayerNormalization"),
    "rms_normalization": _normalization("RMSNormalization"),
    "group_normalization": _normalization("GroupNormalization"),
    "optimizers": _optimizer,
}


def switched(name, seed):
    """Calls Keras with the switch off and on: what is a value must remain it."""
    keras.utils.set_random_seed(seed)
    function, inputs = SWITCHED[name](np.random.default_rng(seed))
    # Of bfloat16, which may flip an int8; of sums that cancel.
    rounding = 0.02 if name == "quantized_matmul" else 1e-3 if name.endswith("_normalization") else 1e-4
    results = []
    for way in (eager, known_shapes, unknown_batches):
        try:
            expected = oracle.bits(way(function, inputs))
        except (ValueError, TypeError, tf.errors.OpError):
            continue  # such as sizes that do not fit
        with tfo.layers.use_fused_ops():
            results.append(oracle.bits(way(function, inputs)))
        oracle.check_close(expected, results[-1], f"{way.__name__}: the switch changes a result", rounding)
    # That row calls TensorFlow's op, whose sums depend on the number of threads.
    return [] if name == "batch_normalization" else results


_UNITS = 4  # of all layers, so that a converter may share their tensors
_LAYERS = {
    "lstm": lambda: keras.layers.LSTM(_UNITS, return_sequences=True),
    "gru": lambda: keras.layers.GRU(_UNITS, return_sequences=True),
    "both directions": lambda: keras.layers.Bidirectional(
        keras.layers.LSTM(_UNITS, return_sequences=True), merge_mode="sum"
    ),
    "dense": lambda: keras.layers.Dense(_UNITS, "relu", use_bias=False),
}


def litert(seed):
    """Invokes a stack of layers, as a model of LiteRT, with inputs, others, and the first again."""
    rng = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    names = rng.choice(sorted(_LAYERS), rng.integers(2, 4))
    model = keras.Sequential([keras.Input([3, _UNITS], 2), *(_LAYERS[name]() for name in names)])
    mode = rng.choice(["", "int8", "int4"])
    if mode and "dense" in names:
        model.quantize(str(mode))
    with tfo.layers.use_fused_ops(), tempfile.TemporaryDirectory() as folder:
        archive = keras.export.ExportArchive()
        archive.track(model)
        archive.add_endpoint("serve", model.call, [tf.TensorSpec([2, 3, _UNITS])])
        # It has no names for gradients that a process without this package lacks.
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        archive.write_out(f"{folder}/fused", options, verbose=False)
        calls.on_way("to_standard_ops")
        tfo.export.to_standard_ops(f"{folder}/fused", f"{folder}/standard")
        calls.on_way("TFLiteConverter")
        converted = tf.lite.TFLiteConverter.from_saved_model(f"{folder}/standard").convert()
    invoke = tf.lite.Interpreter(model_content=converted).get_signature_runner()
    (argument,) = invoke.get_input_details()
    inputs = rng.normal(size=[2, 2, 3, _UNITS]).astype(np.float32)
    for i in (0, 1, 0):
        (actual,) = invoke(**{argument: inputs[i]}).values()
        expected = oracle.bits(model(inputs[i]))
        oracle.check_close(expected, oracle.bits(actual), f"invocation with inputs {i} of {', '.join(names)}", 0.02)
    return expected


def places(fill_mode, seed):
    """Reads the nearest pixels, at places beside halves, beyond 2^23 and far outside, in float32 and float64."""
    rng = np.random.default_rng(seed)
    width = int(rng.choice([1, 2, 3, 8, 1000, 2**23 + 16]))
    at = rng.integers(-9, 10, 64) / 2 + rng.choice([0, 0, width, -width, 2.0**23, -(2.0**23), 1e9, -1e30], 64)
    at = np.nextafter(np.float32(at), np.float32(rng.choice([-np.inf, 0.25, np.inf], 64)))
    at = np.where(np.abs(at) < 1e-30, 0, at)  # denormals count as 0
    row = np.random.default_rng(0).integers(0, 2**20, [1, 1, width, 1])

    def of(dtype):
        coordinates = tf.constant(np.stack([np.zeros(64), at], -1)[np.newaxis], dtype)
        return tfo.image.map_coordinates(tf.constant(row, dtype), coordinates, order=0, fill_mode=fill_mode)

    if not np.array_equal(of(tf.float32), of(tf.float64)):
        raise oracle.DisagreementError(f"float32 reads other pixels of {width} than float64")
    return of(tf.float32)
