"""Draws programs by Hypothesis. A program is Python source with one hostile call (calls.py)."""

import functools
import inspect
import itertools
import math

import hypothesis
import numpy as np
import tensorflow as tf
from example_calls import examples, raw_ops
from hypothesis import strategies as st
from relations import FORMS, FROM_ROWS, SWITCHED, WITH_PADDING

from tensorflow_ops.image.python.ops.warps import FILL_MODES

_INTS = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 100, 2**15, 2**20, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**62]
_EXTREMES = [1e-45, 1e-40, 1.1754944e-38, 1e-30, 1e30, 1e38, 3.4028234e38]
_FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-3, 7.5, 1e9, -3.4e38, 1e300, *_EXTREMES]
_STRINGS = ["", "NHWC", "NCHW", "max", "\0", "nhwc", "x" * 10000, "é"]
_SIZES = [0, 0, 1, 1, 2, 3, 4, 5, 7, 16, 17, 33, 65, 130]
_LARGE = [257, 1001, 4099]  # for all tensors at once
_HUGE = [2**15, 2**20, 2**31, 2**40, 2**62]
_MAX_VALUES = 2**20  # per tensor
_MAX_COPIED_VALUES = 24  # from an example's tensor, to keep programs short

_ONE_OP = "function, inputs, one_op=True"
# Pairs of calls that must give the same results.
_AGREE = [
    _ONE_OP,
    _ONE_OP,
    _ONE_OP,
    "gradient(function), inputs",
    "gradient(function), inputs",
    "gradient(gradient(function)), inputs",
    "forward(function), inputs",
    "looped(function), inputs, like=function",
    "vectorized(function), inputs, like=function",
]
# Of gradients, without third derivatives of what they are gradients of, which nothing promises.
_AGREE_OF_GRADIENTS = [agree for agree in _AGREE if not agree.startswith(("gradient(gradient(", "forward("))]
_CHANGES = ["value"] * 3 + ["size"] * 2 + ["attr"] * 2 + ["shape", "dtype", "count"]
_EDITED_WAYS = ["edited_graph", "edited_graph", "edited_graph", "edited_saved_model"]


def _pieces(text):
    return [piece.strip() for line in text.strip().splitlines() for piece in line.split(";")]


# Expressions of the original argument, `value`, or of none. No memoryview of bytes: TensorFlow converts one to int32 in
# eager calls, and to uint8 in graphs.
_ODD = _pieces("""
    None; (); []; ''; 'NHWC'; b'x'; object(); float; {}; {'a': 1}; set(); lambda *args: args
    1j; float('nan'); float('inf'); 0.5; True; 0; -1; 2**31 - 1; 2**62; 10**30
    np.array(3); np.zeros([0]); np.array(['a']); np.array([None])
    (i for i in range(3)); range(3); [[1, 2], [3]]; [1, 'a']; [None, 2]
    tf.ragged.constant([[1.0], []]); tf.sparse.from_dense([[1.0, 0.0]]); tf.constant('a'); tf.constant([b'a'])
    tf.Variable(1.0); tf.zeros([0, 2**40]); tf.constant(1 + 2j); tf.constant([2, 2], tf.uint64)
    tf.TensorSpec([2]); tf.TensorShape(None); tf.float32; tf.data.Dataset.range(3); tf.keras.Input([3])
    tf.constant(3, tf.quint8); tf.TensorArray(tf.float32, 2); tf.IndexedSlices(tf.ones([1, 2]), [0], [2, 2])
    [value]; (value, value); {'x': value}; str(value); iter([value]); lambda: value; tf.Variable(value)
    tf.constant(value)[None]; tf.constant(value)[..., :0]; tf.constant(value)[0]; tf.constant(value) * float('nan')
    tf.cast(value, tf.int8); tf.cast(value, tf.uint16); tf.cast(value, tf.int64); tf.cast(value, tf.bfloat16)
    tf.cast(value, tf.float16); tf.cast(value, tf.float64); tf.cast(value, tf.complex64); tf.cast(value, tf.bool)
    tf.RaggedTensor.from_tensor(value); tf.sparse.from_dense(value); tf.as_string(value)
    np.asarray(value).T; np.asarray(value).tolist(); np.ma.array(value); np.asarray(value, object)
    ragged(value, [1, 0]); ragged(value, [0]); ragged(value, [1]); ragged(value, [2, 1]); 1e38; 1e-40; 1e-30; 1e30
    np.where(np.arange(np.size(value)).reshape(np.shape(value)) % 2, value, -1); np.where(np.ones_like(value), -1, -1)
""")


