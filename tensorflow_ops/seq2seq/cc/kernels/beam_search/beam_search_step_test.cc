// Compares the step with plain loops in double, narrow steps with the first
// results of the widest step, with ties, masks and all partitions, and a GPU's
// steps with the CPU's.
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step_gpu.h"

namespace tfo {
namespace {

using testing::ForTypes;
using testing::GpuVector;
using testing::RandomValues;
using testing::Rounded;
using testing::ThreadedCpu;

template <typename T>
struct Problem {
  using Value = Accumulator<T>;
  int64_t batch, beams, vocabulary;
  GpuVector<T> logits;
  GpuVector<Value> log_probs;
  // A vector<bool> has no data().
  GpuVector<char> finished, forbidden;
  GpuVector<int32_t> lengths, eos_ids;
  EosRule rule = EosRule::kAny;
  double length_penalty = 0;

  Problem(int64_t b, int64_t k, int64_t v, uint32_t seed = 1)
      : batch(b),
        beams(k),
        vocabulary(v),
        logits(testing::RandomOnGpu<T>(b * k * v, seed)),
        finished(b * k),
        eos_ids{static_cast<int32_t>(v / 2)} {
    for (const float x : RandomValues<float>(b * k, seed + 1)) {
      log_probs.push_back(-std::abs(x));
      lengths.push_back(1 + static_cast<int32_t>(3 * std::abs(x)));
    }
  }
};

template <typename T>
struct Result {
  int64_t width;
  GpuVector<Accumulator<T>> log_probs;
  GpuVector<int32_t> tokens, parents, lengths;
  GpuVector<char> finished;

