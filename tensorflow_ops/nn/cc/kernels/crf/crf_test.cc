#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"

#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequences_testing.h"

namespace tfo {
namespace {

using testing::ExpectNear;
using testing::GpuVector;
using testing::kInfinity;
using testing::kNan;
using testing::LogAdd;
using testing::ToleranceOf;
using testing::Upstream;

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

struct Expected {
  std::vector<double> log_likelihood, d_logits, d_transitions, marginals, best;
  std::vector<double> labels;
};

// Goes through all label sequences of an example.
template <typename T>
void Enumerate(const CrfBatch<T>& b, int64_t i, double* log_z, double* pairs,
               double* marginals, double* best, double* labels) {
  const int64_t length = b.lengths[i], tags = b.tags;
  *log_z = -kInfinity;
  *best = length == 0 ? 0 : -kInfinity;
  std::vector<int64_t> path(length, 0), chosen = path;
  const auto score_of = [&] {
    double score = 0;
    for (int64_t t = 0; t < length; ++t) {
      score += Widen(b.logits[(i * b.frames + t) * tags + path[t]]);
      if (t > 0) score += b.transitions[path[t - 1] * tags + path[t]];
    }
    return score;
  };
  const auto for_all = [&](const auto& body) {
    std::fill(path.begin(), path.end(), 0);
    while (true) {
      body(score_of());
      int64_t t = 0;
      while (t < length && ++path[t] == tags) path[t++] = 0;
      if (t == length) return;
    }
  };
  // In this order the first of equal scores has the lowest last tags.
  for_all([&](double score) {
    *log_z = LogAdd(*log_z, score);
    if (score > *best) {
      *best = score;
      chosen = path;
    }
  });
  for_all([&](double score) {
    const double p = *log_z == -kInfinity ? 0 : std::exp(score - *log_z);
    for (int64_t t = 0; t < length; ++t) {
      marginals[t * tags + path[t]] += p;
      if (t > 0) pairs[path[t - 1] * tags + path[t]] += p;
    }
  });
  std::copy(chosen.begin(), chosen.end(), labels);
}

// The same by recursions in logarithms.
template <typename T>
void Recurse(const CrfBatch<T>& b, int64_t i, double* log_z, double* pairs,
             double* marginals, double* best, double* labels) {
  const int64_t length = b.lengths[i], tags = b.tags;
  *log_z = *best = 0;
  if (length == 0) return;
  const auto x = [&](int64_t t, int64_t j) {
    return static_cast<double>(Widen(b.logits[(i * b.frames + t) * tags + j]));
  };
  const auto a = [&](int64_t j, int64_t k) {
    return static_cast<double>(b.transitions[j * tags + k]);
  };
  std::vector<double> alpha(length * tags, -kInfinity), beta = alpha, v = alpha;
  std::vector<int64_t> before(length * tags, 0);
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t j = 0; j < tags; ++j) {
      double sum = t == 0 ? 0 : -kInfinity, most = sum;
      for (int64_t k = 0; t > 0 && k < tags; ++k) {
        sum = LogAdd(sum, alpha[(t - 1) * tags + k] + a(k, j));
        if (v[(t - 1) * tags + k] + a(k, j) > most) {
          most = v[(t - 1) * tags + k] + a(k, j);
          before[t * tags + j] = k;
        }
      }
      alpha[t * tags + j] = sum + x(t, j);
      v[t * tags + j] = most + x(t, j);
    }
  }
  const auto last = v.begin() + (length - 1) * tags;
  int64_t label = std::max_element(last, last + tags) - last;
  *best = last[label];
  *log_z = -kInfinity;
  for (int64_t j = 0; j < tags; ++j) {
    *log_z = LogAdd(*log_z, alpha[(length - 1) * tags + j]);
  }
  for (int64_t t = length - 1; t >= 0; --t) {
    labels[t] = label;
    label = before[t * tags + label];
    for (int64_t j = 0; j < tags; ++j) {
      double sum = t == length - 1 ? 0 : -kInfinity;
      for (int64_t k = 0; t < length - 1 && k < tags; ++k) {
        const double way = a(j, k) + x(t + 1, k) + beta[(t + 1) * tags + k];
        sum = LogAdd(sum, way);
        pairs[j * tags + k] += std::exp(alpha[t * tags + j] + way - *log_z);
      }
      beta[t * tags + j] = sum;
      marginals[t * tags + j] = std::exp(alpha[t * tags + j] + sum - *log_z);
    }
  }
}

