// Compares the CUDA kernels of the CTC decoders with the CPU's.
#include <cmath>
#include <cstring>
#include <limits>

#include "tensorflow_ops/core/cc/gpu_testing.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::ToGpu;

enum class Values { kNormal, kOdd, kEqual };

struct Case {
  int64_t batch, frames, classes, width;
  double bonus = 0;
  Values values = Values::kNormal;
};

// A batch of logits.
template <typename T>
struct Problem {
  using Value = Accumulator<T>;
  int64_t batch, frames, classes, blank;
  GpuVector<T> logits;
  GpuVector<int64_t> lengths;

  explicit Problem(const Case& c)
      : batch(c.batch),
        frames(c.frames),
        classes(c.classes),
        blank(c.classes / 2),
        logits(ToGpu(
            testing::RandomValues<T>(c.batch * c.frames * c.classes, 3))) {
    for (int64_t b = 0; b < batch; ++b) {
      lengths.push_back(b % 3 == 1 ? frames / 2 : frames);
    }
    for (int64_t i = 0; i < batch * frames * classes; ++i) {
      const int64_t at = i % classes, row = i / classes;
      Value x = 2 * Widen(logits[i]);
      if (c.values == Values::kEqual) x = 0;
      if (c.values == Values::kOdd) {
        if (at % 3 == 1) x = NAN;
        if (at % 5 == 2 && row % 2 == 0) x = -INFINITY;
        if (row == 2 && at == classes - 1) x = INFINITY;
        if (row == 3 + 2 * frames) x = at % 2 ? -INFINITY : NAN;
      }
      if (row % frames >= lengths[row / frames]) x = NAN;
      logits[i] = Narrow<T>(x);
    }
  }
  CtcLogits<T> Input() const {
    return {batch, frames, classes, blank, logits.data(), lengths.data()};
  }
};

// Runs `algorithm` with scratch memory full of NaN.
template <typename Args>
void RunOnGpu(Error (*algorithm)(const Gpu&, const Args&), const Args& args) {
  const int64_t bytes = CtcDecodeScratchBytes(args);
  GpuVector<char> scratch(bytes + 1, '\xFF');
  scratch[bytes] = 0x5A;
  TFO_EXPECT_RUNS(algorithm(Gpu{nullptr, scratch.data()}, args));
  TFO_EXPECT_EQ(scratch[bytes], 0x5A);
}

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
constexpr double kTolerance = sizeof(T) == 8 ? 1e-12 : 2e-6;

// ---- Greedy.

template <typename T>
struct GreedyResults {
  GpuVector<int32_t> labels, lengths;
  GpuVector<Accumulator<T>> log_probs;

  explicit GreedyResults(const Case& c)
      : labels(c.batch * c.frames, 77),
        lengths(c.batch, 77),
        log_probs(c.batch) {}
  CtcGreedyArgs<T> Args(const Problem<T>& p, bool merge) {
    return {p.Input(),     merge,          -5,
            labels.data(), lengths.data(), log_probs.data()};
  }
};

template <typename T>
void CheckGreedy(const Case& c, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "batch ", c.batch,
                              ", frames ", c.frames, ", classes ", c.classes,
                              ", width ", c.width);
  const Problem<T> p(c);
  for (const bool merge : {false, true}) {
    GreedyResults<T> expected(c), actual(c);
    CtcGreedyDecode(testing::ThreadedCpu(1), expected.Args(p, merge));
    RunOnGpu(&CtcGreedyDecode<T>, actual.Args(p, merge));
    if (actual.labels != expected.labels ||
        actual.lengths != expected.lengths) {
      testing::Fail(__FILE__, __LINE__, "labels");
    }
    if (!AreNear(actual.log_probs, expected.log_probs, kTolerance<T>)) {
      testing::Fail(__FILE__, __LINE__, "log_probs");
    }
  }
}