@st.composite
def public(draw):
    """Draws a call of a public function with up to two odd arguments."""
    name = draw(st.sampled_from(sorted(examples().public)))
    calls = examples().public[name]
    number = draw(st.integers(0, len(calls) - 1))
    arguments = [a for a in calls[number].arguments if a != "name"]  # which eager calls ignore
    changed = draw(st.lists(st.sampled_from(arguments), max_size=2, unique=True)) if arguments else []
    changes = ", ".join(f"{k!r}: lambda value: {draw(st.sampled_from(_ODD))}" for k in changed)
    return name, f"result = public({name!r}, {number}, {{{changes}}})"


_ADDED = [0, 0.9, 2**32, -(2**32), 2**63]


@functools.cache
def _integers():
    """Returns (name, number, argument) of the examples' arguments that are integers."""
    return [
        (name, number, argument)
        for name, calls in sorted(examples().public.items())
        for number, call in enumerate(calls)
        for argument, value in call.arguments.items()
        if argument != "seed"  # of which the lower 32 bits count
        if tf.is_tensor(value) or isinstance(value, int | np.ndarray) or (isinstance(value, list | tuple) and value)
        if _kind(value) in "iu"
    ]


def _kind(value):
    """Returns the kind of a value's dtype as in NumPy, "O" of one without a dtype."""
    try:
        array = np.array(value)
    except (ValueError, TypeError, NotImplementedError):
        return "O"
    return array.dtype.kind if array.size else "O"


@st.composite
def relation(draw):
    """Draws a relation, and the seed of its numbers."""
    tables = {"padded": WITH_PADDING, "from_rows": FROM_ROWS, "switched": SWITCHED, "places": FILL_MODES}
    others = ["accurate", "litert", "cached", "integers", "integers"]
    kind, seed = draw(st.sampled_from([*tables, *others])), draw(st.integers(0, 10**6))
    if kind in ("litert", "cached"):
        return kind, f"result = {kind}({seed})"
    if kind == "integers":
        name, number, argument = draw(st.sampled_from(_integers()))
        form, added = draw(st.sampled_from(sorted(FORMS))), draw(st.sampled_from(_ADDED))
        return name, f"result = integers({name!r}, {number}, {argument!r}, {form!r}, {added})"
    if kind != "accurate":
        name = draw(st.sampled_from(sorted(tables[kind])))
        return name, f"result = {kind}({name!r}, {seed})"
    # float32 rounds elastic_transform's places, which are no inputs; float64's dropout is of other numbers.
    names = {n for n in examples().public if n.startswith(("nn.", "image.", "detection."))}
    name = draw(st.sampled_from(sorted(names - {"image.elastic_transform", "nn.dropout"})))
    number = draw(st.integers(0, len(examples().public[name]) - 1))
    call = examples().public[name][number]
    parameters, options = inspect.signature(call.function).parameters.items(), {}
    if draw(st.booleans()):  # those that the example sets have their defaults
        options = {k: p.default for k, p in parameters if p.default is None or p.default is False}
        options = {k: v for k, v in options.items() if call.arguments[k] is not v}
    floats = [k for k, p in parameters if p.annotation in (float, float | None) and k != "dropout"]
    if floats:
        for k in draw(st.lists(st.sampled_from(floats), max_size=2)):
            options[k] = draw(st.sampled_from([*_EXTREMES, 0.3, 10.0]))
    return name, f"result = accurate({name!r}, {number}, {options}, {seed})"


class Tensor:
    def __init__(self, values, shape, dtype):
        self.values, self.shape, self.dtype = list(values), list(shape), dtype
        self.seed = None  # of normal values instead

    def __str__(self):
        normal = self.seed is not None and self.dtype.is_floating and math.prod(self.shape) <= _MAX_VALUES
        return f"tensor({self.seed if normal else _source(self.values)}, {self.shape}, tf.{self.dtype.name})"


def _source(value):
    if isinstance(value, list):
        return f"[{', '.join(map(_source, value))}]"
    if isinstance(value, tf.DType):
        return f"tf.{value.name}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return str(value) if isinstance(value, Tensor) else repr(value)


