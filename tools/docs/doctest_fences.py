"""A griffe extension: docstrings as Markdown, which would take examples for quotations and x[0][1] for a link."""

import re
from typing import Any

import griffe

# From a prompt to the empty line after it, indented or not.
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n *\S.*)*", re.M)


def fence(text: str) -> str:
    """Puts each run of `>>>` lines and their output into a fence; examples that follow each other into one."""
    text = EXAMPLE.sub(lambda match: f"{match[1]}```pycon\n{match[0]}\n{match[1]}```", text)
    text = re.sub(r"^( *)```\n\n\1```pycon\n", "\n", text, flags=re.M)
    # Elsewhere x[0][1] would be a link to 1.
    parts = re.split(r"(^ *```.*?^ *```$|`[^`\n]+`)", text, flags=re.M | re.S)
    parts[::2] = [part.replace("][", r"]\[") for part in parts[::2]]
    return "".join(parts)


class DoctestFences(griffe.Extension):
    """Changes the docstrings that are loaded."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Called for each object of the package."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)
