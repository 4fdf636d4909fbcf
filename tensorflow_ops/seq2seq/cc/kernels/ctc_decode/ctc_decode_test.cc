// Compares the CTC decoders with sums over all paths, and with a prefix search
// that keeps label sequences in a map; and a GPU's decoders with the CPU's.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode_testing.h"

namespace tfo::testing {
namespace {

// Missing paths are empty. Labels are not compared if sequences tie, as logits
// of 16 bits make them: rounding decides their order.
void ExpectEqual(const std::vector<Path>& actual, std::vector<Path> expected,
                 double tolerance, bool has_ties = false) {
  expected.resize(actual.size());
  for (size_t k = 0; k < actual.size(); ++k) {
    TFO_EXPECT(has_ties || actual[k].labels == expected[k].labels);
    ExpectNear("score", &actual[k].score, {expected[k].score}, tolerance);
    ExpectNear("log_prob", &actual[k].log_prob, {expected[k].log_prob},
               tolerance);
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
      ExpectEqual(Search(ThreadedCpu(1), p, 2000, 150)[b], expected, 1e-13);
    }
  }
}

TFO_TEST(CtcBeamSearch, EqualsASearchOverMaps) {
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
      const Problem<double> p(3, t, v, v / 2, scale, ++seed);
      for (const double bonus : {0., 0.75, -0.5}) {
        const int64_t b = seed % 3;
        const auto expected = PlainSearch(p, b, {width, 0, bonus});
        ExpectEqual(Search(ThreadedCpu(2), p, width, width, bonus)[b], expected,
                    1e-12);
      }
    }
  }
}

template <typename T>
void CompareScores() {
  const Problem<T> p(4, 50, 20, 0, 3, 9);
  for (int64_t b = 0; b < p.batch; ++b) {
    ExpectEqual(Search(ThreadedCpu(3), p, 20, 5)[b], PlainSearch(p, b, {20}),
                3e-7, /*has_ties=*/true);
  }
}

TFO_TEST(CtcBeamSearch, OfAllDtypes) {
  CompareScores<float>();
  CompareScores<Half>();
  CompareScores<BFloat16>();
}

TFO_TEST(CtcBeamSearch, LargeScores) {
  const Problem<double> p(1, 300, 6, 0, 1e4, 4);
  ExpectEqual(Search(ThreadedCpu(1), p, 8, 8)[0], PlainSearch(p, 0, {8}),
              1e-12);
}

TFO_TEST(CtcBeamSearch, ForbiddenClassesAndImpossibleFrames) {
  Problem<double> p(3, 6, 4, 0, 1, 5);
  p.lengths = {6, 6, 6};
  p.logits = RandomOnGpu<double>(3 * 6 * 4, 6);
  for (int c = 0; c < 4; ++c) p.At(0, 3, c) = c % 2 ? -kInfinity : kNan;
  p.At(1, 0, 1) = kNan;
  p.At(1, 1, 2) = kInfinity;
  p.At(1, 2, 0) = -kInfinity;
  for (int b = 0; b < 3; ++b) {
    // In example 1 +inf counts as a finite number: other classes are possible,
    // but all equally, so that all but the best tie.
    ExpectEqual(Search(ThreadedCpu(1), p, 9, b == 1 ? 1 : 9)[b],
                PlainSearch(p, b, {9}), 1e-13);
  }
  TFO_EXPECT_EQ(Search(ThreadedCpu(1), p, 9, 9)[0][0].score, -kInfinity);
}

TFO_TEST(CtcBeamSearch, OfEqualScoresTheFirst) {
  // Equal logits: of one frame the empty prefix first, then labels in order.
  Problem<float> p(1, 1, 40, 3, 0, 1);
  const auto paths = Search(ThreadedCpu(1), p, 5, 5)[0];
  const std::vector<Labels> expected = {{}, {0}, {1}, {2}, {4}};
  for (int k = 0; k < 5; ++k) TFO_EXPECT(paths[k].labels == expected[k]);
}