template <typename T>
void CheckAllGreedy() {
  for (const Case& c : std::initializer_list<Case>{
           {4, 70, 3, 0},
           {1, 33, 700, 0},
           {3, 5, 1, 0},
           {2, 0, 4, 0},
           {0, 3, 4, 0},
           {3, 9, 40, 0, 0, Values::kOdd},
           {2, 9, 40, 0, 0, Values::kEqual},
       }) {
    CheckGreedy<T>(c);
  }
}
TFO_CUDA_TEST(CtcGreedyDecodeGpu, Float) { CheckAllGreedy<float>(); }
TFO_CUDA_TEST(CtcGreedyDecodeGpu, Double) { CheckAllGreedy<double>(); }
TFO_CUDA_TEST(CtcGreedyDecodeGpu, Half) { CheckAllGreedy<Half>(); }
TFO_CUDA_TEST(CtcGreedyDecodeGpu, BFloat16) { CheckAllGreedy<BFloat16>(); }

// ---- Beam search.

template <typename T>
struct SearchResults {
  int64_t paths;
  GpuVector<int32_t> labels, lengths;
  GpuVector<Accumulator<T>> scores, log_probs;

  explicit SearchResults(const Case& c)
      : paths(std::min<int64_t>(c.width, 50)),
        labels(c.batch * paths * c.frames, 77),
        lengths(c.batch * paths, 77),
        scores(c.batch * paths),
        log_probs(c.batch * paths) {}
  CtcBeamSearchArgs<T> Args(const Problem<T>& p, const Case& c) {
    return {p.Input(),     c.width,        paths,         c.bonus,         -5,
            labels.data(), lengths.data(), scores.data(), log_probs.data()};
  }
};

template <typename T>
void CheckSearch(const Case& c, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "batch ", c.batch,
                              ", frames ", c.frames, ", classes ", c.classes,
                              ", width ", c.width);
  const Problem<T> p(c);
  SearchResults<T> expected(c), actual(c);
  CtcBeamSearch(testing::ThreadedCpu(1), expected.Args(p, c));
  RunOnGpu(&CtcBeamSearch<T>, actual.Args(p, c));
  // Logits of 16 bits make sequences tie, whose order rounding decides.
  const bool compares_labels = sizeof(T) > 2 || c.values == Values::kEqual;
  if (compares_labels && (actual.labels != expected.labels ||
                          actual.lengths != expected.lengths)) {
    testing::Fail(__FILE__, __LINE__, "labels");
  }
  if (!AreNear(actual.scores, expected.scores, kTolerance<T>)) {
    testing::Fail(__FILE__, __LINE__, "scores");
  }
  if (!AreNear(actual.log_probs, expected.log_probs, kTolerance<T>) &&
      compares_labels) {
    testing::Fail(__FILE__, __LINE__, "log_probs");
  }
}

