// Compares the CTC decoders with sums over all paths, and with a prefix search
// that keeps label sequences in a map; and a GPU's decoders with the CPU's.
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/gpu_testing.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::RandomValues;
using testing::ThreadedCpu;
using Labels = std::vector<int32_t>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double PlainLogAdd(double a, double b) {
  const double most = std::max(a, b);
  return most == -kInf
             ? -kInf
             : most + std::log(std::exp(a - most) + std::exp(b - most));
}

// A batch of logits, and what decoders return for it.
template <typename T>
struct Problem {
  using Value = Accumulator<T>;
  int64_t batch, frames, classes, blank;
  GpuVector<T> logits;
  GpuVector<int32_t> lengths;

  Problem(int64_t b, int64_t t, int64_t v, int64_t blank_index, double scale,
          uint32_t seed)
      : batch(b),
        frames(t),
        classes(v),
        blank(blank_index),
        logits(testing::RandomOnGpu<T>(b * t * v, seed)) {
    for (T& x : logits) x = Narrow<T>(static_cast<Value>(Widen(x) * scale));
    for (int64_t i = 0; i < b; ++i) lengths.push_back(i % 3 == 1 ? t / 2 : t);
    // Padding is not read.
    for (int64_t i = 0; i < b; ++i) {
      for (int64_t j = lengths[i] * v; j < t * v; ++j) {
        logits[i * t * v + j] = Narrow<T>(static_cast<Value>(kNan));
      }
    }
  }

  CtcLogits<T> Input() const {
    return {batch, frames, classes, blank, logits.data(), lengths.data()};
  }

  double Logit(int64_t b, int64_t t, int64_t c) const {
    return CountedLogit(Value{Widen(logits[(b * frames + t) * classes + c])});
  }
  T& At(int64_t b, int64_t t, int64_t c) {
    return logits[(b * frames + t) * classes + c];
  }

  // log softmax of a frame.
  std::vector<double> LogProbs(int64_t b, int64_t t) const {
    double most = -kInf, sum = 0;
    for (int64_t c = 0; c < classes; ++c) most = std::max(most, Logit(b, t, c));
    std::vector<double> result(classes, -kInf);
    if (most == -kInf) return result;
    for (int64_t c = 0; c < classes; ++c)
      sum += std::exp(Logit(b, t, c) - most);
    for (int64_t c = 0; c < classes; ++c) {
      result[c] = Logit(b, t, c) - most - std::log(sum);
    }
    return result;
  }
};

template <typename Device, typename Args>
void Run(Error (*decoder)(const Device&, const Args&), const Device& device,
         const Args& args) {
  testing::WithScratch(
      device, [&] { return CtcDecodeScratchBytes(args); },
      [&](const Device& on) { TFO_EXPECT_RUNS(decoder(on, args)); });
}

template <typename T>
struct SearchResults {
  int64_t top;
  GpuVector<int32_t> labels, lengths;
  GpuVector<Accumulator<T>> scores, log_probs;

  SearchResults(const Problem<T>& p, int64_t top_paths)
      : top(top_paths),
        labels(p.batch * top * p.frames, 77),
        lengths(p.batch * top, 77),
        scores(p.batch * top, 77),
        log_probs(p.batch * top, 77) {}
  CtcBeamSearchArgs<T> Args(const Problem<T>& p, int64_t width, double bonus) {
    return {p.Input(),     width,          top,           bonus,           -5,
            labels.data(), lengths.data(), scores.data(), log_probs.data()};
  }
};

template <typename Device, typename T>
SearchResults<T> SearchAll(const Device& device, const Problem<T>& p,
                           int64_t width, int64_t top, double bonus = 0) {
  SearchResults<T> results(p, top);
  Run(&CtcBeamSearch<T>, device, results.Args(p, width, bonus));
  return results;
}

struct Path {
  Labels labels;
  double score, log_prob;
};

