"""Samples of tfo.shapes, compositions of TensorFlow's ops, for opcheck."""

from sample_testing import normal, sample

from tensorflow_ops import shapes

SAMPLES = {
    "shapes.reshape": sample(lambda x: shapes.reshape(x, [0, [1, 2]]), normal(2, 3, 5)),
}
