"""Two small networks that estimate optical flow. They differ in how they compare the two views."""

import keras
import tensorflow as tf
from data import SIZE

import tensorflow_ops as tfo

# Displacements that are compared, in pixels of the maps at strides 4 and 2.
COARSE, FINE = 3, 2


def conv(x, filters: int, strides: int = 1):
    """Convolution and ReLU."""
    return keras.layers.Conv2D(filters, 3, strides, padding="same", activation="relu")(x)


def encoder() -> keras.Model:
    """Returns the network from a view to its features at strides 2 and 4. Both views go through it."""
    view = keras.Input([SIZE, SIZE, 3])
    x = keras.layers.Rescaling(2.0, offset=-1.0)(view)
    half = conv(conv(x, 16, strides=2), 16)
    quarter = conv(conv(half, 32, strides=2), 32)
    return keras.Model(view, [half, quarter], name="encoder")


@keras.saving.register_keras_serializable("optical_flow")
class WarpBack(keras.layers.Layer):
    """Moves a map of the second view to where the flow says that it is in the first."""

    def call(self, features, flow):
        return tfo.image.dense_image_warp(features, -flow[..., ::-1])  # it subtracts its flow, which is (y, x)


@keras.saving.register_keras_serializable("optical_flow")
class MeanDisplacement(keras.layers.Layer):
    """Reads a flow from correlations: the mean of the displacements, weighted with the softmax of the correlations."""

    def build(self, input_shape):
        self.reach = (round(input_shape[-1] ** 0.5) - 1) // 2
        self.sharpness = self.add_weight(shape=(), initializer=keras.initializers.Constant(20.0), name="sharpness")

    def call(self, correlations):
        steps = tf.range(-self.reach, self.reach + 1, dtype=tf.float32)
        y, x = tf.meshgrid(steps, steps, indexing="ij")  # rows of displacements, as correlation_cost orders them
        displacements = tf.reshape(tf.stack([x, y], -1), [-1, 2])
        return tf.linalg.matvec(displacements, tfo.nn.softmax(self.sharpness * correlations), transpose_a=True)


def decode(maps):
    """Returns a flow [N, h, w, 2], at first 0, that convolutions read from the maps [N, h, w, ...]."""
    x = conv(conv(keras.layers.Concatenate()(maps), 48), 32)
    return keras.layers.Conv2D(2, 3, padding="same", kernel_initializer="zeros")(x)


def match(first, second, max_displacement: int, correlate: bool):
    """Returns the flow [N, h, w, 2] between two maps, in their pixels."""
    if not correlate:
        return decode([first, second])
    # Each channel has a mean of 0 and a variance of 1, so that none dominates the mean of products.
    normalize = keras.layers.LayerNormalization(axis=[1, 2], center=False, scale=False)
    correlation = tfo.layers.CorrelationCost(max_displacement, kernel_size=3, padding=max_displacement + 1)
    correlations = correlation(normalize(first), normalize(second))
    likely = MeanDisplacement()(correlations)
    return keras.layers.Add()([likely, decode([first, correlations, likely])])


def enlarge(flow):
    """Returns the flow at twice the resolution: twice as many pixels, each half as large."""
    return keras.layers.Rescaling(2.0)(keras.layers.UpSampling2D(interpolation="bilinear")(flow))


def build(correlate: bool) -> keras.Model:
    """Builds the network from the views `first` and `second` to two estimates of the flow, coarse and fine.

    Like "PWC-Net" (arXiv:1709.02371), with two levels: the first estimate comes from maps at
    stride 4. It moves the features of the second view back to those of the first; a
    comparison at stride 2 then finds what is left.
    """
    views = {name: keras.Input([SIZE, SIZE, 3], name=name) for name in ("first", "second")}
    encode = encoder()
    (half_1, quarter_1), (half_2, quarter_2) = encode(views["first"]), encode(views["second"])
    coarse = enlarge(match(quarter_1, quarter_2, COARSE, correlate))
    moved = WarpBack()(half_2, coarse)
    fine = keras.layers.Add()([coarse, match(half_1, moved, FINE, correlate)])
    return keras.Model(views, {"coarse": enlarge(coarse), "fine": enlarge(fine)})


def endpoint_error(flow, estimate):
    """Returns the distance [N, H, W], in pixels, of where both flows lead."""
    return tf.sqrt(tf.reduce_sum(tf.square(flow - estimate), -1) + 1e-8)
