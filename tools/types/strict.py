# pyright: strict
"""Calls with values of many types, as users write them, that neither docstrings' examples nor generated calls have.

check.py checks their types; nothing runs. It calls those of TensorFlow's functions that have types: tf.zeros has,
tf.exp has not.
"""

from typing import Any

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

x, array, ids = tf.constant([[1.0, 2.0], [3.0, 4.0]]), np.zeros([2, 2], np.float32), np.array([0, 1])
features, boxes = tf.zeros([1, 8, 8, 4]), [[0, 0, 4, 4], [1, 1, 5.5, 5]]

# Lists, arrays, numbers and variables are tensors, and results have types of their own.
tensors: list[tf.Tensor] = [
    tfo.detection.nms(boxes, x[0], x[0, 0], score_threshold=np.float32(0.1), max_outputs=tf.constant(3)),
    tfo.detection.roi_align(features, array, ids, tf.constant([2, 3]), spatial_scale=1 / 16),
    tfo.detection.multiscale_roi_align([features, features], boxes, ids, 7, strides=(4, 8)) * 2.0,
    tfo.nn.attention(features, array, features, mask=array > 0, window=(None, 3), lengths=[2], key_lengths=ids),
    tfo.nn.decode_attention(features, array, features, 3, ancestors=ids, window=3),
    tfo.nn.gaussian_kl((0.0, x), [x, x]),
    tfo.nn.deform_conv2d(features, features, features, padding=((0, 1), (1, 0)), dilations=(1, 2), bias=[1.0]),
    -tfo.nn.linear_cross_entropy(x, tf.Variable(x), ids, bias=None, softcap=30.0),
    tfo.layers.RoIAlign((7, 7), name="pool")(features, boxes, ids, training=True),
    tfo.losses.BoxIoU(mode="diou", reduction="mean_with_sample_weight")(boxes, boxes, [1, 0]),
]
losses, log_sums = tfo.nn.sparse_softmax_cross_entropy([0, 1], x, class_weights=[1, 0.5], return_log_sum_exp=True)
found: tfo.detection.Detections = tfo.detection.multiclass_nms(boxes, x, score_threshold=None)
matching: tfo.detection.Assignment = tfo.detection.linear_sum_assignment([x, x], counts=[3, 2], maximize=False)
tensors += [losses * 2.0, log_sums, matching.columns, found.counts, tfo.layers.CRF(3).decode(x, lengths=[2]).labels]
attend = tfo.layers.MultiHeadAttention(num_heads=2, key_dim=4)
tensors += [attend(array, x, use_causal_mask=True), *attend(array, x, return_attention_scores=True)]


# Functions of the caller.
def step_fn(tokens: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.zeros([2, 4]), state


def halve(step: tf.Tensor, sequences: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return logits / 2.0


options: Any = {"batch_size": 2, "max_length": 5, "bos_id": ids, "eos_ids": [1, 2]}
chain = tfo.seq2seq.processors.chain(tfo.seq2seq.processors.top_p(tf.constant(0.9)), halve)
tensors += [tfo.seq2seq.beam_search(step_fn, x, beam_width=4, logits_processor=chain, **options).sequences]


def scale(values: tf.Tensor, factor: float) -> dict[str, tf.Tensor]:
    return {"scaled": values * factor}


parallel: dict[str, tf.Tensor] = tfo.distribute.make_parallel(scale, devices=["CPU:0"])(x, 2.0)


@tfo.python_op("types::double", out=tf.TensorSpec([2, 2], tf.float32), vmap="batched")
def double(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 2 * x


@double.register_gradient
def double_gradient(ctx: Any, dy: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 2 * dy


status: str = tfo.testing.opcheck(double, [double(x, name="twice")], skip={"xla": "NumPy"})["gradients"].status
