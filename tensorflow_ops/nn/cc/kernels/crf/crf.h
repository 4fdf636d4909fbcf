// Linear-chain conditional random fields (Lafferty et al. 2001): a label
// sequence l has the score
//   sum_t logits[t, l_t] + sum_t transitions[l_t, l_t+1]
// and the probability e^score / Z, Z being the sum over all label sequences.
//
// Sums over sequences are numbers with a large exponent (scaled.h), of double
// mantissas. -inf forbids a tag or a transition. If no sequence is allowed, the
// log likelihood is -inf, and the gradient and marginals are 0. NaN or +inf in
// the scores of an example make its results NaN.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/nn/cc/kernels/rows/index_array.h"

namespace tfo {

// T is float, double, Half or BFloat16. On a GPU, labels and lengths out of
// their ranges make the example NaN; the CPU's caller has checked them.
template <typename T>
struct CrfScores {
  using Value = Accumulator<T>;
  int64_t batch, frames, tags;  // at least one tag
  const T* logits;              // [batch, frames, tags]
  const Value* transitions;     // [tags, tags], from row to column
  IndexArray lengths;           // [batch], in [0, frames]
};

template <typename T>
struct CrfLikelihoodArgs {
  CrfScores<T> scores;
  IndexArray labels;               // [batch, frames]
  Accumulator<T>* log_likelihood;  // [batch]
};

template <typename T>
struct CrfLikelihoodGradArgs {
  CrfScores<T> scores;
  IndexArray labels;
  const Accumulator<T>* d;        // [batch]
  T* d_logits;                    // [batch, frames, tags]
  Accumulator<T>* d_transitions;  // [tags, tags]
};

// The probability of each tag at each frame; 0 beyond the length.
template <typename T>
struct CrfMarginalsArgs {
  CrfScores<T> scores;
  Accumulator<T>* marginals;  // [batch, frames, tags]
};

// The sequence with the largest score. Ties go to the lowest tag at the end,
// then to the lowest tag in each step back. NaN counts as -inf.
template <typename T>
struct CrfDecodeArgs {
  CrfScores<T> scores;
  int32_t* labels;       // [batch, frames]; 0 beyond the length
  Accumulator<T>* best;  // [batch], the scores
};

template <template <typename> class Args, typename T>
Error RunCrf(const Cpu& cpu, const Args<T>& args);
template <template <typename> class Args, typename T>
Error RunCrf(const Gpu& gpu, const Args<T>& args);

// Returns the bytes of gpu.scratch that the call needs.
template <template <typename> class Args, typename T>
int64_t CrfScratchBytes(const Args<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_H_
