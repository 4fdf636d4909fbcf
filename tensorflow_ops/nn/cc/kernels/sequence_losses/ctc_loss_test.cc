#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequences_testing.h"

namespace tfo {
namespace {

using testing::ExpectedLoss;
using testing::ExpectNear;
using testing::GpuVector;
using testing::kInfinity;
using testing::LabelBatch;
using testing::LogAdd;
using testing::RandomBatch;
using testing::RunLoss;
using testing::TestLoss;
using testing::TestSizes;

// Goes through all paths of one example: minus their log probability, and the
// probability of each class at each frame among them.
struct Paths {
  int64_t frames, classes, blank;
  std::vector<int64_t> labels;
  std::vector<double> log_p;  // [frames, classes]
  double loss = kInfinity;
  std::vector<double> posterior;

  bool Collapses(const std::vector<int64_t>& path) const {
    std::vector<int64_t> merged;
    for (int64_t t = 0; t < frames; ++t) {
      if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) {
        merged.push_back(path[t]);
      }
    }
    return merged == labels;
  }
  void Enumerate() {
    double total = 0;
    posterior.assign(frames * classes, 0);
    std::vector<int64_t> path(frames, 0);
    while (true) {
      if (Collapses(path)) {
        double log = 0;
        for (int64_t t = 0; t < frames; ++t)
          log += log_p[t * classes + path[t]];
        total += std::exp(log);
        for (int64_t t = 0; t < frames; ++t) {
          posterior[t * classes + path[t]] += std::exp(log);
        }
      }
      int64_t t = 0;
      while (t < frames && ++path[t] == classes) path[t++] = 0;
      if (t == frames) break;
    }
    loss = -std::log(total);
    for (double& p : posterior) p /= total;
  }
  // The same by the recursions of the paper, in logarithms.
  void Recurse() {
    std::vector<int64_t> states(1, blank);
    for (const int64_t label : labels) {
      states.push_back(label);
      states.push_back(blank);
    }
    const int64_t n = states.size();
    const auto skips = [&](int64_t s) {
      return s >= 2 && states[s] != blank && states[s] != states[s - 2];
    };
    std::vector<double> alpha((frames + 1) * (n + 1), -kInfinity);
    std::vector<double> beta = alpha;
    const auto at = [&](int64_t t, int64_t s) { return t * (n + 1) + s; };
    const auto emit = [&](int64_t t, int64_t s) {
      return log_p[t * classes + states[s]];
    };
    for (int64_t t = 0; t < frames; ++t) {
      for (int64_t s = 0; s < n; ++s) {
        double sum = t == 0 && s < 2 ? 0 : -kInfinity;
        if (t > 0) {
          sum = alpha[at(t - 1, s)];
          if (s >= 1) sum = LogAdd(sum, alpha[at(t - 1, s - 1)]);
          if (skips(s)) sum = LogAdd(sum, alpha[at(t - 1, s - 2)]);
        }
        alpha[at(t, s)] = sum + emit(t, s);
      }
    }
    for (int64_t t = frames - 1; t >= 0; --t) {
      for (int64_t s = 0; s < n; ++s) {
        double sum = t == frames - 1 && s >= n - 2 ? 0 : -kInfinity;
        if (t < frames - 1) {
          sum = beta[at(t + 1, s)] + emit(t + 1, s);
          for (int64_t more = 1; more <= 2 && s + more < n; ++more) {
            if (more == 2 && !skips(s + 2)) continue;
            sum =
                LogAdd(sum, beta[at(t + 1, s + more)] + emit(t + 1, s + more));
          }
        }
        beta[at(t, s)] = sum;
      }
    }
    double total = labels.empty() && frames == 0 ? 0 : -kInfinity;
    for (int64_t s = std::max<int64_t>(n - 2, 0); frames > 0 && s < n; ++s) {
      total = LogAdd(total, alpha[at(frames - 1, s)]);
    }
    loss = -total;
    posterior.assign(frames * classes, 0);
    for (int64_t t = 0; t < frames; ++t) {
      for (int64_t s = 0; s < n; ++s) {
        const double log = alpha[at(t, s)] + beta[at(t, s)];
        if (log > -kInfinity) {
          posterior[t * classes + states[s]] += std::exp(log - total);
        }
      }
    }
  }
};

Paths PathsOf(const LabelSequences& s, const std::vector<double>& logits,
              int64_t i) {
  Paths paths;
  paths.frames = s.logit_lengths[i];
  paths.classes = s.classes;
  paths.blank = s.blank;
  for (int64_t u = 0; u < s.label_lengths[i]; ++u) {
    paths.labels.push_back(s.Label(i, u));
  }
  const auto first = logits.begin() + i * s.frames * s.classes;
  paths.log_p = testing::LogSoftmax(
      std::vector<double>(first, first + paths.frames * s.classes), s.classes);
  return paths;
}

template <typename T, typename Value>
ExpectedLoss Compute(const LabelBatch<T>& b, const GpuVector<Value>& d,
                     bool enumerate) {
  const LabelSequences s = b.Sequences();
  const auto logits = testing::Widened(b.logits);
  ExpectedLoss expected;
  expected.d_logits.assign(logits.size(), 0);
  for (int64_t i = 0; i < s.batch; ++i) {
    Paths paths = PathsOf(s, logits, i);
    enumerate ? paths.Enumerate() : paths.Recurse();
    expected.loss.push_back(paths.loss);
    for (int64_t j = 0; j < paths.frames * s.classes; ++j) {
      const double p = std::exp(paths.log_p[j]);
      expected.d_logits[i * s.frames * s.classes + j] =
          std::isinf(paths.loss) ? 0 : d[i] * (p - paths.posterior[j]);
    }
  }
  return expected;
}
const auto kAllPaths = [](const auto& b, const auto& d) {
  return Compute(b, d, /*enumerate=*/true);
};
const auto kRecursion = [](const auto& b, const auto& d) {
  return Compute(b, d, /*enumerate=*/false);
};

TFO_DEVICE_TEST(Ctc, EqualsTheSumOverAllPaths) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    TestSizes<Ctc, double>(device, seed, {{4, 5, 3, 4}}, kAllPaths);
    TestSizes<Ctc, float>(device, seed, {{4, 6, 3, 3}}, kAllPaths);
  }
}

