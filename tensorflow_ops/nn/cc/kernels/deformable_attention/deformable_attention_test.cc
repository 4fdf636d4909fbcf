// Deformable attention and its gradients against loops in double.
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/gpu_testing.h"
#include "tensorflow_ops/core/cc/testing.h"

namespace tfo {
namespace {

using testing::ExpectClose;
using testing::GpuVector;
using testing::HaveSameBits;
using testing::RandomValues;
using testing::ThreadedCpu;

template <typename T>
struct Problem {
  using C = Accumulator<T>;
  AttentionShape args;
  GpuVector<T> values, d_output;
  GpuVector<C> locations, weights;

  int64_t Rows() const { return args.batch * args.queries * args.heads; }
  AttentionInputs<T> Inputs() const {
    return {args, values.data(), locations.data(), weights.data()};
  }
};

struct Result {
  std::vector<double> output, d_values, d_locations, d_weights;
};

template <typename T>
Problem<T> MakeProblem(int64_t batch, int64_t heads, int64_t channels,
                       int64_t queries,
                       const std::vector<std::vector<int64_t>>& levels) {
  using C = Accumulator<T>;
  Problem<T> problem;
  AttentionShape& args = problem.args;
  args = {batch, 0, heads, channels, queries, 0, 0, {}};
  for (const auto& level : levels) {
    args.levels[args.num_levels++] = {level[0], level[1], args.pixels,
                                      level[2]};
    args.pixels += level[0] * level[1];
    args.points += level[2];
  }
  const int64_t points = problem.Rows() * args.points;
  problem.values = testing::ToGpu(
      RandomValues<T>(batch * args.pixels * heads * channels, 1));
  problem.d_output =
      testing::ToGpu(RandomValues<T>(problem.Rows() * channels, 2));
  problem.weights = testing::ToGpu(RandomValues<C>(points, 3));
  problem.locations = testing::ToGpu(RandomValues<C>(2 * points, 4));
  // Gradients below 1 are compared absolutely.
  for (T& d : problem.d_output) d = Narrow<T>(Widen(d) / 16);
  // Around the middle, some outside. Some on whole and half pixels.
  for (size_t i = 0; i < problem.locations.size(); ++i) {
    C& location = problem.locations[i];
    location = C(0.5) + location / C(3);
    if (i % 5 == 0) location = std::round(location * 16) / 16;
  }
  return problem;
}

// The definition.
template <typename T>
Result Reference(const Problem<T>& problem) {
  using C = Accumulator<T>;
  const AttentionShape& args = problem.args;
  Result result;
  result.output.assign(problem.d_output.size(), 0);
  result.d_values.assign(problem.values.size(), 0);
  result.d_locations.assign(problem.locations.size(), 0);
  result.d_weights.assign(problem.weights.size(), 0);
  for (int64_t row = 0; row < problem.Rows(); ++row) {
    const int64_t image = row / args.heads / args.queries;
    int64_t point = row * args.points;
    for (int l = 0; l < args.num_levels; ++l) {
      const AttentionLevel& level = args.levels[l];
      for (int64_t p = 0; p < level.points; ++p, ++point) {
        // Places are computed in C.
        const double x = problem.locations[2 * point] * C(level.width) - C(0.5);
        const double y =
            problem.locations[2 * point + 1] * C(level.height) - C(0.5);
        const double weight = problem.weights[point];
        const bool is_nan = std::isnan(x) || std::isnan(y);
        if (!is_nan && !(std::abs(x) < 1e6 && std::abs(y) < 1e6)) continue;
        for (int corner = 0; corner < 4; ++corner) {
          const double cell_y = std::floor(y), cell_x = std::floor(x);
          const double at_y = cell_y + corner / 2, at_x = cell_x + corner % 2;
          const bool inside = at_y >= 0 && at_y < level.height && at_x >= 0 &&
                              at_x < level.width;
          if (!inside && !is_nan) continue;
          const double fy = 1 - std::abs(y - at_y), fx = 1 - std::abs(x - at_x);
          const int64_t pixel =
              is_nan ? 0
                     : level.first_pixel +
                           static_cast<int64_t>(at_y * level.width + at_x);
          for (int64_t c = 0; c < args.channels; ++c) {
            const int64_t at = ((image * args.pixels + pixel) * args.heads +
                                row % args.heads) *
                                   args.channels +
                               c;
            const double value = Widen(problem.values[at]);
            const double d = Widen(problem.d_output[row * args.channels + c]);
            if (is_nan) {
              result.output[row * args.channels + c] += NAN;
              continue;
            }
            if (fy * fx != 0) {
              result.output[row * args.channels + c] +=
                  weight * fy * fx * value;
              result.d_values[at] += weight * fy * fx * d;
              result.d_weights[point] += fy * fx * value * d;
            }
            result.d_locations[2 * point] +=
                level.width * weight * d * value * fy * (corner % 2 ? 1 : -1);
            result.d_locations[2 * point + 1] +=
                level.height * weight * d * value * fx * (corner / 2 ? 1 : -1);
          }
        }
      }
    }
  }
  return result;
}

template <typename T>
struct Outputs {
  using C = Accumulator<T>;
  GpuVector<T> output, d_values;
  GpuVector<C> d_locations, d_weights;

