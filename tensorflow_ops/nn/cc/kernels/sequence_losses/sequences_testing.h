// Batches of labels and logits, and what the tests of ctc_loss and rnnt_loss
// share.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCES_TESTING_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCES_TESTING_H_

#include <cmath>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/testing/args_testing.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

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

struct BatchSize {
  int64_t batch, frames, max_labels, classes;
};

template <typename Loss, typename T>
LabelBatch<T> RandomBatch(const BatchSize& size, uint32_t seed,
                          float spread = 1,
                          int64_t least_frames = Loss::kLeastFrames) {
  constexpr bool kNodes = Loss::kHasNodes;
  const auto [batch, frames, max_labels, classes] = size;
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
  b.rows_per_frame = kNodes ? max_labels + 1 : 1;
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
      for (int64_t u = 0; u < (kNodes ? labels + 1 : 1); ++u) {
        const int64_t row = i * b.RowsOfExample() + t * b.rows_per_frame + u;
        for (int64_t c = 0; c < classes; ++c) {
          b.logits[row * classes + c] = Narrow<T>(spread * normal(engine));
        }
      }
    }
  }
  return b;
}

// Upstream gradients: 1.5, 0.5, -0.5, -1.5, and so on.
template <typename Value>
GpuVector<Value> Upstream(int64_t n) {
  GpuVector<Value> d;
  for (int64_t i = 0; i < n; ++i) d.push_back(1.5 - (i % 4));
  return d;
}

struct ExpectedLoss {
  std::vector<double> loss, d_logits;
};

template <typename T>
struct LossResults {
  GpuVector<Accumulator<T>> loss;
  GpuVector<T> d_logits;
};

// Runs a loss and its gradient.
template <typename Loss, typename Device, typename T>
LossResults<T> RunLoss(const Device& device, const LabelBatch<T>& b,
                       const GpuVector<Accumulator<T>>& d,
                       bool zero_infinity = false) {
  using Value = Accumulator<T>;
  const LabelSequences s = b.Sequences();
  GpuVector<Value> largest(s.Rows<Loss>(), 7), rest(s.Rows<Loss>(), 7);
  LossResults<T> r{GpuVector<Value>(s.batch, 7),
                   GpuVector<T>(b.logits.size(), Narrow<T>(7))};
  const SequenceLossArgs<Loss, T> args{
      s,           b.logits.data(), r.loss.data(), largest.data(),
      rest.data(), zero_infinity};
  const SequenceLossGradArgs<Loss, T> grad{s,           b.logits.data(),
                                           d.data(),    largest.data(),
                                           rest.data(), r.d_logits.data()};
  WithScratch(
      device, [&] { return SequenceLossScratchBytes(args); },
      [&](const Device& on) { TFO_EXPECT_RUNS(SequenceLoss(on, args)); });
  WithScratch(
      device, [&] { return SequenceLossScratchBytes(grad); },
      [&](const Device& on) { TFO_EXPECT_RUNS(SequenceLossGrad(on, grad)); });
  return r;
}

template <typename T>
void ExpectResults(const LossResults<T>& r, const ExpectedLoss& expected,
                   double of_loss, double of_gradient) {
  ExpectNear("loss", r.loss.data(), expected.loss, of_loss);
  ExpectNear("d_logits", r.d_logits.data(), expected.d_logits, of_gradient);
}

// Compares with compute(batch, upstream gradients).
template <typename Loss, typename Device, typename T, typename Compute>
void TestLoss(const Device& device, const LabelBatch<T>& b,
              const Compute& compute, double tolerance = ToleranceOf<T>(),
              const Caller& caller = {}) {
  const Case of_test(caller, NameOf<T>(), "batch ", b.batch, ", frames ",
                     b.frames, ", labels ", b.max_labels, ", classes ",
                     b.classes, ", blank ", b.blank);
  const auto d = Upstream<Accumulator<T>>(b.batch);
  ExpectResults(RunLoss<Loss>(device, b, d), compute(b, d),
                std::is_same_v<T, double> ? 1e-10 : 2e-6, tolerance);
}

// Calls test(T(), device, seed) for all dtypes; on the CPU also with threads.
template <typename Device, typename Test>
void ForTypes(const Device& device, const Test& test) {
  uint32_t seed = 0;
  ForTypes([&](auto type) {
    ++seed;
    if constexpr (std::is_same_v<Device, Cpu>) {
      test(type, seed % 2 == 0 ? ThreadedCpu(seed) : device, seed);
    } else {
      test(type, device, seed);
    }
  });
}

// Of random batches of these sizes.
template <typename Loss, typename T, typename Device, typename Compute>
void TestSizes(const Device& device, uint32_t seed,
               const std::vector<BatchSize>& sizes, const Compute& compute,
               const Caller& caller = {}) {
  for (const BatchSize& size : sizes) {
    TestLoss<Loss>(device, RandomBatch<Loss, T>(size, seed++), compute,
                   ToleranceOf<T>(), caller);
  }
}

// Long, and with large scores: what a float in logarithms loses.
template <typename Loss, typename Device, typename Compute>
void TestLongAndLarge(const Device& device, const BatchSize& size,
                      const Compute& compute) {
  const auto test = [&](auto type, uint32_t seed, float spread,
                        double tolerance) {
    using T = decltype(type);
    TestLoss<Loss>(device, RandomBatch<Loss, T>(size, seed, spread), compute,
                   tolerance);
  };
  test(float(), 1, 1, 2e-4);
  test(float(), 2, 1e4, 2e-3);
  test(double(), 3, 1e4, 1e-6);
  // Exponents of more than 32 bits.
  test(float(), 4, 1e9, 2e-3);
}

