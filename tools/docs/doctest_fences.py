"""A griffe extension that prepares docstrings for Markdown: fences examples and escapes x[0][1]."""

import re
from typing import Any

import griffe

# From a prompt to the next empty line, with any indentation.
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n *\S.*)*", re.M)


def fence(text: str) -> str:
    """Puts `>>>` lines and their output into fences, with consecutive examples in one fence."""
    text = EXAMPLE.sub(lambda match: f"{match[1]}```pycon\n{match[0]}\n{match[1]}```", text)
    text = re.sub(r"^( *)```\n\n\1```pycon\n", "\n", text, flags=re.M)
    # Outside code, Markdown would treat x[0][1] as a link.
    parts = re.split(r"(^ *```.*?^ *```$|`[^`\n]+`)", text, flags=re.M | re.S)
    parts[::2] = [part.replace("][", r"]\[") for part in parts[::2]]
    return "".join(parts)


class DoctestFences(griffe.Extension):
    """Changes docstrings on loading."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Changes an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)