  Result(const Problem<T>& p, int64_t w)
      : width(w),
        log_probs(p.batch * w, 77),
        tokens(p.batch * w, -7),
        parents(p.batch * w, -7),
        lengths(p.batch * w, -7),
        finished(p.batch * w, 7) {}
};

template <typename T>
BeamSearchStepArgs<T> ArgsOf(const Problem<T>& p, Result<T>& r) {
  const auto flags = [](const GpuVector<char>& values) {
    return values.empty() ? nullptr
                          : reinterpret_cast<const bool*>(values.data());
  };
  const int64_t num_eos = p.eos_ids.size();
  return {p.batch,
          p.beams,
          p.vocabulary,
          r.width,
          p.length_penalty,
          {p.rule, num_eos, p.eos_ids.data()},
          p.logits.data(),
          p.log_probs.data(),
          flags(p.finished),
          p.lengths.data(),
          flags(p.forbidden),
          r.log_probs.data(),
          r.tokens.data(),
          r.parents.data(),
          reinterpret_cast<bool*>(r.finished.data()),
          r.lengths.data()};
}

template <typename T, typename Device = Cpu>
Result<T> Run(const Problem<T>& p, int64_t width,
              const Device& device = ThreadedCpu(1)) {
  Result<T> r(p, width);
  const auto args = ArgsOf(p, r);
  testing::WithScratch(
      device, [&] { return BeamScratchLayout<T>(args).Bytes(); },
      [&](const Device& on) { TFO_EXPECT_RUNS(BeamSearchStep(on, args)); });
  return r;
}

// Returns the log probability of every beam and token of a batch entry, or -inf
// if it is not a candidate.
template <typename T>
std::vector<double> Candidates(const Problem<T>& p, int64_t b) {
  const int64_t v = p.vocabulary;
  std::vector<double> all(p.beams * v, -INFINITY);
  for (int64_t k = 0; k < p.beams; ++k) {
    const int64_t row = b * p.beams + k;
    const double log_prob = p.log_probs[row];
    if (p.finished[row]) {
      all[k * v + (p.eos_ids.empty() ? 0 : p.eos_ids[0])] = log_prob;
      continue;
    }
    std::vector<double> x(v);
    double largest = -INFINITY;
    for (int64_t t = 0; t < v; ++t) {
      const double most = std::numeric_limits<Accumulator<T>>::max();
      x[t] = Widen(p.logits[row * v + t]);
      if (std::isnan(x[t])) x[t] = -INFINITY;
      x[t] = std::min(x[t], most);
      largest = std::max(largest, x[t]);
    }
    long double sum = 0;
    for (const double value : x) sum += std::exp(value - largest);
    for (int64_t t = 0; t < v; ++t) {
      const bool is_eos =
          std::find(p.eos_ids.begin(), p.eos_ids.end(), t) != p.eos_ids.end();
      const bool allowed =
          p.rule == EosRule::kAny || is_eos == (p.rule == EosRule::kOnly);
      const bool forbidden = !p.forbidden.empty() && p.forbidden[row * v + t];
      if (!allowed || forbidden || x[t] == -INFINITY) continue;
      const double lp = log_prob + (x[t] - largest) - std::log(double(sum));
      all[k * v + t] = std::isnan(lp) ? -INFINITY : lp;
    }
  }
  return all;
}

// Expects each candidate once, in order, with its log probability, followed by
// padding.
template <typename T>
Result<T> CheckAll(const Problem<T>& p) {
  const int64_t v = p.vocabulary, width = p.beams * v;
  const auto r = Run(p, width);
  for (int64_t b = 0; b < p.batch; ++b) {
    auto expected = Candidates(p, b);
    double last_score = INFINITY;
    int64_t last_flat = -1;
    for (int64_t w = 0; w < width; ++w) {
      const int64_t at = b * width + w;
      const auto lp = r.log_probs[at];
      if (lp == -INFINITY) {
        TFO_EXPECT_EQ(r.parents[at], 0);
        TFO_EXPECT_EQ(r.tokens[at], p.eos_ids.empty() ? 0 : p.eos_ids[0]);
        TFO_EXPECT_EQ(int{r.finished[at]}, 1);
        TFO_EXPECT_EQ(r.lengths[at], p.lengths[b * p.beams]);
        last_score = -INFINITY;
        continue;
      }
      const int64_t row = b * p.beams + r.parents[at];
      const int64_t flat = r.parents[at] * v + r.tokens[at];
      const double want = expected[flat];
      const double tolerance =
          (std::is_same_v<T, double> ? 1e-14 : 1e-6) * (std::abs(lp) + 16);
      if (!(std::abs(lp - want) <= tolerance)) {
        testing::Fail(
            __FILE__, __LINE__,
            testing::Text("beam ", r.parents[at], ", token ", r.tokens[at],
                          " has ", lp, ", expected ", want));
        return r;
      }
      expected[flat] = -INFINITY;  // must not occur twice
      TFO_EXPECT_EQ(r.lengths[at], p.lengths[row] + !p.finished[row]);
      const bool is_eos = std::find(p.eos_ids.begin(), p.eos_ids.end(),
                                    r.tokens[at]) != p.eos_ids.end();
      TFO_EXPECT_EQ(bool(r.finished[at]), p.finished[row] || is_eos);
      using Value = Accumulator<T>;
      const double score =
          lp / LengthDivisor<Value>(r.lengths[at], p.length_penalty);
      const Value rounded = score;
      TFO_EXPECT(last_score > rounded ||
                 (last_score == rounded && last_flat < flat));
      last_score = rounded;
      last_flat = flat;
    }
    for (const double left : expected) TFO_EXPECT_EQ(left, -INFINITY);
  }
  return r;
}

// A narrow step returns the first results of a wide one, bit by bit.
template <typename T>
void Check(const std::string& what, const Problem<T>& p,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), what);
  const auto all = CheckAll(p);
  for (const int64_t width : {1, 2, 3, 5, 8, 16, 17, 40, 300}) {
    for (const int threads : {1, 3}) {
      const auto few = Run(p, width, ThreadedCpu(threads));
      for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t w = 0; w < std::min(width, all.width); ++w) {
          const int64_t i = b * width + w, j = b * all.width + w;
          const bool same = few.log_probs[i] == all.log_probs[j] &&
                            few.tokens[i] == all.tokens[j] &&
                            few.parents[i] == all.parents[j] &&
                            few.finished[i] == all.finished[j] &&
                            few.lengths[i] == all.lengths[j];
          if (same) continue;
          return testing::Fail(
              __FILE__, __LINE__,
              testing::Text("width ", width, ", result ", w, " is ",
                            few.parents[i], ":", few.tokens[i], " (",
                            few.log_probs[i], "), expected ", all.parents[j],
                            ":", all.tokens[j], " (", all.log_probs[j], ")"));
        }
        for (int64_t w = all.width; w < width; ++w) {
          TFO_EXPECT_EQ(few.log_probs[b * width + w], -INFINITY);
        }
      }
    }
  }
}

