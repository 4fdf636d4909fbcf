#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequences_testing.h"

namespace tfo {
namespace {

using testing::ExpectedLoss;
using testing::ExpectNear;
using testing::GpuVector;
using testing::kInfinity;
using testing::LabelBatch;
using testing::RandomBatch;
using testing::RunLoss;
using testing::ToleranceOf;
using testing::Upstream;

// The lattice of one example.
struct Lattice {
  int64_t frames, labels, classes, blank, rows_per_frame;
  std::vector<int64_t> label = {};
  std::vector<double> log_p = {};  // [frames, rows_per_frame, classes]

  double LogP(int64_t t, int64_t u, int64_t c) const {
    return log_p[(t * rows_per_frame + u) * classes + c];
  }
  double Blank(int64_t t, int64_t u) const { return LogP(t, u, blank); }
  double Emits(int64_t t, int64_t u) const { return LogP(t, u, label[u]); }

  // The log probability of all ways from (t, u) to the end, one by one.
  double Enumerate(int64_t t, int64_t u) const {
    double sum = -kInfinity;
    if (u < labels) {
      sum = testing::LogAdd(sum, Emits(t, u) + Enumerate(t, u + 1));
    }
    const bool is_last = t == frames - 1;
    if (!is_last) {
      sum = testing::LogAdd(sum, Blank(t, u) + Enumerate(t + 1, u));
    } else if (u == labels) {
      sum = testing::LogAdd(sum, Blank(t, u));
    }
    return sum;
  }

