#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"

#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequences_testing.h"

namespace tfo {
namespace {

using testing::Bound;
using testing::ExpectNear;
using testing::GpuVector;
using testing::kInfinity;
using testing::kNan;
using testing::LogAdd;
using testing::Rounded;
using testing::Tensors;
using testing::ToleranceOf;
using testing::Widened;

// Inputs of all ops. Padding is poisoned: labels of -7, logits of NaN.
template <typename T>
Tensors RandomBatch(int64_t batch, int64_t frames, int64_t tags, uint32_t seed,
                    float spread = 1) {
  using Value = Accumulator<T>;
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  GpuVector<T> logits(batch * frames * tags, Rounded<T>(kNan));
  GpuVector<Value> transitions(tags * tags);
  GpuVector<int64_t> labels(batch * frames, -7);
  GpuVector<int32_t> lengths(batch);
  for (Value& value : transitions) value = spread * normal(engine);
  for (int64_t i = 0; i < batch; ++i) {
    lengths[i] = i == 0 ? frames : engine() % (frames + 1);
    for (int64_t t = i * frames; t < i * frames + lengths[i]; ++t) {
      labels[t] = engine() % tags;
      for (int64_t j = 0; j < tags; ++j) {
        logits[t * tags + j] = Narrow<T>(spread * normal(engine));
      }
    }
  }
  Tensors b({{"batch", batch}, {"frames", frames}, {"tags", tags}});
  b.Set("logits", logits);
  b.Set("transitions", transitions);
  b.Set("labels", labels);
  b.Set("lengths", lengths);
  b.Set("d_log_likelihood", testing::Upstream<Value>(batch));
  return b;
}

// An example, and what references compute of its label sequences.
struct Example {
  int64_t length, tags;
  const double *logits, *transitions;
  double d;  // to its log likelihood
  double *marginals, *d_transitions;
  double log_z = -kInfinity;
  std::vector<int64_t> best = {};

  double ScoreOf(const std::vector<int64_t>& labels) const {
    double score = 0;
    for (int64_t t = 0; t < length; ++t) {
      score += logits[t * tags + labels[t]];
      if (t > 0) score += transitions[labels[t - 1] * tags + labels[t]];
    }
    return score;
  }

  // Goes through all sequences; the first of equal scores has the lowest last
  // tags.
  void Enumerate() {
    const auto labels_of = [&](int64_t sequence) {
      std::vector<int64_t> labels(length);
      for (int64_t& label : labels) {
        label = sequence % tags;
        sequence /= tags;
      }
      return labels;
    };
    std::vector<double> scores(std::pow(tags, length));
    for (size_t i = 0; i < scores.size(); ++i) {
      scores[i] = ScoreOf(labels_of(i));
      log_z = LogAdd(log_z, scores[i]);
    }
    best = labels_of(std::max_element(scores.begin(), scores.end()) -
                     scores.begin());
    for (size_t i = 0; log_z > -kInfinity && i < scores.size(); ++i) {
      const double p = std::exp(scores[i] - log_z);
      const auto labels = labels_of(i);
      for (int64_t t = 0; t < length; ++t) {
        marginals[t * tags + labels[t]] += p;
        if (t > 0) d_transitions[labels[t - 1] * tags + labels[t]] -= d * p;
      }
    }
  }