// Results of example b, without padding, which is checked.
template <typename T>
std::vector<Path> Search(const Problem<T>& p, const Cpu& cpu, int64_t width,
                         int64_t top, int64_t b, double bonus = 0) {
  const auto r = SearchAll(cpu, p, width, top, bonus);
  std::vector<Path> paths;
  for (int64_t i = b * top; i < (b + 1) * top; ++i) {
    const auto first = r.labels.begin() + i * p.frames;
    paths.push_back(
        {Labels(first, first + r.lengths[i]), r.scores[i], r.log_probs[i]});
    for (int64_t t = r.lengths[i]; t < p.frames; ++t)
      TFO_EXPECT_EQ(first[t], -5);
  }
  return paths;
}

// A language model: the score of a label after a prefix.
double LanguageModel(const Labels& prefix, int64_t label) {
  uint32_t state = 17;
  for (const int32_t one : prefix) state = state * 31 + one;
  if ((state * 7 + label) % 11 == 3) return -kInf;
  return -0.25 * ((state + 5 * label) % 13);
}

struct Options {
  int64_t width;
  double lm_weight = 0, bonus = 0;
  bool has_lm = false;
};

// Prefix search over maps.
template <typename T>
std::vector<Path> PlainSearch(const Problem<T>& p, int64_t b,
                              const Options& options) {
  struct Sums {
    double blank = -kInf, label = -kInf, bonus = 0;
    double Total() const { return PlainLogAdd(blank, label); }
  };
  std::map<Labels, Sums> beam;
  beam[{}].blank = 0;
  std::vector<Path> best;
  for (int64_t t = 0; t < p.lengths[b]; ++t) {
    const std::vector<double> logs = p.LogProbs(b, t);
    std::map<Labels, Sums> next;
    for (const auto& [prefix, sums] : beam) {
      Sums& stay = next[prefix];
      stay.bonus = sums.bonus;
      stay.blank = PlainLogAdd(stay.blank, sums.Total() + logs[p.blank]);
      for (int64_t c = 0; c < p.classes; ++c) {
        if (c == p.blank) continue;
        const bool repeats = !prefix.empty() && prefix.back() == c;
        if (repeats) {
          stay.label = PlainLogAdd(stay.label, sums.label + logs[c]);
        }
        const double lm = options.has_lm ? LanguageModel(prefix, c) : 0;
        if (lm == -kInf) continue;
        Labels longer(prefix.begin(), prefix.end());
        longer.push_back(c);
        Sums& extended = next[longer];
        extended.bonus = sums.bonus + options.lm_weight * lm + options.bonus;
        extended.label = PlainLogAdd(
            extended.label, (repeats ? sums.blank : sums.Total()) + logs[c]);
      }
    }
    std::vector<std::pair<double, const Labels*>> order;
    for (const auto& [prefix, sums] : next) {
      const double score = sums.Total() + sums.bonus;
      if (score > -kInf) order.push_back({-score, &prefix});
    }
    std::sort(order.begin(), order.end());
    if (static_cast<int64_t>(order.size()) > options.width) {
      order.resize(options.width);
    }
    beam.clear();
    best.clear();
    for (const auto& [score, prefix] : order) {
      beam[*prefix] = next[*prefix];
      best.push_back({*prefix, -score, next[*prefix].Total()});
    }
  }
  if (p.lengths[b] == 0) best.push_back({{}, 0, 0});
  return best;
}

// The log probabilities of all label sequences, from all paths.
template <typename T>
std::map<Labels, double> AllPaths(const Problem<T>& p, int64_t b) {
  std::map<Labels, double> sums;
  std::vector<int64_t> path(p.lengths[b], 0);
  std::vector<std::vector<double>> logs;
  for (int64_t t = 0; t < p.lengths[b]; ++t) logs.push_back(p.LogProbs(b, t));
  while (true) {
    double log_prob = 0;
    Labels labels;
    for (size_t t = 0; t < path.size(); ++t) {
      log_prob += logs[t][path[t]];
      if (path[t] != p.blank && (t == 0 || path[t] != path[t - 1])) {
        labels.push_back(path[t]);
      }
    }
    const auto found = sums.insert({labels, -kInf}).first;
    found->second = PlainLogAdd(found->second, log_prob);
    size_t t = 0;
    while (t < path.size() && ++path[t] == p.classes) path[t++] = 0;
    if (t == path.size()) return sums;
  }
}

void ExpectNear(double actual, double expected, double tolerance) {
  if (actual == expected) return;
  const double bound = tolerance * std::max(1., std::abs(expected));
  TFO_EXPECT(std::abs(actual - expected) <= bound);
}

