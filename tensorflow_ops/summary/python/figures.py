"""Matplotlib figures as image summaries."""

import io
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tensorflow_ops.core.python.type_aliases import IntLike, TensorLike
from tensorflow_ops.prototyping import python_op
from tensorflow_ops.summary.python import writer

# Matplotlib is not thread-safe: figures share fonts and caches.
_matplotlib_lock = threading.Lock()


@python_op("tensorflow_ops::figure", out=tf.TensorSpec([3], tf.string))
def _draw(*arrays, draw_fn):
    """Returns width, height and PNG of the figure that draw_fn draws."""
    from matplotlib.backends import backend_agg
    from matplotlib.figure import Figure

    with _matplotlib_lock:
        # Not by pyplot, which keeps all figures of a process and may need a display.
        figure = Figure(layout="constrained")
        canvas = backend_agg.FigureCanvasAgg(figure)
        draw_fn(figure, *arrays)
        png = io.BytesIO()
        canvas.print_png(png)
        width, height = canvas.get_width_height()
    return [str(width), str(height), png.getvalue()]


def figure(
    name: str,
    draw_fn: Callable[..., Any],
    args: Sequence[TensorLike | Sequence[str]],
    *,
    step: IntLike | None = None,
) -> tf.Tensor:
    """Writes a Matplotlib figure as an image summary for TensorBoard.

    Works eagerly and in tf.function, such as a training step, without a display, and in
    threads. Draws only if the summary is recorded (a default writer,
    `tf.summary.record_if`).

    >>> import tempfile, tensorflow as tf, tensorflow_ops as tfo
    >>> def histogram(figure, values):
    ...     axes = figure.subplots()
    ...     axes.hist(values, bins=20)
    ...     axes.set_xlabel("logit")
    >>> with tf.summary.create_file_writer(tempfile.mkdtemp()).as_default(step=0):
    ...     written = tfo.summary.figure("logits", histogram, [tf.random.normal([100])])
    >>> bool(written)
    True

    Args:
      name: the summary's name.
      draw_fn: called as draw_fn(figure, *arrays). `figure` is an empty
        matplotlib.figure.Figure of the size and resolution of matplotlib.rcParams, with
        constrained layout; draw_fn may change both. It must draw on that figure, and not
        use matplotlib.pyplot, whose current figure is shared by all threads.
      args: sequence of tensors, of any dtype and shape; draw_fn takes them as read-only
        NumPy arrays.
      step: int64 scalar, the summary's step; None is the default step
        (tf.summary.experimental.set_step, or the writer's).

    Returns:
      A bool tensor: whether the summary was written.

    Raises:
      ImportError: Matplotlib is not installed.
      TypeError: draw_fn is not callable, or args not a list or tuple.
      ValueError: there is a default writer and no step.
      InvalidArgumentError, UnknownError: draw_fn raised an error, which the message quotes.
    """
    if not callable(draw_fn):
        raise TypeError(f"draw_fn is a {type(draw_fn).__name__}, expected a function of (figure, *arrays)")
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"args is a {type(args).__name__}, expected a list or tuple of tensors")
    writer.require("matplotlib", "matplotlib", "tfo.summary.figure")
    return writer.write(name, lambda: _draw(*args, draw_fn=draw_fn), step)