template <typename T>
Expected Compute(const CrfBatch<T>& b, const GpuVector<Accumulator<T>>& d,
                 bool enumerate) {
  const int64_t tags = b.tags, cells = b.batch * b.frames * tags;
  Expected e;
  e.d_logits.assign(cells, 0);
  e.marginals.assign(cells, 0);
  e.d_transitions.assign(tags * tags, 0);
  e.labels.assign(b.batch * b.frames, 0);
  for (int64_t i = 0; i < b.batch; ++i) {
    const int64_t first = i * b.frames * tags, length = b.lengths[i];
    double log_z, best;
    std::vector<double> pairs(tags * tags);
    const auto compute = enumerate ? Enumerate<T> : Recurse<T>;
    compute(b, i, &log_z, pairs.data(), e.marginals.data() + first, &best,
            e.labels.data() + i * b.frames);
    double score = 0;
    for (int64_t t = 0; t < length; ++t) {
      const int64_t label = b.labels[i * b.frames + t];
      score += Widen(b.logits[first + t * tags + label]);
      if (t > 0) {
        const int64_t from = b.labels[i * b.frames + t - 1];
        score += b.transitions[from * tags + label];
        if (log_z > -kInfinity) e.d_transitions[from * tags + label] += d[i];
      }
      for (int64_t j = 0; log_z > -kInfinity && j < tags; ++j) {
        e.d_logits[first + t * tags + j] =
            d[i] * ((j == label) - e.marginals[first + t * tags + j]);
      }
    }
    for (int64_t c = 0; c < tags * tags; ++c) {
      e.d_transitions[c] -= d[i] * pairs[c];
    }
    e.log_likelihood.push_back(log_z == -kInfinity ? log_z : score - log_z);
    e.best.push_back(best);
  }
  return e;
}

template <typename T>
struct Results {
  GpuVector<Accumulator<T>> log_likelihood, d_transitions, marginals, best;
  GpuVector<T> d_logits;
  GpuVector<int32_t> labels;
};

template <typename Device, typename Args>
void RunOne(const Device& device, const Args& args) {
  testing::WithScratch(
      device, [&] { return CrfScratchBytes(args); },
      [&](const Device& on) { TFO_EXPECT_RUNS(RunCrf(on, args)); });
}

template <typename Device, typename T>
Results<T> RunAll(const Device& device, const CrfBatch<T>& b,
                  const GpuVector<Accumulator<T>>& d) {
  using Value = Accumulator<T>;
  const int64_t cells = b.batch * b.frames * b.tags;
  Results<T> r{GpuVector<Value>(b.batch, 7),
               GpuVector<Value>(b.tags * b.tags, 7),
               GpuVector<Value>(cells, 7),
               GpuVector<Value>(b.batch, 7),
               GpuVector<T>(cells, Narrow<T>(7)),
               GpuVector<int32_t>(b.batch * b.frames, 7)};
  const CrfScores<T> s = b.Scores();
  const IndexArray labels = b.labels.data();
  RunOne(device, CrfLikelihoodArgs<T>{s, labels, r.log_likelihood.data()});
  RunOne(device,
         CrfLikelihoodGradArgs<T>{s, labels, d.data(), r.d_logits.data(),
                                  r.d_transitions.data()});
  RunOne(device, CrfMarginalsArgs<T>{s, r.marginals.data()});
  RunOne(device, CrfDecodeArgs<T>{s, r.labels.data(), r.best.data()});
  return r;
}

template <typename T>
void ExpectAll(const Results<T>& r, const Expected& e, double tolerance) {
  const double of_value = std::is_same_v<T, double> ? 1e-10 : 2e-6;
  // Of probabilities: what the logarithms that they are compared with lose.
  const double of_share = tolerance == ToleranceOf<T>() ? of_value : tolerance;
  ExpectNear("log_likelihood", r.log_likelihood.data(), e.log_likelihood,
             of_value);
  ExpectNear("d_logits", r.d_logits.data(), e.d_logits, tolerance);
  ExpectNear("d_transitions", r.d_transitions.data(), e.d_transitions,
             of_share);
  ExpectNear("marginals", r.marginals.data(), e.marginals, of_share);
  ExpectNear("best", r.best.data(), e.best, of_value);
  for (size_t i = 0; i < e.labels.size(); ++i) {
    TFO_EXPECT_EQ(r.labels[i], e.labels[i]);
  }
}