void ExpectEqual(const std::vector<Path>& actual,
                 const std::vector<Path>& expected, double tolerance) {
  for (size_t k = 0; k < actual.size(); ++k) {
    if (k >= expected.size()) {
      TFO_EXPECT(actual[k].labels.empty());
      TFO_EXPECT_EQ(actual[k].score, -kInf);
      TFO_EXPECT_EQ(actual[k].log_prob, -kInf);
      continue;
    }
    TFO_EXPECT(actual[k].labels == expected[k].labels);
    ExpectNear(actual[k].score, expected[k].score, tolerance);
    ExpectNear(actual[k].log_prob, expected[k].log_prob, tolerance);
  }
}

TFO_TEST(CtcBeamSearch, AWideBeamFindsTheBestOfAllPaths) {
  for (const int64_t blank : {0, 2}) {
    const Problem<double> p(3, 6, 3, blank, 1.5, 1);
    for (int64_t b = 0; b < p.batch; ++b) {
      std::vector<Path> expected;
      for (const auto& [labels, log_prob] : AllPaths(p, b)) {
        Labels copy(labels.begin(), labels.end());
        expected.push_back({std::move(copy), log_prob, log_prob});
      }
      std::sort(expected.begin(), expected.end(),
                [](const Path& x, const Path& y) { return x.score > y.score; });
      ExpectEqual(Search(p, ThreadedCpu(1), 2000, 150, b), expected, 1e-13);
    }
  }
}

template <typename T>
void CompareWithMaps(double tolerance) {
  uint32_t seed = 2;
  for (const auto [t, v, width] : {std::array<int64_t, 3>{40, 5, 1},
                                   {40, 5, 2},
                                   {60, 3, 7},
                                   {30, 40, 10},
                                   {20, 300, 25},
                                   {12, 6, 300},
                                   {9, 2, 4},
                                   {7, 1, 3}}) {
    for (const double scale : {0.3, 2., 6.}) {
      const Problem<T> p(3, t, v, v / 2, scale, ++seed);
      for (const double bonus : {0., 0.75, -0.5}) {
        const int64_t b = seed % 3;
        const auto expected = PlainSearch(p, b, {width, 0, bonus});
        ExpectEqual(Search(p, ThreadedCpu(2), width, width, b, bonus), expected,
                    tolerance);
      }
    }
  }
}

TFO_TEST(CtcBeamSearch, EqualsASearchOverMaps) {
  CompareWithMaps<double>(1e-12);
}

// Scores only: sequences tie where logits are rounded to 16 bits.
template <typename T>
void CompareScores() {
  const Problem<T> p(4, 50, 20, 0, 3, 9);
  for (int64_t b = 0; b < p.batch; ++b) {
    const auto actual = Search(p, ThreadedCpu(3), 20, 5, b),
               expected = PlainSearch(p, b, {20});
    for (int k = 0; k < 5; ++k) {
      ExpectNear(actual[k].score, expected[k].score, 3e-7);
      ExpectNear(actual[k].log_prob, expected[k].log_prob, 3e-7);
    }
  }
}

TFO_TEST(CtcBeamSearch, OfAllDtypes) {
  CompareScores<float>();
  CompareScores<Half>();
  CompareScores<BFloat16>();
}

TFO_TEST(CtcBeamSearch, LargeScores) {
  const Problem<double> p(1, 300, 6, 0, 1e4, 4);
  ExpectEqual(Search(p, ThreadedCpu(1), 8, 8, 0), PlainSearch(p, 0, {8}),
              1e-12);
}

TFO_TEST(CtcBeamSearch, ForbiddenClassesAndImpossibleFrames) {
  Problem<double> p(3, 6, 4, 0, 1, 5);
  p.lengths = {6, 6, 6};
  p.logits = testing::RandomOnGpu<double>(3 * 6 * 4, 6);
  for (int c = 0; c < 4; ++c) p.At(0, 3, c) = c % 2 ? -kInf : kNan;
  p.At(1, 0, 1) = kNan;
  p.At(1, 1, 2) = kInf;
  p.At(1, 2, 0) = -kInf;
  for (int b = 0; b < 3; ++b) {
    // In example 1 +inf counts as a finite number: other classes are possible,
    // but all equally, so that all but the best tie.
    ExpectEqual(Search(p, ThreadedCpu(1), 9, b == 1 ? 1 : 9, b),
                PlainSearch(p, b, {9}), 1e-13);
  }
  TFO_EXPECT_EQ(Search(p, ThreadedCpu(1), 9, 9, 0)[0].score, -kInf);
}