  // The loss and the gradient by the recursions of the paper.
  double Recurse(double d, double* d_logits) const {
    const int64_t n = labels + 2;
    std::vector<double> alpha((frames + 1) * n, -kInfinity), beta = alpha;
    const auto at = [&](int64_t t, int64_t u) { return t * n + u; };
    for (int64_t t = 0; t < frames; ++t) {
      for (int64_t u = 0; u <= labels; ++u) {
        double sum = t == 0 && u == 0 ? 0 : -kInfinity;
        if (t > 0)
          sum = testing::LogAdd(sum, alpha[at(t - 1, u)] + Blank(t - 1, u));
        if (u > 0)
          sum = testing::LogAdd(sum, alpha[at(t, u - 1)] + Emits(t, u - 1));
        alpha[at(t, u)] = sum;
      }
    }
    beta[at(frames, labels)] = 0;
    for (int64_t t = frames - 1; t >= 0; --t) {
      for (int64_t u = labels; u >= 0; --u) {
        double sum = Blank(t, u) + beta[at(t + 1, u)];
        if (u < labels) {
          sum = testing::LogAdd(sum, Emits(t, u) + beta[at(t, u + 1)]);
        }
        beta[at(t, u)] = sum;
      }
    }
    const double total = beta[at(0, 0)];
    if (total == -kInfinity) return kInfinity;
    for (int64_t t = 0; t < frames; ++t) {
      for (int64_t u = 0; u <= labels; ++u) {
        double* const row = d_logits + (t * rows_per_frame + u) * classes;
        const auto share = [&](double log) {
          return std::exp(alpha[at(t, u)] + log - total);
        };
        for (int64_t c = 0; c < classes; ++c) {
          row[c] = d * std::exp(LogP(t, u, c)) * share(beta[at(t, u)]);
        }
        row[blank] -= d * share(Blank(t, u) + beta[at(t + 1, u)]);
        if (u == labels) continue;
        row[label[u]] -= d * share(Emits(t, u) + beta[at(t, u + 1)]);
      }
    }
    return -total;
  }
};

template <typename T>
ExpectedLoss Compute(const LabelBatch<T>& b,
                     const GpuVector<Accumulator<T>>& d) {
  const LabelSequences s = b.Sequences();
  const auto logits = testing::Widened(b.logits);
  ExpectedLoss expected;
  expected.d_logits.assign(logits.size(), 0);
  for (int64_t i = 0; i < s.batch; ++i) {
    Lattice lattice{s.logit_lengths[i], s.label_lengths[i], s.classes, s.blank,
                    b.rows_per_frame};
    for (int64_t u = 0; u < lattice.labels; ++u) {
      lattice.label.push_back(s.Label(i, u));
    }
    const int64_t first = i * b.RowsOfExample() * s.classes;
    lattice.log_p = testing::LogSoftmax(
        std::vector<double>(
            logits.begin() + first,
            logits.begin() + first + b.RowsOfExample() * s.classes),
        s.classes);
    expected.loss.push_back(
        lattice.Recurse(d[i], expected.d_logits.data() + first));
    if (lattice.frames < 6 && lattice.labels < 6) {
      const double loss = 0 - lattice.Enumerate(0, 0);
      TFO_EXPECT(loss == expected.loss[i] ||
                 std::abs(loss - expected.loss[i]) < 1e-9);
    }
  }
  return expected;
}

template <typename Device, typename T>
void TestBatch(const Device& device, const LabelBatch<T>& b,
               double tolerance = ToleranceOf<T>(),
               const testing::Caller& caller = {}) {
  testing::TestLoss<Rnnt>(device, b, Compute<T>, tolerance, caller);
}

template <typename T, typename Device>
void TestShapes(const Device& device, uint32_t seed) {
  TestBatch(device, RandomBatch<T>(5, 4, 3, 5, 1, true, seed));
  TestBatch(device, RandomBatch<T>(3, 12, 5, 29, 1, true, seed + 1));
  TestBatch(device, RandomBatch<T>(2, 9, 15, 70, 1, true, seed + 2));
  TestBatch(device, RandomBatch<T>(1, 17, 16, 3, 1, true, seed + 3));
  TestBatch(device, RandomBatch<T>(1, 5, 40, 4, 1, true, seed + 4));
  TestBatch(device, RandomBatch<T>(2, 3, 0, 5, 1, true, seed + 5));
  TestBatch(device, RandomBatch<T>(2, 1, 2, 1, 1, true, seed + 6));
  TestBatch(device, RandomBatch<T>(0, 4, 2, 3, 1, true, seed + 7));
}

TFO_TEST(Rnnt, EqualsTheDefinition) {
  TestShapes<float>(Cpu(), 1);
  TestShapes<double>(testing::ThreadedCpu(2), 2);
  TestShapes<Half>(Cpu(), 3);
  TestShapes<BFloat16>(testing::ThreadedCpu(4), 4);
}
TFO_CUDA_TEST(RnntGpu, EqualsTheDefinition) {
  TestShapes<float>(Gpu(), 1);
  TestShapes<double>(Gpu(), 2);
  TestShapes<Half>(Gpu(), 3);
  TestShapes<BFloat16>(Gpu(), 4);
}

// A block has up to 256 threads, a state each, and takes more states in parts.
TFO_CUDA_TEST(RnntGpu, StatesBeyondThreadsAreTakenInParts) {
  TestBatch(Gpu(), RandomBatch<float>(2, 40, 31, 3, 1, true, 1));
  TestBatch(Gpu(), RandomBatch<float>(2, 3, 32, 3, 1, true, 2));
  TestBatch(Gpu(), RandomBatch<float>(2, 9, 255, 3, 1, true, 3));
  TestBatch(Gpu(), RandomBatch<float>(2, 4, 256, 3, 1, true, 4));
  TestBatch(Gpu(), RandomBatch<double>(2, 7, 512, 3, 1, true, 5));
}

TFO_TEST(Rnnt, HasTheSameBitsForAnyNumberOfThreads) {
  testing::TestThreads<Rnnt>(RandomBatch<float>(3, 20, 9, 40, 1, true, 1));
}

template <typename Device>
void TestLongAndLarge(const Device& device, int64_t frames) {
  TestBatch(device, RandomBatch<float>(1, frames, 7, 4, 1, true, 1), 2e-4);
  TestBatch(device, RandomBatch<float>(1, frames, 7, 4, 1, true, 2, 1e4), 2e-3);
  TestBatch(device, RandomBatch<double>(1, frames, 7, 4, 1, true, 3, 1e4),
            1e-6);
  // Exponents of more than 32 bits.
  TestBatch(device, RandomBatch<float>(1, frames, 7, 4, 1, true, 4, 1e9), 2e-3);
}
TFO_TEST(Rnnt, LongSequencesAndLargeScoresAreRight) {
  TestLongAndLarge(Cpu(), 5000);
}
TFO_CUDA_TEST(RnntGpu, LongSequencesAndLargeScoresAreRight) {
  TestLongAndLarge(Gpu(), 200);
}

template <typename Device>
void TestForbidden(const Device& device) {
  auto b = RandomBatch<float>(2, 4, 2, 4, 4, true, 5);
  const auto row = [&](int64_t t, int64_t u) {
    return &b.logits[(t * 3 + u) * 4];
  };
  // A blank that the labels can do without.
  row(1, 0)[b.blank] = -kInfinity;
  TestBatch(device, b);
  // All blanks of a frame.
  for (int u = 0; u < 3; ++u) row(2, u)[b.blank] = -kInfinity;
  const auto d = Upstream<float>(2);
  const auto r = RunLoss<Rnnt>(device, b, d);
  TFO_EXPECT_EQ(r.loss[0], kInfinity);
  ExpectNear("d_logits", r.d_logits.data(), std::vector<double>(48, 0), 0);
  // A node without any class, which ways go around.
  b = RandomBatch<float>(2, 4, 2, 4, 4, true, 6);
  for (int c = 0; c < 4; ++c) row(1, 1)[c] = -kInfinity;
  TestBatch(device, b);
}
TFO_TEST(Rnnt, ForbiddenClassesHaveProbabilityZero) { TestForbidden(Cpu()); }
TFO_CUDA_TEST(RnntGpu, ForbiddenClassesHaveProbabilityZero) {
  TestForbidden(Gpu());
}

template <typename Device>
void TestNan(const Device& device) {
  auto b = RandomBatch<float>(3, 4, 2, 4, 4, true, 5);
  b.label_lengths[1] = 2;
  b.labels[2] = b.labels[3] = (b.blank + 1) % 4;
  for (int i = 48; i < 96; ++i) b.logits[i] = 0.25f * (i % 7);
  testing::TestNan<Rnnt>(device, b, 30, Compute<float>);
}
TFO_TEST(Rnnt, NanStaysInItsExample) { TestNan(Cpu()); }
TFO_CUDA_TEST(RnntGpu, NanStaysInItsExample) { TestNan(Gpu()); }

TFO_CUDA_TEST(RnntGpu, BadLabelsAndLengthsMakeTheExampleNan) {
  testing::TestBadLabels<Rnnt>(RandomBatch<float>(2, 4, 2, 4, 4, true, 5),
                               Compute<float>);
}

// The lattice of torchaudio's test, frames x labels + 1 x classes.
TFO_TEST(Rnnt, EqualsThePublishedLattice) {
  LabelBatch<float> b{1, 2, 2, 5, 4, 3, {}, {1, 2}, {2}, {2}};
  for (const float x :
       {0.1f, 0.6f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.6f, 0.1f, 0.1f,
        0.1f, 0.1f, 0.2f, 0.8f, 0.1f, 0.1f, 0.6f, 0.1f, 0.1f, 0.1f,
        0.1f, 0.1f, 0.2f, 0.1f, 0.1f, 0.7f, 0.1f, 0.2f, 0.1f, 0.1f}) {
    b.logits.push_back(x);
  }
  const auto r = RunLoss<Rnnt>(Cpu(), b, {1});
  ExpectNear("loss", r.loss.data(), {5.09566688538}, 1e-6);
}

TFO_BENCHMARK(Rnnt, Speech) {
  testing::TimeLoss<Rnnt, float>("rnnt_loss", 4, 150, 1000, 30);
  testing::TimeLoss<Rnnt, BFloat16>("rnnt_loss", 4, 150, 1000, 30);
}

}  // namespace
}  // namespace tfo
