// Compares the CUDA kernels of the beam search step with the CPU's.
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step_gpu.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tensorflow_ops/core/cc/gpu_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::ToGpu;

struct Case {
  int64_t batch, beams, vocabulary, width;
  double length_penalty = 0;
  EosRule rule = EosRule::kAny;
  int num_eos = 1;
  bool forbids = false;
};

template <typename Value>
struct Results {
  GpuVector<Value> log_probs;
  GpuVector<int32_t> tokens, parents, lengths;
  GpuVector<char> finished;

  explicit Results(int64_t n)
      : log_probs(n, 9),
        tokens(n, -9),
        parents(n, -9),
        lengths(n, -9),
        finished(n, 7) {}
  template <typename T>
  void Take(BeamSearchStepArgs<T>* args) {
    args->next_log_probs = log_probs.data();
    args->token_ids = tokens.data();
    args->parent_ids = parents.data();
    args->next_lengths = lengths.data();
    args->next_finished = reinterpret_cast<bool*>(finished.data());
  }
};

template <typename T>
void Check(const Case& c) {
  using Value = Accumulator<T>;
  const int64_t rows = c.batch * c.beams, n = rows * c.vocabulary;
  auto logits = ToGpu(testing::RandomValues<T>(n, 3));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = i / c.vocabulary, token = i % c.vocabulary;
    Value x = Widen(logits[i]);
    if (row % 7 == 2) x = std::round(2 * x) / 2;  // ties
    if (row % 7 == 3 && token % 5 == 1) x = -INFINITY;
    if (row % 7 == 4 && token % 11 == 3) x = NAN;
    if (row % 7 == 5 && token == c.vocabulary / 2) x = INFINITY;
    if (row % 7 == 6) x = -INFINITY;
    logits[i] = Narrow<T>(x);
  }
  auto log_probs = ToGpu(testing::RandomValues<Value>(rows, 5));
  GpuVector<char> finished(rows), forbidden(n);
  GpuVector<int32_t> lengths(rows);
  for (int64_t row = 0; row < rows; ++row) {
    if (row % 11 == 7) log_probs[row] = -INFINITY;
    if (row % 11 == 8) log_probs[row] = NAN;
    finished[row] = row % 4 == 3;
    lengths[row] = row * 5 % 17;
  }
  for (int64_t i = 0; i < n; ++i) forbidden[i] = i % 3 == 1;
  const int32_t last = static_cast<int32_t>(c.vocabulary - 1);
  const GpuVector<int32_t> eos_ids = {last, last / 2};

  BeamSearchStepArgs<T> args{};
  args.batch = c.batch;
  args.beams = c.beams;
  args.vocabulary = c.vocabulary;
  args.beam_width = c.width;
  args.length_penalty = c.length_penalty;
  args.tokens = {c.rule, c.num_eos, eos_ids.data()};
  args.logits = logits.data();
  args.log_probs = log_probs.data();
  args.finished = reinterpret_cast<const bool*>(finished.data());
  args.lengths = lengths.data();
  if (c.forbids)
    args.forbidden = reinterpret_cast<const bool*>(forbidden.data());
  Results<Value> expected(c.batch * c.width), actual(c.batch * c.width);
  expected.Take(&args);
  BeamSearchStep(testing::ThreadedCpu(1), args);
  actual.Take(&args);
  // All NaN, followed by a guard.
  const int64_t bytes = BeamScratchLayout<T>(args).Bytes();
  GpuVector<Value> scratch(bytes / sizeof(Value) + 2, NAN);
  std::memset(scratch.data(), 0xFF, bytes);
  const auto guard = reinterpret_cast<char*>(scratch.data()) + bytes;
  *guard = 0x5A;
  TFO_EXPECT_RUNS(BeamSearchStep(Gpu{nullptr, scratch.data()}, args));
  TFO_EXPECT_EQ(*guard, 0x5A);
  for (int64_t i = 0; i < c.batch * c.width; ++i) {
    const double a = actual.log_probs[i], e = expected.log_probs[i];
    const double tolerance = sizeof(Value) == 8 ? 1e-14 : 2e-6;
    const bool near =
        a == e || std::abs(a - e) <= tolerance * (1 + std::abs(e));
    if (near && actual.tokens[i] == expected.tokens[i] &&
        actual.parents[i] == expected.parents[i] &&
        actual.lengths[i] == expected.lengths[i] &&
        actual.finished[i] == expected.finished[i]) {
      continue;
    }
    std::ostringstream message;
    message << "[" << c.batch << ", " << c.beams << ", " << c.vocabulary
            << "] of " << sizeof(T) << " bytes, entry " << i / c.width
            << ", place " << i % c.width << ": " << a << " of "
            << actual.parents[i] << ", " << actual.tokens[i] << ", expected "
            << e << " of " << expected.parents[i] << ", " << expected.tokens[i];
    testing::Fail(__FILE__, __LINE__, message.str());
    return;
  }
}

