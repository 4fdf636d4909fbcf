"""Arguments that the metrics have in common."""

import tensorflow as tf

from tensorflow_ops.core.python import xla


def check_update(metric, sample_weight):
    """Raises ValueError for weights, UnimplementedError if XLA would compile the update."""
    name = f"tfo.metrics.{type(metric).__name__}"
    if sample_weight is not None:
        raise ValueError(f"sample_weight is given, but {name} has no weights: pass it as one of metrics to compile()")
    if xla.is_compiled():
        advice = 'Pass jit_compile=False to compile(); its default, "auto", uses XLA on machines with a GPU.'
        raise tf.errors.UnimplementedError(None, None, f"XLA cannot compile {name}: its sizes depend on data. {advice}")


def to_dense(value, fill):
    """Returns a RaggedTensor as a padded tensor, and other values as they are."""
    return value.to_tensor(tf.cast(fill, value.dtype)) if isinstance(value, tf.RaggedTensor) else value
