"""Replaces slow functions of Keras and keras-hub; lists the versions whose private functions are known."""

import contextlib
import copy
import functools
import os
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Iterable
from typing import TypedDict

import keras
import tensorflow as tf

from tensorflow_ops.core.python import autograph, keras3, library, registration
from tensorflow_ops.layers.python.switch.served import ROWS, Original, Row, backend

_HUB_MINORS = range(25, 33)


def _hub_is_known():
    """Returns whether the imported keras-hub is a known minor; warns where it is not."""
    version = getattr(sys.modules.get("keras_hub"), "__version__", None)
    if version is None:
        return True
    major, minor = version.split(".")[:2]
    if major == "0" and int(minor) in _HUB_MINORS:
        return True
    warnings.warn(
        f"tfo.layers.use_fused_ops knows the private functions of keras-hub 0.{_HUB_MINORS[0]} to 0.{_HUB_MINORS[-1]}, "
        f"and {version} is imported: it replaces functions of Keras only.",
        RuntimeWarning,
        stacklevel=3,
    )
    return False


def _export(original, model, filepath, format="tf_saved_model", *args, **kwargs):
    """Serves `keras.Model.export`: by originals for runtimes that cannot load our ops, such as LiteRT."""
    has_handlers = format == "onnx" and "tensorflow_ops.onnx.python.conversion" in sys.modules
    if format != "tf_saved_model" and not has_handlers:
        with only_in_this_thread(()):
            return original(model, filepath, format, *args, **kwargs)
    before = _fused_calls()
    result = original(model, filepath, format, *args, **kwargs)
    if format == "tf_saved_model" and _fused_calls() > before and _has_our_ops(filepath):
        warnings.warn(
            f"{filepath} contains ops of tensorflow_ops, since tfo.layers.use_fused_ops is on: only programs that "
            "import tensorflow_ops, or load its library, can load it. For others, export it while the switch is "
            "closed, or rewrite it with tfo.export.to_standard_ops.",
            RuntimeWarning,
            stacklevel=3,
        )
    return result


def _has_our_ops(path):
    """Returns whether a SavedModel needs this package: some rows call ops of TensorFlow."""
    with tf.io.gfile.GFile(os.path.join(path, "saved_model.pb"), "rb") as file:
        return b"TensorflowOps>" in file.read()


_EXPORT = Row("", "", "export", _export, is_counted=False)


@functools.cache
def _rows():
    """Returns the functions to replace."""
    registration.import_all("tensorflow_ops.layers.python.switch")
    return tuple(ROWS)


class _OfInstances:
    """Shows a function in place of the one that instances hold. It is on as long as the class has it."""

    def __init__(self, row):
        self._row = row

    def __get__(self, instance, owner):
        name = self._row.name
        if instance is None or name not in vars(instance):  # Keras asks before it sets one
            raise AttributeError(name)
        return _replacement(self._row, vars(instance)[name])

    def __set__(self, instance, value):
        vars(instance)[self._row.name] = value


class _Calls(TypedDict):
    fused: int
    original: int


class FusedCalls(_Calls, total=False):
    """Calls that the switch served. `reasons`, where calls went to the original: their numbers by reason."""

    reasons: dict[str, int]


_lock = threading.RLock()
_here = threading.local()  # only: names of the functions that are served in this thread; None: all
_open = {}  # the replacement of each open switch, in order, by row
_replaced = weakref.WeakKeyDictionary()  # what each replacement stands for; None: nothing that its owner itself holds
_calls: dict[str, FusedCalls] = {}


@contextlib.contextmanager
def only_in_this_thread(only):
    """Lets open switches serve the functions of these names, and no others; None: all."""
    before, _here.only = getattr(_here, "only", None), only
    try:
        yield
    finally:
        _here.only = before


def is_open():
    return bool(_open)


@contextlib.contextmanager
def counted_apart():
    """Keeps calls made within out of `fused_ops`, once it ends."""
    with _lock:
        before = fused_ops()
        _calls.clear()
    try:
        yield
    finally:
        with _lock:
            _calls.clear()
            _calls.update(before)


def _fused_calls():
    with _lock:
        return sum(calls["fused"] for calls in _calls.values())


def _count(op, result):
    reason = str(result) if isinstance(result, Original) else None
    if reason == "":
        return
    with _lock:
        calls = _calls.setdefault(op, {"fused": 0, "original": 0})
        if reason is None:
            calls["fused"] += 1
        else:
            calls["original"] += 1
            reasons = calls.setdefault("reasons", {})
            reasons[reason] = reasons.get(reason, 0) + 1


def _replacement(row, original):
    """Returns a function that calls ours; the original where ours does not fit, and while no switch names the row.

    A patch of others that began under a switch and ends after it brings our function back.
    """

    @autograph.marked
    @functools.wraps(original)
    def call(*args, **kwargs):
        only = getattr(_here, "only", None)
        if row not in _open or (only is not None and row.op not in only):
            return original(*args, **kwargs)
        can_compile = library.supports_xla() or not library.is_compiled_by_xla()
        result = row.function(original, *args, **kwargs) if can_compile else Original("XLA")
        if row.is_counted:
            _count(row.op, result)
        return original(*args, **kwargs) if isinstance(result, Original) else result

    return call


def _is_of_hub(row):
    return row.owner.startswith("keras_hub.")


def _owner(row):
    """Returns the module or class that holds a function, or None where it is not imported or has none."""
    module, _, kind = row.owner.partition(":")
    place, _, name = module.partition(".")
    if _is_of_hub(row):
        path = f"keras_hub.src.models.{name}"
        parent, _, last = path.rpartition(".")
        owner = sys.modules.get(path) or getattr(sys.modules.get(parent), last, None)
    else:
        owner = getattr(backend() if place == "backend" else getattr(keras, place), name, None)
    if kind:
        return getattr(owner, kind, None)
    return owner if hasattr(owner, row.name) else None


