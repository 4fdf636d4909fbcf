"""The trained network as a SavedModel, and predictions with one.

To load it, a program needs TensorFlow and `import tensorflow_ops`, because it contains an
op of this package, but nothing from this folder.
"""

import os
import pathlib
import shutil
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

import tensorflow_ops as tfo


class Predictions(NamedTuple):
    """Predictions for N images."""

    classes: list[str]  # [N]
    probabilities: np.ndarray  # float32 [N, number of classes]


def export(network: keras.Model, image_shape: Sequence[int], classes: Sequence[str], folder: pathlib.Path) -> None:
    """Writes the SavedModel, replacing an existing one."""
    module = tf.Module()
    module.network = network
    module.classes = tf.constant(classes)

    @tf.function(input_signature=[tf.TensorSpec([None, *image_shape], tf.uint8, name="images")])
    def serve(images):
        probabilities = tfo.nn.softmax(tf.cast(network(images), tf.float32))
        return {"class": tf.gather(module.classes, tf.argmax(probabilities, -1)), "probabilities": probabilities}

    draft = folder.with_name(folder.name + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    tf.saved_model.save(module, draft, signatures=serve)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(draft, folder)


class Predictor:
    """Predicts with a SavedModel written by `export`."""

    def __init__(self, folder: pathlib.Path):
        if not (folder / "saved_model.pb").exists():
            raise SystemExit(f"There is no SavedModel in {folder}. Export one first.")
        self._model = tf.saved_model.load(folder)
        self._serve = self._model.signatures["serving_default"]
        _, inputs = self._serve.structured_input_signature
        self.image_shape = tuple(inputs["images"].shape[1:])

    def __call__(self, images: np.ndarray) -> Predictions:
        """Classifies images uint8 [N, *image_shape]."""
        results = self._serve(images=tf.constant(images, tf.uint8))
        return Predictions([name.decode() for name in results["class"].numpy()], results["probabilities"].numpy())


def read_image(path: str, image_shape: Sequence[int], invert: bool) -> np.ndarray:
    """Reads a grey image of any size as uint8 [H, W, 1], with white and black exchanged if `invert`."""
    image = ImageOps.grayscale(Image.open(path))
    image = image.resize((image_shape[1], image_shape[0]), Image.Resampling.BOX)
    return np.asarray(ImageOps.invert(image) if invert else image)[..., np.newaxis]