  // The same by recursions in logarithms, for at least one frame.
  void Recurse() {
    std::vector<double> alpha(length * tags, -kInfinity), v = alpha, beta = v;
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t j = 0; j < tags; ++j) {
        double &sum = alpha[t * tags + j], &most = v[t * tags + j];
        if (t == 0) sum = most = 0;
        for (int64_t k = 0; t > 0 && k < tags; ++k) {
          const int64_t from = (t - 1) * tags + k;
          const double a = transitions[k * tags + j];
          sum = LogAdd(sum, alpha[from] + a);
          most = std::max(most, v[from] + a);
        }
        sum += logits[t * tags + j];
        most += logits[t * tags + j];
        if (t == length - 1) log_z = LogAdd(log_z, sum);
      }
    }
    best.assign(length, 0);
    for (int64_t t = length - 1; t >= 0; --t) {
      const bool is_last = t == length - 1;
      double most = -kInfinity;
      for (int64_t j = 0; j < tags; ++j) {
        const int64_t at = t * tags + j;
        const double* const a = transitions + j * tags;
        const double way = v[at] + (is_last ? 0 : a[best[t + 1]]);
        if (way > most) {
          most = way;
          best[t] = j;
        }
        if (is_last) beta[at] = 0;
        for (int64_t k = 0; !is_last && k < tags; ++k) {
          const int64_t to = (t + 1) * tags + k;
          const double rest = a[k] + logits[to] + beta[to];
          beta[at] = LogAdd(beta[at], rest);
          const double p = std::exp(alpha[at] + rest - log_z);
          d_transitions[j * tags + k] -= d * p;
        }
        marginals[at] = std::exp(alpha[at] + beta[at] - log_z);
      }
    }
  }
};

// What the ops should make of a batch.
Tensors Expected(const Tensors& b) {
  Tensors e = b.InDouble();
  const auto likelihood = Bound<CrfLikelihoodArgs<double>>(&e);
  const auto grad = Bound<CrfLikelihoodGradArgs<double>>(&e);
  double* const marginals = Bound<CrfMarginalsArgs<double>>(&e).marginals;
  const CrfScores<double>& s = likelihood.scores;
  const int64_t tags = s.tags;
  GpuVector<double> scores;
  GpuVector<int32_t> best(s.batch * s.frames, 0);
  for (int64_t i = 0; i < s.batch; ++i) {
    const int64_t row = i * s.frames;
    const double d = grad.d[i];
    double* const d_logits = grad.d_logits + row * tags;
    Example x = {s.lengths[i],      tags, s.logits + row * tags,
                 s.transitions,     d,    marginals + row * tags,
                 grad.d_transitions};
    std::pow(tags, x.length) < 2e4 ? x.Enumerate() : x.Recurse();
    std::copy(x.best.begin(), x.best.end(), best.begin() + row);
    scores.push_back(x.ScoreOf(x.best));
    std::vector<int64_t> labels;
    for (int64_t t = 0; t < x.length; ++t) {
      labels.push_back(likelihood.labels[row + t]);
      if (x.log_z == -kInfinity) continue;
      if (t > 0) x.d_transitions[labels[t - 1] * tags + labels[t]] += d;
      for (int64_t at = t * tags; at < (t + 1) * tags; ++at) {
        d_logits[at] = d * ((at == t * tags + labels[t]) - x.marginals[at]);
      }
    }
    likelihood.log_likelihood[i] =
        x.log_z == -kInfinity ? x.log_z : x.ScoreOf(labels) - x.log_z;
  }
  e.Set("scores", scores);
  e.Set("labels", best);
  return e;
}

template <typename Args, typename Device>
void RunOne(const Device& device, Tensors* tensors) {
  const auto args = Bound<Args>(tensors);
  testing::WithScratch(
      device, [&] { return CrfScratchBytes(args); },
      [&](const Device& on) { TFO_EXPECT_RUNS(RunCrf(on, args)); });
}

// A batch and what all ops make of it.
template <typename T, typename Device>
Tensors RunAll(const Device& device, Tensors b) {
  RunOne<CrfLikelihoodArgs<T>>(device, &b);
  RunOne<CrfLikelihoodGradArgs<T>>(device, &b);
  RunOne<CrfMarginalsArgs<T>>(device, &b);
  // An output has the name of an input.
  b.Set("labels", GpuVector<int32_t>(b.Get<int64_t>("labels").size(), 7));
  RunOne<CrfDecodeArgs<T>>(device, &b);
  return b;
}

// X is the tensors' dtype, the references' is double.
template <typename X>
void ExpectTensors(const std::vector<const char*>& names, const Tensors& r,
                   const Tensors& e, double tolerance = 1e-10) {
  for (const char* const name : names) {
    ExpectNear(name, r.Get<X>(name).data(), Widened(e.Get<double>(name)),
               tolerance);
  }
}

