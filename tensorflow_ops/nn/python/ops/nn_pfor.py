"""tf.vectorized_map, tf.GradientTape.jacobian and their kin for the nn ops.

Without a converter TensorFlow calls an op once for each iteration, in a loop. The ops
take a batch of any rank: one call with the iterations as the first axis does it.
"""

# Registering converters is no public API; the package is made for one TensorFlow.
from tensorflow.python.ops.parallel_for import pfor as pfor_lib

_OPS = (
    "Softmax",
    "SoftmaxGrad",
    "SoftmaxEntropy",
    "SoftmaxEntropyGrad",
    "SparseSoftmaxCrossEntropy",
    "SparseSoftmaxCrossEntropyGrad",
    "SoftmaxCrossEntropy",
    "SoftmaxCrossEntropyGrad",
    "GaussianKl",
    "GaussianKlGrad",
)


def _convert(pfor_input):
    """P iterations of an op on [..., classes] as one op on [P, ..., classes]."""
    op = pfor_input.op
    pfor_input.stack_inputs()
    tensors = [value.t for value in pfor_input.inputs]
    dtypes = [output.dtype for output in op.outputs]
    outputs = pfor_lib._create_op(op.type, tensors, dtypes, attrs=op.node_def.attr).outputs
    # d_labels, where nobody asked for it, is empty and not of the batch's shape.
    left_out = 1 if op.type == "TensorflowOps>SoftmaxCrossEntropyGrad" and not op.get_attr("to_labels") else None
    return [pfor_lib.wrap(output, i != left_out) for i, output in enumerate(outputs)]


for _name in _OPS:
    pfor_lib.RegisterPFor(f"TensorflowOps>{_name}")(_convert)