template <typename T>
void CheckSearches() {
  for (const Case& c : std::initializer_list<Case>{
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
    CheckSearch<T>(c);
  }
}
TFO_CUDA_TEST(CtcBeamSearchGpu, Float) { CheckSearches<float>(); }
TFO_CUDA_TEST(CtcBeamSearchGpu, Double) { CheckSearches<double>(); }
TFO_CUDA_TEST(CtcBeamSearchGpu, Half) { CheckSearch<Half>({2, 9, 20, 8}); }
TFO_CUDA_TEST(CtcBeamSearchGpu, BFloat16) {
  CheckSearch<BFloat16>({2, 9, 20, 8});
}
// The best label repeats the prefix's last one, so that it extends less than
// half of the paths, and the next one wins.
TFO_CUDA_TEST(CtcBeamSearchGpu, ALabelBehindARepeatedOne) {
  const Case c = {1, 3, 3, 1};
  Problem<double> p(c);  // blank is class 1
  const double probabilities[] = {.98, .01, .01, .5, .49, .01, .5, .01, .49};
  for (int i = 0; i < 9; ++i) p.logits[i] = std::log(probabilities[i]);
  SearchResults<double> results(c);
  RunOnGpu(&CtcBeamSearch<double>, results.Args(p, c));
  TFO_EXPECT_EQ(results.lengths[0], 2);
  TFO_EXPECT_EQ(results.labels[0], 0);
  TFO_EXPECT_EQ(results.labels[1], 2);
}

// Beams, and labels of a frame, that do not fit into shared memory.
TFO_CUDA_TEST(CtcBeamSearchGpu, WideBeams) {
  CheckSearch<float>({2, 5, 30, 260});
  CheckSearch<double>({1, 8, 3, 400, 0.1});
  CheckSearch<float>({1, 2, 2500, 2100});
}

// Sizes whose product is above 2^63 must fail to be allocated.
TFO_CUDA_TEST(CtcBeamSearchGpu, TooManyPrefixes) {
  CtcBeamSearchArgs<Half> args = {};
  args.input.batch = int64_t{1} << 26;
  args.input.frames = 60;
  args.input.classes = 2;
  args.beam_width = std::numeric_limits<int32_t>::max();
  TFO_EXPECT(CtcDecodeScratchBytes(args) >= int64_t{1} << 60);
}

// Lengths that the CPU does not take.
TFO_CUDA_TEST(CtcDecodeGpu, LengthsOutOfRange) {
  const Case c = {3, 6, 4, 5};
  Problem<float> p(c);
  p.lengths = {6, -1, 7};
  GreedyResults<float> greedy(c);
  RunOnGpu(&CtcGreedyDecode<float>, greedy.Args(p, true));
  SearchResults<float> search(c);
  RunOnGpu(&CtcBeamSearch<float>, search.Args(p, c));
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

// ---- Steps.

struct Beam {
  GpuVector<double> weights;
  GpuVector<int64_t> prefixes;
  GpuVector<int32_t> parents, labels;

  explicit Beam(int64_t rows)
      : weights(rows * kCtcWeights, 9),
        prefixes(rows * kCtcPrefixIds, 77),
        parents(rows, 77),
        labels(rows, 77) {}
};

// The last frame of the last example is none.
template <typename T>
void CheckSteps(const Case& c, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "batch ", c.batch,
                              ", frames ", c.frames, ", classes ", c.classes,
                              ", width ", c.width);
  using Value = Accumulator<T>;
  const Problem<T> p(c);
  const int64_t rows = c.batch * c.width;
  Beam beam(rows);
  for (int64_t i = 0; i < rows; ++i) {
    const bool is_first = i % c.width == 0;
    beam.weights[i * kCtcWeights] = is_first ? 0 : -INFINITY;
    beam.weights[i * kCtcWeights + 1] = -INFINITY;
    beam.weights[i * kCtcWeights + 2] = 0;
    for (int64_t j = 0; j < kCtcPrefixIds; ++j) {
      beam.prefixes[i * kCtcPrefixIds + j] = j == 0 ? -1 : 0;
    }
  }
  for (int64_t t = 0; t < c.frames; ++t) {
    auto scores = ToGpu(testing::RandomValues<Value>(rows * c.classes, 50 + t));
    for (int64_t i = 0; i < rows * c.classes; ++i) {
      if (i % 7 == 3) scores[i] = i % 2 ? NAN : -INFINITY;
    }
    GpuVector<T> logits(c.batch * c.classes);
    GpuVector<char> is_frame(c.batch, true);
    for (int64_t b = 0; b < c.batch; ++b) {
      std::copy_n(&p.logits[(b * c.frames + t) * c.classes], c.classes,
                  &logits[b * c.classes]);
      is_frame[b] = t < p.lengths[b];
    }
    Beam expected(rows), actual(rows);
    const auto args_of = [&](Beam& next) {
      return CtcBeamSearchStepArgs<T>{
          c.batch,
          c.width,
          c.classes,
          p.blank,
          logits.data(),
          reinterpret_cast<const bool*>(is_frame.data()),
          beam.weights.data(),
          beam.prefixes.data(),
          scores.data(),
          0.7,
          c.bonus,
          next.weights.data(),
          next.prefixes.data(),
          next.parents.data(),
          next.labels.data()};
    };
    CtcBeamSearchStep(testing::ThreadedCpu(1), args_of(expected));
    RunOnGpu(&CtcBeamSearchStep<T>, args_of(actual));
    if (actual.parents != expected.parents ||
        actual.labels != expected.labels ||
        actual.prefixes != expected.prefixes) {
      testing::Fail(__FILE__, __LINE__, "prefixes of a step");
    }
    if (!AreNear(actual.weights, expected.weights, kTolerance<T>)) {
      testing::Fail(__FILE__, __LINE__, "weights of a step");
    }
    beam.weights.swap(expected.weights);
    beam.prefixes.swap(expected.prefixes);
  }
}
template <typename T>
void CheckAllSteps() {
  for (const Case& c : std::initializer_list<Case>{
           {2, 8, 5, 1, 0.2},
           {3, 8, 6, 7, 0.2},
           {0, 1, 5, 3},
           {2, 3, 1, 4},
           {1, 2, 1400, 3},
           {3, 5, 12, 8, 0, Values::kOdd},
       }) {
    CheckSteps<T>(c);
  }
}
TFO_CUDA_TEST(CtcBeamSearchStepGpu, Float) { CheckAllSteps<float>(); }
TFO_CUDA_TEST(CtcBeamSearchStepGpu, Double) { CheckAllSteps<double>(); }
TFO_CUDA_TEST(CtcBeamSearchStepGpu, Half) { CheckSteps<Half>({2, 4, 9, 6}); }
TFO_CUDA_TEST(CtcBeamSearchStepGpu, BFloat16) {
  CheckSteps<BFloat16>({2, 4, 9, 6});
}
TFO_CUDA_TEST(CtcBeamSearchStepGpu, AWideBeam) {
  CheckSteps<double>({1, 5, 6, 350});
}

template <typename T>
void TimeDecoders(int64_t batch, int64_t frames, int64_t classes) {
  const Case c = {testing::BenchmarkSize(batch), testing::BenchmarkSize(frames),
                  testing::BenchmarkSize(classes), 0};
  const Problem<T> p(c);
  const int64_t num_bytes = p.logits.size() * sizeof(T);
  const auto name_of = [&](const char* name) {
    return testing::Text(testing::NameOf<T>(), name, " [", c.batch, ", ",
                         c.frames, ", ", c.classes, "]");
  };
  GreedyResults<T> greedy(c);
  const auto args = greedy.Args(p, true);
  testing::TimeOnGpu(
      name_of("ctc_greedy_decode"), num_bytes, CtcDecodeScratchBytes(args),
      [&](const Gpu& gpu) { return CtcGreedyDecode(gpu, args); });
  GpuVector<Accumulator<T>> scores(c.batch);
  for (const int64_t width : {10, 100}) {
    const CtcBeamSearchArgs<T> search = {p.Input(),
                                         testing::BenchmarkSize(width),
                                         1,
                                         0,
                                         -1,
                                         greedy.labels.data(),
                                         greedy.lengths.data(),
                                         scores.data(),
                                         greedy.log_probs.data()};
    testing::TimeOnGpu(
        testing::Text(name_of("ctc_beam_search"), " width ", width), num_bytes,
        CtcDecodeScratchBytes(search),
        [&](const Gpu& gpu) { return CtcBeamSearch(gpu, search); });
  }
}
TFO_BENCHMARK(CtcDecodeGpu, Speech) {
  TimeDecoders<float>(32, 400, 128);
  TimeDecoders<BFloat16>(32, 400, 128);
  TimeDecoders<float>(16, 400, 5000);
}

}  // namespace
}  // namespace tfo
