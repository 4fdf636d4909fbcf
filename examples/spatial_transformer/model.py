"""A classifier of digits, with or without a spatial transformer before it."""

import affine
import keras
import tensorflow as tf
from data import CLASSES, SIZE


def conv(x, filters: int, kernel_size: int = 3):
    """Convolution, ReLU, and pooling to half the size."""
    x = keras.layers.Conv2D(filters, kernel_size, padding="same", activation="relu")(x)
    return keras.layers.MaxPool2D()(x)


@keras.saving.register_keras_serializable("spatial_transformer")
class AffineWarp(keras.layers.Layer):
    """Samples images [N, H, W, C] by transforms [N, 2, 3]: `affine.warp` as a layer without weights."""

    def call(self, images, transforms):
        return affine.warp(images, transforms, images.shape[1])


@keras.saving.register_keras_serializable("spatial_transformer")
class Affine(keras.layers.Layer):
    """The last layer of the localisation network: transforms [N, 2, 3], at first the identity."""

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], 6), initializer="zeros", name="kernel")
        self.bias = self.add_weight(shape=(6,), initializer="zeros", name="bias")

    def call(self, features):
        change = tf.matmul(features, self.kernel) + self.bias
        return affine.IDENTITY + tf.reshape(change, [-1, 2, 3])


def localise(image):
    """Returns a transform [N, 2, 3] for each image: where to look, at what angle, and how closely."""
    x = keras.layers.AveragePooling2D(2)(image)  # half the resolution is enough for this
    x = conv(conv(x, 32, 5), 32)
    x = keras.layers.Dense(64, activation="relu")(keras.layers.Flatten()(x))
    return Affine(name="transform")(x)


def build(transformer: bool) -> keras.Model:
    """Builds the network from images [N, SIZE, SIZE, 1] to logits [N, CLASSES]."""
    image = keras.Input([SIZE, SIZE, 1], name="image")
    x = image
    if transformer:
        x = AffineWarp(name="straightened")(image, localise(image))
    x = conv(conv(x, 8), 16)
    x = keras.layers.Dense(32, activation="relu")(keras.layers.Flatten()(x))
    return keras.Model(image, keras.layers.Dense(CLASSES, name="logits")(x))


def parts(network: keras.Model) -> keras.Model:
    """Returns the model from images to the transforms and the straightened images of a network with a transformer."""
    outputs = {name: network.get_layer(name).output for name in ("transform", "straightened")}
    return keras.Model(network.input, outputs)