template <typename T>
void ExpectAll(const Tensors& r, const Tensors& e,
               double tolerance = ToleranceOf<T>()) {
  using Value = Accumulator<T>;
  const double of_value = std::is_same_v<T, double> ? 1e-10 : 2e-6;
  // Of probabilities: what the logarithms that they are compared with lose.
  const double of_share = tolerance == ToleranceOf<T>() ? of_value : tolerance;
  ExpectTensors<Value>({"log_likelihood", "scores"}, r, e, of_value);
  ExpectTensors<Value>({"d_transitions", "marginals"}, r, e, of_share);
  ExpectTensors<T>({"d_logits"}, r, e, tolerance);
  TFO_EXPECT(r.Get<int32_t>("labels") == e.Get<int32_t>("labels"));
}

template <typename T, typename Device>
Tensors TestBatch(const Device& device, const Tensors& b,
                  double tolerance = ToleranceOf<T>(),
                  const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), b.SizesText());
  const Tensors r = RunAll<T>(device, b);
  ExpectAll<T>(r, Expected(b), tolerance);
  return r;
}

TFO_DEVICE_TEST(Crf, EqualsTheSumOverAllSequences) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    TestBatch<double>(device, RandomBatch<double>(5, 5, 3, seed));
    TestBatch<float>(device, RandomBatch<float>(4, 4, 4, seed, 5));
  }
  // Equal scores: the lowest tags at the end and in each step back.
  Tensors b = RandomBatch<double>(3, 4, 3, 9, 0);
  TestBatch<double>(device, b);
  auto& logits = b.Get<double>("logits");
  for (size_t i = 0; i < logits.size(); ++i) logits[i] += i % 3 == 1;
  TestBatch<double>(device, b);
}

TFO_DEVICE_TEST(Crf, EqualsTheRecursionInLogarithms) {
  testing::ForTypes(device, [](auto type, const auto& on, uint32_t seed) {
    using T = decltype(type);
    TestBatch<T>(on, RandomBatch<T>(20, 7, 5, seed));
    TestBatch<T>(on, RandomBatch<T>(3, 6, 16, seed + 1));
    TestBatch<T>(on, RandomBatch<T>(2, 5, 33, seed + 2));
    TestBatch<T>(on, RandomBatch<T>(2, 3, 1, seed + 3));
    TestBatch<T>(on, RandomBatch<T>(0, 3, 2, seed + 4));
    TestBatch<T>(on, RandomBatch<T>(2, 0, 2, seed + 5));
  });
}

// Fewer groups of examples share memory for sums.
TFO_TEST(Crf, ManyTags) {
  TestBatch<float>(testing::ThreadedCpu(2), RandomBatch<float>(5, 2, 1040, 1));
}
// A tag has 32 lanes to 1; a lane has several terms; a group several tags; and
// rows exceed shared memory.
TFO_CUDA_TEST(CrfGpu, EqualsTheRecursionForAnyNumberOfTags) {
  for (const int tags : {8, 9, 32, 64, 65, 128, 129, 256, 257, 1030}) {
    TestBatch<float>(Gpu(), RandomBatch<float>(1, 3, tags, tags));
  }
}
TFO_CUDA_TEST(CrfGpu, OnlyTheGradientKeepsFramesAndPairs) {
  const int64_t batch = 128, tags = 1000;
  const CrfScores<float> s{batch, 1000, tags, nullptr, nullptr, {}};
  CrfLikelihoodGradArgs<float> grad = {};
  grad.scores = s;
  const int64_t matrices = batch * tags * tags * sizeof(double);
  TFO_EXPECT(CrfScratchBytes(CrfLikelihoodArgs<float>{s, {}, nullptr}) <
             matrices / 4);
  TFO_EXPECT_EQ(CrfScratchBytes(grad) -
                    CrfScratchBytes(CrfMarginalsArgs<float>{s, nullptr}),
                matrices + kScratchGap);
}