TFO_TEST(CtcBeamSearch, OfEqualScoresTheFirst) {
  // Equal logits: of one frame the empty prefix first, then labels in order.
  Problem<float> p(1, 1, 40, 3, 0, 1);
  const auto paths = Search(p, ThreadedCpu(1), 5, 5, 0);
  const std::vector<Labels> expected = {{}, {0}, {1}, {2}, {4}};
  for (int k = 0; k < 5; ++k) TFO_EXPECT(paths[k].labels == expected[k]);
}

TFO_TEST(CtcBeamSearch, EmptyInputs) {
  const Problem<float> none(0, 4, 3, 0, 1, 1), no_frames(2, 0, 3, 0, 1, 1);
  Search(none, ThreadedCpu(2), 3, 0, 0);
  const auto paths = Search(no_frames, ThreadedCpu(2), 3, 2, 1);
  TFO_EXPECT_EQ(paths[0].score, 0);
  TFO_EXPECT_EQ(paths[1].score, -kInf);
}

struct Beam {
  int64_t width;
  GpuVector<double> weights;
  GpuVector<int64_t> prefixes;
  GpuVector<int32_t> parents, labels;

  // Only the empty prefix.
  template <typename T>
  Beam(const Problem<T>& p, int64_t w)
      : width(w),
        weights(p.batch * w * kCtcWeights),
        prefixes(p.batch * w * kCtcPrefixIds),
        parents(p.batch * w, 77),
        labels(p.batch * w, 77) {
    for (int64_t i = 0; i < p.batch * w; ++i) {
      weights[i * kCtcWeights] = i % w ? -kInf : 0;
      weights[i * kCtcWeights + 1] = -kInf;
      prefixes[i * kCtcPrefixIds] = -1;
    }
  }
};

// The beam after frame t.
template <typename Device, typename T>
Beam Step(const Device& device, const Problem<T>& p, int64_t t,
          const Beam& beam, const GpuVector<Accumulator<T>>& scores,
          const Options& options) {
  GpuVector<T> frame(p.batch * p.classes);
  GpuVector<char> is_frame(p.batch);
  for (int64_t i = 0; i < p.batch; ++i) {
    std::copy_n(&p.logits[(i * p.frames + t) * p.classes], p.classes,
                &frame[i * p.classes]);
    is_frame[i] = t < p.lengths[i];
  }
  Beam next(p, beam.width);
  Run(&CtcBeamSearchStep<T>, device,
      CtcBeamSearchStepArgs<T>{
          p.batch, beam.width, p.classes, p.blank, frame.data(),
          reinterpret_cast<const bool*>(is_frame.data()), beam.weights.data(),
          beam.prefixes.data(), scores.data(), options.lm_weight, options.bonus,
          next.weights.data(), next.prefixes.data(), next.parents.data(),
          next.labels.data()});
  return next;
}

// Steps through all frames with the language model's scores.
template <typename T>
std::vector<Path> SearchBySteps(const Problem<T>& p, const Options& options,
                                int64_t b) {
  using Value = Accumulator<T>;
  const int64_t width = options.width, rows = p.batch * width;
  Beam beam(p, width);
  std::vector<Labels> labels(rows), next_labels(rows);
  GpuVector<Value> scores(rows * p.classes);
  for (int64_t t = 0; t < p.frames; ++t) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < p.classes; ++c) {
        scores[i * p.classes + c] = static_cast<Value>(
            options.has_lm ? LanguageModel(labels[i], c) : 0);
      }
    }
    beam = Step(ThreadedCpu(2), p, t, beam, scores, options);
    for (int64_t i = 0; i < rows; ++i) {
      const Labels& from = labels[i / width * width + beam.parents[i]];
      next_labels[i].assign(from.begin(), from.end());
      if (beam.labels[i] >= 0) next_labels[i].push_back(beam.labels[i]);
    }
    labels.swap(next_labels);
  }
  std::vector<Path> paths;
  for (int64_t i = b * width; i < (b + 1) * width; ++i) {
    const double* const w = &beam.weights[i * kCtcWeights];
    const double log_prob = PlainLogAdd(w[0], w[1]);
    if (log_prob == -kInf) break;
    paths.push_back({std::move(labels[i]), log_prob + w[2], log_prob});
  }
  return paths;
}