template <typename Device, typename T>
void TestBatch(const Device& device, const CrfBatch<T>& b, bool enumerate,
               double tolerance = ToleranceOf<T>(),
               const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "batch ", b.batch,
                              ", frames ", b.frames, ", tags ", b.tags);
  const auto d = Upstream<Accumulator<T>>(b.batch);
  ExpectAll(RunAll(device, b, d), Compute(b, d, enumerate), tolerance);
}

TFO_DEVICE_TEST(Crf, EqualsTheSumOverAllSequences) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    TestBatch(device, RandomCrfBatch<double>(5, 5, 3, seed), true);
    TestBatch(device, RandomCrfBatch<float>(4, 4, 4, seed, 5), true);
  }
  // Equal scores: the lowest tags at the end and in each step back.
  auto b = RandomCrfBatch<double>(3, 4, 3, 9, 0);
  TestBatch(device, b, true);
  for (size_t i = 0; i < b.logits.size(); ++i) b.logits[i] += i % 3 == 1;
  TestBatch(device, b, true);
}

TFO_DEVICE_TEST(Crf, EqualsTheRecursionInLogarithms) {
  testing::ForTypes(device, [](auto type, const auto& on, uint32_t seed) {
    using T = decltype(type);
    TestBatch(on, RandomCrfBatch<T>(20, 7, 5, seed), false);
    TestBatch(on, RandomCrfBatch<T>(3, 6, 16, seed + 1), false);
    TestBatch(on, RandomCrfBatch<T>(2, 5, 33, seed + 2), false);
    TestBatch(on, RandomCrfBatch<T>(2, 3, 1, seed + 3), false);
    TestBatch(on, RandomCrfBatch<T>(0, 3, 2, seed + 4), false);
    TestBatch(on, RandomCrfBatch<T>(2, 0, 2, seed + 5), false);
  });
}

// Fewer groups of examples share memory for sums.
TFO_TEST(Crf, ManyTags) {
  TestBatch(testing::ThreadedCpu(2), RandomCrfBatch<float>(5, 2, 1040, 1),
            false);
}
// A tag has 32 lanes to 1; a lane has several terms; a group several tags; and
// rows exceed shared memory.
TFO_CUDA_TEST(CrfGpu, EqualsTheRecursionForAnyNumberOfTags) {
  for (const int tags : {8, 9, 32, 64, 65, 128, 129, 256, 257, 1030}) {
    TestBatch(Gpu(), RandomCrfBatch<float>(1, 3, tags, tags), false);
  }
}
TFO_CUDA_TEST(CrfGpu, OnlyTheGradientKeepsFramesAndPairs) {
  const int64_t batch = 128, tags = 1000;
  const CrfScores<float> s{batch, 1000, tags, nullptr, nullptr, {}};
  const int64_t matrices = batch * tags * tags * sizeof(double);
  const CrfLikelihoodArgs<float> likelihood{s, {}, nullptr};
  const CrfMarginalsArgs<float> marginals{s, nullptr};
  const CrfLikelihoodGradArgs<float> grad{s, {}, nullptr, nullptr, nullptr};
  TFO_EXPECT(CrfScratchBytes(likelihood) < matrices / 4);
  TFO_EXPECT_EQ(CrfScratchBytes(grad) - CrfScratchBytes(marginals),
                matrices + kScratchGap);
}

TFO_TEST(Crf, HasTheSameBitsForAnyNumberOfThreads) {
  const auto b = RandomCrfBatch<float>(40, 9, 20, 1);
  const auto d = Upstream<float>(40);
  const auto one = RunAll(Cpu(), b, d);
  for (const int threads : {2, 5}) {
    const auto r = RunAll(testing::ThreadedCpu(threads), b, d);
    TFO_EXPECT(HaveSameBits(one.log_likelihood, r.log_likelihood));
    TFO_EXPECT(HaveSameBits(one.d_logits, r.d_logits));
    TFO_EXPECT(HaveSameBits(one.d_transitions, r.d_transitions));
    TFO_EXPECT(HaveSameBits(one.marginals, r.marginals));
  }
}

