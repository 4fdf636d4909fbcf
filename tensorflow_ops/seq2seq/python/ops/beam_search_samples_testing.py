"""Samples of a step of beam search, whose choices have no gradient."""

import numpy as np
import tensorflow as tf
from sample_testing import RNG, ROW_DTYPES, normal, sample, seed

from tensorflow_ops import seq2seq

seed(__name__)
_STEP_LOGITS, _LOG_PROBS = normal(2, 3, 5), normal(2, 3)
_FINISHED, _STEP_LENGTHS = tf.constant([[False, True, False], [False] * 3]), tf.constant([[2, 1, 9], [9, 1, 2]])
SAMPLES = {
    "seq2seq.beam_search_step": sample(
        seq2seq.beam_search_step,
        _STEP_LOGITS,
        _LOG_PROBS,
        _FINISHED,
        _STEP_LENGTHS,
        kwargs={"eos_ids": [3], "length_penalty": 0.6},
        variants=[
            {"beam_width": 7, "eos_ids": [], "length_penalty": 0.0},
            {"beam_width": 1, "eos_ids": [0, 1], "length_penalty": -1.0},
            {"forbidden": tf.constant(RNG.random([2, 3, 5]) < 0.3), "log_probs": tf.constant([[-np.inf, 0, -1]] * 2)},
            {"logits": tf.round(_STEP_LOGITS), "log_probs": tf.round(_LOG_PROBS), "beam_width": 4},
            {
                **{"logits": normal(2, 1, 40), "log_probs": _LOG_PROBS[:, :1], "finished": _FINISHED[:, :1]},
                **{"lengths": _STEP_LENGTHS[:, :1], "beam_width": 5},
            },
        ],
        bad=[
            (
                {"logits": _STEP_LOGITS[0]},
                r"logits are \[3,5\], expected \[\?,\?,\?\]: \[batch, beams, tokens\]|logits must be \[batch, beams",
            ),
            (
                {"logits": _STEP_LOGITS[..., :0]},
                r"logits are \[2,3,0\], expected at least one token|at least one beam and one token",
            ),
            ({"logits": tf.zeros([2, 3, 5], tf.int32)}, "logits are int32, expected float16, bfloat16, float32 or"),
            (
                {"log_probs": normal(2, 4)},
                r"log_probs are \[2,4\], expected \[2,3\]: logits' batch and beams|log_probs must be",
            ),
            ({"log_probs": tf.zeros([2, 3], tf.int32)}, "log_probs are int32, expected float32"),
            ({"lengths": tf.fill([2, 3], -1), "eos_ids": [5]}, r"lengths\[0, 0\] is -1, expected \[0, 2147483647\)"),
            ({"finished": [[0, 1]]}, "finished cannot be bool"),
            ({"finished": tf.zeros([2, 3])}, "finished are float32, expected bool"),
            ({"lengths": tf.zeros([2, 3])}, "lengths are float32, expected int32"),
            ({"lengths": _STEP_LENGTHS[0]}, r"lengths are \[3\], expected \[2,3\]|lengths must be \[batch, beams\]"),
            ({"forbidden": tf.zeros([2, 3, 4], tf.bool)}, r"forbidden are \[2,3,4\], expected \[2,3,5\]"),
            ({"beam_width": 0}, r"beam_width is 0, expected an int in \[1, 2147483647\]"),
            ({"length_penalty": 10**400}, "length_penalty is 10+, expected a finite number"),
            ({"length_penalty": np.nan}, "length_penalty is nan, expected a finite number"),
            ({"eos_ids": [5]}, r"eos_ids\[0\] is 5, expected \[0, 5\)"),
            ({"eos_ids": [0, -1]}, r"eos_ids\[1\] is -1, expected \[0, 5\)"),
        ],
        non_differentiable=(0, 1),
        output_dtype=ROW_DTYPES,
    ),
}
