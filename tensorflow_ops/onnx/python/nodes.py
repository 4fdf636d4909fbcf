"""`Nodes`, which handlers of ops call."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto
from tf2onnx import graph_builder, utils


class Nodes:
    """Makes the ONNX nodes that replace a node of tf2onnx's graph: `nodes.Add(x, y)` returns the name of the sum."""

    def __init__(self, graph, node):
        self._graph, self._node = graph, node
        self.inputs = list(node.input)
        self.opset = graph.opset

    def __getattr__(self, op: str) -> Callable[..., Any]:
        def make(*inputs, outputs=1, **attrs):
            name = utils.make_name(self._node.name)
            made = self._graph.make_node(op, list(inputs), attr=attrs, output_count=outputs, name=name).output
            return made[0] if outputs == 1 else made

        return make

    def attr(self, name: str) -> Any:
        value = self._node.get_attr_value(name)
        return value.decode() if isinstance(value, bytes) else value

    def constant(self, value) -> str:
        return self._graph.make_const(utils.make_name(f"{self._node.name}_constant"), np.array(value)).output[0]

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: int) -> str:
        return self.constant(np.int64(value))

    def like(self, tensor: str, value) -> str:
        """Returns a constant of a tensor's dtype."""
        return self.constant(np.array(value, self.numpy_dtype(tensor)))

    def value(self, i: int) -> np.ndarray:
        """Returns the value of a constant input."""
        return self._graph.get_node_by_output(self.inputs[i]).get_tensor_value(as_list=False)

    def producer(self, tensor: str) -> Any:
        """Returns tf2onnx's node that computes a tensor, before those that only pass it on."""
        node = self._graph.get_node_by_output(tensor)
        while node.type == "Identity":
            node = self._graph.get_node_by_output(node.input[0])
        return node

    def is_constant(self, tensor: str) -> bool:
        return self._graph.get_node_by_output(tensor).is_const()

    def dtype(self, tensor: str) -> int:
        return self._graph.get_dtype(tensor)

    def numpy_dtype(self, tensor: str) -> type:
        return utils.map_onnx_to_numpy_type(self.dtype(tensor))

    def shape(self, tensor: str) -> list[int]:
        return self._graph.get_shape(tensor)

    def cast(self, tensor: str, dtype: int) -> str:
        return tensor if self.dtype(tensor) == dtype else self.Cast(tensor, to=dtype)

    def to_int64(self, tensor: str) -> str:
        return self.cast(tensor, TensorProto.INT64)

    def to_int32(self, tensor: str) -> str:
        return self.cast(tensor, TensorProto.INT32)

    def widened(self, tensor: str) -> str:
        """Returns a 16-bit tensor as float32: our kernels compute it so."""
        return self.cast(tensor, TensorProto.FLOAT) if self.dtype(tensor) == TensorProto.FLOAT16 else tensor

    def to_channels_first(self, tensor: str) -> str:
        return self.Transpose(tensor, perm=[0, 3, 1, 2])

    def to_channels_last(self, tensor: str) -> str:
        return self.Transpose(tensor, perm=[0, 2, 3, 1])

    def reduce_max(self, tensor: str, axis: int) -> str:
        return graph_builder.GraphBuilder(self._graph).make_reduce_max({"data": tensor, "axes": [axis], "keepdims": 1})

    def columns(self, tensor: str, *columns: int) -> str:
        return self.Gather(tensor, self.ints(*columns), axis=1)

    def replace(self, results: Sequence[str | None]) -> None:
        """Gives the results the names of the node's outputs."""
        outputs = list(self._node.output)
        kinds = [(self._graph.get_dtype(output), self._graph.get_shape(output)) for output in outputs]
        self._graph.remove_node(self._node.name)
        for result, output, (dtype, shape) in zip(results, outputs, kinds, strict=True):
            if result is not None:
                result = self.cast(result, dtype)
                self._graph.make_node("Identity", [result], outputs=[output], dtypes=[dtype], shapes=[shape])
