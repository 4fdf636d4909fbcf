"""Calls of plans, eagerly or as a node of a graph, and their gradients.

An eager call reads the tensors' memory, runs the NumPy function in the calling thread and
records the gradient on the tapes. In a graph the call is a PyFuncStateless node,
TensorFlow's own callback. Nodes of the same op, dtypes and attributes share a callback.
"""

import itertools
import threading

import tensorflow as tf

# TensorFlow has no public API for callbacks, tapes and converters; a wheel fits one TensorFlow release.
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context as eager_context
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.ops import control_flow_util, script_ops
from tensorflow.python.ops.parallel_for import pfor as pfor_lib

from tensorflow_ops.prototyping.python import plans, vectorize

_NODE = "PyFuncStateless"
_GRADIENT = "TensorflowOps>PythonOp"
_PYTHON_ERRORS = {  # the callback converts these back to TensorFlow's errors
    tf.errors.InvalidArgumentError: ValueError,
    tf.errors.UnimplementedError: NotImplementedError,
    tf.errors.ResourceExhaustedError: MemoryError,
}


class _Callback:
    """The function that nodes call: runs a plan, vectorized as `stacked` declares (see vectorize.py)."""

    def __init__(self, plan, stacked):
        self.plan = plan
        self.stacked = stacked
        self.token = script_ops._py_funcs.insert(self)  # holds it weakly

    def __call__(self, *values):
        arrays = [plans.as_array(value) for value in values]
        try:
            return vectorize.run(self.plan, arrays, self.stacked) if self.stacked else self.plan.run(arrays)
        except tf.errors.OpError as error:
            kind = _PYTHON_ERRORS.get(type(error), RuntimeError)
            raise kind(error.message) from error.__cause__


# Callbacks by the plan's key. Graphs, frozen and copied ones too, refer to them only by
# token, so they live as long as the process.
_callbacks = {}
_callbacks_lock = threading.Lock()


def _callback_for(plan, stacked, graphs):
    """Returns the callback of a plan; if attributes have no key, a new one that lives as long as the graphs."""
    if plan.key is None:
        callback = _Callback(plan, stacked)
        for graph in graphs:
            if not hasattr(graph, "_tensorflow_ops_callbacks"):
                graph._tensorflow_ops_callbacks = []
            graph._tensorflow_ops_callbacks.append(callback)
        return callback
    with _callbacks_lock:
        key = (plan.key, stacked)
        if key not in _callbacks:
            _callbacks[key] = _Callback(plan, stacked)
        return _callbacks[key]


def call(plan, tensors, name=None, stacked=()):
    """Calls a plan on its flat tensors, and records the call on all tapes. Returns its flat results."""
    if eager_context.executing_eagerly():
        outputs = _call_eagerly(plan, tensors)
    else:
        outputs = _add_node(plan, tensors, name, stacked)
    if not pywrap_tfe.TFE_Py_TapeSetIsEmpty() and plan.is_differentiable():
        _record(plan, tensors, outputs, stacked)
    return outputs


def _call_eagerly(plan, tensors):
    arrays = []
    for tensor in tensors:
        array = tensor._numpy()  # the tensor's memory, not a copy
        arrays.append(plans.as_array(array))
    device = eager_context.context().device_name
    return [
        ops.EagerTensor(result, device, dtype.as_datatype_enum)
        for result, dtype in zip(plan.run(arrays), plan.result_dtypes, strict=True)
    ]


def _record(plan, tensors, outputs, stacked):
    missing = plan.stage.missing_forward_mode()

    def backward(*output_gradients):
        return _gradients(plan, tensors, outputs, output_gradients, stacked)

    def forward(*unused_tangents):
        raise missing

    differentiable = list(itertools.compress(outputs, plan.outputs_differentiable))
    pywrap_tfe.TFE_Py_TapeSetRecordOperation(
        plan.stage.op_name, differentiable, list(tensors[: plan.num_inputs]), backward, forward if missing else None
    )


