"""Logits and Gaussians, normalizations, activations, attention, recurrence, convolutions, losses of label sequences."""

from tensorflow_ops.nn.python.ops import (  # noqa: F401  (register gradients and vectorization)
    activations_grad,
    crf_grad,
    nn_grad,
    recurrent_grad,
    sequence_grad,
)
from tensorflow_ops.nn.python.ops.activations import gelu, silu
from tensorflow_ops.nn.python.ops.attention import attention
from tensorflow_ops.nn.python.ops.crf import CrfDecode, crf_decode, crf_log_likelihood, crf_marginals
from tensorflow_ops.nn.python.ops.cross_entropy import (
    label_log_prob,
    softmax_cross_entropy,
    sparse_softmax_cross_entropy,
)
from tensorflow_ops.nn.python.ops.ctc_loss import ctc_loss
from tensorflow_ops.nn.python.ops.decode_attention import decode_attention
from tensorflow_ops.nn.python.ops.deform_conv import deform_conv2d
from tensorflow_ops.nn.python.ops.deformable_attention import multiscale_deformable_attention
from tensorflow_ops.nn.python.ops.depthwise_conv import depthwise_conv2d
from tensorflow_ops.nn.python.ops.dropout import dropout
from tensorflow_ops.nn.python.ops.gaussian_kl import gaussian_kl
from tensorflow_ops.nn.python.ops.gru import GRU, gru
from tensorflow_ops.nn.python.ops.linear_cross_entropy import linear_cross_entropy
from tensorflow_ops.nn.python.ops.lstm import LSTM, lstm
from tensorflow_ops.nn.python.ops.normalization import group_norm, layer_norm, rms_norm
from tensorflow_ops.nn.python.ops.quantized_matmul import quantized_matmul
from tensorflow_ops.nn.python.ops.rnnt_loss import rnnt_loss
from tensorflow_ops.nn.python.ops.softmax import log_prob_from_logits, softmax, softmax_entropy
from tensorflow_ops.nn.python.ops.update_cache import update_cache

__all__ = [
    "GRU",
    "LSTM",
    "CrfDecode",
    "attention",
    "crf_decode",
    "crf_log_likelihood",
    "crf_marginals",
    "ctc_loss",
    "decode_attention",
    "deform_conv2d",
    "depthwise_conv2d",
    "dropout",
    "gaussian_kl",
    "gelu",
    "group_norm",
    "gru",
    "label_log_prob",
    "layer_norm",
    "linear_cross_entropy",
    "log_prob_from_logits",
    "lstm",
    "multiscale_deformable_attention",
    "quantized_matmul",
    "rms_norm",
    "rnnt_loss",
    "silu",
    "softmax",
    "softmax_cross_entropy",
    "softmax_entropy",
    "sparse_softmax_cross_entropy",
    "update_cache",
]
