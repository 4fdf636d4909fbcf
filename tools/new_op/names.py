"""Which names an op, its family, its inputs and attrs may have."""

import builtins
import keyword
import re

CC_KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default
    delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
    xor_eq""".split()
)
# What the generated functions call something else by.
RESERVED = frozenset(
    """args at begin blocks cls ctx device cpu end gpu i n name np num_elements op ops output outputs pack part
    pool scalar self size std step tf tfo thread threads T V""".split()
)


class BadNameError(Exception):
    """A name that cannot be; says why."""


def snake_case(op_name):
    """The Python name that TensorFlow makes of an op's: CropPool, crop_pool."""
    result = ""
    for i, c in enumerate(op_name):
        before, after = op_name[i - 1 : i], op_name[i + 1 : i + 2]
        if c.isupper() and i > 0 and (before.islower() or after.islower()):
            result += "_"
        result += c.lower()
    return result


def check_op(op_name):
    """Raises where an op cannot be called that."""
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", op_name):
        raise BadNameError(f"the op's name is {op_name!r}, expected letters and digits in CamelCase, such as CropPool")
    if op_name.endswith("Grad"):
        raise BadNameError(f"the op's name is {op_name!r}; one that ends in Grad is a gradient's")
    python = snake_case(op_name)
    if keyword.iskeyword(python) or keyword.issoftkeyword(python):
        raise BadNameError(f"{op_name!r} would be {python!r} in Python, a keyword there")
    if python in dir(builtins):
        raise BadNameError(f"{op_name!r} would be {python!r} in Python, and hide the builtin of that name")
    if python in CC_KEYWORDS:
        raise BadNameError(f"{op_name!r} would be {python!r} in BUILD, a keyword of C++")
    if python in RESERVED or python in ("tensorflow_ops", "numpy", "tensorflow"):
        raise BadNameError(f"{op_name!r} would be {python!r}, which the generated files use for something else")


def check_family(family):
    """Raises where no family can be called that."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", family):
        raise BadNameError(f"the family is {family!r}, expected small letters, digits and _, such as detection")
    if keyword.iskeyword(family) or keyword.issoftkeyword(family) or family in CC_KEYWORDS:
        raise BadNameError(f"the family is {family!r}, a keyword of Python or C++")


def check_variable(what, name):
    """Raises where an input, an attr or a value of the formula cannot be called that, in Python or in C++."""
    if not re.fullmatch(r"[a-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*", name):
        raise BadNameError(f"{what} is called {name!r}, expected small letters, digits and single _, such as box_scale")
    if keyword.iskeyword(name):
        raise BadNameError(f"{what} is called {name!r}, a keyword of Python")
    if name in CC_KEYWORDS:
        raise BadNameError(f"{what} is called {name!r}, a keyword of C++")
    if name in RESERVED:
        raise BadNameError(f"{what} is called {name!r}, which the generated functions use for something else")
