"""Samples of tfo.losses for opcheck: results have Keras's default dtype, and Keras's reductions need known ranks."""

from detection_samples_testing import MORE_BOXES, SOME_BOXES
from nn_samples_testing import LABELS, LOGITS, SEQUENCE_LABELS, TARGETS
from sample_testing import normal, sample

import tensorflow_ops as tfo

SAMPLES = {
    "losses.BoxIoU": sample(tfo.losses.BoxIoU(), SOME_BOXES, MORE_BOXES, dtypes=("float32",), unknown_rank=False),
    "losses.SparseSoftmaxCrossEntropy": sample(
        tfo.losses.SparseSoftmaxCrossEntropy(label_smoothing=0.1),
        LABELS,
        LOGITS,
        dtypes=("float16", "bfloat16", "float32"),
        output_dtype="float32",
        unknown_rank=False,
    ),
    "losses.SoftmaxCrossEntropy": sample(
        tfo.losses.SoftmaxCrossEntropy(),
        TARGETS,
        LOGITS,
        dtypes=("float32",),
        unknown_rank=False,
    ),
}

for _name, _loss, _dims in (("CTC", tfo.losses.CTC(), (4, 4)), ("RNNT", tfo.losses.RNNT(), (4, 3, 4))):
    SAMPLES[f"losses.{_name}"] = sample(
        _loss,
        SEQUENCE_LABELS,
        normal(3, *_dims),
        dtypes=("float16", "bfloat16", "float32"),
        output_dtype="float32",
        unknown_rank=False,
        empty=False,
    )
