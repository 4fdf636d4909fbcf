"""Trains the second stage of a detector on traffic signs, exports the detector, and serves it.

    python examples/detection/train.py

The inputs of the network are a photograph and proposed boxes. `MultiScaleRoIAlign` pools
7 x 7 bins from a feature pyramid for each box; the head predicts the sign, if any, and
moves the box onto it. The exported SavedModel keeps one box for each sign by
`tfo.detection.multiclass_nms`. Exits with status 1 if the quality on held-out backgrounds
is too low. Takes a minute or two on two cores.
"""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))  # for training.py

import data
import keras
import model
import numpy as np
import picture
import tensorflow as tf
import training
from absl import flags

import tensorflow_ops as tfo

TRAINING_SCENES, HELD_OUT_SCENES = 400, 60
BATCH_SIZE, PROPOSALS, EPOCHS = 8, 64, 10
# Minimum results on the held-out scenes.
NEEDED = {"IoU of refined boxes": 0.8, "class accuracy": 0.9, "AP of detections": 0.7, "AP50 of detections": 0.9}

FLAGS = training.define_flags("detection", steps=400, multiple_of=EPOCHS)
flags.DEFINE_bool("jit_compile", False, "compile the training step with XLA")


def train(network: keras.Model, scenes: list[data.Scene]) -> None:
    """Trains with the losses of "Fast R-CNN" (arXiv:1504.08083), and the IoU of boxes instead of their offsets."""
    training.fit(
        network,
        data.training_batches(scenes, FLAGS.seed, BATCH_SIZE, PROPOSALS),
        {"classes": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "boxes": tfo.losses.BoxIoU("diou")},
        loss_weights={"classes": 1.0, "boxes": 10.0},
        learning_rate=1.5e-3,
        epochs=EPOCHS,
        clipnorm=5.0,
    )


def measure(detector: model.Detector, scenes: list[data.Scene], proposals: np.ndarray) -> dict[str, float]:
    """Measures the refinement of proposals [N, R, 4] near the signs of N scenes, and detections from the grid.

    The IoU is a mean over proposals of signs, the accuracy is that of all proposals, with
    background as a class.
    """
    images = data.images_of(scenes)
    refined, probabilities = (x.numpy() for x in model.refine(detector.network, images, proposals))
    labels, signs, overlap = (np.stack(x) for x in zip(*map(data.targets, scenes, proposals), strict=True))
    foreground = labels > 0
    iou_loss = tfo.detection.box_iou_loss(refined[foreground], signs[foreground], mode="iou")
    precision = model.average_precision(scenes, list(model.detect(detector, images)))
    return {
        "IoU of proposals": overlap[foreground].mean(),
        "IoU of refined boxes": 1 - iou_loss.numpy().mean(),
        "class accuracy": (probabilities.argmax(-1) == labels).mean(),
        **{f"{name} of detections": precision[name] for name in ("AP", "AP50", "AP75")},
    }


def main(output: pathlib.Path) -> None:
    scenes = data.draw_scenes(min(TRAINING_SCENES, BATCH_SIZE * FLAGS.steps), training=True, seed=[FLAGS.seed, 0])
    held_out = data.draw_scenes(min(HELD_OUT_SCENES, 2 * FLAGS.steps), training=False, seed=[FLAGS.seed, 1])
    rng = np.random.default_rng([FLAGS.seed, 2])
    proposals = np.stack([data.propose(rng, scene.boxes, PROPOSALS) for scene in held_out])
    shown = [scene for scene in held_out if len(scene.boxes) >= 3][:4]
    images = data.images_of(shown)
    print(f"{len(scenes)} scenes for training, {len(held_out)} held out")

    detector = model.Detector(model.build())
    before, untrained = measure(detector, held_out, proposals), list(model.detect(detector, images))
    train(detector.network, scenes)

    # Measures, draws and exports with the network loaded from the file.
    detector.network.save(output / "detector.keras")
    detector = model.Detector(keras.saving.load_model(output / "detector.keras"))
    after, trained = measure(detector, held_out, proposals), list(model.detect(detector, images))

    print(f"\n{'on held-out backgrounds':24}{'untrained':>12}{'trained':>12}{'needed':>12}")
    for name, value in after.items():
        print(f"{name:24}{before[name]:12.3f}{value:12.3f}{NEEDED.get(name, ''):>12}")
    picture.draw(shown, untrained, trained).save(output / "detections.png")
    candidates = (x.numpy() for x in detector.candidates(tf.constant(images)))
    picture.draw_suppression(shown, *candidates, trained).save(output / "suppression.png")
    photographs = model.export(detector, shown[:2], output / "detector")
    training.load_in_new_process("serve.py", output / "detector", *photographs)
    print(f"\n{output / 'detector.keras'}\n{output / 'detections.png'}\n{output / 'suppression.png'}")
    missed = [name for name, least in NEEDED.items() if not after[name] >= least]
    training.need(not missed, f"NOT LEARNT: {', '.join(missed)}")


if __name__ == "__main__":
    training.run(main)
