// The inner loop of beam_search_step_cpu.cc, compiled per CPU level.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_SIMD_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"

namespace tfo {

template <typename Value>
struct BeamCandidate {
  Value logit;
  int32_t token;
};

// The result of reading a part of a row once.
template <typename Value>
struct BeamPart {
  Value largest, rest;  // the softmax's sum is (1 + rest) e^largest
  // The greatest logits of allowed tokens, the first of equal ones; `count` <=
  // `keep` of them, as a heap with the worst at candidates[0].
  BeamCandidate<Value>* candidates;
  int64_t keep, count;
  // Upper bound on the logit of any allowed token that was not kept and
  // precedes a kept one.
  Value dropped;
};

TFO_PER_CPU_LEVEL(
    // Reads tokens [begin, end) of a row; `forbidden` is the row's, or null.
    // Sets all of `part` but candidates and keep, which is positive.
    template <typename T>
    void ReadBeamPart(const T* logits, int64_t begin, int64_t end,
                      const BeamTokens& tokens, const bool* forbidden,
                      BeamPart<Accumulator<T>>* part);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_SIMD_H_