def copied(value):
    """Copies an example's tensor or attr."""
    if isinstance(value, list):
        return [copied(v) for v in value]
    if not tf.is_tensor(value):
        return value.decode() if isinstance(value, bytes) else value
    return Tensor(value.numpy().reshape(-1)[:_MAX_COPIED_VALUES].tolist(), value.shape, value.dtype)


def _tensors(call, definition):
    """Yields (definition, tensor) for all inputs."""
    for arg in definition.input_arg:
        value = call[arg.name]
        yield from ((arg, t) for t in (value if isinstance(value, list) else [value]))


def _hostile_values(draw, dtype, size):
    if dtype == tf.string:
        return draw(st.lists(st.sampled_from(_STRINGS), min_size=size, max_size=size))
    if dtype == tf.bool:
        return draw(st.lists(st.booleans(), min_size=size, max_size=size))
    if dtype.is_integer:
        ints = [i for i in _INTS if dtype.min <= i <= dtype.max]
        return draw(st.lists(st.sampled_from(ints), min_size=size, max_size=size))
    return draw(st.lists(st.sampled_from(_FLOATS), min_size=size, max_size=size))


def _change_values(draw, tensors):
    _, tensor = draw(st.sampled_from(tensors))
    if tensor.dtype.is_floating and draw(st.booleans()):
        tensor.seed = draw(st.integers(0, 99))
    elif not tensor.values or draw(st.booleans()):
        tensor.values = _hostile_values(draw, tensor.dtype, draw(st.integers(1, 5)))
    else:
        (tensor.values[draw(st.integers(0, len(tensor.values) - 1))],) = _hostile_values(draw, tensor.dtype, 1)


def _fit(tensor):
    """Makes the shape fit into memory: allows huge sizes only together with a 0."""
    if math.prod(tensor.shape) > _MAX_VALUES:
        tensor.shape[tensor.shape.index(min(tensor.shape))] = 0


def _change_shape(draw, tensors):
    _, tensor = draw(st.sampled_from(tensors))
    change = draw(st.sampled_from(["size", "size", "huge", "more", "fewer", "any"]))
    if change == "any" or not tensor.shape:
        tensor.shape = draw(st.lists(st.sampled_from(_SIZES), max_size=6))
    elif change == "more":
        tensor.shape.insert(draw(st.integers(0, len(tensor.shape))), draw(st.sampled_from(_SIZES)))
    else:
        axis = draw(st.integers(0, len(tensor.shape) - 1))
        if change == "fewer":
            del tensor.shape[axis]
        else:
            tensor.shape[axis] = draw(st.sampled_from(_HUGE if change == "huge" else _SIZES))
    _fit(tensor)


def _change_size(draw, tensors):
    """Changes a size in all shapes, so that the call stays valid if the size has one meaning."""
    old = draw(st.sampled_from([s for _, t in tensors for s in t.shape] or [0]))
    new = draw(st.sampled_from([*_SIZES, *_LARGE, *_HUGE]))
    for _, tensor in tensors:
        tensor.shape = [new if s == old else s for s in tensor.shape]
        _fit(tensor)


def _change_dtype(draw, tensors, definition):
    """Changes the dtype of all inputs with one type attr, so that the call may stay valid."""
    attrs = {a.name: a for a in definition.attr if a.type == "type"}
    arg, tensor = draw(st.sampled_from(tensors))
    allowed = list(attrs[arg.type_attr].allowed_values.list.type) if arg.type_attr in attrs else []
    dtype = tf.as_dtype(draw(st.sampled_from(allowed or [tf.float64.as_datatype_enum])))
    if draw(st.integers(0, 9)) == 0:
        dtype = draw(st.sampled_from([tf.string, tf.bool, tf.int8, tf.uint64, tf.complex64, tf.float64]))
    for other_arg, other in tensors:
        if other is tensor or (arg.type_attr and other_arg.type_attr == arg.type_attr):
            if dtype in (tf.string, tf.bool) or other.dtype in (tf.string, tf.bool, tf.complex64):
                other.values = _hostile_values(draw, dtype, 2)
            elif dtype.is_integer:
                other.values = [min(max(int(v), dtype.min), dtype.max) if v - v == 0 else 0 for v in other.values]
            other.dtype = dtype