struct Shape {
  int64_t batch, beams, vocabulary;
};
constexpr Shape kShapes[] = {{2, 3, 1},   {1, 1, 7},    {3, 2, 33},  {2, 4, 50},
                             {9, 2, 129}, {1, 2, 2100}, {2, 1, 4500}};

TFO_TEST(BeamSearchStep, RandomLogits) {
  ForTypes([](auto t) {
    using T = decltype(t);
    for (const auto [b, k, v] : kShapes) {
      Problem<T> p(b, k, v);
      Check("random", p);
      p.length_penalty = 0.7;
      p.finished[0] = 1;
      Check("penalty, a finished beam", p);
      p.length_penalty = -1.5;
      Check("negative penalty", p);
    }
  });
}

// Many equal logits, and many scores that are equal after rounding.
TFO_TEST(BeamSearchStep, TiesGoToTheLowerIndex) {
  ForTypes([](auto t) {
    using T = decltype(t);
    for (const auto [b, k, v] : kShapes) {
      Problem<T> p(b, k, v, 5);
      for (auto& x : p.log_probs) x = -1;
      for (T& x : p.logits) {
        x = Rounded<T>(std::round(Widen(x)));
      }
      Check("few values", p);
      for (T& x : p.logits) x = Rounded<T>(0.5);
      Check("one value", p);
      Problem<T> far(b, k, v, 6);
      // Adding these loses most bits of the logits to rounding.
      for (auto& x : far.log_probs) x = sizeof(x) == 8 ? -3e15 : -3e6;
      Check("far below", far);
      far.length_penalty = 0.3;
      Check("far below, with a penalty", far);
    }
  });
}

TFO_TEST(BeamSearchStep, SortedLogits) {
  for (const bool rising : {false, true}) {
    Problem<float> p(1, 2, 5000);
    std::sort(p.logits.begin(), p.logits.end());
    if (!rising) std::reverse(p.logits.begin(), p.logits.end());
    Check(rising ? "rising" : "falling", p);
  }
}

TFO_TEST(BeamSearchStep, NanAndInfinity) {
  ForTypes([](auto t) {
    using T = decltype(t);
    for (const int64_t v : {9, 60, 2500}) {
      Problem<T> p(7, 2, v);
      const auto row = [&](int64_t b) { return &p.logits[b * 2 * v]; };
      for (int64_t i = 0; i < v; i += 3) row(0)[i] = Rounded<T>(NAN);
      std::fill_n(row(1), v, Rounded<T>(NAN));
      std::fill_n(row(2), v, Rounded<T>(-INFINITY));
      for (int64_t i = 1; i < v; i += 2) row(3)[i] = Rounded<T>(-INFINITY);
      row(5)[v - 1] = Rounded<T>(NAN);
      p.log_probs[4 * 2] = -INFINITY;
      p.log_probs[6 * 2] = NAN;
      p.finished[6 * 2 + 1] = 1;
      p.log_probs[6 * 2 + 1] = -INFINITY;
      Check("NaN", p);
      row(0)[v / 2] = Rounded<T>(INFINITY);
      row(0)[v / 3] = Rounded<T>(INFINITY);
      // In float, all other tokens of the row are -inf and thus no candidates.
      const auto r = Run(p, 2);
      if (sizeof(T) == 2) return;  // computes in float
      TFO_EXPECT(r.tokens[0] == v / 2 || r.tokens[0] == v / 3 ||
                 r.parents[0] == 1);
    }
  });
}