TFO_TEST(CtcBeamSearch, EmptyInputs) {
  const Problem<float> none(0, 4, 3, 0, 1, 1), no_frames(2, 0, 3, 0, 1, 1);
  TFO_EXPECT(Search(ThreadedCpu(2), none, 3, 0).empty());
  const auto paths = Search(ThreadedCpu(2), no_frames, 3, 2)[1];
  TFO_EXPECT_EQ(paths[0].score, 0);
  TFO_EXPECT_EQ(paths[1].score, -kInfinity);
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
void CheckGreedy(const Problem<T>& p, double tolerance) {
  for (const bool merge : {false, true}) {
    std::vector<Path> expected;
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
      expected.push_back({std::move(labels), log_prob, log_prob});
    }
    for (const int threads : {1, 3}) {
      ExpectEqual(Decode(ThreadedCpu(threads), p, merge), expected, tolerance);
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
  p.At(0, 1, 3) = kInfinity;
  for (int c = 0; c < 4; ++c) p.At(0, 2, c) = 0.5;
  for (int c = 0; c < 4; ++c) p.At(0, 3, c) = c % 2 ? -kInfinity : kNan;
  CheckGreedy(p, 1e-7);
  const Path path = Decode(ThreadedCpu(1), p, false)[0];
  TFO_EXPECT_EQ(path.labels[1], 3);
  TFO_EXPECT_EQ(path.labels[2], 0);
  TFO_EXPECT_EQ(path.log_prob, -kInfinity);
}

// ---- A GPU, which adds up in another order: near sums, equal labels.

enum class Values { kNormal, kOdd, kEqual };

struct CudaCase {
  int64_t batch, frames, classes, width;
  double bonus = 0;
  Values values = Values::kNormal;

  template <typename T>
  Case Name(const Caller& caller) const {
    return Case(caller, NameOf<T>(), "batch ", batch, ", frames ", frames,
                ", classes ", classes, ", width ", width);
  }
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
        if (at % 5 == 2 && row % 2 == 0) x = -kInfinity;
        if (row == 2 && at == classes - 1) x = kInfinity;
        if (row == 3 + 2 * frames) x = at % 2 ? -kInfinity : kNan;
      }
      p.logits[i] = Narrow<T>(x);
    }
    return p;
  }
};

template <typename T>
constexpr double kCudaTolerance = sizeof(T) == 8 ? 1e-12 : 2e-6;

template <typename T>
void CheckCudaGreedy(const CudaCase& c, const Caller& caller = {}) {
  const Case of_test = c.Name<T>(caller);
  const auto p = c.Draw<T>();
  for (const bool merge : {false, true}) {
    ExpectEqual(Decode(Gpu(), p, merge), Decode(ThreadedCpu(1), p, merge),
                kCudaTolerance<T>);
  }
}

TFO_CUDA_TEST(CtcGreedyDecode, CudaEqualsTheCpu) {
  for (const CudaCase& c : std::initializer_list<CudaCase>{
           {4, 70, 3, 0},
           {1, 33, 700, 0},
           {3, 5, 1, 0},
           {2, 0, 4, 0},
           {0, 3, 4, 0},
           {3, 9, 40, 0, 0, Values::kOdd},
           {2, 9, 40, 0, 0, Values::kEqual},
       }) {
    ForTypes([&](auto type) { CheckCudaGreedy<decltype(type)>(c); });
  }
}

template <typename T>
void CheckCudaSearch(const CudaCase& c, const Caller& caller = {}) {
  const Case of_test = c.Name<T>(caller);
  const auto p = c.Draw<T>();
  const int64_t top = std::min<int64_t>(c.width, 50);
  const auto expected = Search(ThreadedCpu(1), p, c.width, top, c.bonus);
  const auto actual = Search(Gpu(), p, c.width, top, c.bonus);
  for (int64_t b = 0; b < c.batch; ++b) {
    ExpectEqual(actual[b], expected[b], kCudaTolerance<T>,
                sizeof(T) == 2 && c.values != Values::kEqual);
  }
}