def _attr_value(draw, attr):
    if attr.type == "type":
        return draw(st.sampled_from([tf.float16, tf.float32, tf.float64, tf.int32, tf.string]))
    if attr.type.startswith("list("):
        element = {"int": _INTS, "float": _FLOATS, "string": _STRINGS}.get(attr.type[5:-1], [None])
        return draw(st.lists(st.sampled_from(element), max_size=4))
    allowed = [v.decode() for v in attr.allowed_values.list.s]
    by_type = {"int": _INTS, "float": _FLOATS, "bool": [False, True], "string": allowed * 4 + _STRINGS}
    return draw(st.sampled_from(by_type.get(attr.type, [None])))


def _change_attr(draw, call, definition):
    attrs = [a for a in definition.attr if a.name in call]
    if attrs:
        attr = draw(st.sampled_from(attrs))
        call[attr.name] = _attr_value(draw, attr)


def _change_count(draw, call, definition):
    """Changes the number of tensors in a list."""
    lists = [arg.name for arg in definition.input_arg if arg.number_attr or arg.type_list_attr]
    if lists:
        name = draw(st.sampled_from(lists))
        call[name] = (call[name] * 17)[: draw(st.sampled_from([0, 1, 2, 3, 17]))]


def _blank(draw, definition):
    """Draws a call from the op's definition only."""
    call = {}
    types = {a.name: a.allowed_values.list.type for a in definition.attr if a.type == "type"}
    dtypes = {n: tf.as_dtype(draw(st.sampled_from(list(t) or [tf.float32.as_datatype_enum]))) for n, t in types.items()}
    said = set()
    for arg in definition.input_arg:
        said |= {arg.type_attr, arg.number_attr, arg.type_list_attr}
        is_list = arg.number_attr or arg.type_list_attr
        dtype = dtypes[arg.type_attr] if arg.type_attr else tf.as_dtype(arg.type or tf.float32)
        shapes = [draw(st.lists(st.sampled_from(_SIZES), max_size=6)) for _ in range(2 if is_list else 1)]
        made = [Tensor(_hostile_values(draw, dtype, 3), shape, dtype) for shape in shapes]
        for tensor in made:
            _fit(tensor)
        call[arg.name] = made if is_list else made[0]
    return call | {a.name: _attr_value(draw, a) for a in definition.attr if a.name not in said}


def _raw_call(draw):
    """Draws an op: returns its name, definition, function and a mutated call from its examples."""
    name = draw(st.sampled_from(sorted(name for name, (definition, _) in raw_ops().items() if definition.input_arg)))
    definition, function = raw_ops()[name]
    known = examples().raw.get(name)
    if not known or draw(st.integers(0, 9)) == 0:
        return name, definition, function, _blank(draw, definition)
    call = {k: copied(v) for k, v in draw(st.sampled_from(known)).items()}
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 2, 3, 5]))):
        tensors = list(_tensors(call, definition))
        change = draw(st.sampled_from(_CHANGES))
        if change == "attr":
            _change_attr(draw, call, definition)
        elif change == "count":
            _change_count(draw, call, definition)
        elif tensors:
            if change == "value":
                _change_values(draw, tensors)
            elif change == "shape":
                _change_shape(draw, tensors)
            elif change == "size":
                _change_size(draw, tensors)
            else:
                _change_dtype(draw, tensors, definition)
    if name.endswith(("Attention", "AttentionGrad")):
        for _, tensor in _tensors(call, definition):  # 2^40 pairs of queries and keys take minutes
            tensor.shape = [2**15 if size == 2**20 else size for size in tensor.shape]
    return name, definition, function, call


def call_source(definition, function, call):
    """Returns a program's lines that define `function` and `inputs`."""
    inputs = [arg.name for arg in definition.input_arg]
    attrs = "".join(f", {k}={_source(v)}" for k, v in call.items() if k not in inputs)
    given = ", ".join(f"{k!r}: {_source(call[k])}" for k in inputs)
    return f"function = lambda **inputs: ops.{function.__name__}(**inputs{attrs})\ninputs = {{{given}}}\n"