TFO_TEST(BeamSearchStep, InfinityTakesAllProbability) {
  Problem<float> p(1, 1, 3000);
  p.log_probs[0] = -2;
  p.logits[700] = INFINITY;
  p.logits[2900] = INFINITY;
  const auto r = Run(p, 3);
  TFO_EXPECT_EQ(r.tokens[0], 700);
  TFO_EXPECT_EQ(r.tokens[1], 2900);
  TFO_EXPECT(std::abs(r.log_probs[0] - (-2 - std::log(2.))) < 1e-6);
  TFO_EXPECT_EQ(r.log_probs[0], r.log_probs[1]);
  TFO_EXPECT(r.log_probs[2] < -1e38f);
}

TFO_TEST(BeamSearchStep, EosRulesAndForbiddenTokens) {
  ForTypes([](auto t) {
    using T = decltype(t);
    for (const auto [b, k, v] : kShapes) {
      for (const EosRule rule :
           {EosRule::kAny, EosRule::kNone, EosRule::kOnly}) {
        for (const int every :
             {0, 1, 2, 30}) {  // allows every n-th token; 0 allows all
          Problem<T> p(b, k, v, 11);
          p.rule = rule;
          p.eos_ids = {0, static_cast<int32_t>(v - 1), 0};
          // Makes an end token the best.
          for (int64_t row = 0; row < b * k; ++row) {
            p.logits[row * v] = Rounded<T>(9);
          }
          if (every > 0) {
            for (int64_t i = 0; i < b * k * v; ++i) {
              p.forbidden.push_back(i % every != 0);
            }
          }
          Check("rule " + std::to_string(static_cast<int>(rule)) + ", every " +
                    std::to_string(every),
                p);
        }
      }
    }
  });
}

TFO_TEST(BeamSearchStep, NoEndToken) {
  Problem<float> p(2, 3, 20);
  p.eos_ids = {};
  p.finished[1] = 1;
  Check("no end token", p);
  p.rule = EosRule::kOnly;
  Check("no end token, but one is required", p);
}

TFO_TEST(BeamSearchStep, LongRowsInParts) {
  ForTypes([](auto t) {
    using T = decltype(t);
    for (const int64_t v : {65536, 70001, 131072 + 5}) {
      Problem<T> p(1, 2, v);
      p.logits[v - 1] = Rounded<T>(12);
      p.logits[3] = Rounded<T>(NAN);
      const auto expected = Candidates(p, 0);
      for (const int threads : {1, 4}) {
        const auto r = Run(p, 6, ThreadedCpu(threads));
        auto sorted = expected;
        std::partial_sort(sorted.begin(), sorted.begin() + 6, sorted.end(),
                          std::greater<>());
        for (int w = 0; w < 6; ++w) {
          const double lp = r.log_probs[w];
          TFO_EXPECT(std::abs(lp - sorted[w]) < 2e-5);
          TFO_EXPECT_EQ(expected[r.parents[w] * v + r.tokens[w]], sorted[w]);
        }
      }
      for (T& x : p.logits) x = Rounded<T>(0);
      for (auto& x : p.log_probs) x = 0;
      const auto r = Run(p, 4);
      for (int w = 0; w < 4; ++w) TFO_EXPECT_EQ(r.tokens[w], w);
      // The largest logits of two parts both count in the softmax.
      for (T& x : p.logits) x = Rounded<T>(-INFINITY);
      for (const int64_t at : {int64_t{0}, v - 1, v, 2 * v - 1}) {
        p.logits[at] = Rounded<T>(0);
      }
      for (const auto log_prob : Run(p, 4).log_probs) {
        TFO_EXPECT(std::abs(log_prob + std::log(2.0)) < 1e-6);
      }
    }
  });
}

