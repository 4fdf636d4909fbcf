"""What `register` changes of tf2onnx: handlers of ops, and two of its functions.

tf2onnx takes a TensorFlow graph. Before it does, each op that has no handler here becomes a call of its composition of
TensorFlow's own ops, and the call is inlined: tf2onnx has no calls.
"""

import contextvars
import functools
import warnings
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.framework import function_def_to_graph
from tensorflow.python.grappler import tf_optimizer
from tf2onnx import constants, convert, handler, tfonnx, utils
from tf2onnx.optimizer import reshape_optimizer

from tensorflow_ops.export.python import standard_ops
from tensorflow_ops.export.python.compositions import PREFIX, compositions
from tensorflow_ops.onnx.python import nodes, operators, standard

# Whether the graph that tf2onnx converts has ops of this package.
_has_ops = contextvars.ContextVar("has_ops", default=False)

# Of the handlers here.
_FIRST_OPSET = 13

# A private attr of nodes that have a handler.
_IS_DIRECT = "_is_direct"


def _operations(graph_def, graph) -> Iterator[tuple[tf.Operation, node_def_pb2.NodeDef]]:
    """Yields each operation of this package and its NodeDef, of the graph and of its functions."""
    graphs = [(graph_def.node, graph)]
    for function in graph_def.library.function:
        if any(node.op.startswith(PREFIX) for node in function.node_def):
            graphs.append((function.node_def, function_def_to_graph.function_def_to_graph(function)))
    for node_defs, graph in graphs:
        for node in node_defs:
            if node.op.startswith(PREFIX):
                yield graph.get_operation_by_name(node.name), node


def _is_direct(operation, opset):
    """Returns whether ONNX of this opset has operators for an operation."""
    found = operators.operators().get(operation.type[len(PREFIX) :])
    if found is None or not found.fits(operation):
        return False
    if opset < found.opset:
        warnings.warn(
            f"{operation.type} becomes many nodes: ONNX has operators for it from opset {found.opset} on",
            stacklevel=2,
        )
    return opset >= found.opset


def _check(operation, is_direct):
    """Raises NotImplementedError for an operation that has no form in ONNX."""
    what = f"{operation.type}, node {operation.name},"
    if tf.bfloat16 in {tensor.dtype for tensor in [*operation.inputs, *operation.outputs]}:
        raise NotImplementedError(f"{what} is of bfloat16, which tf2onnx would write as float16: export another dtype")
    if not is_direct and operation.type[len(PREFIX) :] not in compositions():
        raise NotImplementedError(f"{what} has no form in ONNX; gradients have none: export functions of inference")


def _make_names_unique(function):
    """Adds a function's name to those of its nodes: ONNX has no scopes of names."""
    prefix = function.signature.name + "/"

    def renamed(reference):
        name, *output = reference.split(":", 1)
        if name.startswith("^"):
            return f"^{prefix}{name[1:]}"
        return ":".join([prefix + name, *output]) if output else name

    for node in function.node_def:
        node.name = prefix + node.name
        node.input[:] = map(renamed, node.input)
    for name, reference in list(function.ret.items()):
        function.ret[name] = renamed(reference)
    for name, node_name in list(function.control_ret.items()):
        function.control_ret[name] = prefix + node_name


def _give_functions(nodes, functions, library):
    """Adds a copy of each function that nodes refer to: tf2onnx changes the functions of a loop that it converts."""
    for reference in standard_ops.function_references(nodes):
        function = library.function.add()
        function.CopyFrom(functions[reference.name])
        reference.name = function.signature.name = f"{reference.name}_{len(library.function)}"
        _make_names_unique(function)
        _give_functions(function.node_def, functions, library)


def _inlined(graph_def, outputs, folds_constants):
    """Returns a graph without calls of functions, but those of loops and branches."""
    for node in standard_ops.all_nodes(graph_def):
        # Else loops become Switch and Merge, which tf2onnx lacks.
        node.attr.pop("_lower_using_switch_merge", None)
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1
    options.function_optimization = rewriter_config_pb2.RewriterConfig.AGGRESSIVE
    options.optimizers.extend(["function", *["constfold"] * folds_constants])
    graph = tf.compat.v1.train.export_meta_graph(graph_def=graph_def)
    graph.collection_def["train_op"].node_list.value.extend(outputs)
    inlined = tf_optimizer.OptimizeGraph(config, graph)
    functions = {function.signature.name: function for function in inlined.library.function}
    inlined.ClearField("library")
    _give_functions(inlined.node, functions, inlined.library)
    return inlined


