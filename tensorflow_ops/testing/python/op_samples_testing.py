"""SAMPLES: calls of every public op, from the tables beside the ops.

A new op needs an entry in its namespace's table, NAMESPACE_samples_testing.py, or op_samples_test fails. Choose
arguments with dims of different sizes and values away from kinks, and the options that match its documentation. An op
that tools/new_op writes has a table of its own, OP_samples_testing.py.
"""

import detection_samples_testing
import hinge_loss_samples_testing
import image_samples_testing
import layers_samples_testing
import losses_samples_testing
import nn_samples_testing
import seq2seq_samples_testing
import shapes_samples_testing
import zero_out_samples_testing

from tensorflow_ops.testing import OpSample

_TABLES = (
    zero_out_samples_testing,
    detection_samples_testing,
    nn_samples_testing,
    losses_samples_testing,
    layers_samples_testing,
    shapes_samples_testing,
    seq2seq_samples_testing,
    image_samples_testing,
    hinge_loss_samples_testing,
)
SAMPLES = {name: OpSample(*arguments) for table in _TABLES for name, arguments in table.SAMPLES.items()}
