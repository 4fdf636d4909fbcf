# pyright: strict
"""Calls of public functions, layers and losses with arguments of many types, as users write them.

check.py checks their types; nothing runs.

It calls those of TensorFlow's functions that have types: tf.zeros has, tf.exp has not.
"""

from typing import Any

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
array = np.zeros([2, 2], np.float32)
ids = np.array([0, 1])

version: str = tfo.__version__
tfo.show_versions()
path: str = tfo.sysconfig.get_lib()
paths: list[str] = tfo.sysconfig.get_libs()

zeroed: tf.Tensor = tfo.zero_out([[5, 4], [3, 2]])
zeroed, index = tfo.zero_out_with_index(array, preserve_index=1, name="op")

# tfo.detection

features = tf.zeros([1, 8, 8, 4])
boxes = [[0, 0, 4, 4], [1, 1, 5.5, 5]]
tensors: list[tf.Tensor] = [
    tfo.detection.box_iou(boxes, array, mode="giou", box_format="yxyx"),
    tfo.detection.box_iou(boxes, array, box_format="cxcywhr"),
    tfo.detection.box_iou_loss(tf.constant(boxes), boxes, mode="ciou"),
    tfo.detection.nms(boxes, [0.5, 0.6], 0.5, max_outputs=tf.constant(3)),
    tfo.detection.nms(boxes, x[0], x[0, 0], score_threshold=np.float32(0.1), max_outputs=3),
    tfo.detection.batched_nms(boxes, x[0], ids, 0.5, box_format="xyxy"),
    tfo.detection.roi_pool(features, boxes, [0, 0], 2),
    tfo.detection.roi_align(features, boxes, ids, (2, 3), mode="max", data_format="NHWC", sampling_ratio=2),
    tfo.detection.roi_align(features, array, ids, tf.constant([2, 3]), spatial_scale=1 / 16, aligned=False),
    tfo.detection.ps_roi_pool(features, boxes, [0, 0], [2, 2], channel_order="bin_major"),
    tfo.detection.ps_roi_align(features, boxes, [0, 0], 2, data_format="NCHW"),
    tfo.detection.multiscale_roi_align([features, features], boxes, ids, 7, strides=(4, 8), box_format="yxyx"),
]
pooled, argmax = tfo.detection.roi_pool_with_argmax(features, boxes, [0, 0], 2)
found: tfo.detection.Detections = tfo.detection.multiclass_nms(boxes, x, score_threshold=None, max_outputs=100)
tensors += [found.boxes * 2.0, found.counts, pooled, argmax]
soft: tfo.detection.SoftNms = tfo.detection.soft_nms(boxes, x[0], method="linear", sigma=0.5)
kept, scores = soft

# tfo.image

labels, counts = tfo.image.connected_components(array > 0, connectivity=8)
tensors += [
    tfo.image.correlation_cost(features, features, max_displacement=4, padding=4),
    tfo.image.dense_image_warp(features, np.zeros([1, 8, 8, 2])),
    tfo.image.euclidean_distance_transform([[0, 1]], spacing=(1, 0.5), dtype=tf.float64),
    tfo.image.euclidean_distance_transform([[False, True]], dtype="float32"),
    tfo.image.grid_sample(features, [[[[0.0, 0]]]], mode="bicubic", padding_mode="border", normalized=False),
    tfo.image.connected_components([[0, 1]]).counts,
    labels,
    counts,
]

# tfo.nn