def _gradients(plan, tensors, results, output_gradients, stacked):
    """Returns the gradient to each flat input, or None.

    `output_gradients` are those of the differentiable outputs.
    """
    gradient_plan = plan.gradient_plan()
    inputs, rest = list(tensors[: plan.num_inputs]), list(tensors[plan.num_inputs :])
    gradients = [tf.convert_to_tensor(gradient) for gradient in output_gradients]
    levels = tuple(
        (*level[: plan.num_inputs], *([True] * (len(gradients) + len(results))), *level[plan.num_inputs :])
        for level in stacked
    )
    flat = call(gradient_plan, [*inputs, *gradients, *results, *rest], stacked=levels)
    flat = plan.input_gradients(flat)
    if not stacked:
        return flat
    for i, gradient in enumerate(flat):
        alone = [axis for axis, level in enumerate(stacked) if not level[i]]
        if gradient is not None and alone:  # one input for many calls: their gradients add up
            flat[i] = tf.reduce_sum(gradient, alone)
    return flat


def _types(dtypes):
    return attr_value_pb2.AttrValue(
        list=attr_value_pb2.AttrValue.ListValue(type=[dtype.as_datatype_enum for dtype in dtypes])
    )


def _string(text):
    return attr_value_pb2.AttrValue(s=text.encode())


def _add_node(plan, tensors, name, stacked):
    graph = ops.get_default_graph()
    op_name = plan.stage.op_name
    if control_flow_util.GraphOrParentsInXlaContext(graph):
        raise tf.errors.UnimplementedError(
            None,
            None,
            f"{op_name} is a Python function, which XLA (jit_compile=True) cannot compile. "
            f"Register a compiled op with an XLA kernel ({plan.stage.python_name}.register_kernel), "
            "or use jit_compile=False",
        )
    graphs = [graph]
    while isinstance(graph, func_graph.FuncGraph):
        graph.mark_as_unsaveable(
            f"{op_name} is a Python function, which a SavedModel cannot hold. Register a compiled op "
            f"({plan.stage.python_name}.register_kernel), then trace and save again"
        )
        graph = graph.outer_graph
        if isinstance(graph, func_graph.FuncGraph):
            graphs.append(graph)
    callback = _callback_for(plan, stacked, graphs)
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    node = ops.get_default_graph()._create_op_internal(
        _NODE,
        tensors,
        list(plan.result_dtypes),
        name=name or op_name.replace("::", "_") + "_gradient" * plan.stage.order,
        attrs={
            "token": _string(callback.token),
            "Tin": _types([tensor.dtype for tensor in tensors]),
            "Tout": _types(plan.result_dtypes),
            "_gradient_op_type": _string(_GRADIENT),
        },
    )
    shapes, batch = vectorize.static_shapes([tensor.shape for tensor in tensors], stacked)
    for output, declared in zip(node.outputs, plan.declared(tuple(shapes)), strict=True):
        output.set_shape(tf.TensorShape(batch).concatenate(tf.TensorShape(declared.shape)))
    return list(node.outputs)


def _callback_of(node):
    """Returns the _Callback of a node, or None."""
    callback = script_ops._py_funcs.get(node.get_attr("token").decode())
    return callback if isinstance(callback, _Callback) else None


@ops.RegisterGradient(_GRADIENT)
def _gradient_of_node(node, *gradients):
    callback = _callback_of(node)
    if callback is None:
        raise LookupError(f"{node.name}: the Python function of this node no longer exists")
    plan = callback.plan
    differentiable = [
        tf.zeros_like(output) if gradient is None else gradient
        for gradient, output in itertools.compress(
            zip(gradients, node.outputs, strict=True), plan.outputs_differentiable
        )
    ]
    flat = _gradients(plan, list(node.inputs), list(node.outputs), differentiable, callback.stacked)
    return flat + [None] * (len(node.inputs) - plan.num_inputs)


@pfor_lib.RegisterPFor(_NODE)
def _convert(pfor_input):
    """Converts a node for tf.vectorized_map: one call for all iterations; inputs that differ are stacked."""
    callback = _callback_of(pfor_input.op)
    if callback is None or any(value.is_sparse_stacked for value in pfor_input.inputs):
        raise pfor_lib.ConversionNotImplementedError(f"{pfor_input.op.name} is not a node of a python_op")
    level = tuple(value.is_stacked for value in pfor_input.inputs)
    stacked = (level, *callback.stacked)
    outputs = call(callback.plan, [value.t for value in pfor_input.inputs], stacked=stacked)
    return [pfor_lib.wrap(output, True) for output in outputs]