// Tokens that a part dropped tie with the selected ones after rounding.
TFO_TEST(BeamSearchStep, TiesAcrossParts) {
  Problem<float> p(1, 1, 70000);
  p.log_probs[0] = -1e7f;  // sums are integers
  for (int64_t i = 0; i < 70000; ++i) p.logits[i] = 1e-3f * (i % 100);
  const auto r = Run(p, 4);
  for (int w = 0; w < 4; ++w) {
    TFO_EXPECT_EQ(r.tokens[w], w);
    TFO_EXPECT_EQ(r.log_probs[w], r.log_probs[0]);
  }
}

TFO_TEST(BeamSearchStep, TiesAmongAllowedTokens) {
  Problem<float> p(1, 1, 3000);
  p.log_probs[0] = -1e7f;
  for (int64_t i = 0; i < 3000; ++i) p.logits[i] = 1e-5f * i;
  p.eos_ids = {2};
  p.rule = EosRule::kNone;
  p.forbidden.assign(3000, 0);
  p.forbidden[0] = p.forbidden[3] = 1;
  const auto r = Run(p, 3);
  TFO_EXPECT_EQ(r.tokens[0], 1);
  TFO_EXPECT_EQ(r.tokens[1], 4);
  TFO_EXPECT_EQ(r.tokens[2], 5);
}

// The order of end tokens does not matter.
TFO_TEST(BeamSearchStep, TiesOfEndTokens) {
  Problem<float> p(1, 1, 50);
  p.log_probs[0] = -1e7f;
  p.rule = EosRule::kOnly;
  p.logits[40] = 0.3f;
  p.logits[30] = 0.2f;
  p.logits[20] = 0.1f;
  for (const auto& eos_ids :
       {GpuVector<int32_t>{40, 20, 30}, GpuVector<int32_t>{40, 30, 20}}) {
    p.eos_ids = eos_ids;
    const auto r = Run(p, 2);
    TFO_EXPECT_EQ(r.tokens[0], 20);
    TFO_EXPECT_EQ(r.tokens[1], 30);
    TFO_EXPECT_EQ(r.log_probs[0], r.log_probs[1]);
  }
}

TFO_TEST(BeamSearchStep, NothingToDo) {
  const auto r = Run(Problem<float>(0, 2, 5), 3);
  TFO_EXPECT_EQ(r.tokens.size(), size_t{0});
}

// A GPU adds up in another order: near sums, equal choices. Rows of different
// kinds: ties, masked logits, NaN, +inf, all logits masked.
template <typename T>
void CheckCuda(const Shape& shape, int64_t width, double length_penalty = 0,
               EosRule rule = EosRule::kAny, int num_eos = 1,
               bool forbids = false, const testing::Caller& caller = {}) {
  using Value = Accumulator<T>;
  const auto [batch, beams, v] = shape;
  const testing::Case of_test(caller, testing::NameOf<T>(), "batch ", batch,
                              ", beams ", beams, ", vocabulary ", v, ", width ",
                              width);
  Problem<T> p(batch, beams, v, 3);
  p.length_penalty = length_penalty;
  p.rule = rule;
  p.eos_ids = {static_cast<int32_t>(v - 1), static_cast<int32_t>((v - 1) / 2)};
  p.eos_ids.resize(num_eos);
  const int64_t rows = batch * beams;
  for (int64_t i = 0; i < rows * v; ++i) {
    const int64_t row = i / v, token = i % v;
    Value x = Widen(p.logits[i]);
    if (row % 7 == 2) x = std::round(2 * x) / 2;
    if (row % 7 == 3 && token % 5 == 1) x = -INFINITY;
    if (row % 7 == 4 && token % 11 == 3) x = NAN;
    if (row % 7 == 5 && token == v / 2) x = INFINITY;
    if (row % 7 == 6) x = -INFINITY;
    p.logits[i] = Narrow<T>(x);
    if (forbids) p.forbidden.push_back(i % 3 == 1);
  }
  p.log_probs = testing::ToGpu(RandomValues<Value>(rows, 5));
  for (int64_t row = 0; row < rows; ++row) {
    if (row % 11 == 7) p.log_probs[row] = -INFINITY;
    if (row % 11 == 8) p.log_probs[row] = NAN;
    p.finished[row] = row % 4 == 3;
    p.lengths[row] = row * 5 % 17;
  }
  const auto expected = Run(p, width), actual = Run(p, width, Gpu());
  TFO_EXPECT(actual.tokens == expected.tokens);
  TFO_EXPECT(actual.parents == expected.parents);
  TFO_EXPECT(actual.lengths == expected.lengths);
  TFO_EXPECT(actual.finished == expected.finished);
  for (int64_t i = 0; i < batch * width; ++i) {
    const double a = actual.log_probs[i], e = expected.log_probs[i];
    const double tolerance = sizeof(Value) == 8 ? 1e-14 : 2e-6;
    TFO_EXPECT(a == e || std::abs(a - e) <= tolerance * (1 + std::abs(e)));
  }
}