loss: tf.Tensor = tfo.nn.sparse_softmax_cross_entropy([0, 1], x, ignore_index=-1, class_weights=[1, 0.5])
losses, log_sums = tfo.nn.sparse_softmax_cross_entropy(ids, x, return_log_sum_exp=True)
mean: tf.Tensor = tf.reduce_mean(tfo.nn.softmax_cross_entropy(array, x, label_smoothing=0.1) * 2.0)
losses, log_sums = tfo.nn.softmax_cross_entropy(array, x, return_log_sum_exp=True)
negative: tf.Tensor = -tfo.nn.linear_cross_entropy(x, tf.Variable(x), ids, bias=None, softcap=30.0)
losses, log_sums = tfo.nn.linear_cross_entropy(x, array, ids, return_log_sum_exp=True)
attended, log_sums = tfo.nn.attention(
    features, array, features, softcap=30.0, sinks=[0.0], dropout=0.1, seed=[1, 2], return_log_sum_exp=True
)
tensors += [
    attended,
    log_sums,
    tfo.nn.attention(features, features, array, mask=array > 0, bias=features, causal=True, window=(None, 3)),
    tfo.nn.attention(x, x, x, window=4, query_offset=3, scale=0.5, alibi_slopes=array, lengths=[2], key_lengths=ids),
    tfo.nn.softmax([[1000.0, -float("inf")]], axis=0),
    tfo.nn.softmax(np.float32(1)),
    tfo.nn.log_prob_from_logits([x, x]),
    tfo.nn.softmax_entropy(x)[0],
    tfo.nn.label_log_prob(ids, x),
    tfo.nn.gaussian_kl((0.0, x), (x, x)),
    tfo.nn.gaussian_kl([x, x]),
    tfo.nn.ctc_loss([[1, 2]], features[0], [2], [3], blank_index=-1, zero_infinity=True),
    tfo.nn.rnnt_loss([[3]], features, ids, ids),
    tfo.nn.deform_conv2d(features, features, features, padding="SAME", strides=2, dilations=(1, 2), bias=[1.0]),
    tfo.nn.deform_conv2d(features, features, features, mask=features, padding=((0, 1), (1, 0))),
    tfo.nn.multiscale_deformable_attention(features, [[2, 2]], features, features, num_points=[4]),
    tfo.nn.crf_log_likelihood([[2, 0]], features[0], x, lengths=[2]),
    tfo.nn.crf_marginals(features[0], array),
    tfo.nn.crf_decode(features[0], array).labels,
]

# tfo.seq2seq