template <typename T>
void CheckAll() {
  for (const Case& c : std::initializer_list<Case>{
           {0, 3, 5, 2},
           {1, 1, 1, 3},
           {3, 2, 5, 4, 0.6},
           {2, 7, 33, 7, 1.0, EosRule::kAny, 2},
           {2, 4, 300, 9, -0.5, EosRule::kNone, 2},
           {2, 4, 300, 9, 1.0, EosRule::kOnly, 2},
           {1, 8, 300, 5, 0.0, EosRule::kAny, 0, true},
           {1, 3, 40, 200, 0.0, EosRule::kAny, 1},
           {2, 3, 4096, 6},
           {1, 9, 9001, 40, 1.0},
           {1, 2, 40000, 4, 1.0, EosRule::kNone, 1, true},
       }) {
    Check<T>(c);
  }
}
TFO_CUDA_TEST(BeamSearchStepGpu, Float) { CheckAll<float>(); }
TFO_CUDA_TEST(BeamSearchStepGpu, Double) { CheckAll<double>(); }
TFO_CUDA_TEST(BeamSearchStepGpu, Half) { CheckAll<Half>(); }
TFO_CUDA_TEST(BeamSearchStepGpu, BFloat16) { CheckAll<BFloat16>(); }

// End tokens outside the vocabulary are ignored.
TFO_CUDA_TEST(BeamSearchStepGpu, EndTokensOutsideTheVocabulary) {
  const GpuVector<float> logits(2 * 3), log_probs(2);
  const GpuVector<char> finished = {true, false};
  const GpuVector<int32_t> lengths = {2, 2};
  for (const int32_t eos : {7, -1}) {
    const GpuVector<int32_t> eos_ids = {eos};
    BeamSearchStepArgs<float> args{};
    args.batch = 1;
    args.beams = 2;
    args.vocabulary = 3;
    args.beam_width = 4;
    args.tokens = {EosRule::kAny, 1, eos_ids.data()};
    args.logits = logits.data();
    args.log_probs = log_probs.data();
    args.finished = reinterpret_cast<const bool*>(finished.data());
    args.lengths = lengths.data();
    Results<float> results(4);
    results.Take(&args);
    GpuVector<float> scratch(99);
    TFO_EXPECT_RUNS(BeamSearchStep(Gpu{nullptr, scratch.data()}, args));
    TFO_EXPECT_EQ(results.tokens[0], eos);
    TFO_EXPECT_EQ(results.parents[0], 0);
    TFO_EXPECT_EQ(results.tokens[1], 0);
    TFO_EXPECT_EQ(results.parents[1], 1);
    TFO_EXPECT(!results.finished[1]);
  }
}

template <typename T>
void TimeStep(int64_t batch, int64_t beams, int64_t vocabulary) {
  batch = testing::BenchmarkSize(batch);
  vocabulary = testing::BenchmarkSize(vocabulary);
  const auto logits = testing::RandomOnGpu<T>(batch * beams * vocabulary, 3);
  const GpuVector<Accumulator<T>> log_probs(batch * beams, -3);
  const GpuVector<char> finished(batch * beams);
  const GpuVector<int32_t> lengths(batch * beams, 1);
  BeamSearchStepArgs<T> args{};
  args.batch = batch;
  args.beams = args.beam_width = beams;
  args.vocabulary = vocabulary;
  args.logits = logits.data();
  args.log_probs = log_probs.data();
  args.finished = reinterpret_cast<const bool*>(finished.data());
  args.lengths = lengths.data();
  Results<Accumulator<T>> results(batch * beams);
  results.Take(&args);
  testing::TimeOnGpu(testing::Text(testing::NameOf<T>(), "beam_search_step [",
                                   batch, ", ", beams, ", ", vocabulary, "]"),
                     logits.size() * sizeof(T),
                     BeamScratchLayout<T>(args).Bytes(),
                     [&](const Gpu& gpu) { return BeamSearchStep(gpu, args); });
}
TFO_BENCHMARK(BeamSearchStepGpu, Vocabularies) {
  TimeStep<float>(64, 5, 32000);
  TimeStep<BFloat16>(64, 5, 32000);
  TimeStep<float>(8, 5, 32000);
  TimeStep<float>(16, 4, 128000);
}

}  // namespace
}  // namespace tfo