def _is_replacement(function):
    # Functions only, since others may have no hash.
    return isinstance(function, types.FunctionType | _OfInstances) and function in _replaced


def _turn_on(row, owner):
    """Replaces a function. Returns the function that undoes it."""
    with _lock:
        if not _open:
            _calls.clear()
        replacement = held = vars(owner).get(row.name)
        if not _is_replacement(held):
            replacement = _OfInstances(row) if ":" in row.owner else _replacement(row, getattr(owner, row.name))
            _replaced[replacement] = held
            setattr(owner, row.name, replacement)
        _open.setdefault(row, []).append(replacement)
    return functools.partial(_turn_off, row, owner, replacement)


def _turn_off(row, owner, replacement):
    """Restores a function, unless a patch of others hides ours, or another switch needs it."""
    with _lock:
        rest = _open[row]
        place = rest.index(replacement)
        del rest[place]
        if not rest:
            del _open[row]
        held = vars(owner).get(row.name)
        # A later switch may have lost its replacement, to a patch that ended.
        if not _is_replacement(held) or held in rest or rest[place:]:
            return
        if _replaced[held] is None:
            delattr(owner, row.name)
        else:
            setattr(owner, row.name, _replaced[held])


@autograph.marked
def use_fused_ops(only: Iterable[str] | None = None) -> contextlib.ExitStack:
    """Makes unmodified models of Keras and keras-hub call the ops of this package: a switch and a context manager.

    Replaces private functions of the libraries, such as the one behind `keras.losses.CTC`, by
    ones that call ours, or faster ones of TensorFlow; the original where they do not fit. Models,
    what they compute, and what `save` writes stay the same, and its files load without this package.
    A SavedModel that `model.export` writes contains the ops; a warning names the ways out. Files of other
    formats contain originals, but ONNX files, once `tfo.onnx.register` was called, the ops' forms.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> labels = np.array([[1, 2, 2, 0], [3, 0, 0, 0]])
    >>> logits = np.random.default_rng(0).normal(size=[2, 50, 4]).astype(np.float32)
    >>> expected = keras.losses.CTC()(labels, logits)
    >>> with tfo.layers.use_fused_ops():
    ...     fused = keras.losses.CTC()(labels, logits)
    >>> np.allclose(fused, expected, rtol=1e-4)
    True
    >>> tfo.layers.fused_ops()["ctc_loss"]
    {'fused': 1, 'original': 0}

    The page `keras` has the table of functions, and where results differ. Without `with`, the
    switch stays on until `close()` of the result is called. It is on in all threads: a function
    is replaced as long as any switch that names it is open. A patch of the same function by
    other code wins if it is later, and may end before or after the switch. A traced function
    keeps what it was traced with: turn the switch on before `fit` and `predict`, or compile the
    model again. Import `keras_hub` first: functions of modules that are not imported stay as they
    are.

    Args:
      only: names of functions, the first column of that table, such as "ctc_loss". None: all.

    Returns:
      The context manager.

    Raises:
      ImportError: the installed Keras is a minor release whose private functions are unknown.
      ValueError: a name that is not in the table, whose module is not imported, or that the
        installed Keras does not have; Keras's backend is not TensorFlow.
    """
    ops = sorted({row.op for row in _rows()})
    names = ops if only is None else (only,) if isinstance(only, str) else tuple(only)
    unknown = [name for name in names if name not in ops]
    if unknown or isinstance(only, str):
        raise ValueError(f"only is {only!r}, expected None or a list of names among {', '.join(ops)}")
    keras3.check_keras("tfo.layers.use_fused_ops")
    hub_is_known = _hub_is_known()
    rows = [row for row in _rows() if row.op in names and (hub_is_known or not _is_of_hub(row))]
    owners = {row: owner for row in rows if (owner := _owner(row)) is not None}
    absent = set(names) - {row.op for row in owners}
    if only is not None and absent:
        name = min(absent)
        if not all(_is_of_hub(row) for row in _rows() if row.op == name):
            raise ValueError(f"only names {name!r}, which Keras {keras.__version__} does not have")
        raise ValueError(f"only names {name!r} of keras_hub, which is not imported: import keras_hub first")
    with contextlib.ExitStack() as switch:
        for row, owner in (*owners.items(), (_EXPORT, keras.Model)):
            switch.callback(_turn_on(row, owner))
        return switch.pop_all()


@autograph.marked
def fused_ops() -> dict[str, FusedCalls]:
    """Returns how many calls `use_fused_ops` served: by our op ("fused"), and by the original.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> x = np.ones([1, 5, 2, 4], np.float32)
    >>> with tfo.layers.use_fused_ops():
    ...     y = keras.ops.dot_product_attention(x, x, x)
    ...     y = keras.ops.dot_product_attention(x, x, x, scale=keras.ops.array(0.5))
    >>> tfo.layers.fused_ops()
    {'dot_product_attention': {'fused': 1, 'original': 1, 'reasons': {'a tensor as scale': 1}}}

    Returns:
      Calls by the name of each function that was called, since the first open switch was opened;
      while none is open, during the last ones. "reasons" is there if "original" is not 0, and counts these calls
      by why the op does not fit. Calls for which there is no op, such as lookups of a quantized
      ReversibleEmbedding, are not counted. A call in a graph counts once, when it is traced: a
      name that is missing after `fit` means that the model calls another function, or was traced
      before.
    """
    with _lock:
        return copy.deepcopy(_calls)
