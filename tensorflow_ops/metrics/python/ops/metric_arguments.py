"""Arguments that the metrics have in common."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, library


def check_update(metric, sample_weight, strategies=tf.distribute.Strategy, needs_values=True):
    """Checks the call of `update_state`.

    Args:
      metric: the metric.
      sample_weight: what the caller passed.
      strategies: the class of strategies with several replicas that the metric supports.
      needs_values: whether sizes depend on data, which XLA cannot compile.

    Raises:
      ValueError: weights.
      NotImplementedError: a strategy under which updates get lost.
      RuntimeError: the update would be a part of a TensorFlow 1 graph, which nothing runs.
      tf.errors.UnimplementedError: XLA would compile the update.
    """
    name = f"tfo.metrics.{type(metric).__name__}"
    if sample_weight is not None:
        raise ValueError(f"sample_weight is given, but {name} has no weights: pass it as one of metrics to compile()")
    if not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function:
        raise RuntimeError(f"tensorflow_ops needs TensorFlow 2's behavior: update {name} eagerly or in a tf.function")
    strategy = tf.distribute.get_strategy()
    # Workers of ParameterServerStrategy update variables at the same time, without locks.
    if isinstance(strategy, tf.distribute.ParameterServerStrategy) or (
        strategy.num_replicas_in_sync > 1 and not isinstance(strategy, strategies)
    ):
        raise NotImplementedError(
            f"{name} does not collect updates under {strategy.__class__.__name__}: update a metric on each part of the "
            "data outside of the strategy, and merge them with merge_state()"
        )
    if needs_values and library.is_compiled_by_xla():
        advice = 'Pass jit_compile=False to compile(); its default, "auto", uses XLA on machines with a GPU.'
        raise tf.errors.UnimplementedError(None, None, f"XLA cannot compile {name}: its sizes depend on data. {advice}")


def whole_numbers(name, values):
    """Returns numbers of any dtype as int64, which must have their values; an op checks it."""
    return arguments.whole_numbers(name, values, tf.int64, on_gpu=True)


def to_dense(name, value, dtype, fill):
    """Returns a tensor of the dtype; pads a RaggedTensor. Raises ValueError."""

    def convert(values):
        return whole_numbers(name, values) if dtype is tf.int64 else tf.cast(values, dtype)

    # Converted first: unsigned numbers have no -1.
    if isinstance(value, tf.RaggedTensor):
        return value.with_flat_values(convert(value.flat_values)).to_tensor(tf.cast(fill, dtype))
    return convert(arguments.dense_tensor(name, value))