TFO_DEVICE_TEST(Ctc, EqualsTheRecursionInLogarithms) {
  // Vectors have 4 to 16 states, and tiles up to 64 classes.
  testing::ForTypes(device, [](auto type, const auto& on, uint32_t seed) {
    TestSizes<Ctc, decltype(type)>(on, seed,
                                   {{3, 12, 5, 29},
                                    {2, 40, 15, 100},
                                    {3, 50, 16, 3},
                                    {1, 90, 33, 70},
                                    {2, 3, 0, 5},
                                    {2, 4, 2, 1},
                                    {0, 4, 2, 3}},
                                   kRecursion);
  });
}

// A block has up to 256 threads, a state each, and takes more states in parts.
TFO_CUDA_TEST(CtcGpu, StatesBeyondThreadsAreTakenInParts) {
  TestSizes<Ctc, float>(
      Gpu(), 1,
      {{2, 40, 31, 50}, {2, 40, 32, 50}, {2, 280, 255, 50}, {2, 280, 256, 50}},
      kRecursion);
  TestSizes<Ctc, double>(Gpu(), 5, {{2, 600, 512, 50}}, kRecursion);
}

TFO_TEST(Ctc, HasTheSameBitsForAnyNumberOfThreads) {
  testing::TestThreads<Ctc>(RandomBatch<Ctc, float>({3, 70, 20, 40}, 1));
}

TFO_TEST(Ctc, LongSequencesAndLargeScoresAreRight) {
  testing::TestLongAndLarge<Ctc>(Cpu(), {1, 5000, 40, 6}, kRecursion);
}
TFO_CUDA_TEST(CtcGpu, LongSequencesAndLargeScoresAreRight) {
  testing::TestLongAndLarge<Ctc>(Gpu(), {1, 300, 40, 6}, kRecursion);
}