def _rewritten(graph, graph_def, kwargs):
    """Returns a TensorFlow graph whose ops of this package have handlers."""
    opset = utils.find_opset(kwargs.get("opset"))
    for operation, node in _operations(graph_def, graph):
        is_direct = _is_direct(operation, opset)
        _check(operation, is_direct)
        node.attr[_IS_DIRECT].b = is_direct
    if not standard_ops.rewrite(graph_def, lambda node: node.attr[_IS_DIRECT].b):
        return graph
    # Without their values, large constants cannot be folded.
    folds_constants = not kwargs.get("const_node_values")
    names = [name for key in ("input_names", "output_names") for name in kwargs.get(key) or ()]
    inlined = _inlined(graph_def, names, folds_constants)
    with tf.Graph().as_default() as rewritten:
        tf.import_graph_def(inlined, name="")
    return rewritten


def _with_rewriting(process_tf_graph):
    @functools.wraps(process_tf_graph)
    def process(tf_graph, *args, **kwargs):
        graph_def = tf_graph.as_graph_def(add_shapes=True)
        if not any(_operations(graph_def, tf_graph)):
            return process_tf_graph(tf_graph, *args, **kwargs)
        token = _has_ops.set(True)
        try:
            with _rewritten(tf_graph, graph_def, kwargs).as_default() as graph:
                return process_tf_graph(graph, *args, **kwargs)
        finally:
            _has_ops.reset(token)

    return process


def _with_errors(tensorflow_onnx_mapping):
    """Lets errors end the conversion of a graph that has ops of this package: tf2onnx logs them and writes a file."""

    @functools.wraps(tensorflow_onnx_mapping)
    def mapping(graph, *args, **kwargs):
        nodes = list(graph.get_nodes())
        mapped, unmapped, exceptions = tensorflow_onnx_mapping(graph, *args, **kwargs)
        if _has_ops.get() and (exceptions or unmapped):
            # The first node of each op.
            failed = {node.type: node.name for node in reversed(nodes) if not node.need_skip()}
            text = "; ".join(f"{op}, node {name}" for op, name in failed.items())
            cause = exceptions[0] if exceptions else None
            raise NotImplementedError(f"tf2onnx cannot convert {text}: {cause or 'it lacks the op'}") from cause
        return mapped, unmapped, exceptions

    return mapping


def _with_empty_tensors(optimize_reshape):
    """Keeps shapes that may have a size of 0: as a constant, tf2onnx writes 0 for any size that is the input's."""

    @functools.wraps(optimize_reshape)
    def optimize(self, node, graph):
        return not node.get_attr_value("allowzero") and optimize_reshape(self, node, graph)

    return optimize


def _register(op, make, replaced=None):
    """Registers `make`, a function of Nodes, for an op; for other graphs, `replaced` remains, if there is one."""

    def convert_node(graph, node, **kwargs):
        if replaced and not _has_ops.get():
            return replaced(graph, node, **kwargs)
        made = nodes.Nodes(graph, node)
        return made.replace(make(made))

    handler.tf_op(op).register_compat_handler(convert_node, _FIRST_OPSET)


@functools.cache
def register():
    """Changes tf2onnx, once."""
    for op, found in operators.operators().items():
        _register(PREFIX + op, found.convert)
    known = handler.tf_op.create_mapping(_FIRST_OPSET, None)
    for op, make in standard.STANDARD.items():
        replaced, _ = known.get(op, (None, None))
        _register(op, make, replaced)
    # tf2onnx 1.17 stops at opset 18. Opset 19 only adds dtypes to what it writes.
    constants.OPSET_TO_IR_VERSION.setdefault(19, 9)
    convert.process_tf_graph = tfonnx.process_tf_graph = _with_rewriting(tfonnx.process_tf_graph)
    reshapes = reshape_optimizer.ReshapeOptimizer
    reshapes._optimize_reshape = _with_empty_tensors(reshapes._optimize_reshape)
    tfonnx.tensorflow_onnx_mapping = _with_errors(tfonnx.tensorflow_onnx_mapping)
