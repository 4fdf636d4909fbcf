"""Vectorization of the nn ops (core/python/pfor.py): they take any batch dims, and iterations become the first one."""

from tensorflow_ops.core.python import pfor

_OPS = (
    "Softmax",
    "SoftmaxGrad",
    "SoftmaxEntropy",
    "SoftmaxEntropyGrad",
    "SparseSoftmaxCrossEntropy",
    "SparseSoftmaxCrossEntropyGrad",
    "SoftmaxCrossEntropy",
    "GaussianKl",
    "GaussianKlGrad",
)

for _name in _OPS:
    pfor.register(f"TensorflowOps>{_name}")(pfor.convert_batched)


@pfor.register("TensorflowOps>SoftmaxCrossEntropyGrad")
def _cross_entropy_grad(pfor_input):
    # Without to_labels the second output, d_labels, is empty: a [0], without batch dims.
    return pfor.convert_batched(pfor_input, unstacked=() if pfor_input.op.get_attr("to_labels") else (1,))
