"""Gradients: one defined here in Python, one defined in C++ and called from here."""

import functools

import tensorflow as tf

from tensorflow_ops.core.python.library import ops


@tf.RegisterGradient("TensorflowOps>ZeroOut")
def _zero_out_grad(op, dy):
    """zero_out is linear: its gradient is zero_out of the upstream gradient."""
    del op
    return ops.tensorflow_ops_zero_out(x=dy)


@functools.cache
def _cc_gradient(dtype, preserve_index):
    """Returns a ConcreteFunction (x, d_zeroed) -> dx that runs the C++ gradient.

    `SymbolicGradient` differentiates a function by the gradients that are
    registered in C++ (cc/ops/zero_out_grad.cc); it works in graphs only. The cache
    holds one function for each dtype and attr, which belongs to no graph that is
    being traced.
    """
    any_shape = tf.TensorSpec(None, dtype)
    with tf.init_scope():

        @tf.function(input_signature=[any_shape])
        def forward(x):
            return tuple(ops.tensorflow_ops_zero_out_with_index(x=x, preserve_index=preserve_index))

        concrete_forward = forward.get_concrete_function()

        @tf.function(input_signature=[any_shape, any_shape])
        def gradient(x, d_zeroed):
            # The inputs, then a gradient for each output: N + 1 of them for one
            # input and N outputs.
            d_index = tf.zeros([1], tf.int32)
            (dx,) = tf.raw_ops.SymbolicGradient(input=[x, d_zeroed, d_index], Tout=[dtype], f=concrete_forward)
            return dx

        return gradient.get_concrete_function()


@tf.RegisterGradient("TensorflowOps>ZeroOutWithIndex")
def _zero_out_with_index_grad(op, d_zeroed, d_index):
    """Calls the gradient that C++ defines. Ignores `d_index`: an integer output has no gradient."""
    del d_index
    x = op.inputs[0]
    preserve_index = op.get_attr("preserve_index")

    @tf.custom_gradient
    def vector_jacobian_product(upstream):
        # SymbolicGradient itself has no gradient, which an outer tape would need.
        dx = _cc_gradient(x.dtype, preserve_index)(tf.stop_gradient(x), tf.stop_gradient(upstream))
        # dx is the op applied to `upstream`, so its gradient is the op once more.
        return dx, lambda ddx: ops.tensorflow_ops_zero_out_with_index(x=ddx, preserve_index=preserve_index)[0]

    return vector_jacobian_product(d_zeroed)