TFO_TEST(CtcBeamSearchStep, EqualsASearchOverMaps) {
  uint32_t seed = 40;
  for (const int64_t width : {1, 3, 20, 400}) {
    for (const bool has_lm : {false, true}) {
      const Problem<double> p(3, 12, 5, 1, 2, ++seed);
      const Options options{width, has_lm ? 0.7 : 0, 0.2, has_lm};
      for (int64_t b = 0; b < 3; ++b) {
        ExpectEqual(SearchBySteps(p, options, b), PlainSearch(p, b, options),
                    1e-12);
      }
    }
  }
}

TFO_TEST(CtcBeamSearchStep, WithoutWeightTheModelStillForbids) {
  const Problem<double> p(1, 8, 5, 0, 2, 3);
  const Options options{50, 0, 0, true};
  const auto paths = SearchBySteps(p, options, 0);
  ExpectEqual(paths, PlainSearch(p, 0, options), 1e-12);
  for (const Path& path : paths) TFO_EXPECT_EQ(path.score, path.log_prob);
}

template <typename T>
struct Greedy {
  GpuVector<int32_t> labels, lengths;
  GpuVector<Accumulator<T>> log_probs;

  explicit Greedy(const Problem<T>& p)
      : labels(p.batch * p.frames, 77),
        lengths(p.batch, 77),
        log_probs(p.batch, 77) {}
  CtcGreedyArgs<T> Args(const Problem<T>& p, bool merge) {
    return {p.Input(),     merge,          -5,
            labels.data(), lengths.data(), log_probs.data()};
  }
};

template <typename Device, typename T>
Greedy<T> Decode(const Device& device, const Problem<T>& p, bool merge) {
  Greedy<T> result(p);
  Run(&CtcGreedyDecode<T>, device, result.Args(p, merge));
  return result;
}

template <typename T>
void CheckGreedy(const Problem<T>& p, double tolerance) {
  for (const bool merge : {false, true}) {
    for (const int threads : {1, 3}) {
      const auto result = Decode(ThreadedCpu(threads), p, merge);
      for (int64_t b = 0; b < p.batch; ++b) {
        Labels labels;
        double log_prob = 0;
        int64_t before = -1;
        for (int64_t t = 0; t < p.lengths[b]; ++t) {
          int64_t best = 0;
          for (int64_t c = 1; c < p.classes; ++c) {
            if (p.Logit(b, t, c) > p.Logit(b, t, best)) best = c;
          }
          log_prob += p.LogProbs(b, t)[best];
          if (best != p.blank && !(merge && best == before))
            labels.push_back(best);
          before = best;
        }
        TFO_EXPECT_EQ(result.lengths[b], static_cast<int32_t>(labels.size()));
        ExpectNear(result.log_probs[b], log_prob, tolerance);
        labels.resize(p.frames, -5);
        TFO_EXPECT(std::equal(labels.begin(), labels.end(),
                              result.labels.begin() + b * p.frames));
      }
    }
  }
}

TFO_TEST(CtcGreedyDecode, EqualsPlainLoops) {
  for (const auto [b, t, v] : {std::array<int64_t, 3>{4, 30, 3},
                               {1, 200, 700},
                               {3, 5, 1},
                               {2, 0, 4},
                               {0, 3, 4}}) {
    CheckGreedy(Problem<float>(b, t, v, v / 2, 2, 7), 3e-7);
    CheckGreedy(Problem<double>(b, t, v, 0, 2, 8), 1e-13);
    // Rounded logits: ties.
    CheckGreedy(Problem<Half>(b, t, v, 0, 2, 9), 3e-7);
    CheckGreedy(Problem<BFloat16>(b, t, v, v - 1, 2, 10), 3e-7);
  }
}

