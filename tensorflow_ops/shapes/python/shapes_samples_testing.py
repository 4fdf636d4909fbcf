"""Samples of tfo.shapes, compositions of TensorFlow's ops, for opcheck."""

from sample_testing import normal, sample

import tensorflow_ops as tfo

SAMPLES = {
    "shapes.reshape": sample(lambda x: tfo.shapes.reshape(x, [0, [1, 2]]), normal(2, 3, 5)),
}
