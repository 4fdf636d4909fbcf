"""Samples of tfo.losses: results have Keras's default dtype, and Keras's reductions need known ranks."""

from boxes_samples_testing import MORE_BOXES, SOME_BOXES
from rows_samples_testing import LABELS, LOGITS, TARGETS
from sample_testing import IN_THE_FUNCTIONS_SAMPLE, normal, sample, seed
from sequence_losses_samples_testing import SEQUENCE_LABELS

from tensorflow_ops import losses

seed(__name__)


def _loss(*args, **options):
    return sample(*args, ragged=True, unknown_rank=False, skip=IN_THE_FUNCTIONS_SAMPLE, **options)


SAMPLES = {
    "losses.BoxIoU": _loss(losses.BoxIoU(), SOME_BOXES, MORE_BOXES, dtypes=("float32",)),
    "losses.SparseSoftmaxCrossEntropy": _loss(
        losses.SparseSoftmaxCrossEntropy(label_smoothing=0.1),
        LABELS,
        LOGITS,
        dtypes=("float16", "bfloat16", "float32"),
        output_dtype="float32",
    ),
    "losses.SoftmaxCrossEntropy": _loss(
        losses.SoftmaxCrossEntropy(),
        TARGETS,
        LOGITS,
        dtypes=("float32",),
    ),
}

for _name, _fn, _dims in (("CTC", losses.CTC(), (4, 4)), ("RNNT", losses.RNNT(), (4, 3, 4))):
    SAMPLES[f"losses.{_name}"] = _loss(
        _fn,
        SEQUENCE_LABELS,
        normal(3, *_dims),
        sparse=True,
        dtypes=("float16", "bfloat16", "float32"),
        output_dtype="float32",
        empty=False,
    )
