"""Samples of tfo.shapes, compositions of TensorFlow's ops."""

from sample_testing import normal, sample, seed

from tensorflow_ops import shapes

seed(__name__)
SAMPLES = {
    "shapes.reshape": sample(shapes.reshape, normal(2, 3, 5), [0, [1, 2]], bad=[({"dims": [0, 1]}, "dims is")]),
}
