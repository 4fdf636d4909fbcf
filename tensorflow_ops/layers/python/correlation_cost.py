"""The Keras layer of correlation_cost."""

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tensorflow_ops.core.python import keras3
from tensorflow_ops.core.python.axes import DataFormat
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.image.python.ops import correlation_cost


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class CorrelationCost(keras3.OpLayer):
    """The costs of displacements between two feature maps: `tfo.image.correlation_cost` as a layer.

    >>> import keras, tensorflow_ops as tfo
    >>> first, second = keras.Input([48, 64, 32]), keras.Input([48, 64, 32])
    >>> costs = tfo.layers.CorrelationCost(4, padding=4)(first, second)
    >>> keras.Model([first, second], costs).output_shape
    (None, 48, 64, 81)

    Maps are cast to the layer's compute dtype.

    Args:
      max_displacement: in pixels, at least 0.
      kernel_size: the side of the window that is compared; odd.
      stride_1: the step between windows in the first map.
      stride_2: the step between displacements.
      padding: pixels of zeros around both maps.
      data_format: "NHWC" or "NCHW".
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Raises:
      ValueError: a bad option.
    """

    def __init__(
        self,
        max_displacement: int,
        *,
        kernel_size: int = 1,
        stride_1: int = 1,
        stride_2: int = 1,
        padding: int = 0,
        data_format: DataFormat = "NHWC",
        **kwargs: Any,
    ) -> None:
        super().__init__(locals() | correlation_cost.check_options(**keras3.options_of(locals())))

    def build(self, features_a_shape=None, features_b_shape=None):
        """Creates no weights. Keras passes shapes by the names of `call`'s arguments."""
        del features_a_shape, features_b_shape

    def call(self, features_a, features_b):
        return correlation_cost.correlation_cost(features_a, features_b, **self._option_values())

    if TYPE_CHECKING:  # Keras's has no types

        def __call__(self, features_a: TensorLike, features_b: TensorLike, **kwargs: Any) -> tf.Tensor: ...

    def _output_size(self, size):
        if size is None:
            return None
        border = self.max_displacement + (self.kernel_size - 1) // 2
        room = size + 2 * self.padding - 2 * border
        if room <= 0:
            raise ValueError(f"a side of features is {size}, too small for max_displacement {self.max_displacement}")
        return -(-room // self.stride_1)

    def compute_output_shape(self, features_a_shape, features_b_shape):
        del features_b_shape
        displacements = (2 * (self.max_displacement // self.stride_2) + 1) ** 2
        if self.data_format == "NCHW":
            batch, _, height, width = features_a_shape
            return (batch, displacements, self._output_size(height), self._output_size(width))
        batch, height, width, _ = features_a_shape
        return (batch, self._output_size(height), self._output_size(width), displacements)
