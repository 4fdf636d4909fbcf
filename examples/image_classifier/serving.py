"""The trained network as a SavedModel, and predictions with one.

To load it, a program needs TensorFlow and `import tensorflow_ops`, because it contains an
op of this package, but nothing from this folder.
"""

import pathlib
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

import tensorflow_ops as tfo


def export(network: keras.Model, image_shape: Sequence[int], classes: Sequence[str], folder: pathlib.Path) -> None:
    """Writes the SavedModel: images uint8 [N, *image_shape] in, their classes and the classes' probabilities out."""
    module = tf.Module()
    module.network = network
    module.classes = tf.constant(classes)

    @tf.function(input_signature=[tf.TensorSpec([None, *image_shape], tf.uint8, name="images")])
    def serve(images):
        probabilities = tfo.nn.softmax(tf.cast(network(images), tf.float32))
        return {"class": tf.gather(module.classes, tf.argmax(probabilities, -1)), "probabilities": probabilities}

    tf.saved_model.save(module, folder, signatures=serve)


def predict(folder: pathlib.Path, images: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Returns the class of each image, by a SavedModel that `export` has written, and its probability."""
    if not (folder / "saved_model.pb").exists():
        raise SystemExit(f"There is no SavedModel in {folder}. Export one first.")
    found = tf.saved_model.load(folder).signatures["serving_default"](images=tf.constant(images))
    return [name.decode() for name in found["class"].numpy()], found["probabilities"].numpy().max(-1)


def read_image(path: str, size: int, invert: bool) -> np.ndarray:
    """Reads an image as grey uint8 [size, size, 1], with white and black exchanged if `invert`."""
    image = ImageOps.grayscale(Image.open(path)).resize((size, size), Image.Resampling.BOX)
    return np.asarray(ImageOps.invert(image) if invert else image)[..., np.newaxis]