TFO_TEST(Crf, HasTheSameBitsForAnyNumberOfThreads) {
  const Tensors b = RandomBatch<float>(40, 9, 20, 1);
  const Tensors one = RunAll<float>(Cpu(), b);
  for (const int threads : {2, 5}) {
    const Tensors r = RunAll<float>(testing::ThreadedCpu(threads), b);
    TFO_EXPECT(r.HasBitsOf(one));
  }
}

// Where products of doubles underflow, too.
TFO_DEVICE_TEST(Crf, LongSequencesAndLargeScoresAreRight) {
  const int64_t frames = std::is_same_v<Device, Cpu> ? 5000 : 100;
  TestBatch<float>(device, RandomBatch<float>(1, frames, 5, 1));
  TestBatch<double>(device, RandomBatch<double>(1, frames, 5, 2, 1e4), 1e-6);
  TestBatch<float>(device, RandomBatch<float>(2, 50, 5, 3, 1e4));
  // Sums of several vectors, of which some underflow.
  TestBatch<double>(device, RandomBatch<double>(2, 20, 20, 5, 500), 1e-8);
  // Transitions that large scores almost forbid.
  Tensors masked = RandomBatch<float>(3, 30, 9, 6);
  auto& transitions = masked.Get<float>("transitions");
  for (int i = 0; i < 81; ++i) transitions[i] -= i % 3 < 2 ? 1e4 : 0;
  TestBatch<float>(device, masked);
  // One step that only an unlikely tag can take.
  Tensors b = RandomBatch<double>(1, 4, 3, 4);
  auto& logits = b.Get<double>("logits");
  for (int j = 0; j < 3; ++j) {
    b.Get<double>("transitions")[j * 3] = j == 2 ? 0 : -kInfinity;
    logits[j * 3 + 2] = -2000;
  }
  logits[10] = logits[11] = -kInfinity;
  b.Get<int64_t>("labels")[3] = 0;
  TestBatch<double>(device, b);
}
TFO_TEST(Crf, ScoresAroundTheLimitsOfPlainDoublesAreRight) {
  for (int i = 0; i < 9; ++i) {
    TestBatch<double>(Cpu(), RandomBatch<double>(4, 40, 3 + 9 * i, i, 10 * i),
                      1e-8);
  }
}

// Compares with a batch of doubles from which the offsets have been taken: of
// each frame its first logit, and the first transition.
template <typename T, typename Device>
void TestOffsets(const Device& device, double offset, float spread,
                 const testing::Caller& caller = {}) {
  using Value = Accumulator<T>;
  const testing::Case of_test(caller, testing::NameOf<T>(), "offset ", offset,
                              ", spread ", spread);
  Tensors b = RandomBatch<T>(3, 6, 5, 1, spread);
  for (Value& value : b.Get<Value>("transitions")) value += offset;
  auto& logits = b.Get<T>("logits");
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = Rounded<T>(Widen(logits[i]) + offset * (1 + i / 5 % 3));
  }
  Tensors rest = b.InDouble();
  const auto take_first = [](double* values, int64_t n) {
    const double first = values[0];
    for (int64_t i = 0; i < n; ++i) values[i] -= first;
    return first;
  };
  const double of_transitions =
      take_first(rest.Get<double>("transitions").data(), 25);
  double offsets[3] = {};
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t t = 0; t < rest.Get<int32_t>("lengths")[i]; ++t) {
      offsets[i] +=
          take_first(&rest.Get<double>("logits")[(i * 6 + t) * 5], 5) +
          (t > 0 ? of_transitions : 0);
    }
  }
  Tensors e = Expected(rest);
  for (int64_t i = 0; i < 3; ++i) {
    double& score = e.Get<double>("scores")[i];
    score += offsets[i];
    // Scores beyond the dtype's range are infinite.
    if (std::abs(score) > std::numeric_limits<Value>::max()) score *= kInfinity;
  }
  ExpectAll<T>(RunAll<T>(device, b), e);
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
    Tensors b = RandomBatch<double>(1, 2 * n, 3, 1);
    b.Set("transitions",
          GpuVector<double>{0, 0, 0, -kInfinity, 0, -kInfinity, 0, 0, 0});
    b.Set("labels", GpuVector<int64_t>(2 * n, 1));
    for (int t = 0; t < 2 * n; ++t) {
      const double of_tags[] = {t < n ? -kInfinity : 1200.0 / n, 0,
                                -1200.0 / n};
      std::copy_n(of_tags, 3, &b.Get<double>("logits")[3 * t]);
    }
    const Tensors r = TestBatch<double>(Cpu(), b);
    TFO_EXPECT(std::abs(r.Get<double>("log_likelihood")[0] + std::log(2)) <
               1e-9);
  }
}