TFO_TEST(CtcGreedyDecode, NanInfinityAndTies) {
  Problem<float> p(1, 5, 4, 1, 1, 7);
  p.At(0, 0, 0) = kNan;
  p.At(0, 0, 2) = 9;
  p.At(0, 1, 3) = kInf;
  for (int c = 0; c < 4; ++c) p.At(0, 2, c) = 0.5;
  for (int c = 0; c < 4; ++c) p.At(0, 3, c) = c % 2 ? -kInf : kNan;
  CheckGreedy(p, 1e-7);
  const auto result = Decode(ThreadedCpu(1), p, false);
  TFO_EXPECT_EQ(result.labels[1], 3);
  TFO_EXPECT_EQ(result.labels[2], 0);
  TFO_EXPECT_EQ(result.log_probs[0], -kInf);
}

// ---- A GPU, which adds up in another order: near sums, equal labels.

enum class Values { kNormal, kOdd, kEqual };

struct CudaCase {
  int64_t batch, frames, classes, width;
  double bonus = 0;
  Values values = Values::kNormal;

  template <typename T>
  Problem<T> Draw() const {
    Problem<T> p(batch, frames, classes, classes / 2, 2, 3);
    for (int64_t i = 0; i < batch * frames * classes; ++i) {
      const int64_t at = i % classes, row = i / classes;
      if (row % frames >= p.lengths[row / frames]) continue;
      Accumulator<T> x = Widen(p.logits[i]);
      if (values == Values::kEqual) x = 0;
      if (values == Values::kOdd) {
        if (at % 3 == 1) x = kNan;
        if (at % 5 == 2 && row % 2 == 0) x = -kInf;
        if (row == 2 && at == classes - 1) x = kInf;
        if (row == 3 + 2 * frames) x = at % 2 ? -kInf : kNan;
      }
      p.logits[i] = Narrow<T>(x);
    }
    return p;
  }
};

template <typename Value>
bool AreNear(const GpuVector<Value>& actual, const GpuVector<Value>& expected,
             double tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double a = actual[i], e = expected[i];
    if (a == e) continue;
    if (!(std::abs(a - e) <= tolerance * (1 + std::abs(e)))) return false;
  }
  return actual.size() == expected.size();
}
template <typename T>
constexpr double kCudaTolerance = sizeof(T) == 8 ? 1e-12 : 2e-6;

template <typename T>
void CheckCudaGreedy(const CudaCase& c, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "batch ", c.batch,
                              ", frames ", c.frames, ", classes ", c.classes);
  const auto p = c.Draw<T>();
  for (const bool merge : {false, true}) {
    const auto expected = Decode(ThreadedCpu(1), p, merge);
    const auto actual = Decode(Gpu(), p, merge);
    TFO_EXPECT(actual.labels == expected.labels);
    TFO_EXPECT(actual.lengths == expected.lengths);
    TFO_EXPECT(
        AreNear(actual.log_probs, expected.log_probs, kCudaTolerance<T>));
  }
}

template <typename T>
void CheckCudaGreedy() {
  for (const CudaCase& c : std::initializer_list<CudaCase>{
           {4, 70, 3, 0},
           {1, 33, 700, 0},
           {3, 5, 1, 0},
           {2, 0, 4, 0},
           {0, 3, 4, 0},
           {3, 9, 40, 0, 0, Values::kOdd},
           {2, 9, 40, 0, 0, Values::kEqual},
       }) {
    CheckCudaGreedy<T>(c);
  }
}
TFO_CUDA_TEST(CtcGreedyDecode, CudaFloat) { CheckCudaGreedy<float>(); }
TFO_CUDA_TEST(CtcGreedyDecode, CudaDouble) { CheckCudaGreedy<double>(); }
TFO_CUDA_TEST(CtcGreedyDecode, CudaHalf) { CheckCudaGreedy<Half>(); }
TFO_CUDA_TEST(CtcGreedyDecode, CudaBFloat16) { CheckCudaGreedy<BFloat16>(); }