// Where products of doubles underflow, too.
template <typename Device>
void TestLongAndLarge(const Device& device, int64_t frames) {
  TestBatch(device, RandomCrfBatch<float>(1, frames, 5, 1), false);
  TestBatch(device, RandomCrfBatch<double>(1, frames, 5, 2, 1e4), false, 1e-6);
  TestBatch(device, RandomCrfBatch<float>(2, 50, 5, 3, 1e4), false);
  // Sums of several vectors, of which some underflow.
  TestBatch(device, RandomCrfBatch<double>(2, 20, 20, 5, 500), false, 1e-8);
  // Transitions that large scores almost forbid.
  auto masked = RandomCrfBatch<float>(3, 30, 9, 6);
  for (int i = 0; i < 81; ++i) masked.transitions[i] -= i % 3 < 2 ? 1e4 : 0;
  TestBatch(device, masked, false);
  // One step that only an unlikely tag can take.
  auto b = RandomCrfBatch<double>(1, 4, 3, 4);
  for (int j = 0; j < 3; ++j) b.transitions[j * 3] = j == 2 ? 0 : -kInfinity;
  for (int t = 0; t < 3; ++t) b.logits[t * 3 + 2] = -2000;
  for (const int j : {1, 2}) b.logits[9 + j] = -kInfinity;
  b.labels[3] = 0;
  TestBatch(device, b, true);
}
TFO_TEST(Crf, LongSequencesAndLargeScoresAreRight) {
  TestLongAndLarge(Cpu(), 5000);
  for (int i = 0; i < 9; ++i) {  // around the limits of plain doubles
    const auto b = RandomCrfBatch<double>(4, 40, 3 + 9 * i, i, 10 * i);
    TestBatch(Cpu(), b, false, 1e-8);
  }
}
TFO_CUDA_TEST(CrfGpu, LongSequencesAndLargeScoresAreRight) {
  TestLongAndLarge(Gpu(), 100);
}

// Compares with a batch of doubles from which the offsets have been taken: of
// each frame its first logit, and the first transition.
template <typename T, typename Device>
void TestOffsets(const Device& device, double offset, float spread,
                 const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "offset ", offset,
                              ", spread ", spread);
  auto b = RandomCrfBatch<T>(3, 6, 5, 1, spread);
  auto rest = RandomCrfBatch<double>(3, 6, 5, 1);
  rest.labels = b.labels;
  rest.lengths = b.lengths;
  const auto add = [&](auto* values, int64_t n, double more, double* rests) {
    for (int64_t i = 0; i < n; ++i) {
      using Wide = decltype(Widen(*values));
      values[i] = Narrow<std::decay_t<decltype(*values)>>(
          static_cast<Wide>(Widen(values[i]) + more));
    }
    const double first = Widen(values[0]);
    for (int64_t i = 0; i < n; ++i) rests[i] = Widen(values[i]) - first;
    return first;
  };
  const double of_transitions =
      add(b.transitions.data(), 25, offset, rest.transitions.data());
  std::vector<double> offsets;
  for (int64_t i = 0; i < 3; ++i) {
    double sum = std::max(0, b.lengths[i] - 1) * of_transitions;
    for (int64_t t = 0; t < b.lengths[i]; ++t) {
      const int64_t at = (i * 6 + t) * 5;
      sum += add(&b.logits[at], 5, offset * (1 + t % 3), &rest.logits[at]);
    }
    offsets.push_back(sum);
  }
  const auto d = Upstream<Accumulator<T>>(3);
  auto e = Compute(rest, Upstream<double>(3), true);
  for (int64_t i = 0; i < 3; ++i) {
    e.best[i] += offsets[i];
    // Scores beyond the dtype's range are infinite.
    const double most = std::numeric_limits<Accumulator<T>>::max();
    if (std::abs(e.best[i]) > most) e.best[i] *= kInfinity;
  }
  ExpectAll(RunAll(device, b, d), e, ToleranceOf<T>());
}
TFO_DEVICE_TEST(Crf, OffsetsOfAllScoresCancelOut) {
  for (const double sign : {1, -1}) {
    for (const double offset : {1e8, 1e16, 1e30, 1e38}) {
      TestOffsets<float>(device, sign * offset, 10);
      TestOffsets<double>(device, sign * offset, 10);
      TestOffsets<BFloat16>(device, sign * offset, 10);
    }
    // Differences of an offset's last bits, in plain doubles and exactly.
    TestOffsets<float>(device, sign * 1e8, 100);
    TestOffsets<double>(device, sign * 1e12, 1);
    TestOffsets<double>(device, sign * 1e16, 10);
    TestOffsets<double>(device, sign * 1e16, 1e4);
    TestOffsets<double>(device, sign * 1e300, 1);
  }
}

