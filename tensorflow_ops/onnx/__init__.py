"""ONNX: lets tf2onnx, and Keras with it, export models that call the ops of this package."""

from tensorflow_ops.onnx.python.register import register

__all__ = ["register"]
