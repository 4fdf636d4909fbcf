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
  int64_t batch, frames, tags;
  const T* logits;
  const Value* transitions;  // from row to column
  IndexArray lengths;        // in [0, frames]
};

template <typename T, typename V>
void DescribeScores(CrfScores<T>& s, V& v) {
  v.In("logits", "[batch, frames, tags]", &s.logits);
  v.In("transitions", "[tags, tags]", &s.transitions);
  v.In("lengths", "[batch]", &s.lengths, "Tlengths");
  v.Types("T", "Tvalue", "Tlengths");
  v.Size("batch", &s.batch);
  v.Size("frames", &s.frames);
  v.Size("tags", &s.tags);
  v.Check(s.tags != 0, "logits must have at least one tag");
}

template <typename T>
struct CrfLikelihoodArgs {
  CrfScores<T> scores;
  IndexArray labels;
  Accumulator<T>* log_likelihood;
};

template <typename T, typename V>
void Describe(CrfLikelihoodArgs<T>& a, V& v) {
  v.In("labels", "[batch, frames]", &a.labels, "Tlabels");
  DescribeScores(a.scores, v);
  v.Types("Tlabels");
  v.Out("log_likelihood", "[batch]", &a.log_likelihood);
}

template <typename T>
struct CrfLikelihoodGradArgs {
  CrfScores<T> scores;
  IndexArray labels;
  const Accumulator<T>* d;
  T* d_logits;
  Accumulator<T>* d_transitions;
};

template <typename T, typename V>
void Describe(CrfLikelihoodGradArgs<T>& a, V& v) {
  v.In("labels", "[batch, frames]", &a.labels, "Tlabels");
  DescribeScores(a.scores, v);
  v.Types("Tlabels");
  v.In("d_log_likelihood", "[batch]", &a.d);
  v.Out("d_logits", "[batch, frames, tags]", &a.d_logits);
  v.Out("d_transitions", "[tags, tags]", &a.d_transitions);
}

// The probability of each tag at each frame; 0 beyond the length.
template <typename T>
struct CrfMarginalsArgs {
  CrfScores<T> scores;
  Accumulator<T>* marginals;
};

template <typename T, typename V>
void Describe(CrfMarginalsArgs<T>& a, V& v) {
  DescribeScores(a.scores, v);
  v.Out("marginals", "[batch, frames, tags]", &a.marginals);
}

// The sequence with the largest score. Ties go to the lowest tag at the end,
// then to the lowest tag in each step back. NaN counts as -inf.
template <typename T>
struct CrfDecodeArgs {
  CrfScores<T> scores;
  int32_t* labels;  // 0 beyond the length
  Accumulator<T>* best;
};

template <typename T, typename V>
void Describe(CrfDecodeArgs<T>& a, V& v) {
  DescribeScores(a.scores, v);
  v.Check(a.scores.tags < int64_t{1} << 31, "logits have ", a.scores.tags,
          " tags, expected below 2^31");
  v.Out("labels", "[batch, frames]", &a.labels);
  v.Out("scores", "[batch]", &a.best);
}

template <template <typename> class Args, typename T>
Error RunCrf(const Cpu& cpu, const Args<T>& args);
template <template <typename> class Args, typename T>
Error RunCrf(const Gpu& gpu, const Args<T>& args);

// Returns the bytes of gpu.scratch that the call needs.
template <template <typename> class Args, typename T>
int64_t CrfScratchBytes(const Args<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_H_
