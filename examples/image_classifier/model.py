"""A small convolutional network."""

import functools

import keras
import tensorflow as tf


class Classifier(keras.Model):
    """Maps images uint8 [N, H, W, C] to logits [N, classes].

    Group normalisation treats each image separately. Unlike with batch normalisation, a
    batch that is split over devices has the same logits as a whole one.
    """

    def __init__(self, classes: int, *, dropout: float = 0.3, policy: str = "float32"):
        super().__init__(dtype=policy)
        conv = functools.partial(keras.layers.Conv2D, kernel_size=3, padding="same", use_bias=False, dtype=policy)
        norm = functools.partial(keras.layers.GroupNormalization, groups=8, dtype=policy)
        pool = keras.layers.MaxPool2D(dtype=policy)
        layers = [keras.layers.Rescaling(1 / 127.5, offset=-1, dtype=policy)]
        for filters in (32, 64):
            for _ in range(2):
                layers += [conv(filters), norm(), keras.layers.ReLU(dtype=policy)]
            layers.append(pool)
        self.features = keras.Sequential([*layers, keras.layers.Flatten(dtype=policy)])
        self.dropout = dropout
        # Logits stay 16-bit under a mixed policy: the loss reads them directly and sums in float32.
        self.logits = keras.layers.Dense(classes, dtype=policy)

    def call(self, images: tf.Tensor, dropout_seed: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the images' logits; with a seed, int [2], drops some features.

        Keras's Dropout has a generator, whose state would have to be saved and to differ
        between devices. Here dropout is a function of the seed only.
        """
        features = self.features(images)
        if dropout_seed is not None:
            features = tf.nn.experimental.stateless_dropout(features, self.dropout, dropout_seed, rng_alg="philox")
        return self.logits(features)


def build(image_shape: tuple[int, ...], classes: int, **options) -> Classifier:
    """Builds the network, with initial weights determined by the global seed."""
    network = Classifier(classes, **options)
    network(tf.zeros([1, *image_shape], tf.uint8))
    return network
