"""Samples of tfo.layers: results have Keras's default dtype."""

import tensorflow as tf
from boxes_samples_testing import MORE_BOXES, SOME_BOXES
from crf_samples_testing import TAG_LOGITS
from roi_samples_testing import BIN_MAP, BOX_INDICES, BOXES, MAP, features_of
from sample_testing import IN_THE_FUNCTIONS_SAMPLE, normal, sample, seed

from tensorflow_ops import layers

seed(__name__)


def _roi_layer(layer, features, **options):
    """Returns a sample of a float64 layer: the steps of numeric gradients in float32 would cross pixels."""
    options = {"dtypes": ("float64",), "output_dtype": "float64", "skip": IN_THE_FUNCTIONS_SAMPLE, **options}
    return sample(layer, features, BOXES, BOX_INDICES, ragged=True, **options)


SAMPLES = {
    "layers.RoIPool": _roi_layer(layers.RoIPool(2, dtype="float64"), MAP, non_differentiable=1),
    "layers.RoIAlign": _roi_layer(layers.RoIAlign(2, dtype="float64"), MAP),
    "layers.PSRoIPool": _roi_layer(layers.PSRoIPool(2, dtype="float64"), BIN_MAP, non_differentiable=1),
    "layers.PSRoIAlign": _roi_layer(layers.PSRoIAlign(2, dtype="float64"), BIN_MAP),
    "layers.MultiScaleRoIAlign": _roi_layer(
        layers.MultiScaleRoIAlign(2, strides=(1, 2), canonical_box_size=40.0, dtype="float64"),
        [features_of(2, 8, 9, 3), features_of(2, 4, 5, 3)],
    ),
}

SAMPLES["layers.NMS"] = sample(
    layers.NMS(max_outputs=4, dtype="float64"),
    tf.stack([SOME_BOXES, MORE_BOXES]),
    tf.nn.softmax(normal(2, 3, 5)),
    ragged=True,
    skip={"dtypes": "keeps the dtypes of its arguments", **IN_THE_FUNCTIONS_SAMPLE},
)
SAMPLES["layers.GridSample"] = sample(
    layers.GridSample(padding_mode="border", dtype="float64"),
    normal(2, 5, 6, 3),
    normal(2, 4, 2) / 2,
    dtypes=("float64",),
    output_dtype="float64",
    skip=IN_THE_FUNCTIONS_SAMPLE,
)

# Its call only copies: losses and decoding are methods.
_CRF_LAYER = layers.CRF(5, dtype="float64")
_CRF_LAYER.build([None, None, 5])
SAMPLES["layers.CRF"] = sample(_CRF_LAYER, TAG_LOGITS, dtypes=("float64",), output_dtype="float64", unknown_rank=False)

SAMPLES["layers.CorrelationCost"] = sample(
    layers.CorrelationCost(2, padding=2, dtype="float64"),
    normal(2, 4, 5, 3),
    normal(2, 4, 5, 3),
    dtypes=("float64",),
    output_dtype="float64",
    skip=IN_THE_FUNCTIONS_SAMPLE,
)
