// One step of beam search: selects the best continuations of each batch entry,
// over all beams and tokens.
//
// A live beam has a candidate for each token, whose log probability is the
// beam's plus log softmax(logits)[token]. A finished beam has one candidate:
// the first end token at no cost (token 0 if there are no end tokens).
// Candidates are ordered by
//   log probability / ((5 + length) / 6)^length_penalty
// with their own length (Wu et al., Google's Neural Machine Translation System,
// 2016); ties by beam * vocabulary + token. Everything after the softmax's sum
// is computed in Value, in this order:
//   (log_prob + ((logit - largest) - log(sum))) / divisor.
//
// A NaN logit counts as -inf, +inf as the largest finite number. Tokens of
// probability 0, forbidden tokens, and beams of log probability -inf or NaN are
// not candidates. Masks apply after the softmax, without renormalization.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_H_

#include <cmath>
#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// How a step treats end tokens.
enum class EosRule : int32_t {
  kAny = 0,
  kNone = 1,  // forbidden: the sequence is too short to end
  kOnly = 2,  // the only candidates: the sequence must end
};

// Which tokens may follow a beam.
struct BeamTokens {
  EosRule rule;
  int64_t num_eos;
  const int32_t* eos_ids;  // ignored where outside of the vocabulary
};
TFO_HOST_DEVICE static inline bool IsEos(const BeamTokens& tokens,
                                         int64_t token) {
  for (int64_t i = 0; i < tokens.num_eos; ++i) {
    if (tokens.eos_ids[i] == token) return true;
  }
  return false;
}
TFO_HOST_DEVICE static inline bool Allows(const BeamTokens& tokens,
                                          int64_t token) {
  return tokens.rule == EosRule::kAny ||
         IsEos(tokens, token) == (tokens.rule == EosRule::kOnly);
}
TFO_HOST_DEVICE static inline int32_t FirstEos(const BeamTokens& tokens) {
  return tokens.num_eos > 0 ? tokens.eos_ids[0] : 0;
}

template <typename T>
struct BeamSearchStepArgs {
  using Value = Accumulator<T>;
  int64_t batch, beams, vocabulary;  // beams and vocabulary are positive
  int64_t beam_width;                // of the results
  double length_penalty;
  BeamTokens tokens;
  const T* logits;         // [batch, beams, vocabulary]
  const Value* log_probs;  // [batch, beams]
  const bool* finished;
  const int32_t* lengths;
  const bool* forbidden;  // as logits; null: none
  // [batch, beam_width], best first. Missing candidates have log probability
  // -inf, the first end token, parent 0, finished = true, and beam 0's length.
  Value* next_log_probs;
  int32_t* token_ids;
  int32_t* parent_ids;
  bool* next_finished;
  int32_t* next_lengths;
};

// The logit that counts: NaN as -inf, +inf as the largest finite number.
template <typename Value>
TFO_HOST_DEVICE static inline Value CountedLogit(Value x) {
  constexpr bool kDouble = sizeof(Value) == sizeof(double);
  const Value most = kDouble ? static_cast<Value>(1.7976931348623157e308)
                             : static_cast<Value>(3.40282347e38f);
  return x != x ? -static_cast<Value>(INFINITY) : x > most ? most : x;
}

// Returns the divisor of the score of a hypothesis of `length` tokens.
template <typename Value>
TFO_HOST_DEVICE static inline Value LengthDivisor(int64_t length,
                                                  double length_penalty) {
  if (length_penalty == 0) return 1;
#ifdef __CUDA_ARCH__
  return static_cast<Value>(pow((5. + length) / 6., length_penalty));
#else
  // long double: pow of doubles needs glibc 2.29, which TensorFlow's own wheels
  // do not.
  return static_cast<Value>(powl((5.L + length) / 6, length_penalty));
#endif
}

template <typename T>
Error BeamSearchStep(const Cpu& cpu, const BeamSearchStepArgs<T>& args);
// Only enqueues; gpu.scratch has BeamScratchLayout's Bytes.
template <typename T>
Error BeamSearchStep(const Gpu& gpu, const BeamSearchStepArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_H_
