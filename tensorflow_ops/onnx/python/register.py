"""`register`."""


def register() -> None:
    """Lets tf2onnx convert the ops of this package, and so `model.export(path, format="onnx")` of Keras.

    Call it before `tf2onnx.convert.from_function` or `model.export`. Ops that ONNX has, too, become its operators, if
    the opset has them: 16, which is newer than tf2onnx's default, has RoiAlign and GridSample, 19 DeformConv. The
    others become what TensorFlow's own ops compute them with. Further calls do nothing.

    >>> import tensorflow as tf, tensorflow_ops as tfo, tf2onnx
    >>> tfo.onnx.register()
    >>> logits = tf.TensorSpec([None, 10])
    >>> model, _ = tf2onnx.convert.from_function(tf.function(tfo.nn.softmax), [logits], opset=18)
    >>> "Softmax" in [node.op_type for node in model.graph.node]
    True

    A conversion raises NotImplementedError for an op, or an option of one, that has no form in ONNX.

    Raises:
      ImportError: tf2onnx is not installed.
    """
    try:
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise ImportError("tfo.onnx.register needs tf2onnx: install the extra, tensorflow-extra-ops[onnx]") from error
    from tensorflow_ops.onnx.python import conversion

    conversion.register()
