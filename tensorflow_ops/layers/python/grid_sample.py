"""The Keras layer of grid_sample."""

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, axes, keras3
from tensorflow_ops.core.python.axes import DataFormat
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.image.python.ops import grid_sample
from tensorflow_ops.image.python.ops.grid_sample import Interpolation, PaddingMode


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class GridSample(keras3.OpLayer):
    """Samples of features at the places of a grid: `tfo.image.grid_sample` as a layer.

    >>> import keras, tensorflow_ops as tfo
    >>> features, grid = keras.Input([32, 32, 3]), keras.Input([28, 28, 2])
    >>> samples = tfo.layers.GridSample(padding_mode="border")(features, grid)
    >>> keras.Model([features, grid], samples).output_shape
    (None, 28, 28, 3)

    Features are cast to the layer's compute dtype; the grid keeps its own.

    Args:
      mode: "bilinear", "nearest" or "bicubic".
      padding_mode: "zeros", "border" or "reflection".
      align_corners: whether -1 and 1 are the outer pixels' centres.
      normalized: False: coordinates are pixels.
      data_format: "NHWC" or "NCHW".
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Raises:
      ValueError: an unknown option.
    """

    def __init__(
        self,
        *,
        mode: Interpolation = "bilinear",
        padding_mode: PaddingMode = "zeros",
        align_corners: bool = False,
        normalized: bool = True,
        data_format: DataFormat = "NHWC",
        **kwargs: Any,
    ) -> None:
        arguments.one_of("mode", mode, grid_sample.MODES)
        arguments.one_of("padding_mode", padding_mode, grid_sample.PADDING_MODES)
        align_corners = arguments.static_bool("align_corners", align_corners)
        normalized = arguments.static_bool("normalized", normalized)
        arguments.one_of("data_format", data_format, axes.DATA_FORMATS)
        # Keras would cast the grid, too: float16 cannot hold places.
        super().__init__(locals(), autocast=False)

    def build(self, features_shape=None, grid_shape=None):
        """Creates no weights. Keras passes shapes by the names of `call`'s arguments."""
        del features_shape, grid_shape

    def call(self, features, grid):
        features = arguments.cast_tensor("features", features, self.compute_dtype)
        return grid_sample.grid_sample(features, grid, **self._option_values())

    if TYPE_CHECKING:  # Keras's has no types

        def __call__(self, features: TensorLike, grid: TensorLike, **kwargs: Any) -> tf.Tensor: ...

    def compute_output_spec(self, features, grid):
        """Traces `call`, which checks shapes: Keras's calls compute_output_shape."""
        return keras.Operation.compute_output_spec(self, features, grid)

    def compute_output_shape(self, features_shape, grid_shape):
        return self.compute_output_spec(keras.KerasTensor(features_shape), keras.KerasTensor(grid_shape)).shape
