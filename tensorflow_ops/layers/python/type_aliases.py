"""Types of the arguments of layers."""

from collections.abc import Callable
from typing import Any

from typing_extensions import TypeAliasType

# Values that keras.initializers.get, keras.activations.get and their like accept.
Identifier = TypeAliasType("Identifier", str | dict[str, Any] | Callable[..., Any] | None)
