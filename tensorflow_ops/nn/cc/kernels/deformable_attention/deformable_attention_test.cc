// Deformable attention and its gradients against loops in double.
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::ExpectClose;
using testing::GpuVector;
using testing::HaveSameBits;
using testing::RandomValues;

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
  void Expect(const Result& expected) const {
    ExpectClose("output", output, expected.output);
    ExpectClose("d_values", d_values, expected.d_values);
    ExpectClose("d_locations", d_locations, expected.d_locations);
    ExpectClose("d_weights", d_weights, expected.d_weights);
  }
  bool HasBitsOf(const Outputs& other) const {
    return HaveSameBits(output, other.output) &&
           HaveSameBits(d_values, other.d_values) &&
           HaveSameBits(d_locations, other.d_locations) &&
           HaveSameBits(d_weights, other.d_weights);
  }
};

template <typename Device, typename T>
std::vector<Outputs<T>> Run(const Device& device, const Problem<T>& p) {
  const auto scratch_bytes = [&](const Gpu& gpu) {
    return DeformableAttentionGradScratchBytes<T>(p.args, gpu.deterministic);
  };
  return testing::ComputeOn(
      device, Outputs<T>(p), scratch_bytes,
      [&](const auto& on, Outputs<T>* to) {
        TFO_EXPECT_RUNS(DeformableAttention(on, to->Args(p)));
        TFO_EXPECT_RUNS(DeformableAttentionGrad(on, to->GradArgs(p)));
      });
}

template <typename Device, typename T>
void Check(const Device& device, const Problem<T>& p,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "batch ",
                              p.args.batch, ", queries ", p.args.queries,
                              ", heads ", p.args.heads);
  const Result expected = Reference(p);
  for (const Outputs<T>& outputs : Run(device, p)) outputs.Expect(expected);
}

// Sizes of models, and odd ones.
TFO_DEVICE_TEST(DeformableAttention, EqualsDoubleLoops) {
  testing::ForTypes([&](auto type) {
    using T = decltype(type);
    Check(device,
          MakeProblem<T>(2, 2, 32, 9, {{9, 7, 4}, {5, 4, 4}, {2, 3, 4}}));
    Check(device, MakeProblem<T>(1, 1, 67, 5, {{6, 5, 3}, {1, 1, 14}}));
    Check(device,
          MakeProblem<T>(3, 2, 1, 7, {{1, 8, 1}, {3, 1, 0}, {2, 2, 20}}));
    // More channels than a warp has in packs.
    Check(device, MakeProblem<T>(1, 1, 264, 3, {{4, 3, 2}}));
    // Few queries of many pixels: heads in groups.
    Check(device, MakeProblem<T>(1, 5, 35, 3, {{20, 15, 2}, {9, 4, 1}}));
  });
}

// NaN, infinite and huge places.
TFO_DEVICE_TEST(DeformableAttention, WildPlacesStayOutside) {
  Problem<float> p = MakeProblem<float>(1, 1, 19, 6, {{3, 4, 6}});
  const float wild[] = {NAN, INFINITY, -INFINITY, 1e10f, -3e38f, 3e38f};
  for (int i = 0; i < 6; ++i) p.locations[12 * i + i] = wild[i];
  const std::vector<double> output = Reference(p).output;
  TFO_EXPECT_EQ(std::count_if(output.begin(), output.end(),
                              [](double value) { return std::isnan(value); }),
                19);  // of the first query
  Check(device, p);
}

TFO_TEST(DeformableAttention, PixelsOfWeightZeroAreNotRead) {
  Problem<float> p = MakeProblem<float>(1, 1, 4, 1, {{2, 2, 1}});
  // The centre of the first pixel.
  p.locations = {0.25f, 0.25f};
  for (int i = 4; i < 16; ++i) p.values[i] = NAN;
  const auto output = Run(Cpu(), p)[0].output;
  for (int c = 0; c < 4; ++c) {
    TFO_EXPECT_EQ(output[c], p.weights[0] * p.values[c]);
  }
}

// The sample at a whole pixel whose right neighbor is NaN: the only gradient
// that asks for the neighbor is the slope to the right.
TFO_DEVICE_TEST(DeformableAttention, PixelsOfWeightZeroHaveSlopesOnly) {
  Problem<float> p = MakeProblem<float>(1, 1, 1, 1, {{1, 2, 1}});
  p.locations = {0.25f, 0.5f};
  p.values = {1, NAN};
  p.weights = {2};
  p.d_output = {1};
  for (const Outputs<float>& outputs : Run(device, p)) {
    TFO_EXPECT_EQ(outputs.d_weights[0], 1.0f);
    TFO_EXPECT(std::isnan(outputs.d_locations[0]));
    TFO_EXPECT_EQ(outputs.d_locations[1], -2.0f);
    TFO_EXPECT_EQ(outputs.d_values[0], 2.0f);
    TFO_EXPECT_EQ(outputs.d_values[1], 0.0f);
  }
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
TFO_DEVICE_TEST(DeformableAttention, NoPointsHaveZeroGradients) {
  Check(device, MakeProblem<float>(2, 2, 3, 0, {{3, 2, 0}}));
}

TFO_TEST(DeformableAttention, AcceptsEmptyInputs) {
  Check(Cpu(), MakeProblem<float>(0, 2, 4, 3, {{3, 2, 2}}));
  Check(Cpu(), MakeProblem<float>(2, 2, 0, 3, {{3, 2, 2}}));
  Check(Cpu(), MakeProblem<float>(2, 2, 4, 0, {{3, 2, 2}}));
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
