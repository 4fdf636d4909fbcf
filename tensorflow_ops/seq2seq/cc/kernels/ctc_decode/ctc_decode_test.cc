// Compares the CTC decoders with sums over all paths, and with a prefix search
// that keeps label sequences in a map.
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"

namespace tfo {
namespace {

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
  std::vector<T> logits;
  std::vector<int32_t> lengths;

  Problem(int64_t b, int64_t t, int64_t v, int64_t blank_index, double scale,
          uint32_t seed)
      : batch(b),
        frames(t),
        classes(v),
        blank(blank_index),
        logits(RandomValues<T>(b * t * v, seed)) {
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

struct Path {
  Labels labels;
  double score, log_prob;
};

// Results of example b, without padding, which is checked.
template <typename T>
std::vector<Path> Search(const Problem<T>& p, const Cpu& cpu, int64_t width,
                         int64_t top, int64_t b, double bonus = 0) {
  using Value = Accumulator<T>;
  Labels labels(p.batch * top * p.frames, 77), lengths(p.batch * top, 77);
  std::vector<Value> scores(p.batch * top, 77), log_probs(p.batch * top, 77);
  CtcBeamSearch(cpu, CtcBeamSearchArgs<T>{p.Input(), width, top, bonus, -5,
                                          labels.data(), lengths.data(),
                                          scores.data(), log_probs.data()});
  std::vector<Path> paths;
  for (int64_t i = b * top; i < (b + 1) * top; ++i) {
    const auto first = labels.begin() + i * p.frames;
    paths.push_back(
        {Labels(first, first + lengths[i]), scores[i], log_probs[i]});
    for (int64_t t = lengths[i]; t < p.frames; ++t) TFO_EXPECT_EQ(first[t], -5);
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
  p.logits = RandomValues<double>(3 * 6 * 4, 6);
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

// Steps through all frames with the language model's scores.
template <typename T>
std::vector<Path> SearchBySteps(const Problem<T>& p, const Options& options,
                                int64_t b) {
  using Value = Accumulator<T>;
  const int64_t width = options.width, rows = p.batch * width;
  std::vector<double> weights(rows * kCtcWeights), next_weights(weights.size());
  std::vector<int64_t> prefixes(rows * kCtcPrefixIds),
      next_prefixes(prefixes.size());
  std::vector<Labels> labels(rows), next_labels(rows);
  for (int64_t i = 0; i < rows; ++i) {
    weights[i * kCtcWeights] = i % width ? -kInf : 0;
    weights[i * kCtcWeights + 1] = -kInf;
    prefixes[i * kCtcPrefixIds] = -1;
  }
  std::vector<Value> scores(rows * p.classes);
  std::vector<T> frame(p.batch * p.classes);
  std::vector<int32_t> parents(rows), added(rows);
  for (int64_t t = 0; t < p.frames; ++t) {
    const std::vector<char> is_frame = [&] {
      std::vector<char> result;
      for (const int32_t length : p.lengths) result.push_back(t < length);
      return result;
    }();
    for (int64_t i = 0; i < p.batch; ++i) {
      std::copy_n(&p.logits[(i * p.frames + t) * p.classes], p.classes,
                  &frame[i * p.classes]);
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < p.classes; ++c) {
        scores[i * p.classes + c] = static_cast<Value>(
            options.has_lm ? LanguageModel(labels[i], c) : 0);
      }
    }
    CtcBeamSearchStep(ThreadedCpu(2),
                      CtcBeamSearchStepArgs<T>{
                          p.batch, width, p.classes, p.blank, frame.data(),
                          reinterpret_cast<const bool*>(is_frame.data()),
                          weights.data(), prefixes.data(), scores.data(),
                          options.lm_weight, options.bonus, next_weights.data(),
                          next_prefixes.data(), parents.data(), added.data()});
    for (int64_t i = 0; i < rows; ++i) {
      const Labels& from = labels[i / width * width + parents[i]];
      next_labels[i].assign(from.begin(), from.end());
      if (added[i] >= 0) next_labels[i].push_back(added[i]);
    }
    labels.swap(next_labels);
    weights.swap(next_weights);
    prefixes.swap(next_prefixes);
  }
  std::vector<Path> paths;
  for (int64_t i = b * width; i < (b + 1) * width; ++i) {
    const double* const w = &weights[i * kCtcWeights];
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

struct Greedy {
  Labels labels, lengths;
  std::vector<double> log_probs;
};

template <typename T>
Greedy Decode(const Problem<T>& p, const Cpu& cpu, bool merge) {
  Greedy result{Labels(p.batch * p.frames, 77), Labels(p.batch, 77), {}};
  std::vector<Accumulator<T>> log_probs(p.batch, 77);
  CtcGreedyDecode(cpu,
                  CtcGreedyArgs<T>{p.Input(), merge, -5, result.labels.data(),
                                   result.lengths.data(), log_probs.data()});
  for (const auto one : log_probs) result.log_probs.push_back(one);
  return result;
}

template <typename T>
void CheckGreedy(const Problem<T>& p, double tolerance) {
  for (const bool merge : {false, true}) {
    for (const int threads : {1, 3}) {
      const Greedy result = Decode(p, ThreadedCpu(threads), merge);
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
  const Greedy result = Decode(p, ThreadedCpu(1), false);
  TFO_EXPECT_EQ(result.labels[1], 3);
  TFO_EXPECT_EQ(result.labels[2], 0);
  TFO_EXPECT_EQ(result.log_probs[0], -kInf);
}

}  // namespace
}  // namespace tfo