  // NaN, since all of them must be written.
  explicit Outputs(const Problem<T>& problem)
      : output(problem.d_output.size(), Narrow<T>(C(NAN))),
        d_values(problem.values.size(), Narrow<T>(C(NAN))),
        d_locations(problem.locations.size(), NAN),
        d_weights(problem.weights.size(), NAN) {}

  DeformableAttentionArgs<T> Args(const Problem<T>& p) {
    return {p.Inputs(), output.data()};
  }
  DeformableAttentionGradArgs<T> GradArgs(const Problem<T>& p) {
    return {p.Inputs(), p.d_output.data(), d_values.data(), d_locations.data(),
            d_weights.data()};
  }
  template <typename Device>
  void Compute(const Device& device, const Problem<T>& p) {
    TFO_EXPECT_RUNS(DeformableAttention(device, Args(p)));
    TFO_EXPECT_RUNS(DeformableAttentionGrad(device, GradArgs(p)));
  }
  void Expect(const Result& expected) const {
    ExpectClose("output", output, expected.output);
    ExpectClose("d_values", d_values, expected.d_values);
    ExpectClose("d_locations", d_locations, expected.d_locations);
    ExpectClose("d_weights", d_weights, expected.d_weights);
  }
  bool Equals(const Outputs& other) const {
    return HaveSameBits(output, other.output) &&
           HaveSameBits(d_values, other.d_values) &&
           HaveSameBits(d_locations, other.d_locations) &&
           HaveSameBits(d_weights, other.d_weights);
  }
};

template <typename T>
void CheckCpu(const Problem<T>& problem, const testing::Caller& caller) {
  const testing::Case of_test(
      caller, testing::NameOf<T>(), "batch ", problem.args.batch, ", queries ",
      problem.args.queries, ", heads ", problem.args.heads);
  Outputs<T> one(problem);
  one.Compute(ThreadedCpu(1), problem);
  one.Expect(Reference(problem));
  for (int threads : {2, 7}) {
    Outputs<T> other(problem);
    other.Compute(ThreadedCpu(threads), problem);
    TFO_EXPECT(other.Equals(one));
  }
}

template <typename T>
void CheckGpu(const Problem<T>& problem, const testing::Caller& caller) {
  const testing::Case of_test(
      caller, testing::NameOf<T>(), "batch ", problem.args.batch, ", queries ",
      problem.args.queries, ", heads ", problem.args.heads);
  for (bool deterministic : {false, true}) {
    Gpu gpu;
    gpu.deterministic = deterministic;
    Outputs<T> outputs(problem);
    testing::WithScratch(
        gpu,
        [&] {
          return DeformableAttentionGradScratchBytes<T>(problem.args,
                                                        deterministic);
        },
        [&](const Gpu& on) { outputs.Compute(on, problem); });
    outputs.Expect(Reference(problem));
  }
}

// Calls check(problem) for sizes of models, and odd ones.
template <typename T, typename Check>
void ForProblems(const Check& check, const testing::Caller& caller = {}) {
  check(MakeProblem<T>(2, 2, 32, 9, {{9, 7, 4}, {5, 4, 4}, {2, 3, 4}}), caller);
  check(MakeProblem<T>(1, 1, 67, 5, {{6, 5, 3}, {1, 1, 14}}), caller);
  check(MakeProblem<T>(3, 2, 1, 7, {{1, 8, 1}, {3, 1, 0}, {2, 2, 20}}), caller);
  // More channels than a warp has in packs.
  check(MakeProblem<T>(1, 1, 264, 3, {{4, 3, 2}}), caller);
  // Few queries of many pixels: heads in groups.
  check(MakeProblem<T>(1, 5, 35, 3, {{20, 15, 2}, {9, 4, 1}}), caller);
}

TFO_TEST(DeformableAttention, EqualsDoubleLoops) {
  ForProblems<float>(CheckCpu<float>);
  ForProblems<double>(CheckCpu<double>);
  ForProblems<Half>(CheckCpu<Half>);
  ForProblems<BFloat16>(CheckCpu<BFloat16>);
}

TFO_CUDA_TEST(DeformableAttention, KernelsEqualDoubleLoops) {
  ForProblems<float>(CheckGpu<float>);
  ForProblems<double>(CheckGpu<double>);
  ForProblems<Half>(CheckGpu<Half>);
  ForProblems<BFloat16>(CheckGpu<BFloat16>);
}

// NaN, infinite and huge places; pixels of weight 0 that are NaN.
template <typename T>
Problem<T> WildProblem() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Problem<T> problem = MakeProblem<T>(1, 1, 19, 6, {{3, 4, 6}});
  const float wild[] = {NAN, kInfinity, -kInfinity, 1e10f, -3e38f, 3e38f};
  for (int i = 0; i < 6; ++i) problem.locations[12 * i + i] = wild[i];
  return problem;
}

TFO_TEST(DeformableAttention, WildPlacesStayOutside) {
  const Problem<float> problem = WildProblem<float>();
  Outputs<float> outputs(problem);
  outputs.Compute(ThreadedCpu(2), problem);
  const Result expected = Reference(problem);
  int64_t nans = 0;
  for (size_t i = 0; i < expected.output.size(); ++i) {
    TFO_EXPECT_EQ(std::isnan(outputs.output[i]),
                  std::isnan(expected.output[i]));
    nans += std::isnan(expected.output[i]);
  }
  TFO_EXPECT_EQ(nans, 19);  // of the first query
  ExpectClose("d_values", outputs.d_values, expected.d_values);
  ExpectClose("d_locations", outputs.d_locations, expected.d_locations);
  ExpectClose("d_weights", outputs.d_weights, expected.d_weights);
}

TFO_CUDA_TEST(DeformableAttention, KernelsKeepWildPlacesOutside) {
  const Problem<float> problem = WildProblem<float>();
  const Result expected = Reference(problem);
  for (bool deterministic : {false, true}) {
    Gpu gpu;
    gpu.deterministic = deterministic;
    Outputs<float> outputs(problem);
    outputs.Compute(gpu, problem);
    for (size_t i = 0; i < expected.output.size(); ++i) {
      TFO_EXPECT_EQ(std::isnan(outputs.output[i]),
                    std::isnan(expected.output[i]));
    }
    ExpectClose("d_values", outputs.d_values, expected.d_values);
    ExpectClose("d_locations", outputs.d_locations, expected.d_locations);
    ExpectClose("d_weights", outputs.d_weights, expected.d_weights);
  }
}

TFO_TEST(DeformableAttention, PixelsOfWeightZeroAreNotRead) {
  Problem<float> problem = MakeProblem<float>(1, 1, 4, 1, {{2, 2, 1}});
  // The centre of the first pixel.
  problem.locations = {0.25f, 0.25f};
  for (int i = 4; i < 16; ++i) problem.values[i] = NAN;
  Outputs<float> outputs(problem);
  outputs.Compute(ThreadedCpu(1), problem);
  for (int c = 0; c < 4; ++c) {
    TFO_EXPECT_EQ(outputs.output[c], problem.weights[0] * problem.values[c]);
  }
}

// The sample at a whole pixel whose right neighbor is NaN: the only gradient
// that asks for the neighbor is the slope to the right.
Problem<float> ProblemNextToNan() {
  Problem<float> problem = MakeProblem<float>(1, 1, 1, 1, {{1, 2, 1}});
  problem.locations = {0.25f, 0.5f};
  problem.values = {1, NAN};
  problem.weights = {2};
  problem.d_output = {1};
  return problem;
}

void ExpectGradsNextToNan(const Outputs<float>& outputs) {
  TFO_EXPECT_EQ(outputs.d_weights[0], 1.0f);
  TFO_EXPECT(std::isnan(outputs.d_locations[0]));
  TFO_EXPECT_EQ(outputs.d_locations[1], -2.0f);
  TFO_EXPECT_EQ(outputs.d_values[0], 2.0f);
  TFO_EXPECT_EQ(outputs.d_values[1], 0.0f);
}

TFO_TEST(DeformableAttention, PixelsOfWeightZeroHaveSlopesOnly) {
  const Problem<float> problem = ProblemNextToNan();
  Outputs<float> outputs(problem);
  outputs.Compute(ThreadedCpu(1), problem);
  ExpectGradsNextToNan(outputs);
}

TFO_CUDA_TEST(DeformableAttention, KernelsGivePixelsOfWeightZeroSlopesOnly) {
  const Problem<float> problem = ProblemNextToNan();
  Outputs<float> outputs(problem);
  outputs.Compute(Gpu(), problem);
  ExpectGradsNextToNan(outputs);
}

TFO_CUDA_TEST(DeformableAttention, KernelsAddToUnalignedValues) {
  const Problem<float> problem = MakeProblem<float>(1, 2, 8, 5, {{4, 3, 2}});
  Outputs<float> outputs(problem);
  outputs.d_values.push_back(0);
  DeformableAttentionGradArgs<float> args = outputs.GradArgs(problem);
  ++args.d_values;
  TFO_EXPECT_RUNS(DeformableAttentionGrad(Gpu(), args));
  outputs.d_values.erase(outputs.d_values.begin());
  ExpectClose("d_values", outputs.d_values, Reference(problem).d_values);
}

// As the ops pass empty weights.
template <typename Check>
void ForNoPoints(const Check& check, const testing::Caller& caller = {}) {
  Problem<float> problem = MakeProblem<float>(2, 2, 3, 0, {{3, 2, 0}});
  check(problem, caller);
}

TFO_TEST(DeformableAttention, NoPointsHaveZeroGradients) {
  ForNoPoints(CheckCpu<float>);
}

TFO_CUDA_TEST(DeformableAttention, KernelsAcceptNoPoints) {
  ForNoPoints(CheckGpu<float>);
}

TFO_TEST(DeformableAttention, EmptyInputsAreDone) {
  constexpr int64_t kSizes[][3] = {{0, 4, 3}, {2, 0, 3}, {2, 4, 0}};
  for (const auto& [batch, channels, queries] : kSizes) {
    const Problem<float> problem =
        MakeProblem<float>(batch, 2, channels, queries, {{3, 2, 2}});
    Outputs<float> outputs(problem);
    outputs.Compute(ThreadedCpu(2), problem);
    outputs.Expect(Reference(problem));
  }
}

template <typename T>
void TimeAttention(int64_t queries,
                   const std::vector<std::vector<int64_t>>& sides) {
  std::vector<std::vector<int64_t>> levels;
  std::string text;
  for (const auto& side : sides) {
    levels.push_back(
        {testing::BenchmarkSize(side[0]), testing::BenchmarkSize(side[1]), 4});
    text += testing::Text(" [", side[0], ", ", side[1], "]");
  }
  using C = Accumulator<T>;
  Problem<T> p =
      MakeProblem<T>(1, testing::BenchmarkSize(8), testing::BenchmarkSize(32),
                     testing::BenchmarkSize(queries), levels);
  p.locations = testing::RandomOnGpu<C>(p.locations.size(), 3);
  for (C& x : p.locations) x = C(0.5) + x / 8;
  Outputs<T> outputs(p);
  const auto name_of = [&](const char* name) {
    return testing::Text(testing::NameOf<T>(), name, " ", queries,
                         " queries, 8 heads, 32 channels, 4 points,", text);
  };
  const int64_t num_bytes = (p.values.size() + p.d_output.size()) * sizeof(T) +
                            3 * p.weights.size() * sizeof(C);
  const auto forward = outputs.Args(p);
  testing::TimeOnGpu(
      name_of("deformable_attention"), num_bytes, 0,
      [&](const Gpu& gpu) { return DeformableAttention(gpu, forward); });
  const auto grad = outputs.GradArgs(p);
  testing::TimeOnGpu(
      name_of("deformable_attention_grad"), 2 * num_bytes,
      DeformableAttentionGradScratchBytes<T>(p.args, false),
      [&](const Gpu& gpu) { return DeformableAttentionGrad(gpu, grad); });
}
TFO_BENCHMARK(DeformableAttention, Detr) {
  const std::vector<std::vector<int64_t>> decoder = {
      {100, 134}, {50, 67}, {25, 34}, {13, 17}};
  const std::vector<std::vector<int64_t>> encoder = {
      {50, 67}, {25, 34}, {13, 17}, {7, 9}};
  TimeAttention<float>(300, decoder);
  TimeAttention<float>(4484, encoder);
  TimeAttention<BFloat16>(4484, encoder);
}

}  // namespace
}  // namespace tfo