TFO_CUDA_TEST(CtcBeamSearch, CudaEqualsTheCpu) {
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
    CheckCudaSearch<float>(c);
    CheckCudaSearch<double>(c);
  }
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
  TFO_EXPECT(Search(Gpu(), p, 1, 1)[0][0].labels == Labels({0, 2}));
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
  const auto search = Search(Gpu(), p, 5, 5);
  for (const Path& path : {greedy[0], search[0][0]}) {
    TFO_EXPECT(std::isfinite(path.score));
  }
  for (const Path& path : {greedy[1], greedy[2], search[1][0], search[2][0]}) {
    TFO_EXPECT(path.labels.empty());
    TFO_EXPECT(std::isnan(path.score));
    TFO_EXPECT(std::isnan(path.log_prob));
  }
}

// The last frame of the second example is none.
template <typename T>
void CheckCudaSteps(const CudaCase& c, const Caller& caller = {}) {
  const Case of_test = c.Name<T>(caller);
  const auto p = c.Draw<T>();
  Beam beam = FirstBeam(p, c.width);
  for (int64_t t = 0; t < c.frames; ++t) {
    auto scores =
        RandomOnGpu<Accumulator<T>>(c.batch * c.width * c.classes, 50 + t);
    for (size_t i = 3; i < scores.size(); i += 7) {
      scores[i] = i % 2 ? kNan : -kInfinity;
    }
    const Options options{c.width, 0.7, c.bonus, true};
    const Beam expected = Step(ThreadedCpu(1), p, t, beam, scores, options);
    const Beam actual = Step(Gpu(), p, t, beam, scores, options);
    TFO_EXPECT(actual.parents == expected.parents);
    TFO_EXPECT(actual.labels == expected.labels);
    TFO_EXPECT(actual.prefixes == expected.prefixes);
    ExpectNear("weights", actual.weights.data(), Widened(expected.weights),
               kCudaTolerance<T>);
    beam = expected;
  }
}
TFO_CUDA_TEST(CtcBeamSearchStep, CudaEqualsTheCpu) {
  for (const CudaCase& c : std::initializer_list<CudaCase>{
           {2, 8, 5, 1, 0.2},
           {3, 8, 6, 7, 0.2},
           {0, 1, 5, 3},
           {2, 3, 1, 4},
           {1, 2, 1400, 3},
           {3, 5, 12, 8, 0, Values::kOdd},
       }) {
    CheckCudaSteps<float>(c);
    CheckCudaSteps<double>(c);
  }
  CheckCudaSteps<double>({1, 5, 6, 350});
  CheckCudaSteps<Half>({2, 4, 9, 6});
  CheckCudaSteps<BFloat16>({2, 4, 9, 6});
}

template <typename T>
void TimeDecoders(int64_t batch, int64_t frames, int64_t classes) {
  const Problem<T> p(BenchmarkSize(batch), BenchmarkSize(frames),
                     BenchmarkSize(classes), 0, 2, 3);
  const int64_t num_bytes = p.logits.size() * sizeof(T);
  const auto name_of = [&](const char* name) {
    return Text(NameOf<T>(), name, " [", p.batch, ", ", p.frames, ", ",
                p.classes, "]");
  };
  Tensors tensors = p.ToTensors(1, 1);
  auto greedy = Bound<CtcGreedyArgs<T>>(&tensors);
  greedy.merge_repeated = true;
  TimeOnGpu(name_of("ctc_greedy_decode"), num_bytes,
            CtcDecodeScratchBytes(greedy),
            [&](const Gpu& gpu) { return CtcGreedyDecode(gpu, greedy); });
  auto search = Bound<CtcBeamSearchArgs<T>>(&tensors);
  for (const int64_t width : {10, 100}) {
    search.beam_width = BenchmarkSize(width);
    TimeOnGpu(Text(name_of("ctc_beam_search"), " width ", width), num_bytes,
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
}  // namespace tfo::testing
