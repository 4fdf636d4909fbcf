"""Arguments that the metrics have in common."""

import tensorflow as tf

from tensorflow_ops.core.python import library


def check_update(metric, sample_weight, strategies=tf.distribute.Strategy):
    """Checks the call of `update_state`.

    Args:
      metric: the metric.
      sample_weight: what the caller passed.
      strategies: the class of strategies with several replicas that the metric supports.

    Raises:
      ValueError: weights.
      NotImplementedError: a strategy under which updates get lost.
      tf.errors.UnimplementedError: XLA would compile the update.
    """
    name = f"tfo.metrics.{type(metric).__name__}"
    if sample_weight is not None:
        raise ValueError(f"sample_weight is given, but {name} has no weights: pass it as one of metrics to compile()")
    strategy = tf.distribute.get_strategy()
    # Workers of ParameterServerStrategy update variables at the same time, without locks.
    if isinstance(strategy, tf.distribute.ParameterServerStrategy) or (
        strategy.num_replicas_in_sync > 1 and not isinstance(strategy, strategies)
    ):
        raise NotImplementedError(
            f"{name} does not collect updates under {strategy.__class__.__name__}: update a metric on each part of the "
            "data outside of the strategy, and merge them with merge_state()"
        )
    if library.is_compiled_by_xla():
        advice = 'Pass jit_compile=False to compile(); its default, "auto", uses XLA on machines with a GPU.'
        raise tf.errors.UnimplementedError(None, None, f"XLA cannot compile {name}: its sizes depend on data. {advice}")


def to_dense(value, fill):
    """Returns a RaggedTensor as a padded tensor, and other values as they are."""
    return value.to_tensor(tf.cast(fill, value.dtype)) if isinstance(value, tf.RaggedTensor) else value
