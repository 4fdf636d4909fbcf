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
using testing::TestLoss;
using testing::TestSizes;
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

const auto kRecursion = [](const auto& b, const auto& d) {
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
};

TFO_DEVICE_TEST(Rnnt, EqualsTheDefinition) {
  testing::ForTypes(device, [](auto type, const auto& on, uint32_t seed) {
    TestSizes<Rnnt, decltype(type)>(on, seed,
                                    {{5, 4, 3, 5},
                                     {3, 12, 5, 29},
                                     {2, 9, 15, 70},
                                     {1, 17, 16, 3},
                                     {1, 5, 40, 4},
                                     {2, 3, 0, 5},
                                     {2, 1, 2, 1},
                                     {0, 4, 2, 3}},
                                    kRecursion);
  });
}

// A block has up to 256 threads, a state each, and takes more states in parts.
TFO_CUDA_TEST(RnntGpu, StatesBeyondThreadsAreTakenInParts) {
  TestSizes<Rnnt, float>(
      Gpu(), 1, {{2, 40, 31, 3}, {2, 3, 32, 3}, {2, 9, 255, 3}, {2, 4, 256, 3}},
      kRecursion);
  TestSizes<Rnnt, double>(Gpu(), 5, {{2, 7, 512, 3}}, kRecursion);
}

TFO_TEST(Rnnt, HasTheSameBitsForAnyNumberOfThreads) {
  testing::TestThreads<Rnnt>(RandomBatch<Rnnt, float>({3, 20, 9, 40}, 1));
}

TFO_TEST(Rnnt, LongSequencesAndLargeScoresAreRight) {
  testing::TestLongAndLarge<Rnnt>(Cpu(), {1, 5000, 7, 4}, kRecursion);
}
TFO_CUDA_TEST(RnntGpu, LongSequencesAndLargeScoresAreRight) {
  testing::TestLongAndLarge<Rnnt>(Gpu(), {1, 200, 7, 4}, kRecursion);
}

// Of full lengths.
LabelBatch<float> FullBatch(int64_t batch, uint32_t seed = 5) {
  return RandomBatch<Rnnt, float>({batch, 4, 2, 4}, seed, 1,
                                  /*least_frames=*/4);
}

TFO_DEVICE_TEST(Rnnt, ForbiddenClassesHaveProbabilityZero) {
  auto b = FullBatch(2);
  const auto row = [&](int64_t t, int64_t u) {
    return &b.logits[(t * 3 + u) * 4];
  };
  // A blank that the labels can do without.
  row(1, 0)[b.blank] = -kInfinity;
  TestLoss<Rnnt>(device, b, kRecursion);
  // All blanks of a frame.
  for (int u = 0; u < 3; ++u) row(2, u)[b.blank] = -kInfinity;
  const auto d = Upstream<float>(2);
  const auto r = RunLoss<Rnnt>(device, b, d);
  TFO_EXPECT_EQ(r.loss[0], kInfinity);
  ExpectNear("d_logits", r.d_logits.data(), std::vector<double>(48, 0), 0);
  // A node without any class, which ways go around.
  b = FullBatch(2, /*seed=*/6);
  for (int c = 0; c < 4; ++c) row(1, 1)[c] = -kInfinity;
  TestLoss<Rnnt>(device, b, kRecursion);
}

TFO_DEVICE_TEST(Rnnt, NanStaysInItsExample) {
  auto b = FullBatch(3);
  b.label_lengths[1] = 2;
  b.labels[2] = b.labels[3] = (b.blank + 1) % 4;
  for (int i = 48; i < 96; ++i) b.logits[i] = 0.25f * (i % 7);
  testing::TestNan<Rnnt>(device, b, 30, kRecursion);
}

TFO_DEVICE_TEST(Rnnt, OtherStatisticsOverflowNoExponents) {
  testing::TestOtherStatistics<Rnnt, float>(device, {2, 65, 3, 4});
  testing::TestOtherStatistics<Rnnt, double>(device, {2, 65, 3, 4});
}
TFO_CUDA_TEST(RnntGpu, BadLabelsAndLengthsMakeTheExampleNan) {
  testing::TestBadLabels<Rnnt>(FullBatch(2), kRecursion);
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
