"""The base of metrics that are a sum divided by a total."""

from typing import Any

import tensorflow as tf

from tensorflow_ops.core.python import autograph, keras3


class Ratio(keras3.Metric):
    """A sum and a total, which replicas add up."""

    def __init__(self, name, dtype):
        super().__init__(name=name, dtype=dtype)
        self._sum = self.add_variable((), "zeros", "float64", name="sum")
        self._total = self.add_variable((), "zeros", "float64", name="total")

    def _merged_options(self):
        """Returns the options that metrics must share to be merged."""
        return {}

    def _add(self, value, total):
        self._sum.assign_add(value)
        self._total.assign_add(total)

    @autograph.marked
    def merge_state(self, metrics: Any) -> None:
        """Adds the state of other metrics of the same kind."""
        for other in metrics:
            if not isinstance(other, type(self)) or other._merged_options() != self._merged_options():
                options = ", ".join(f"{name}={value!r}" for name, value in self._merged_options().items())
                text = f"tfo.metrics.{type(self).__name__}({options})"
                raise ValueError(f"metrics contains {other!r}, expected {text}")
            self._add(other._sum, other._total)

    @autograph.marked
    def result(self) -> tf.Tensor:
        """Returns the ratio, a scalar of the metric's dtype: 0 before the first update."""
        # Without a total, the sum.
        value, total = (tf.convert_to_tensor(variable) for variable in (self._sum, self._total))
        return tf.cast(value / tf.maximum(total, 1), self.dtype)