template <typename Loss>
void TestThreads(const LabelBatch<float>& b) {
  const auto d = Upstream<float>(b.batch);
  const auto one = RunLoss<Loss>(Cpu(), b, d);
  for (const int threads : {2, 5}) {
    const auto r = RunLoss<Loss>(ThreadedCpu(threads), b, d);
    TFO_EXPECT(HaveSameBits(one.loss, r.loss));
    TFO_EXPECT(HaveSameBits(one.d_logits, r.d_logits));
  }
}

// Sets logit `at` of the second example, which must be within its lengths.
template <typename Loss, typename Device, typename Compute>
void TestNan(const Device& device, LabelBatch<float> b, int64_t at,
             const Compute& compute) {
  const int64_t size = b.RowsOfExample() * b.classes;
  const auto d = Upstream<float>(b.batch);
  ExpectedLoss expected = compute(b, d);
  const auto set_gradient = [&](double value) {
    std::fill_n(expected.d_logits.begin() + size, size, value);
  };
  expected.loss[1] = kNan;
  for (const double bad : {kNan, kInfinity}) {
    b.logits[size + at] = static_cast<float>(bad);
    set_gradient(kNan);
    ExpectResults(RunLoss<Loss>(device, b, d), expected, 1e-5, 1e-5);
    // No gradient comes in, none goes out.
    auto without = d;
    without[1] = 0;
    set_gradient(0);
    ExpectResults(RunLoss<Loss>(device, b, without), expected, 1e-5, 1e-5);
  }
}

// The gradient of logits with the statistics of others, as an op may get them:
// exponents must not overflow, which only sanitizers see.
template <typename Loss, typename T, typename Device>
void TestOtherStatistics(const Device& device, const BatchSize& size) {
  for (const double logit : {1e30, kInfinity, kNan}) {
    auto b = RandomBatch<Loss, T>(size, 1);
    for (size_t i = 0; i < b.logits.size(); i += 2) {
      b.logits[i] = static_cast<T>(logit);
    }
    const LabelSequences s = b.Sequences();
    const GpuVector<T> d(s.batch, 1), zeros(s.Rows<Loss>(), 0);
    GpuVector<T> d_logits(b.logits.size(), 7);
    const SequenceLossGradArgs<Loss, T> grad{s,
                                             b.logits.data(),
                                             d.data(),
                                             zeros.data(),
                                             zeros.data(),
                                             d_logits.data()};
    WithScratch(
        device, [&] { return SequenceLossScratchBytes(grad); },
        [&](const Device& on) { TFO_EXPECT_RUNS(SequenceLossGrad(on, grad)); });
    TFO_EXPECT(std::count(d_logits.begin(), d_logits.end(), T(7)) == 0);
  }
}

// Labels and lengths of the first of two examples that are out of range, on a
// GPU.
template <typename Loss, typename Compute>
void TestBadLabels(const LabelBatch<float>& good, const Compute& compute) {
  const auto d = Upstream<float>(2);
  ExpectedLoss expected = compute(good, d);
  const int64_t size = good.RowsOfExample() * good.classes;
  expected.loss[0] = kNan;
  std::fill_n(expected.d_logits.begin(), size, kNan);
  for (int bad = 0; bad < 5; ++bad) {
    auto b = good;
    if (bad == 0) b.labels[1] = b.classes;
    if (bad == 1) b.labels[1] = b.blank;
    if (bad == 2) b.label_lengths[0] = b.max_labels + 1;
    if (bad == 3) b.logit_lengths[0] = b.frames + 1;
    if (bad == 4) b.logit_lengths[0] = Loss::kLeastFrames - 1;
    const auto r = RunLoss<Loss>(Gpu(), b, d);
    ExpectNear("loss", r.loss.data(), expected.loss, 1e-5);
    if (bad > 1) continue;
    ExpectNear("d_logits", r.d_logits.data(), expected.d_logits, 1e-5);
  }
}

// Times a loss and its gradient, for full lengths.
template <typename Loss, typename T>
void TimeLoss(const std::string& kernel, int64_t batch, int64_t frames,
              int64_t classes, int64_t max_labels) {
  const auto name_of = [&](const char* pass) {
    return Text(NameOf<T>(), kernel, pass, " [", batch, ", ", frames, ", ",
                classes, "], ", max_labels, " labels");
  };
  const int64_t examples = BenchmarkSize(batch), steps = BenchmarkSize(frames),
                width = BenchmarkSize(max_labels),
                logits = BenchmarkSize(classes);
  GpuVector<int32_t> labels(examples * width);
  for (size_t i = 0; i < labels.size(); ++i)
    labels[i] = 1 + i * 37 % (logits - 1);
  Tensors tensors({{"batch", examples},
                   {"frames", steps},
                   {"labels", width},
                   {"classes", logits}});
  tensors.Set("labels", labels);
  tensors.Set("label_lengths", GpuVector<int32_t>(examples, width));
  tensors.Set("logit_lengths", GpuVector<int32_t>(examples, steps));
  const auto args = Bound<SequenceLossArgs<Loss, T>>(&tensors);
  const auto grad = Bound<SequenceLossGradArgs<Loss, T>>(&tensors);
  const int64_t num_bytes =
      args.sequences.template Rows<Loss>() * logits * sizeof(T);
  TimeOnGpu(name_of(""), num_bytes, SequenceLossScratchBytes(args),
            [&](const Gpu& gpu) { return SequenceLoss(gpu, args); });
  TimeOnGpu(name_of("_grad"), 2 * num_bytes, SequenceLossScratchBytes(grad),
            [&](const Gpu& gpu) { return SequenceLossGrad(gpu, grad); });
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCES_TESTING_H_
