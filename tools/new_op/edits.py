"""Small edits of BUILD and Python files: a new element of a list, in its place.

Both are read as Python, which a BUILD file nearly is.
"""

import ast


class NoPlaceError(Exception):
    """Says what was looked for and not found."""


def _offset(text, line, column):
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def span(text, node):
    """Where a node's text begins and ends."""
    return _offset(text, node.lineno, node.col_offset), _offset(text, node.end_lineno, node.end_col_offset)


def in_order_of_all(name):
    """The order of __all__: CONSTANTS, Classes, functions."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def insert_element(text, node, element, key, keys=None):
    """Returns the text with one more element in a list, a tuple, a set or a dict.

    Args:
      text: the file's.
      node: an ast.List, ast.Tuple, ast.Set or ast.Dict in it.
      element: the element's source; of a dict `key: value`.
      key: what places it: before the first that is greater.
      keys: what places those there; default: their values.

    Raises:
      NoPlaceError: one of that key is there already.
    """
    values = node.keys if isinstance(node, ast.Dict) else node.elts
    if keys is None:
        keys = [value.value if isinstance(value, ast.Constant) else ast.unparse(value) for value in values]
    if key in keys:
        raise NoPlaceError(f"line {node.lineno} has {key!r} already")
    at = next((i for i, other in enumerate(keys) if other > key), len(values))
    begin, end = span(text, node)
    if node.lineno == node.end_lineno:  # [a, b]: one line each, as more than one would be
        inside = text[begin + 1 : end - 1].rstrip(", ")
        sources = [text[slice(*span(text, v))] for v in values] if inside and not isinstance(node, ast.Dict) else []
        sources.insert(at, element)
        line = text[text.rfind("\n", 0, begin) + 1 : begin]
        indent = " " * (len(line) - len(line.lstrip()))
        if len(sources) == 1:
            return text[: begin + 1] + sources[0] + text[end - 1 :]
        lines = "".join(f"{indent}    {source},\n" for source in sources)
        return f"{text[: begin + 1]}\n{lines}{indent}{text[end - 1 :]}"
    if at < len(values):
        line = text.rfind("\n", 0, span(text, values[at])[0]) + 1
    else:  # the closing bracket's
        line = text.rfind("\n", 0, end) + 1
    some = text.rfind("\n", 0, span(text, values[0])[0]) + 1
    indent = text[some : span(text, values[0])[0]]
    return f"{text[:line]}{indent}{element},\n{text[line:]}"


def rule(text, name):
    """Returns the ast.Call of a BUILD file that makes the target `name`."""
    for statement in ast.parse(text).body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and constant(keyword(call, "name")) == name:
            return call
    raise NoPlaceError(f"there is no target {name!r}")


def target_names(text):
    """The names of a BUILD file's targets, as far as they are literals."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return {name for name in (constant(keyword(call, "name")) for call in calls) if name}


def keyword(call, name):
    return next((k.value for k in call.keywords if k.arg == name), None)


def constant(node):
    return node.value if isinstance(node, ast.Constant) else None


def add_to_rule(text, target, attribute, element):
    """Adds a string to a list of a target."""
    node = keyword(rule(text, target), attribute)
    if not isinstance(node, ast.List):
        raise NoPlaceError(f"the target {target!r} has no list {attribute!r}")
    # buildifier's order: files, then :labels, then //labels.
    rank = lambda s: (s.startswith("//"), s.startswith(":"), s)  # noqa: E731
    keys = [rank(str(constant(value))) for value in node.elts]
    return insert_element(text, node, f'"{element}"', rank(element), keys)


def add_loads(text, file, symbols):
    """Makes a BUILD file load these symbols of a .bzl file, too."""
    for statement in ast.parse(text).body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "load" and constant(call.args[0]) == file:
            loaded = sorted({*(constant(a) for a in call.args[1:]), *symbols})
            begin, end = span(text, call)
            return text[:begin] + "load(" + ", ".join(f'"{s}"' for s in (file, *loaded)) + ")" + text[end:]
    raise NoPlaceError(f"there is no load of {file}")


def assignment(text, name):
    """Returns the value of a Python file's `name = value`."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    raise NoPlaceError(f"there is no `{name} = ...`")


def add_to_all(text, name):
    """Adds a name to __all__."""
    node = assignment(text, "__all__")
    keys = [in_order_of_all(str(constant(value))) for value in node.elts]
    return insert_element(text, node, f'"{name}"', in_order_of_all(name), keys)


def add_import(text, module, name):
    """Adds `from module import name`, in the order of the modules; to the line that is there, if one is."""
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    for node in imports:
        if node.module == module:
            names = sorted({*(ast.unparse(alias) for alias in node.names), name}, key=in_order_of_all)
            begin, end = span(text, node)
            return f"{text[:begin]}from {module} import {', '.join(names)}{text[end:]}"
    line = f"from {module} import {name}\n"
    ours = [node for node in imports if (node.module or "").startswith("tensorflow_ops")]
    for node in ours:
        if node.module > module:
            begin = span(text, node)[0]
            return text[:begin] + line + text[begin:]
    if ours:
        end = text.index("\n", span(text, ours[-1])[1]) + 1
        return text[:end] + line + text[end:]
    docstring = ast.parse(text).body[0]
    end = text.index("\n", span(text, docstring)[1]) + 1
    return f"{text[:end]}\n{line}{text[end:]}"