// Labels 1 and 1 need three frames.
template <typename T>
LabelBatch<T> Repeats(int64_t frames) {
  LabelBatch<T> b{1, frames, 2,      3,   0,
                  1, {},     {1, 1}, {2}, {static_cast<int32_t>(frames)}};
  for (int64_t i = 0; i < frames * 3; ++i) b.logits.push_back(i % 5 * 0.25f);
  return b;
}

TFO_DEVICE_TEST(Ctc, ImpossibleLabelsHaveNoGradient) {
  const GpuVector<float> d{3};
  const auto b = Repeats<float>(2);
  const std::vector<double> zeros(b.logits.size(), 0);
  auto r = RunLoss<Ctc>(device, b, d);
  TFO_EXPECT_EQ(r.loss[0], kInfinity);
  ExpectNear("d_logits", r.d_logits.data(), zeros, 0);
  r = RunLoss<Ctc>(device, b, d, /*zero_infinity=*/true);
  TFO_EXPECT_EQ(r.loss[0], 0);
  ExpectNear("d_logits", r.d_logits.data(), zeros, 0);
  TestLoss<Ctc>(device, Repeats<float>(3), kAllPaths);
  // Labels, but no frames.
  TFO_EXPECT_EQ(RunLoss<Ctc>(device, Repeats<float>(0), d).loss[0], kInfinity);
  // No labels, no frames, which is possible.
  auto empty = Repeats<float>(0);
  empty.label_lengths[0] = 0;
  TFO_EXPECT_EQ(RunLoss<Ctc>(device, empty, d).loss[0], 0);
}

TFO_DEVICE_TEST(Ctc, ForbiddenClassesHaveProbabilityZero) {
  // A class of probability 0, which the labels can do without.
  auto b = Repeats<float>(4);
  b.logits[2] = b.logits[5] = -kInfinity;
  TestLoss<Ctc>(device, b, kAllPaths);
  // The label itself, at all frames but two: no path is left.
  for (const int64_t t : {0, 1}) b.logits[t * 3 + 1] = -kInfinity;
  TestLoss<Ctc>(device, b, kRecursion);
  const auto d = GpuVector<float>{2};
  TFO_EXPECT_EQ(RunLoss<Ctc>(device, b, d).loss[0], kInfinity);
  // A frame without any class.
  auto none = Repeats<float>(4);
  for (int c = 0; c < 3; ++c) none.logits[6 + c] = -kInfinity;
  const auto r = RunLoss<Ctc>(device, none, d);
  TFO_EXPECT_EQ(r.loss[0], kInfinity);
  ExpectNear("d_logits", r.d_logits.data(), std::vector<double>(12, 0), 0);
}

LabelBatch<float> FullBatch(int64_t batch) {
  return RandomBatch<Ctc, float>({batch, 6, 2, 4}, 5, 1, /*least_frames=*/6);
}
TFO_DEVICE_TEST(Ctc, NanStaysInItsExample) {
  testing::TestNan<Ctc>(device, FullBatch(3), 2, kAllPaths);
}
TFO_DEVICE_TEST(Ctc, OtherStatisticsOverflowNoExponents) {
  testing::TestOtherStatistics<Ctc, float>(device, {2, 65, 3, 4});
  testing::TestOtherStatistics<Ctc, double>(device, {2, 65, 3, 4});
}
TFO_CUDA_TEST(CtcGpu, BadLabelsAndLengthsMakeTheExampleNan) {
  testing::TestBadLabels<Ctc>(FullBatch(2), kAllPaths);
}

TFO_BENCHMARK(Ctc, Speech) {
  testing::TimeLoss<Ctc, float>("ctc_loss", 32, 400, 128, 60);
  testing::TimeLoss<Ctc, BFloat16>("ctc_loss", 32, 400, 128, 60);
  testing::TimeLoss<Ctc, float>("ctc_loss", 16, 400, 5000, 60);
}

}  // namespace
}  // namespace tfo
