// Batches of labels and logits for the tests of ctc_loss and rnnt_loss.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCES_TESTING_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCES_TESTING_H_

#include <cmath>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/gpu_testing.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/label_sequences.h"

namespace tfo::testing {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline double LogAdd(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return high == -kInfinity ? high : high + std::log1p(std::exp(low - high));
}

// log softmax of [rows, classes].
inline std::vector<double> LogSoftmax(const std::vector<double>& logits,
                                      int64_t classes) {
  std::vector<double> result(logits.size());
  for (size_t row = 0; row < logits.size(); row += classes) {
    double sum = -kInfinity;
    for (int64_t c = 0; c < classes; ++c) sum = LogAdd(sum, logits[row + c]);
    for (int64_t c = 0; c < classes; ++c) {
      result[row + c] = sum == -kInfinity ? -kInfinity : logits[row + c] - sum;
    }
  }
  return result;
}

template <typename T>
std::vector<double> Widened(const GpuVector<T>& values) {
  std::vector<double> wide;
  for (const T value : values) wide.push_back(Widen(value));
  return wide;
}

// NaN where NaN is expected, else within `tolerance` of it, relative to it or,
// below 1, absolute.
template <typename T>
void ExpectNear(const char* name, const T* actual,
                const std::vector<double>& expected, double tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double value = Widen(actual[i]), e = expected[i];
    if (value == e || (value != value && e != e)) continue;
    const double most = tolerance * std::max(1.0, std::abs(e));
    if (std::abs(value - e) <= most) continue;
    std::ostringstream message;
    message << name << "[" << i << "] of " << expected.size() << " is " << value
            << ", expected " << e << " in " << 8 * sizeof(T) << " bits";
    return Fail(__FILE__, __LINE__, message.str());
  }
}
template <typename T>
double ToleranceOf() {
  return std::is_same_v<T, double>  ? 1e-10
         : std::is_same_v<T, float> ? 2e-5
         : std::is_same_v<T, Half>  ? 1e-3
                                    : 8e-3;
}

// A batch in which padding is poisoned: labels of -7, logits of NaN.
template <typename T>
struct LabelBatch {
  int64_t batch, frames, max_labels, classes, blank;
  int64_t rows_per_frame;  // 1, or max_labels + 1
  GpuVector<T> logits;
  GpuVector<int32_t> labels, label_lengths, logit_lengths;

  LabelSequences Sequences() const {
    return {batch, frames,        max_labels,           classes,
            blank, labels.data(), label_lengths.data(), logit_lengths.data()};
  }
  int64_t RowsOfExample() const { return frames * rows_per_frame; }
};

template <typename T>
LabelBatch<T> RandomBatch(int64_t batch, int64_t frames, int64_t max_labels,
                          int64_t classes, int64_t least_frames, bool nodes,
                          uint32_t seed, float spread = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  const auto upto = [&](int64_t n) {
    return static_cast<int64_t>(engine() % (n + 1));
  };
  LabelBatch<T> b;
  b.batch = batch;
  b.frames = frames;
  b.max_labels = max_labels;
  b.classes = classes;
  b.blank = upto(classes - 1);
  b.rows_per_frame = nodes ? max_labels + 1 : 1;
  const auto nan = Narrow<T>(std::numeric_limits<float>::quiet_NaN());
  b.logits.assign(batch * b.RowsOfExample() * classes, nan);
  b.labels.assign(batch * max_labels, -7);
  for (int64_t i = 0; i < batch; ++i) {
    // The first example has all frames and labels.
    const int64_t length =
        i == 0 ? frames : least_frames + upto(frames - least_frames);
    const int64_t labels = classes == 1 ? 0
                           : i == 0     ? max_labels
                                        : upto(max_labels);
    b.logit_lengths.push_back(length);
    b.label_lengths.push_back(labels);
    for (int64_t u = 0; u < labels; ++u) {
      int64_t label = upto(classes - 2);
      label += label >= b.blank;
      b.labels[i * max_labels + u] = label;
    }
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t u = 0; u < (nodes ? labels + 1 : 1); ++u) {
        const int64_t row = i * b.RowsOfExample() + t * b.rows_per_frame + u;
        for (int64_t c = 0; c < classes; ++c) {
          b.logits[row * classes + c] = Narrow<T>(spread * normal(engine));
        }
      }
    }
  }
  return b;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCES_TESTING_H_