// Also a tiny one, where a row's numbers before and after a frame are large.
TFO_TEST(Crf, GradientsAreProportionalToTheUpstreamGradient) {
  Tensors b = RandomBatch<float>(1, 31, 9, 1, /*spread=*/0);
  b.Set("d_log_likelihood", GpuVector<float>{1});
  const Tensors one = RunAll<float>(Cpu(), b);
  b.Set("d_log_likelihood", GpuVector<float>{0x1p-100f});
  const Tensors tiny = RunAll<float>(Cpu(), b);
  for (const char* const name : {"d_logits", "d_transitions"}) {
    GpuVector<float> scaled = tiny.Get<float>(name);
    for (float& value : scaled) value *= 0x1p100f;
    TFO_EXPECT(scaled == one.Get<float>(name));
  }
}

// One sequence is allowed, so its log likelihood is 0, but for rounding.
TFO_DEVICE_TEST(Crf, NoLogLikelihoodIsAboveZero) {
  Tensors b = RandomBatch<double>(40, 9, 2, 6, 1e3);
  b.Set("labels", GpuVector<int64_t>(40 * 9, 0));
  b.Set("lengths", GpuVector<int32_t>(40, 9));
  auto& logits = b.Get<double>("logits");
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = i % 2 == 1 ? -kInfinity : 0.1 * (i * i % 997);
  }
  b.Get<double>("transitions")[0] = 0.1;
  b.Get<double>("transitions")[1] = 3.7;
  const Tensors r = RunAll<double>(device, b);
  for (const double log : r.Get<double>("log_likelihood")) {
    TFO_EXPECT(-1e-10 <= log && log <= 0);
  }
}

// Two examples of 3 tags: of 4 frames, and of `frames`.
Tensors TwoExamples(int frames) {
  Tensors b = RandomBatch<double>(2, 4, 3, 5);
  b.Get<int32_t>("lengths")[1] = frames;
  for (int t = 4; t < 4 + frames; ++t) {
    b.Get<int64_t>("labels")[t] = t % 3;
    for (int i = 3 * t; i < 3 * t + 3; ++i) {
      b.Get<double>("logits")[i] = 0.5 * (i % 4);
    }
  }
  return b;
}

TFO_DEVICE_TEST(Crf, ForbiddenTagsAndTransitions) {
  Tensors b = TwoExamples(3);
  const int64_t* const labels = b.Get<int64_t>("labels").data();
  // A transition and a tag that the labels do not use, and ones that they do.
  for (int i = 0; i < 3; ++i) {
    Tensors forbidden = b;
    auto& logits = forbidden.Get<double>("logits");
    auto& transitions = forbidden.Get<double>("transitions");
    if (i == 0) transitions[2] = logits[4] = -kInfinity;
    if (i == 1) transitions[labels[0] * 3 + labels[1]] = -kInfinity;
    if (i == 2) logits[labels[0]] = -kInfinity;
    TestBatch<double>(device, forbidden);
  }
  // No sequence is allowed in the first example, then in any.
  for (int j = 0; j < 3; ++j) b.Get<double>("logits")[3 + j] = -kInfinity;
  TestBatch<double>(device, b);
  b.Set("transitions", GpuVector<double>(9, -kInfinity));
  TestBatch<double>(device, b);
}