TFO_CUDA_TEST(BeamSearchStep, CudaEqualsTheCpu) {
  ForTypes([](auto t) {
    using T = decltype(t);
    CheckCuda<T>({0, 3, 5}, 2);
    CheckCuda<T>({1, 1, 1}, 3);
    CheckCuda<T>({3, 2, 5}, 4, 0.6);
    CheckCuda<T>({2, 7, 33}, 7, 1.0, EosRule::kAny, 2);
    CheckCuda<T>({2, 4, 300}, 9, -0.5, EosRule::kNone, 2);
    CheckCuda<T>({2, 4, 300}, 9, 1.0, EosRule::kOnly, 2);
    CheckCuda<T>({1, 8, 300}, 5, 0.0, EosRule::kAny, 0, true);
    CheckCuda<T>({1, 3, 40}, 200);
    CheckCuda<T>({2, 3, 4096}, 6);
    CheckCuda<T>({1, 9, 9001}, 40, 1.0);
    CheckCuda<T>({1, 2, 40000}, 4, 1.0, EosRule::kNone, 1, true);
  });
}

// End tokens outside the vocabulary are ignored.
TFO_CUDA_TEST(BeamSearchStep, CudaEndTokensOutsideTheVocabulary) {
  Problem<float> p(1, 2, 3);
  p.logits.assign(6, 0);
  p.log_probs = {0, 0};
  p.finished = {true, false};
  for (const int32_t eos : {7, -1}) {
    p.eos_ids = {eos};
    const auto r = Run(p, 4, Gpu());
    TFO_EXPECT_EQ(r.tokens[0], eos);
    TFO_EXPECT_EQ(r.parents[0], 0);
    TFO_EXPECT_EQ(r.tokens[1], 0);
    TFO_EXPECT_EQ(r.parents[1], 1);
    TFO_EXPECT(!r.finished[1]);
  }
}

template <typename T>
void TimeStep(int64_t batch, int64_t beams, int64_t vocabulary) {
  batch = testing::BenchmarkSize(batch);
  vocabulary = testing::BenchmarkSize(vocabulary);
  const Problem<T> p(batch, beams, vocabulary);
  Result<T> result(p, beams);
  const auto args = ArgsOf(p, result);
  testing::TimeOnGpu(testing::Text(testing::NameOf<T>(), "beam_search_step [",
                                   batch, ", ", beams, ", ", vocabulary, "]"),
                     p.logits.size() * sizeof(T),
                     BeamScratchLayout<T>(args).Bytes(),
                     [&](const Gpu& gpu) { return BeamSearchStep(gpu, args); });
}
TFO_BENCHMARK(BeamSearchStep, Vocabularies) {
  TimeStep<float>(64, 5, 32000);
  TimeStep<BFloat16>(64, 5, 32000);
  TimeStep<float>(8, 5, 32000);
  TimeStep<float>(16, 4, 128000);
}

}  // namespace
}  // namespace tfo
