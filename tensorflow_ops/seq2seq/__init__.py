"""Decoding of sequences: beam search, sampling, CTC, and their ops."""

from tensorflow_ops.seq2seq.python.ops import processors
from tensorflow_ops.seq2seq.python.ops.beam_search import BeamSearchResult, beam_search
from tensorflow_ops.seq2seq.python.ops.beam_search_ops import (
    BeamSearchStep,
    batch_gather,
    beam_search_step,
    gather_tree,
)
from tensorflow_ops.seq2seq.python.ops.ctc_decode import (
    CtcBeamSearchDecode,
    CtcDecode,
    ctc_beam_search_decode,
    ctc_greedy_decode,
)
from tensorflow_ops.seq2seq.python.ops.key_value_cache import KeyValueCache
from tensorflow_ops.seq2seq.python.ops.sampling import SampleResult, sample
from tensorflow_ops.seq2seq.python.ops.stochastic_beam_search import StochasticBeamSearchResult, stochastic_beam_search

__all__ = [
    "BeamSearchResult",
    "BeamSearchStep",
    "CtcBeamSearchDecode",
    "CtcDecode",
    "KeyValueCache",
    "SampleResult",
    "StochasticBeamSearchResult",
    "batch_gather",
    "beam_search",
    "beam_search_step",
    "ctc_beam_search_decode",
    "ctc_greedy_decode",
    "gather_tree",
    "processors",
    "sample",
    "stochastic_beam_search",
]