template <typename T>
void CheckCudaSearch(const CudaCase& c, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "batch ", c.batch,
                              ", frames ", c.frames, ", classes ", c.classes,
                              ", width ", c.width);
  const auto p = c.Draw<T>();
  const int64_t top = std::min<int64_t>(c.width, 50);
  const auto expected = SearchAll(ThreadedCpu(1), p, c.width, top, c.bonus);
  const auto actual = SearchAll(Gpu(), p, c.width, top, c.bonus);
  TFO_EXPECT(AreNear(actual.scores, expected.scores, kCudaTolerance<T>));
  // Logits of 16 bits make sequences tie, whose order rounding decides.
  if (sizeof(T) == 2 && c.values != Values::kEqual) return;
  TFO_EXPECT(actual.labels == expected.labels);
  TFO_EXPECT(actual.lengths == expected.lengths);
  TFO_EXPECT(AreNear(actual.log_probs, expected.log_probs, kCudaTolerance<T>));
}

template <typename T>
void CheckCudaSearches() {
  for (const CudaCase& c : std::initializer_list<CudaCase>{
           {2, 12, 5, 1},
           {3, 30, 4, 6},
           {2, 12, 6, 9, 0.75},
           {2, 12, 6, 9, -0.5},
           {1, 6, 300, 25},
           {3, 7, 1, 3},
           {2, 0, 4, 3},
           {0, 4, 3, 3},
           {1, 3, 5, 2000},  // more than there are prefixes
           {2, 9, 2, 4},
           {3, 7, 12, 8, 0, Values::kOdd},
           {1, 2, 40, 12, 0, Values::kEqual},
       }) {
    CheckCudaSearch<T>(c);
  }
}
TFO_CUDA_TEST(CtcBeamSearch, CudaFloat) { CheckCudaSearches<float>(); }
TFO_CUDA_TEST(CtcBeamSearch, CudaDouble) { CheckCudaSearches<double>(); }
TFO_CUDA_TEST(CtcBeamSearch, Cuda16Bits) {
  CheckCudaSearch<Half>({2, 9, 20, 8});
  CheckCudaSearch<BFloat16>({2, 9, 20, 8});
}
// Beams, and labels of a frame, that do not fit into shared memory.
TFO_CUDA_TEST(CtcBeamSearch, CudaWideBeams) {
  CheckCudaSearch<float>({2, 5, 30, 260});
  CheckCudaSearch<double>({1, 8, 3, 400, 0.1});
  CheckCudaSearch<float>({1, 2, 2500, 2100});
}
// The best label repeats the prefix's last one, so that it extends less than
// half of the paths, and the next one wins.
TFO_CUDA_TEST(CtcBeamSearch, CudaALabelBehindARepeatedOne) {
  Problem<double> p(1, 3, 3, 1, 1, 1);
  const double probabilities[] = {.98, .01, .01, .5, .49, .01, .5, .01, .49};
  for (int i = 0; i < 9; ++i) p.logits[i] = std::log(probabilities[i]);
  const auto r = SearchAll(Gpu(), p, 1, 1);
  TFO_EXPECT_EQ(r.lengths[0], 2);
  TFO_EXPECT_EQ(r.labels[0], 0);
  TFO_EXPECT_EQ(r.labels[1], 2);
}

// Sizes whose product is above 2^63 must fail to be allocated.
TFO_CUDA_TEST(CtcBeamSearch, CudaTooManyPrefixes) {
  CtcBeamSearchArgs<Half> args = {};
  args.input.batch = int64_t{1} << 26;
  args.input.frames = 60;
  args.input.classes = 2;
  args.beam_width = std::numeric_limits<int32_t>::max();
  TFO_EXPECT(CtcDecodeScratchBytes(args) >= int64_t{1} << 60);
}

// Lengths that the CPU does not take.
TFO_CUDA_TEST(CtcDecode, CudaLengthsOutOfRange) {
  Problem<float> p(3, 6, 4, 2, 2, 3);
  p.lengths = {6, -1, 7};
  const auto greedy = Decode(Gpu(), p, true);
  const auto search = SearchAll(Gpu(), p, 5, 5);
  for (int b = 1; b < 3; ++b) {
    TFO_EXPECT_EQ(greedy.lengths[b], 0);
    TFO_EXPECT_EQ(greedy.labels[b * 6], -5);
    TFO_EXPECT(std::isnan(greedy.log_probs[b]));
    TFO_EXPECT_EQ(search.lengths[b * 5], 0);
    TFO_EXPECT_EQ(search.labels[b * 5 * 6], -5);
    TFO_EXPECT(std::isnan(search.scores[b * 5]));
    TFO_EXPECT(std::isnan(search.log_probs[b * 5]));
  }
  TFO_EXPECT(std::isfinite(greedy.log_probs[0]));
  TFO_EXPECT(std::isfinite(search.scores[0]));
}