TFO_DEVICE_TEST(Crf, NanStaysInItsExample) {
  for (const double bad : {kNan, kInfinity}) {
    Tensors b = TwoExamples(4);
    double& logit = b.Get<double>("logits")[7];
    logit = -kInfinity;  // as decoding takes NaN
    Tensors e = Expected(b);
    e.Get<double>("log_likelihood")[0] = kNan;
    for (const char* const name : {"d_logits", "marginals"}) {
      std::fill_n(e.Get<double>(name).begin(), 12, kNan);
    }
    e.Set("d_transitions", GpuVector<double>(9, kNan));
    logit = bad;
    const Tensors r = RunAll<double>(device, b);
    ExpectTensors<double>(
        {"log_likelihood", "d_logits", "marginals", "d_transitions"}, r, e);
    const auto& labels = r.Get<int32_t>("labels");
    TFO_EXPECT(bad == kInfinity ? labels[2] == 1
                                : labels == e.Get<int32_t>("labels"));
  }
}

// It takes no transition, so their gradient is the other examples'.
TFO_DEVICE_TEST(Crf, NanOfOneFrameSparesTransitions) {
  Tensors b = TwoExamples(1);
  Tensors e = Expected(b);
  b.Get<double>("logits")[13] = e.Get<double>("log_likelihood")[1] = kNan;
  std::fill_n(e.Get<double>("d_logits").begin() + 12, 3, kNan);
  const Tensors r = RunAll<double>(device, b);
  ExpectTensors<double>({"log_likelihood", "d_logits", "d_transitions"}, r, e);
}

TFO_CUDA_TEST(CrfGpu, BadLabelsAndLengthsMakeTheExampleNan) {
  for (const bool is_length : {false, true}) {
    Tensors b = RandomBatch<double>(2, 4, 3, 5);
    Tensors e = Expected(b);
    if (is_length) {
      b.Get<int32_t>("lengths")[0] = 5;
    } else {
      b.Get<int64_t>("labels")[1] = 3;
    }
    e.Get<double>("log_likelihood")[0] = kNan;
    std::fill_n(e.Get<double>("d_logits").begin(), 12, kNan);
    ExpectTensors<double>({"log_likelihood", "d_logits"},
                          RunAll<double>(Gpu(), b), e);
  }
}

template <typename T>
void TimeCrf(int64_t batch, int64_t frames, int64_t tags) {
  const int64_t examples = testing::BenchmarkSize(batch),
                rows = examples * testing::BenchmarkSize(frames),
                classes = testing::BenchmarkSize(tags);
  Tensors tensors(
      {{"batch", examples}, {"frames", rows / examples}, {"tags", classes}});
  GpuVector<int32_t> labels(rows);
  for (int64_t i = 0; i < rows; ++i) labels[i] = i * 37 % classes;
  tensors.Set("labels", labels);
  tensors.Set("lengths", GpuVector<int32_t>(examples, rows / examples));
  const auto time = [&](const char* name, int num_tensors, const auto& args) {
    testing::TimeOnGpu(testing::Text(testing::NameOf<T>(), name, " [", batch,
                                     ", ", frames, ", ", tags, "]"),
                       num_tensors * rows * classes * sizeof(T),
                       CrfScratchBytes(args),
                       [&](const Gpu& gpu) { return RunCrf(gpu, args); });
  };
  time("crf_log_likelihood", 1, Bound<CrfLikelihoodArgs<T>>(&tensors));
  time("crf_log_likelihood_grad", 2, Bound<CrfLikelihoodGradArgs<T>>(&tensors));
  time("crf_marginals", 2, Bound<CrfMarginalsArgs<T>>(&tensors));
  time("crf_decode", 1, Bound<CrfDecodeArgs<T>>(&tensors));
}
TFO_BENCHMARK(Crf, Taggers) {
  TimeCrf<float>(64, 128, 20);
  TimeCrf<BFloat16>(64, 128, 20);
  TimeCrf<float>(32, 512, 50);
}

}  // namespace
}  // namespace tfo
