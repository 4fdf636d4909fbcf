"""Types of the arguments of layers."""

from collections.abc import Callable
from typing import Any, TypeAlias

# Values that keras.initializers.get, keras.activations.get and their like accept.
Identifier: TypeAlias = str | dict[str, Any] | Callable[..., Any] | None