// Two ways through `n` frames and again as many, as likely as each other: tag 1
// throughout, or tag 2, which is unlikely, and then tag 0, which makes up for
// it. Doubles lose the second one halfway.
TFO_TEST(Crf, UnlikelyTagsCountIfTheirFollowersDo) {
  for (const int n : {3, 8}) {
    auto b = RandomCrfBatch<double>(1, 2 * n, 3, 1);
    b.transitions = {0, 0, 0, -kInfinity, 0, -kInfinity, 0, 0, 0};
    b.labels.assign(2 * n, 1);
    for (int t = 0; t < 2 * n; ++t) {
      double* const of_frame = &b.logits[t * 3];
      of_frame[0] = t < n ? -kInfinity : 1200.0 / n;
      of_frame[1] = 0;
      of_frame[2] = -1200.0 / n;
    }
    TestBatch(Cpu(), b, false);
    const auto r = RunAll(Cpu(), b, Upstream<double>(1));
    ExpectNear("log_likelihood", r.log_likelihood.data(), {-std::log(2)}, 1e-9);
  }
}

// Also a tiny one, where a row's numbers before and after a frame are large.
TFO_TEST(Crf, GradientsAreProportionalToTheUpstreamGradient) {
  const auto b = RandomCrfBatch<float>(1, 31, 9, 1, /*spread=*/0);
  const auto one = RunAll(Cpu(), b, {1});
  const auto tiny = RunAll(Cpu(), b, {0x1p-100f});
  for (size_t i = 0; i < one.d_logits.size(); ++i) {
    TFO_EXPECT_EQ(0x1p100f * tiny.d_logits[i], one.d_logits[i]);
  }
  for (size_t i = 0; i < one.d_transitions.size(); ++i) {
    TFO_EXPECT_EQ(0x1p100f * tiny.d_transitions[i], one.d_transitions[i]);
  }
}

// One sequence is allowed, so its log likelihood is 0, but for rounding.
TFO_DEVICE_TEST(Crf, NoLogLikelihoodIsAboveZero) {
  auto b = RandomCrfBatch<double>(40, 9, 2, 6, 1e3);
  b.labels.assign(b.labels.size(), 0);
  b.lengths.assign(40, 9);
  for (size_t i = 0; i < b.logits.size(); ++i) {
    b.logits[i] = i % 2 == 1 ? -kInfinity : 0.1 * (i * i % 997);
  }
  b.transitions[0] = 0.1;
  b.transitions[1] = 3.7;
  const auto r = RunAll(device, b, Upstream<double>(40));
  ExpectNear("log_likelihood", r.log_likelihood.data(),
             std::vector<double>(40, 0), 1e-10);
  for (const double log : r.log_likelihood) TFO_EXPECT(log <= 0);
}

// Two examples of 3 tags: of 4 frames, and of `frames`.
CrfBatch<double> TwoExamples(int frames) {
  auto b = RandomCrfBatch<double>(2, 4, 3, 5);
  b.lengths[1] = frames;
  for (int i = 12; i < 12 + 3 * frames; ++i) b.logits[i] = 0.5 * (i % 4);
  for (int t = 4; t < 4 + frames; ++t) b.labels[t] = t % 3;
  return b;
}

TFO_DEVICE_TEST(Crf, ForbiddenTagsAndTransitions) {
  auto b = TwoExamples(3);
  // A transition and a tag that the labels do not use, and ones that they do.
  for (int i = 0; i < 3; ++i) {
    auto forbidden = b;
    if (i == 0) forbidden.transitions[2] = forbidden.logits[4] = -kInfinity;
    if (i == 1)
      forbidden.transitions[b.labels[0] * 3 + b.labels[1]] = -kInfinity;
    if (i == 2) forbidden.logits[b.labels[0]] = -kInfinity;
    TestBatch(device, forbidden, true);
  }
  // No sequence is allowed in the first example, then in any.
  for (int j = 0; j < 3; ++j) b.logits[3 + j] = -kInfinity;
  TestBatch(device, b, true);
  b.transitions.assign(9, -kInfinity);
  TestBatch(device, b, true);
}

