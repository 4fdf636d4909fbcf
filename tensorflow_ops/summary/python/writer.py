"""Writes image summaries in the format of TensorBoard's images plugin, without TensorBoard."""

import importlib

import tensorflow as tf
from tensorflow.core.framework import summary_pb2

from tensorflow_ops.core.python import arguments


def require(module, package, function):
    """Raises ImportError, with the package to install, if a module for drawing cannot be imported."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{function} draws with {package}, which cannot be imported: pip install {package}"
        ) from error


def write(name, strings, step):
    """Writes an image summary.

    Args:
      name: the summary's name, under the current name scope.
      strings: a function that returns a string tensor: width and height in pixels, in
        decimal, then a PNG for each image. Called only if the summary is recorded.
      step: int64 scalar; None is the default step.

    Returns:
      A bool tensor: whether it was written.
    """
    # In a graph without a writer, TensorFlow does not look at it.
    step = step if step is None else arguments.tensor_of_kind("step", step, tf.int64)
    metadata = summary_pb2.SummaryMetadata(
        plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="images"),
        data_class=summary_pb2.DataClass.DATA_CLASS_BLOB_SEQUENCE,
    )
    with tf.summary.experimental.summary_scope(name, "image") as (tag, _):
        return tf.summary.write(tag=tag, tensor=strings, step=step, metadata=metadata)
