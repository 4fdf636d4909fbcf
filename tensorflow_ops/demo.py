"""Times five ops of this package beside those of TensorFlow and Keras, on this machine, in half a minute.

usage: python -m tensorflow_ops.demo [PICTURE]
       python -m tensorflow_ops.demo MODEL.keras [BATCH]

Prints the times as bars and, for each, which line to change to which; with matplotlib, also writes the bars to PICTURE
(default: tfo_demo.png). Compares results before it times them.

With the file of a Keras model, runs the model as tfo.layers.compare_fused does: on random inputs of its shapes, BATCH
examples (default: 8), and with random targets for losses such as crossentropies and the mean squared error.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo
from tensorflow_ops.layers.python.compare_fused import progress

SECONDS = 3  # for timing a case, after one call of each
BAR = 50  # characters
_IN_A_PROGRAM = "In the program that makes the model, call tfo.layers.compare_fused(model, x, y)."


@dataclasses.dataclass(frozen=True)
class Case:
    """A call in two ways."""

    name: str
    theirs: Callable[[], list[tf.Tensor]]
    ours: Callable[[], list[tf.Tensor]]
    before: str
    after: str


def _with_gradient(loss, logits):
    @tf.function
    def run():
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = tf.reduce_mean(loss(logits))
        return [value, tape.gradient(value, logits)]

    return run


def _ctc(rng):
    logits = tf.constant(rng.normal(size=[16, 200, 64]), tf.float32)
    labels = tf.constant(rng.integers(1, 64, [16, 40]), tf.int32)

    def fused(x):
        with tfo.layers.use_fused_ops(["ctc_loss"]):
            return keras.losses.CTC()(labels, x)

    return Case(
        "CTC loss and gradient, 16 sequences of 200 frames",
        _with_gradient(lambda x: keras.losses.CTC()(labels, x), logits),
        _with_gradient(fused, logits),
        "keras.losses.CTC()",
        "with tfo.layers.use_fused_ops(): keras.losses.CTC()",
    )


def _lstm(rng):
    inputs = tf.constant(rng.normal(size=[1, 400, 14]), tf.float32)
    layers = [keras.layers.LSTM(80, return_sequences=True) for _ in range(2)]
    model = keras.Sequential([keras.Input([None, 14]), *layers])

    def fused():
        with tfo.layers.use_fused_ops(["lstm"]):
            return [model(inputs)]

    return Case(
        "two LSTM layers of 80 units, one sequence of 400 steps",
        tf.function(lambda: [model(inputs)]),
        tf.function(fused),
        "model(inputs)",
        "with tfo.layers.use_fused_ops(): model(inputs)",
    )


def _suppression(rng):
    corners = rng.uniform(0, 600, [8, 1000, 2])
    boxes = tf.constant(np.concatenate([corners, corners + rng.uniform(20, 120, [8, 1000, 2])], -1), tf.float32)
    scores = tf.constant(rng.uniform(size=[8, 1000, 80]), tf.float32)
    return Case(
        "detections from 8 x 1000 boxes with 80 classes",
        tf.function(
            lambda: [
                tf.image.combined_non_max_suppression(boxes[:, :, None], scores, 100, 100, 0.5, 0.6, False, False)[1]
            ]
        ),
        tf.function(lambda: [tfo.detection.multiclass_nms(boxes, scores, score_threshold=0.6).scores]),
        "tf.image.combined_non_max_suppression(boxes[:, :, None], scores, 100, 100, ...)",
        "tfo.detection.multiclass_nms(boxes, scores, score_threshold=0.6)",
    )


def _cross_entropy(rng):
    logits = tf.constant(rng.normal(size=[1024, 32000]), tf.float32)
    labels = tf.constant(rng.integers(0, 32000, [1024]), tf.int32)
    return Case(
        "cross entropy and gradient, 1024 tokens, 32000 words",
        _with_gradient(lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x), logits),
        _with_gradient(lambda x: tfo.nn.sparse_softmax_cross_entropy(labels, x), logits),
        "tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)",
        "tfo.nn.sparse_softmax_cross_entropy(labels, logits)",
    )


def _warp(rng):
    shape = batch, height, width, channels = 4, 512, 512, 3
    images = tf.constant(rng.uniform(size=shape), tf.float32)
    y, x = np.mgrid[:height, :width]
    flow = np.stack([8 * np.sin(x / 40), 8 * np.cos(y / 40)], -1)
    flow = tf.constant(np.tile(flow, [batch, 1, 1, 1]), tf.float32)
    places = tf.constant(np.stack([y, x], -1), tf.float32) - flow

    def planes():
        at = [[places[n, ..., 0], places[n, ..., 1]] for n in range(batch)]
        sampled = [
            [keras.ops.image.map_coordinates(images[n, ..., c], at[n], 1, fill_mode="nearest") for c in range(channels)]
            for n in range(batch)
        ]
        return [tf.transpose(tf.stack([tf.stack(image) for image in sampled]), [0, 2, 3, 1])]

    return Case(
        "warp of 4 images of 512 x 512 x 3 along a flow",
        tf.function(planes),
        tf.function(lambda: [tfo.image.dense_image_warp(images, flow)]),
        'keras.ops.image.map_coordinates(plane, grid - flow, 1, "nearest"), plane by plane',
        "tfo.image.dense_image_warp(images, flow)",
    )


def _seconds(run):
    start = time.perf_counter()
    run()[0].numpy()  # waits for a GPU
    return time.perf_counter() - start


def measure(case: Case) -> tuple[float, float]:
    """Returns the median seconds of theirs and ours, called in turns. Raises AssertionError if results differ."""
    for theirs, ours in zip(case.theirs(), case.ours(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4, err_msg=case.name)
    times = [], []
    end = time.perf_counter() + SECONDS
    while len(times[0]) < 3 or (time.perf_counter() < end and len(times[0]) < 100):
        for run, found in zip((case.theirs, case.ours), times, strict=True):
            found.append(_seconds(run))
    theirs, ours = map(statistics.median, times)
    return theirs, ours


def _bar(seconds, longest):
    return "█" * max(1, round(BAR * seconds / longest))


def _draw(path, rows):
    """Writes the bars, each pair as shares of the longer."""
    from matplotlib.backends import backend_agg
    from matplotlib.figure import Figure

    figure = Figure([9, 1.2 * len(rows)], layout="constrained")
    for axes, (case, theirs, ours) in zip(figure.subplots(len(rows), 1), rows, strict=True):
        axes.barh([1, 0], [1e3 * theirs, 1e3 * ours], color=["#9e9e9e", "#ff6f00"])
        axes.set_yticks([1, 0], [case.before.partition("(")[0], case.after.partition("(")[0]], fontsize=8)
        axes.set_title(f"{case.name}: {theirs / ours:.0f} times as fast", fontsize=9, loc="left")
        axes.set_xlabel("ms", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    backend_agg.FigureCanvasAgg(figure).print_png(path)


def _input(model, tensor, batch, rng):
    """Returns a random input of a functional model, and what it holds."""
    unknown = {4: 224, 5: 16}.get(len(tensor.shape), 128)  # pixels, frames, tokens
    shape = [tensor.shape[0] or batch, *(size or unknown for size in tensor.shape[1:])]
    readers = [
        part
        for layer in model.layers
        if any(tensor is read for node in layer._inbound_nodes for read in node.input_tensors)
        for part in layer._flatten_layers()
    ]
    sizes = [part.input_dim for part in readers if isinstance(part, keras.layers.Embedding)]
    if tensor.dtype == "string":
        raise SystemExit(
            f"The input {tensor.name} takes strings, for which there are no random values. {_IN_A_PROGRAM}"
        )
    if sizes or not keras.backend.is_float_dtype(tensor.dtype):
        largest = min(sizes, default=2) - 1
        return tf.cast(rng.integers(0, largest, shape, endpoint=True), tensor.dtype), f"from 0 to {largest}"
    return tf.cast(rng.uniform(size=shape), tensor.dtype), "between 0 and 1"


def _targets(model, outputs, rng):
    """Returns random targets of a compiled model; None for losses whose targets are not known."""
    if not model.compiled or not model.loss or keras.tree.is_nested(model.loss):
        return None
    loss = keras.losses.get(model.loss)
    name = getattr(loss, "name", None) or getattr(loss, "__name__", "")

    def target(output):
        classes = rng.integers(output.shape[-1], size=output.shape[:-1])
        return classes if name.startswith("sparse") else np.eye(output.shape[-1], dtype=np.float32)[classes]

    is_known = name.endswith("crossentropy") or name in ("mean_squared_error", "mean_absolute_error")
    return keras.tree.map_structure(target, outputs) if is_known else None


def compare(path: str, batch: int = 8) -> None:
    """Prints what `compare_fused` finds for the model in a file."""
    try:
        model = keras.saving.load_model(path)
    except (TypeError, ValueError) as error:
        raise SystemExit(f"{error}\n\nKeras cannot load {path}. {_IN_A_PROGRAM}") from error
    if not getattr(model, "inputs", None):
        raise SystemExit(f"{path} does not say which inputs the model takes. {_IN_A_PROGRAM}")
    rng = np.random.default_rng(0)
    inputs = {tensor.name: _input(model, tensor, batch, rng) for tensor in model.inputs}
    for name, (values, numbers) in inputs.items():
        print(f"input {name}: {values.dtype.name} {list(values.shape)}, random numbers {numbers}")
    taken = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    x = keras.tree.map_structure(lambda tensor: inputs[tensor.name][0], taken)
    try:
        y = _targets(model, model.predict_on_batch(x), rng)
    except Exception as error:
        raise SystemExit(f"{error}\n\nThe model fails with these inputs. {_IN_A_PROGRAM}") from error
    print("no training step: no loss, or one that random targets may not suit" if y is None else "random targets")
    print(f"\n{tfo.layers.compare_fused(model, x, y, seconds=SECONDS)}")


def main(argv: list[str]) -> None:
    """Runs the demo."""
    of_model = argv[1:] and argv[1].endswith(".keras")
    if argv[1:2] in (["-h"], ["--help"]) or len(argv) > (3 if of_model else 2) or not all(map(str.isdecimal, argv[2:])):
        raise SystemExit(__doc__)
    if of_model:
        return compare(argv[1], *map(int, argv[2:]))
    rng = np.random.default_rng(0)
    rows = []
    makers = (_ctc, _lstm, _suppression, _cross_entropy, _warp)
    for i, make in enumerate(makers):
        progress(f"{i + 1} of {len(makers)}: {make.__name__[1:].replace('_', ' ')} ...")
        case = make(rng)
        theirs, ours = measure(case)
        progress("")
        rows.append((case, theirs, ours))
        print(f"{case.name}: {theirs / ours:.0f} times as fast")
        for seconds in (theirs, ours):
            print(f"  {_bar(seconds, max(theirs, ours)):{BAR}} {1e3 * seconds:8.1f} ms")
        print(f"  change  {case.before}\n  to      {case.after}\n", flush=True)
    path = argv[1] if len(argv) > 1 else "tfo_demo.png"
    try:
        _draw(path, rows)
        print(path)
    except ImportError:
        print("pip install matplotlib, and this also writes a picture.")


if __name__ == "__main__":
    main(sys.argv)