TFO_DEVICE_TEST(Crf, NanStaysInItsExample) {
  for (const double bad : {kNan, kInfinity}) {
    auto b = TwoExamples(4);
    const auto d = Upstream<double>(2);
    Expected e = Compute(b, d, true);
    b.logits[7] = bad;
    const auto r = RunAll(device, b, d);
    e.log_likelihood[0] = kNan;
    for (int i = 0; i < 12; ++i) e.d_logits[i] = e.marginals[i] = kNan;
    ExpectNear("log_likelihood", r.log_likelihood.data(), e.log_likelihood,
               1e-10);
    ExpectNear("d_logits", r.d_logits.data(), e.d_logits, 1e-10);
    ExpectNear("marginals", r.marginals.data(), e.marginals, 1e-10);
    ExpectNear("d_transitions", r.d_transitions.data(),
               std::vector<double>(9, kNan), 0);
    if (bad == kInfinity) {
      TFO_EXPECT_EQ(r.labels[2], 1);
      continue;
    }
    // Decoding avoids the NaN.
    b.logits[7] = -kInfinity;
    const Expected without = Compute(b, d, true);
    for (int t = 0; t < 4; ++t) TFO_EXPECT_EQ(r.labels[t], without.labels[t]);
  }
}

// It takes no transition, so their gradient is the other examples'.
TFO_DEVICE_TEST(Crf, NanOfOneFrameSparesTransitions) {
  auto b = TwoExamples(1);
  const auto d = Upstream<double>(2);
  const Expected e = Compute(b, d, true);
  b.logits[13] = kNan;
  const auto r = RunAll(device, b, d);
  TFO_EXPECT(r.log_likelihood[1] != r.log_likelihood[1]);
  ExpectNear("d_logits", &r.d_logits[12], std::vector<double>(3, kNan), 0);
  ExpectNear("d_transitions", r.d_transitions.data(), e.d_transitions, 1e-10);
}

TFO_CUDA_TEST(CrfGpu, BadLabelsAndLengthsMakeTheExampleNan) {
  for (int bad = 0; bad < 2; ++bad) {
    auto b = RandomCrfBatch<double>(2, 4, 3, 5);
    if (bad == 0) b.labels[1] = 3;
    if (bad == 1) b.lengths[0] = 5;
    const auto r = RunAll(Gpu(), b, Upstream<double>(2));
    ExpectNear("log_likelihood", r.log_likelihood.data(), {kNan}, 0);
    TFO_EXPECT(r.log_likelihood[1] == r.log_likelihood[1]);
    ExpectNear("d_logits", r.d_logits.data(), std::vector<double>(12, kNan), 0);
  }
}

template <typename T>
void TimeCrf(int64_t batch, int64_t frames, int64_t tags) {
  using Value = Accumulator<T>;
  CrfScores<T> scores = {};
  scores.batch = testing::BenchmarkSize(batch);
  scores.frames = testing::BenchmarkSize(frames);
  scores.tags = testing::BenchmarkSize(tags);
  const int64_t rows = scores.batch * scores.frames, size = rows * scores.tags;
  const auto logits = testing::RandomOnGpu<T>(size, 1);
  const auto transitions =
      testing::RandomOnGpu<Value>(scores.tags * scores.tags, 2);
  const GpuVector<int32_t> lengths(scores.batch, scores.frames);
  GpuVector<int32_t> labels(rows);
  for (int64_t i = 0; i < rows; ++i) labels[i] = i * 37 % scores.tags;
  scores.logits = logits.data();
  scores.transitions = transitions.data();
  scores.lengths = IndexArray(lengths.data());
  const IndexArray path(labels.data());
  GpuVector<T> to(size);
  GpuVector<Value> values(scores.batch), d(scores.batch, 1), marginals(size),
      to_transitions(transitions.size());
  GpuVector<int32_t> best(rows);
  const auto time = [&](const char* name, int tensors, const auto& args) {
    testing::TimeOnGpu(testing::Text(testing::NameOf<T>(), name, " [", batch,
                                     ", ", frames, ", ", tags, "]"),
                       tensors * size * sizeof(T), CrfScratchBytes(args),
                       [&](const Gpu& gpu) { return RunCrf(gpu, args); });
  };
  time("crf_log_likelihood", 1,
       CrfLikelihoodArgs<T>{scores, path, values.data()});
  time("crf_log_likelihood_grad", 2,
       CrfLikelihoodGradArgs<T>{scores, path, d.data(), to.data(),
                                to_transitions.data()});
  time("crf_marginals", 2, CrfMarginalsArgs<T>{scores, marginals.data()});
  time("crf_decode", 1, CrfDecodeArgs<T>{scores, best.data(), values.data()});
}
TFO_BENCHMARK(Crf, Taggers) {
  TimeCrf<float>(64, 128, 20);
  TimeCrf<BFloat16>(64, 128, 20);
  TimeCrf<float>(32, 512, 50);
}

}  // namespace
}  // namespace tfo