@st.composite
def raw_op(draw):
    """Draws a call of a raw op, its derivatives, or a loop of calls."""
    name, definition, function, call = _raw_call(draw)
    sizes = [size for _, t in _tensors(call, definition) for size in t.shape]
    # TensorFlow's own ops have 32 bits for some sizes.
    choices = _AGREE_OF_GRADIENTS if "Grad" in name else _AGREE
    agree = draw(st.sampled_from(choices)) if max(sizes, default=0) < 2**31 else _ONE_OP
    return name, f"{call_source(definition, function, call)}result = agree({agree})"


_ATTR_EDITS = _pieces("""
    i = -1; i = 2**62; i = 0; f = float('nan'); s = b'x'; b = True; type = 1; type = 7; type = 0; type = 999
    list.i[:] = [1, 2]; list.f[:] = [float('nan')] * 3; list.type[:] = [1, 1]; shape.dim.add().size = -5
    func.name = 'f'; placeholder = 'T'; tensor.dtype = 1
""")
_INPUT_EDITS = ["del node.input[0]", "node.input.append(node.input[0])", "node.input[:] = node.input[::-1]"]
_OTHER_EDITS = [
    "node.device = '/gpu:0'",
    "node.attr['_class'].list.s[:] = [b'loc:@x']",
    "node.op = {op!r}",
    "node.op = ''",
]
_PLACEHOLDER_EDITS = [
    "inputs[{i}].attr['dtype'].type = {type}",
    "inputs[{i}].attr['shape'].shape.unknown_rank = True",
    "del inputs[{i}].attr['shape']",
    "inputs[{i}].attr['shape'].shape.dim.add().size = {size}",
]


@st.composite
def graph(draw):
    """Draws an edit of a GraphDef or SavedModel with one op."""
    name, definition, function, call = _raw_call(draw)
    way = draw(st.sampled_from(_EDITED_WAYS))
    edits = []
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(["attr", "attr", "attr", "no attr", "inputs", "other", "placeholder"]))
        attr = draw(st.sampled_from([a.name for a in definition.attr] + ["unknown"]))
        if kind == "attr":
            edits.append(f"node.attr[{attr!r}].{draw(st.sampled_from(_ATTR_EDITS))}")
        elif kind == "no attr":
            edits.append(f"node.attr.pop({attr!r}, None)")
        elif kind == "inputs" and definition.input_arg:
            edits.append(draw(st.sampled_from(_INPUT_EDITS)))
        elif kind == "placeholder" and way == "edited_graph" and definition.input_arg:
            count = sum(1 for _ in _tensors(call, definition))
            if count:
                edit, i = draw(st.sampled_from(_PLACEHOLDER_EDITS)), draw(st.integers(0, count - 1))
                edits.append(edit.format(i=i, type=draw(st.integers(0, 25)), size=draw(st.sampled_from(_INTS))))
        else:
            edits.append(draw(st.sampled_from(_OTHER_EDITS)).format(op=draw(st.sampled_from(sorted(raw_ops())))))
    body = "\n    ".join(edits or ["pass"])
    edit = f"def edit(node, inputs):\n    {body}\n\n\n"
    return name, f"{edit}{call_source(definition, function, call)}result = {way}(function, inputs, edit)"


HEADER = """import numpy as np
import tensorflow as tf
import tensorflow_ops as tfo
from calls import *
from relations import *
from tensorflow_ops.core.python.library import ops
"""
# TensorFlow refuses most edited graphs, and Python most odd arguments, so most cases are calls of ops.
_WEIGHTS = {"raw_op": 3, "graph": 1, "public": 2, "relation": 1}
SURFACES = {"raw_op": raw_op(), "graph": graph(), "public": public(), "relation": relation()}
_BATCH = 25


def programs(surfaces, first_seed):
    """Yields (surface, name of the op or function, program) endlessly."""
    settings = hypothesis.settings(
        max_examples=_BATCH,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    drawn = st.sampled_from([s for s in surfaces for _ in range(_WEIGHTS[s])]).flatmap(
        lambda surface: st.tuples(st.just(surface), SURFACES[surface])
    )
    examples()  # not while drawing, because they draw random numbers
    batch = []
    draw = settings(hypothesis.given(drawn)(lambda case: batch.append(case)))
    for seed in itertools.count(first_seed):
        hypothesis.seed(seed)(draw)()
        for surface, (name, source) in batch:
            yield surface, name, f"{HEADER}\n{source}\n"
        batch.clear()
