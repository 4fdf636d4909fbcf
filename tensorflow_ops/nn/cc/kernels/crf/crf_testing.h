// Batches of scores for crf_test.cc.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_TESTING_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_TESTING_H_

#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequences_testing.h"

namespace tfo::testing {

// Padding is poisoned: labels of -7, logits of NaN.
template <typename T>
struct CrfBatch {
  using Value = Accumulator<T>;
  int64_t batch, frames, tags;
  GpuVector<T> logits;
  GpuVector<Value> transitions;
  GpuVector<int64_t> labels;
  GpuVector<int32_t> lengths;

  CrfScores<T> Scores() const {
    return {batch,         frames, tags, logits.data(), transitions.data(),
            lengths.data()};
  }
};

template <typename T>
CrfBatch<T> RandomCrfBatch(int64_t batch, int64_t frames, int64_t tags,
                           uint32_t seed, float spread = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  CrfBatch<T> b{batch, frames, tags, {}, {}, {}, {}};
  b.logits.assign(batch * frames * tags,
                  Narrow<T>(std::numeric_limits<float>::quiet_NaN()));
  b.labels.assign(batch * frames, -7);
  for (int64_t i = 0; i < tags * tags; ++i) {
    b.transitions.push_back(spread * normal(engine));
  }
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t length = i == 0 ? frames : engine() % (frames + 1);
    b.lengths.push_back(length);
    for (int64_t t = 0; t < length; ++t) {
      b.labels[i * frames + t] = engine() % tags;
      for (int64_t j = 0; j < tags; ++j) {
        b.logits[(i * frames + t) * tags + j] =
            Narrow<T>(spread * normal(engine));
      }
    }
  }
  return b;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_TESTING_H_