def step_fn(tokens: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.zeros([2, 4]), state


def halve(step: tf.Tensor, sequences: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return logits / 2.0


processors = [
    tfo.seq2seq.processors.bad_words([[1, 0]]),
    tfo.seq2seq.processors.force_tokens(1, step=0),
    tfo.seq2seq.processors.min_p(0.1),
    tfo.seq2seq.processors.no_repeat_ngrams(2),
    tfo.seq2seq.processors.repetition_penalty(1.2),
    tfo.seq2seq.processors.sequence_bias({(1, 0): 2.0}),
    tfo.seq2seq.processors.suppress_tokens([3], first_steps=2),
    tfo.seq2seq.processors.temperature(0.7),
    tfo.seq2seq.processors.top_k(5),
    tfo.seq2seq.processors.top_p(tf.constant(0.9)),
    tfo.seq2seq.processors.typical_p(0.9),
    halve,
]
processor = tfo.seq2seq.processors.chain(*processors)
search = tfo.seq2seq.beam_search(
    step_fn,
    x,
    batch_size=2,
    beam_width=4,
    max_length=tf.constant(5),
    bos_id=0,
    eos_ids=[1, 2],
    length_normalization="length",
    cut_off="count",
    early_stopping="never",
    logits_processor=processor,
    prompt=[[3], [4]],
)
drawn = tfo.seq2seq.sample(
    step_fn, x, batch_size=2, max_length=5, bos_id=ids, eos_ids=0, seed=[1, 2], top_p=0.9, logits_processor=halve
)
beams = tfo.seq2seq.stochastic_beam_search(
    step_fn, (), batch_size=2, beam_width=2, max_length=5, bos_id=0, eos_ids=0, seed=[1, 2]
)
step = tfo.seq2seq.beam_search_step(features[0], x, [[False, True]], [[1, 2]], eos_ids=[0], beam_width=2)
best: tfo.seq2seq.CtcDecode = tfo.seq2seq.ctc_greedy_decode(features[0], [3])
paths_found = tfo.seq2seq.ctc_beam_search_decode(features[0], ids, top_paths=2, step_fn=step_fn, initial_state=x)
tensors += [
    search.sequences,
    search.scores[0],
    drawn.log_probs,
    beams.perturbed_log_probs,
    step.token_ids,
    best.labels,
    paths_found.scores,
    tfo.seq2seq.gather_tree(ids, ids, ids, pad_id=0),
    tfo.seq2seq.batch_gather(x, [[0], [1]]),
]

# tfo.layers, tfo.losses

tensors += [
    tfo.layers.RoIPool(7, spatial_scale=1 / 4, name="pool")(features, boxes),
    tfo.layers.RoIAlign((7, 7), sampling_ratio=2, mode="max")(features, boxes, ids, training=True),
    tfo.layers.PSRoIPool(7, channel_order="bin_major")(features, boxes),
    tfo.layers.PSRoIAlign(7, box_format="yxyx")(features, boxes),
    tfo.layers.MultiScaleRoIAlign(7, strides=[4, 8])([features, features], boxes),
    tfo.layers.CorrelationCost(4, padding=4, dtype="float64")(features, features),
    tfo.layers.DeformConv2D(8, 3, padding="same", strides=(2, 1), activation=tf.nn.relu)(features),
    tfo.layers.MultiHeadAttention(2, 8, dropout=0.1)(x, x, use_causal_mask=True),
    tfo.layers.GroupQueryAttention(8, 4, num_key_value_heads=2)(x, x, key=x, training=True),
    tfo.layers.Merge(8, "relu", kernel_initializer="he_normal")([x, x]),
    tfo.losses.BoxIoU(mode="diou", reduction="mean_with_sample_weight")(boxes, boxes, [1, 0]),
    tfo.losses.CTC(blank_index=-1, reduction=None)([[1]], features[0]),
    tfo.losses.RNNT(dtype="float64")([[1]], features),
    tfo.losses.SoftmaxCrossEntropy(label_smoothing=0.1)(array, x),
    tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=-1, class_weights=[1.0, 0.5])(ids, x),
]
crf = tfo.layers.CRF(3, transitions_initializer="zeros")
tensors += [crf(features[0]), crf.loss(ids, x), crf.decode(x, lengths=[2]).labels, crf.marginals(x)]

# tfo.shapes, tfo.summary, tfo.distribute

size = tfo.shapes.get_shape(x, out_type=tf.int64)[0]
tensors += [tfo.shapes.reshape(x, [[0, 1]]), tf.zeros([size])]


def draw(figure: Any, values: tf.Tensor) -> None:
    figure.subplots().hist(values)


written: tf.Tensor = tfo.summary.figure("figure", draw, [x], step=1)
written = tfo.summary.labeled_images("images", features, ["a"], predictions=ids, class_names=["a", "b"])


def scale(values: tf.Tensor, factor: float) -> dict[str, tf.Tensor]:
    return {"scaled": values * factor}


parallel: dict[str, tf.Tensor] = tfo.distribute.make_parallel(scale, devices=["CPU:0"])(x, 2.0)

# tfo.python_op, tfo.testing


@tfo.python_op("types::double", out=tf.TensorSpec([2, 2], tf.float32), vmap="batched")
def double(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 2 * x


@double.register_gradient
def double_gradient(ctx: Any, dy: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 2 * dy


@double_gradient.register_gradient(vmap="sequential")
def double_second_gradient(ctx: Any, dy: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    return np.zeros_like(dy), 2 * dy


doubled = double(x, name="twice")
name: str = double.name

results = tfo.testing.opcheck(double, [x], tests=["gradients", "xla"], skip={"xla": "NumPy"}, tolerance=1e-3)
status: str = results["gradients"].status
sample = tfo.testing.OpSample(double, [x], options={"second_order": True})
failures = tfo.testing.opcheck_samples({"double": sample}, tests="gradients", raise_on_failure=False)["double"].failures
error: float = tfo.testing.gradient_error(double, [x], non_differentiable=[(0, 1), "mask"]).error
tfo.testing.assert_gradients(tfo.nn.softmax, [x], {"axis": 0}, numeric_dtype=tf.float64)
