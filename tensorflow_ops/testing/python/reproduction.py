"""Writes a program that repeats one failed check."""

import functools
import inspect
import sys
import textwrap

import numpy as np
import tensorflow as tf

_MAX_LITERALS = 400  # numbers to write out; larger arrays are replaced by random ones
_OPTIONS_LEFT_OUT = ("tests", "raise_on_failure")


def _public(fn):
    """Returns a public function of TensorFlow, NumPy or this library as source, such as tf.nn.relu; else None."""
    short = getattr(fn, "__name__", "")
    for prefix, module in (
        ("tf", tf),
        ("np", np),  # NumPy 2.0 does not say where its ufuncs come from
        *((f"tf.{n}", getattr(tf, n)) for n in ("math", "nn", "linalg", "image", "signal")),
    ):
        if getattr(module, short, None) is fn:
            return f"{prefix}.{short}"
    ours = sys.modules["tensorflow_ops"]
    for prefix, module in [("tfo", ours), *((f"tfo.{n}", getattr(ours, n)) for n in ours.__all__)]:
        for name in getattr(module, "__all__", ()):
            if getattr(module, name, None) is fn:
                return f"{prefix}.{name}"
    return None


def _importable(fn):
    """Returns (import lines, expression) for a function that a program can import, else None."""
    public = _public(fn)
    if public:
        return [], public
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name:
        return None
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not fn:
        return None
    return [f"from {module} import {name.partition('.')[0]}"], name


def _names(code):
    """Returns all names that a function's code and nested functions read."""
    inner = [c for c in code.co_consts if inspect.iscode(c)]
    return set(code.co_names).union(*map(_names, inner))


def _is_self_contained(fn):
    """Returns whether a function's source needs only the imports of the program."""
    names = _names(fn.__code__) & set(fn.__globals__)
    return not fn.__code__.co_freevars and names <= {"tf", "np", "tfo"}


def _function(fn, name="fn"):
    """Returns lines that define a function, and the expression for it."""
    if isinstance(fn, functools.partial):
        lines, expression = _function(fn.func, name)
        more = [_value(a) for a in fn.args] + [f"{k}={_value(v)}" for k, v in fn.keywords.items()]
        return ["import functools", *lines], f"functools.partial({', '.join([expression, *more])})"
    importable = _importable(fn)
    if importable:
        return importable
    plain = inspect.unwrap(getattr(fn, "python_function", fn))
    code = getattr(plain, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else repr(fn)
    try:
        source = textwrap.dedent(inspect.getsource(plain))
    except (OSError, TypeError):
        source = ""
    if source.startswith(("def ", "@")) and _is_self_contained(plain):
        return [f"# from {where}", source.rstrip()], plain.__name__
    commented = textwrap.indent(source.rstrip(), "#   ").splitlines()
    return [f"# {name} is a function of {where}: put it here.", *commented, f"{name} = ..."], name


def _value(value):
    if isinstance(value, tf.Variable):
        return f"tf.Variable({_value(tf.convert_to_tensor(value))})"
    if tf.is_tensor(value) and hasattr(value, "numpy"):
        return f"tf.constant({_array(value.numpy())}, tf.{value.dtype.name})"
    if isinstance(value, np.ndarray | np.generic):
        return f"np.asarray({_array(np.asarray(value))}, np.{np.asarray(value).dtype.name})"
    if isinstance(value, tf.DType):
        return f"tf.{value.name}"
    if type(value) in (list, tuple):
        inner = ", ".join(map(_value, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return "{" + ", ".join(f"{k!r}: {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):  # a namedtuple
        return f"{type(value).__name__}({', '.join(map(_value, value))})"
    if callable(value):
        importable = _importable(value)
        return importable[1] if importable else f"... # {value!r}"
    return repr(value)


def _array(array):
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.size <= _MAX_LITERALS or array.dtype.kind not in "fc":
        if array.dtype.kind not in "fc":
            return repr(array.tolist())
        options = {"separator": ", ", "floatmode": "unique", "threshold": array.size + 1, "max_line_width": 10**6}
        text = " ".join(np.array2string(array, **options).split()).replace("[ ", "[")
        return text.replace("nan", "float('nan')").replace("inf", "float('inf')")
    # Random values of the same range.
    low, high = (float(np.nan_to_num(f(array.real.astype(np.float64)))) for f in (np.min, np.max))
    return f"np.random.default_rng(0).uniform({low:.6g}, {high:.6g}, {list(array.shape)})"


def program(fn, args, kwargs, options, test):
    """Returns Python source that runs opcheck with this one test."""
    lines, expression = _function(fn)
    given = [expression, f"args={_value(tuple(args))}"]
    if kwargs:
        given.append(f"kwargs={_value(kwargs)}")
    given.append(f"tests=({test!r},)")
    for name, value in options.items():
        if callable(value) and not isinstance(value, tf.DType):
            more, of_option = _function(value, name)
            lines += more
            given.append(f"{name}={of_option}")
        elif name not in _OPTIONS_LEFT_OUT:
            given.append(f"{name}={_value(value)}")
    head = ["import numpy as np", "import tensorflow as tf", "import tensorflow_ops as tfo", *dict.fromkeys(lines)]
    body = ",\n    ".join(given)
    return "\n".join([*head, "", f"tfo.testing.opcheck(\n    {body},\n)"])
