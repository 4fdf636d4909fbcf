"""Steps of Keras's optimizers."""

from tensorflow_ops.layers.python.switch.served import Original, served
from tensorflow_ops.optimizers.python.ops import fused_steps


@served("optimizers", "optimizers.Optimizer", "_backend_apply_gradients")
def apply_gradients(original, optimizer, grads, trainable_variables):
    if isinstance(optimizer, fused_steps.FusedSteps):
        return Original("")  # LazyAdam
    reason = fused_steps.misfit(optimizer, grads, trainable_variables)
    if reason is not None:
        return Original(reason)
    return original(fused_steps.FusedSteps(optimizer), grads, trainable_variables)