// The last frame of the second example is none.
template <typename T>
void CheckCudaSteps(const CudaCase& c, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "batch ", c.batch,
                              ", frames ", c.frames, ", classes ", c.classes,
                              ", width ", c.width);
  const auto p = c.Draw<T>();
  Beam beam(p, c.width);
  for (int64_t t = 0; t < c.frames; ++t) {
    auto scores = testing::RandomOnGpu<Accumulator<T>>(
        c.batch * c.width * c.classes, 50 + t);
    for (size_t i = 3; i < scores.size(); i += 7) {
      scores[i] = i % 2 ? kNan : -kInf;
    }
    const Options options{c.width, 0.7, c.bonus, true};
    const Beam expected = Step(ThreadedCpu(1), p, t, beam, scores, options);
    const Beam actual = Step(Gpu(), p, t, beam, scores, options);
    TFO_EXPECT(actual.parents == expected.parents);
    TFO_EXPECT(actual.labels == expected.labels);
    TFO_EXPECT(actual.prefixes == expected.prefixes);
    TFO_EXPECT(AreNear(actual.weights, expected.weights, kCudaTolerance<T>));
    beam = expected;
  }
}
template <typename T>
void CheckCudaSteps() {
  for (const CudaCase& c : std::initializer_list<CudaCase>{
           {2, 8, 5, 1, 0.2},
           {3, 8, 6, 7, 0.2},
           {0, 1, 5, 3},
           {2, 3, 1, 4},
           {1, 2, 1400, 3},
           {3, 5, 12, 8, 0, Values::kOdd},
       }) {
    CheckCudaSteps<T>(c);
  }
}
TFO_CUDA_TEST(CtcBeamSearchStep, CudaFloat) { CheckCudaSteps<float>(); }
TFO_CUDA_TEST(CtcBeamSearchStep, CudaDouble) {
  CheckCudaSteps<double>();
  CheckCudaSteps<double>({1, 5, 6, 350});
}
TFO_CUDA_TEST(CtcBeamSearchStep, Cuda16Bits) {
  CheckCudaSteps<Half>({2, 4, 9, 6});
  CheckCudaSteps<BFloat16>({2, 4, 9, 6});
}

template <typename T>
void TimeDecoders(int64_t batch, int64_t frames, int64_t classes) {
  const Problem<T> p(testing::BenchmarkSize(batch),
                     testing::BenchmarkSize(frames),
                     testing::BenchmarkSize(classes), 0, 2, 3);
  const int64_t num_bytes = p.logits.size() * sizeof(T);
  const auto name_of = [&](const char* name) {
    return testing::Text(testing::NameOf<T>(), name, " [", p.batch, ", ",
                         p.frames, ", ", p.classes, "]");
  };
  Greedy<T> greedy(p);
  const auto args = greedy.Args(p, true);
  testing::TimeOnGpu(
      name_of("ctc_greedy_decode"), num_bytes, CtcDecodeScratchBytes(args),
      [&](const Gpu& gpu) { return CtcGreedyDecode(gpu, args); });
  SearchResults<T> results(p, 1);
  for (const int64_t width : {10, 100}) {
    const auto search = results.Args(p, testing::BenchmarkSize(width), 0);
    testing::TimeOnGpu(
        testing::Text(name_of("ctc_beam_search"), " width ", width), num_bytes,
        CtcDecodeScratchBytes(search),
        [&](const Gpu& gpu) { return CtcBeamSearch(gpu, search); });
  }
}
TFO_BENCHMARK(CtcDecode, Speech) {
  TimeDecoders<float>(32, 400, 128);
  TimeDecoders<BFloat16>(32, 400, 128);
  TimeDecoders<float>(16, 400, 5000);
}

}  // namespace
}  // namespace tfo
