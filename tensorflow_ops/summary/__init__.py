"""Image summaries for TensorBoard that need drawing: labelled images, figures."""

from tensorflow_ops.summary.python.figures import figure
from tensorflow_ops.summary.python.labels import labeled_images

__all__ = ["figure", "labeled_images"]
