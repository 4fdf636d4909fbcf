"""Images with their labels and predictions as image summaries."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.core.python.type_aliases import IntLike, TensorLike
from tensorflow_ops.prototyping import python_op
from tensorflow_ops.summary.python import drawing, writer


def _text(value, class_names):
    """Formats an id or a string."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    value = int(value)
    return class_names[value] if class_names is not None and 0 <= value < len(class_names) else str(value)


def _caption(label, prediction, class_names):
    """Returns (lines, colour of the frame) of an image."""
    label = _text(label, class_names)
    if prediction is None:
        return [(label, drawing.BLACK)], drawing.BLACK
    probability = ""
    if np.ndim(prediction) == 1:
        top = int(np.argmax(prediction))
        probability = f" {float(prediction[top]):.1%}"
        prediction = top
    prediction = _text(prediction, class_names)
    colour = drawing.GREEN if prediction == label else drawing.RED
    return [(prediction + probability, colour), (f"label: {label}", drawing.BLACK)], colour


@python_op("tensorflow_ops::labeled_images", out=tf.TensorSpec([None], tf.string))
def _draw(images, labels, *optional, names, class_names):
    """Returns width, height and a PNG for each image; `names` are those of the optional arrays."""
    optional = dict(zip(names, optional, strict=True))
    for name, array in {"labels": labels, **optional}.items():
        if len(array) != len(images):
            raise ValueError(f"{name} has {len(array)} rows, expected one for each of {len(images)} images")
    if images.shape[-1] not in (1, 3, 4):
        raise ValueError(f"images have {images.shape[-1]} channels, expected 1 (gray), 3 (RGB) or 4 (RGBA)")
    boxes, box_labels = optional.get("boxes"), optional.get("box_labels")
    if boxes is not None and boxes.shape[2] != 4:
        raise ValueError(f"boxes has shape {list(boxes.shape)}, expected [images, boxes, 4]")
    if box_labels is not None and box_labels.shape != boxes.shape[:2]:
        raise ValueError(f"box_labels has shape {list(box_labels.shape)}, expected {list(boxes.shape[:2])}")
    pictures = []
    for i, image in enumerate(images):
        prediction = optional["predictions"][i] if "predictions" in optional else None
        lines, colour = _caption(labels[i], prediction, class_names)
        texts = [_text(value, class_names) for value in box_labels[i]] if box_labels is not None else None
        on_image = [] if boxes is None else [(box, texts[k] if texts else "") for k, box in enumerate(boxes[i])]
        pictures.append(drawing.picture(image, lines, colour, on_image))
    width, height = pictures[0].size if pictures else (0, 0)
    return [str(width), str(height), *(drawing.png(picture) for picture in pictures)]


def _check(name, tensor, ranks, kinds, expected):
    """Raises ValueError if the dtype or the static rank does not fit."""
    fits = any(getattr(tensor.dtype, f"is_{kind}", False) or tensor.dtype == kind for kind in kinds)
    if not fits or (tensor.shape.rank is not None and tensor.shape.rank not in ranks):
        raise ValueError(f"{name} is {tensor.dtype.name} of shape {tensor.shape}, expected {expected}")
    return tensor


def labeled_images(
    name: str,
    images: TensorLike,
    labels: TensorLike | Sequence[str],
    *,
    predictions: TensorLike | Sequence[str] | None = None,
    max_outputs: int = 3,
    step: IntLike | None = None,
    boxes: TensorLike | None = None,
    box_labels: TensorLike | Sequence[Sequence[str]] | None = None,
    class_names: Sequence[str] | None = None,
) -> tf.Tensor:
    """Writes images with their labels and predictions as an image summary for TensorBoard.

    Draws the prediction under each image, in green if it equals the label, else in red, and
    the label; a frame has the same colour. Enlarges small images to a width of at least 160
    pixels. Works eagerly and in tf.function, such as a training step, without a display,
    and in threads. Draws only if the summary is recorded (a default writer,
    `tf.summary.record_if`).

    >>> import tempfile, tensorflow as tf, tensorflow_ops as tfo
    >>> images = tf.random.uniform([8, 28, 28, 1])
    >>> with tf.summary.create_file_writer(tempfile.mkdtemp()).as_default(step=0):
    ...     written = tfo.summary.labeled_images(
    ...         "digits", images, tf.range(8), predictions=tf.one_hot([0, 7, 2, 3, 4, 5, 6, 7], 10))
    >>> bool(written)
    True

    Args:
      name: the summary's name.
      images: [N, H, W, C], C being 1 (gray), 3 (RGB) or 4 (RGBA, drawn on white): uint8
        in [0, 255], or any float dtype in [0, 1]; other values are clipped, NaN is 0.
      labels: [N], ids of an integer dtype, or strings of UTF-8.
      predictions: [N], ids or strings; or [N, classes] of a float dtype: probabilities in
        [0, 1], of which the largest is the prediction, drawn with its percentage. None:
        only labels are drawn.
      max_outputs: the maximum number of images to draw, the first ones; an int.
      step: int64 scalar, the summary's step; None is the default step
        (tf.summary.experimental.set_step, or the writer's).
      boxes: [N, K, 4], (x1, y1, x2, y2) in pixels of the images, of an integer or float
        dtype, drawn in blue. Boxes without area, such as padding, are skipped.
      box_labels: [N, K], ids or strings, drawn at the boxes.
      class_names: a sequence of strings: id i is drawn as class_names[i]. A prediction is
        right if its text equals the label's, so ids and names can be compared.

    Returns:
      A bool tensor: whether the summary was written.

    Raises:
      ImportError: Pillow is not installed.
      ValueError: a dtype or rank that does not fit; box_labels without boxes; a default
        writer without a step.
      InvalidArgumentError: sizes that do not fit, when drawn.
    """
    images = arguments.dense_tensor("images", images)
    _check("images", images, (4,), ("floating", tf.uint8), "uint8 or float [N, H, W, C]")
    ids = ("integer", tf.string)
    labels = arguments.dense_tensor("labels", labels)
    tensors = {"labels": _check("labels", labels, (1,), ids, "integers or strings [N]")}
    if predictions is not None:
        predictions = arguments.dense_tensor("predictions", predictions)
        rank, kinds = ((2,), ("floating",)) if predictions.dtype.is_floating else ((1,), ids)
        expected = "integers or strings [N], or floats [N, classes]"
        tensors["predictions"] = _check("predictions", predictions, rank, kinds, expected)
    if boxes is not None:
        boxes = arguments.dense_tensor("boxes", boxes)
        tensors["boxes"] = _check("boxes", boxes, (3,), ("integer", "floating"), "integers or floats [N, K, 4]")
    if box_labels is not None:
        if boxes is None:
            raise ValueError("box_labels is given and boxes is None, expected both")
        box_labels = arguments.dense_tensor("box_labels", box_labels)
        tensors["box_labels"] = _check("box_labels", box_labels, (2,), ids, "integers or strings [N, K]")
    max_outputs = arguments.static_int("max_outputs", max_outputs, 0)
    class_names = None if class_names is None else tuple(str(item) for item in class_names)
    writer.require("PIL.Image", "pillow", "tfo.summary.labeled_images")

    def draw():
        first = {key: tensor[:max_outputs] for key, tensor in tensors.items()}
        first_labels = first.pop("labels")
        return _draw(images[:max_outputs], first_labels, *first.values(), names=tuple(first), class_names=class_names)

    return writer.write(name, draw, step)
