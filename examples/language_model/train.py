"""Trains a language model with fused attention and with Keras's, and measures both over the length of the text.

    python examples/language_model/train.py

Exits with status 1 if losses differ, or if the model predicts held-out text too badly. Takes
a minute on two cores. `--longest=32768` shows where memory does not suffice for Keras's.
"""

import lzma
import os
import pathlib
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))  # for training.py

import data
import decode
import generate
import keras
import model
import numpy as np
import training
from absl import flags
from matplotlib.figure import Figure

CONTEXT, BATCH_SIZE, PER_EPOCH = 512, 4, 10
COMPARED = 3  # epochs with both
PROMPT = b"The statement "
SHORTEST = 512
LABELS = {"fused": "tfo.layers.MultiHeadAttention", "composed": "keras.layers.MultiHeadAttention"}

FLAGS = training.define_flags("language_model", steps=150, multiple_of=PER_EPOCH)
flags.DEFINE_integer("longest", 2048, "the longest text whose training step is measured", lower_bound=SHORTEST)
flags.DEFINE_float("at_most", 2.8, "the most bits for a byte of held-out text")


def train(attention: str, text: np.ndarray, epochs: int) -> tuple[keras.Model, list[float]]:
    """Returns a model, and its losses by epoch. The seed alone decides weights and batches."""
    keras.utils.set_random_seed(FLAGS.seed)
    network = model.build(attention, FLAGS.steps)
    batches = data.batches(text, CONTEXT, BATCH_SIZE, FLAGS.seed)
    return network, network.fit(batches, epochs=epochs, steps_per_epoch=PER_EPOCH, verbose=0).history["loss"]


def compressed_bits(text: data.Text) -> float:
    """Returns the bits that LZMA, which has seen the training text, needs for a byte of the held-out text."""
    before, both = (len(lzma.compress(part.tobytes())) for part in (text.training, np.concatenate(text)))
    return 8 * (both - before) / len(text.held_out)


def measure(attention: str, lengths: list[int]) -> dict[int, tuple[float, int]]:
    """Runs measure.py in a new process; returns seconds and bytes by length, up to the longest that fits."""
    # Without memory, TensorFlow may abort: there is a line for each length before.
    printed = training.call("measure.py", attention, *map(str, lengths), check=False)
    rows = [line.split() for line in printed.splitlines()]
    return {int(length): (float(seconds), int(size)) for length, seconds, size in rows}


def draw(measured: dict[str, dict[int, tuple[float, int]]], lengths: list[int]) -> Figure:
    """Draws {attention: {length: (seconds, bytes)}}; a cross marks the first length that does not fit."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    for column, (axes, label, unit) in enumerate(zip(figure.subplots(1, 2), ("seconds", "GB"), (1, 1e9), strict=True)):
        for attention, points in measured.items():
            values = [point[column] / unit for point in points.values()]
            (line,) = axes.loglog(list(points), values, marker="o", label=LABELS[attention])
            if len(points) < len(lengths):
                # Both grow fourfold where the length doubles.
                at = lengths[len(points)], 4 * values[-1]
                axes.loglog(*at, marker="x", markersize=10, color=line.get_color())
                axes.annotate("out of memory", at, (-10, 0), textcoords="offset points", ha="right", va="center")
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, map(str, lengths))
        axes.set(xlabel="length of the text, bytes", ylabel=label)
        axes.grid(alpha=0.3)
    axes.legend()
    return figure


def main(output: pathlib.Path) -> None:
    text = data.load()
    networks, losses = {}, {}
    compared = min(COMPARED, FLAGS.steps // PER_EPOCH)
    for attention, epochs in (("composed", compared), ("fused", FLAGS.steps // PER_EPOCH)):
        start = time.monotonic()
        networks[attention], losses[attention] = train(attention, text.training, epochs)
        seconds = time.monotonic() - start
        print(f"{attention:10} {' '.join(f'{loss:.6f}' for loss in losses[attention][:compared])}  ", end="")
        print(f"{losses[attention][-1]:.3f} after {epochs * PER_EPOCH} steps, {seconds:.0f} s", flush=True)

    networks["composed"].set_weights(networks["fused"].get_weights())
    held_out = data.in_order(text.held_out, CONTEXT, BATCH_SIZE)
    print(f"\nbits for a byte of held-out text\n{'LZMA':10} {compressed_bits(text):.3f}")
    bits = {}
    for attention, network in networks.items():
        bits[attention] = network.evaluate(held_out, verbose=0) / np.log(2)
        print(f"{attention:10} {bits[attention]:.6f}", flush=True)
    written = generate.write(networks["fused"], PROMPT, max_length=200, temperature=0.5, seed=[FLAGS.seed, 0])
    print(f"\n{(PROMPT + np.uint8(written.sequences).tobytes()).decode(errors='replace')}")

    decode.compare(networks["fused"], PROMPT, output / "writer")

    lengths = [2**n for n in range(SHORTEST.bit_length() - 1, FLAGS.longest.bit_length())]
    measured = {attention: measure(attention, lengths) for attention in model.ATTENTIONS}
    print(f"\n{'a training step':20}" + "".join(f"{attention + ', s':>14}{'GB':>8}" for attention in measured))
    for length in lengths:
        columns = (points.get(length) for points in measured.values())
        cells = (f"{c[0]:14.2f}{c[1] / 1e9:8.3f}" if c else f"{'out of memory':>22}" for c in columns)
        print(f"{f'{length} bytes':20}" + "".join(cells))
    draw(measured, lengths).savefig(output / "lengths.png", dpi=80)
    print(f"\n{output / 'lengths.png'}")

    if len(measured["fused"]) < len(lengths):
        raise SystemExit("NOT MEASURED: a training step with fused attention failed")
    if not np.allclose(losses["composed"], losses["fused"][:compared], rtol=1e-4):
        raise SystemExit("NOT THE SAME: the losses of fused and composed attention differ")
    if not abs(bits["fused"] - bits["composed"]) < 1e-4:
        raise SystemExit("NOT THE SAME: fused and composed attention predict differently with the same weights")
    training.need(bits["fused"] <= FLAGS.at_most, f"NOT LEARNT: {bits['fused']:.3f} bits, expected {FLAGS.at_most}")


if __name__ == "__main__":
    training.run(main)
