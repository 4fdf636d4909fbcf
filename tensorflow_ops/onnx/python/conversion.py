"""What `register` changes of tf2onnx: handlers of ops, and two of its functions."""

import contextvars
import functools
import warnings

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph
from tf2onnx import constants, convert, handler, tfonnx

from tensorflow_ops.export.python.compositions import PREFIX
from tensorflow_ops.onnx.python import direct

# Whether tf2onnx converts a graph that has ops of this package.
_has_ops = contextvars.ContextVar("has_ops", default=False)


def _operations(graph_def, graph):
    """Yields each operation of this package and its NodeDef, of the graph and of its functions."""
    graphs = [(graph_def.node, graph)]
    for function in graph_def.library.function:
        if any(node.op.startswith(PREFIX) for node in function.node_def):
            graphs.append((function.node_def, function_def_to_graph.function_def_to_graph(function)))
    for nodes, graph in graphs:
        for node in nodes:
            if node.op.startswith(PREFIX):
                yield graph.get_operation_by_name(node.name), node


def _is_direct(operation, opset):
    """Returns whether ONNX of this opset has operators for an operation."""
    found = direct.DIRECT.get(operation.type[len(PREFIX) :])
    if found is None or not found.fits(operation):
        return False
    if opset < found.opset:
        warnings.warn(
            f"{operation.type} becomes many nodes: ONNX has operators for it from opset {found.opset} on",
            stacklevel=2,
        )
    return opset >= found.opset


def _check_dtypes(operation):
    if tf.bfloat16 in {tensor.dtype for tensor in [*operation.inputs, *operation.outputs]}:
        raise NotImplementedError(
            f"{operation.type} of bfloat16, node {operation.name}: tf2onnx would write float16; export another dtype"
        )


def _rewritten(graph, opset):
    """Returns a TensorFlow graph whose ops of this package have a handler."""
    graph_def = graph.as_graph_def(add_shapes=True)
    for operation, _ in _operations(graph_def, graph):
        _check_dtypes(operation)
        if not _is_direct(operation, opset):
            raise NotImplementedError(f"{operation.type}, node {operation.name}, has no form in ONNX")
    return graph


def _with_rewriting(process_tf_graph):
    @functools.wraps(process_tf_graph)
    def process(tf_graph, *args, **kwargs):
        opset = kwargs.get("opset") or constants.PREFERRED_OPSET
        ops = [operation for operation in tf_graph.get_operations() if operation.type.startswith(PREFIX)]
        token = _has_ops.set(bool(ops))
        try:
            return process_tf_graph(_rewritten(tf_graph, opset), *args, **kwargs)
        finally:
            _has_ops.reset(token)

    return process


def _with_errors(tensorflow_onnx_mapping):
    """Makes errors of a graph that has ops of this package end the conversion: tf2onnx logs them and writes a file."""

    @functools.wraps(tensorflow_onnx_mapping)
    def mapping(*args, **kwargs):
        mapped, unmapped, exceptions = tensorflow_onnx_mapping(*args, **kwargs)
        if exceptions and _has_ops.get():
            raise NotImplementedError(f"tf2onnx cannot convert the graph: {exceptions[0]}") from exceptions[0]
        return mapped, unmapped, exceptions

    return mapping


def _handler(op):
    def convert_node(graph, node, **_):
        nodes = direct.Nodes(graph, node)
        nodes.replace(direct.DIRECT[op].convert(nodes))

    return convert_node


@functools.cache
def register():
    """Changes tf2onnx, once."""
    for op in direct.DIRECT:
        handler.tf_op(PREFIX + op).register_compat_handler(_handler(op), 1)
    # tf2onnx 1.17 stops at opset 18. Opset 19 only adds dtypes to what it writes.
    constants.OPSET_TO_IR_VERSION.setdefault(19, 9)
    convert.process_tf_graph = tfonnx.process_tf_graph = _with_rewriting(tfonnx.process_tf_graph)
    tfonnx.tensorflow_onnx_mapping = _with_errors(tfonnx.tensorflow_onnx_mapping)
