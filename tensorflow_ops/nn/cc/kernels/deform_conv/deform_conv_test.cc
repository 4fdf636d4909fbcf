// Deformable convolution and its gradients against loops in double.
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::ExpectClose;
using testing::GpuVector;
using testing::HaveSameBits;
using testing::RandomValues;
using testing::ToGpu;

template <typename T>
struct Problem {
  using C = Accumulator<T>;
  DeformConvShape args;
  bool has_mask, has_bias;
  GpuVector<T> features, filters, mask, bias, d_output;
  GpuVector<C> offsets;

  DeformConvInputs<T> Inputs() const {
    return {args,
            features.data(),
            offsets.data(),
            filters.data(),
            has_mask ? mask.data() : nullptr,
            has_bias ? bias.data() : nullptr};
  }
};

// Random values around zero of this size.
template <typename T>
GpuVector<T> Values(int64_t n, uint32_t seed, float scale) {
  std::vector<T> values = RandomValues<T>(n, seed);
  for (T& value : values) value = Narrow<T>(Widen(value) * scale);
  return ToGpu(values);
}

template <typename T>
Problem<T> MakeProblem(const DeformConvShape& args, bool has_mask,
                       bool has_bias) {
  Problem<T> p;
  p.args = args;
  p.has_mask = has_mask;
  p.has_bias = has_bias;
  const int64_t outputs = args.batch * args.Outputs();
  const int64_t taps = outputs * args.Taps() * args.offset_groups;
  p.features = Values<T>(args.batch * args.Pixels() * args.channels, 1, 1);
  // Results below 1 are compared absolutely.
  p.filters = Values<T>(args.Depth() * args.out_channels, 2,
                        1 / std::sqrt(static_cast<float>(args.Depth() + 1)));
  p.offsets = Values<Accumulator<T>>(2 * taps, 3, 1.5f);
  // Some whole pixels, as when training starts.
  for (size_t i = 0; i < p.offsets.size(); i += 3) {
    p.offsets[i] = std::round(p.offsets[i]);
  }
  p.mask = Values<T>(taps, 4, 1);
  p.bias = Values<T>(args.out_channels, 5, 1);
  p.d_output = Values<T>(outputs * args.out_channels, 6,
                         1 / std::sqrt(static_cast<float>(outputs + 1)));
  return p;
}

struct Result {
  std::vector<double> output, features, offsets, filters, mask, bias;
};

// Adds one tap of an output: `at` is its place among offsets. round: kernels
// for GPUs multiply samples of T, as tiles do those of BFloat16.
template <typename T>
void AddTap(const Problem<T>& p, int64_t output, int64_t tap, int64_t group,
            bool round, Result* result) {
  using C = Accumulator<T>;
  const DeformConvShape& args = p.args;
  const int64_t in_image = output % args.Outputs();
  const int64_t image = output / args.Outputs();
  const int64_t at = (output * args.offset_groups + group) * args.Taps() + tap;
  // Places are computed in C.
  const double y = C(in_image / args.out_width * args.stride_y - args.top +
                     tap / args.kernel_width * args.dilation_y) +
                   p.offsets[2 * at];
  const double x = C(in_image % args.out_width * args.stride_x - args.left +
                     tap % args.kernel_width * args.dilation_x) +
                   p.offsets[2 * at + 1];
  const double mask = p.has_mask ? Widen(p.mask[at]) : 1;
  const int64_t of_group = args.channels / args.groups;
  const int64_t outputs = args.out_channels / args.groups;
  const int64_t each = args.channels / args.offset_groups;
  // Calls body(c, at_filter, at_output) for products with the tap's samples.
  const auto for_products = [&](const auto& body) {
    for (int64_t c = group * each; c < (group + 1) * each; ++c) {
      for (int64_t i = 0; i < outputs; ++i) {
        const int64_t o = c / of_group * outputs + i;
        body(c, (tap * of_group + c % of_group) * args.out_channels + o,
             output * args.out_channels + o);
      }
    }
  };
  if (std::isnan(y) || std::isnan(x)) {
    for_products(
        [&](int64_t, int64_t, int64_t to) { result->output[to] = NAN; });
    return;
  }
  if (!(std::abs(y) < 1e6 && std::abs(x) < 1e6)) return;
  std::vector<double> samples(args.channels);
  for (int corner = 0; corner < 4; ++corner) {
    const double at_y = std::floor(y) + corner / 2;
    const double at_x = std::floor(x) + corner % 2;
    if (at_y < 0 || at_y >= args.height || at_x < 0 || at_x >= args.width) {
      continue;
    }
    const double fy = 1 - std::abs(y - at_y), fx = 1 - std::abs(x - at_x);
    const int64_t pixel =
        (image * args.height + int64_t(at_y)) * args.width + int64_t(at_x);
    for (int64_t c = group * each; c < (group + 1) * each; ++c) {
      const double value = Widen(p.features[pixel * args.channels + c]);
      if (fy * fx != 0) samples[c] += mask * fy * fx * value;
    }
    for_products([&](int64_t c, int64_t filter, int64_t to) {
      const int64_t from = pixel * args.channels + c;
      const double value = Widen(p.features[from]);
      const double w = Widen(p.filters[filter]), d = Widen(p.d_output[to]);
      if (fy * fx != 0) {
        result->output[to] += w * mask * fy * fx * value;
        result->features[from] += w * mask * fy * fx * d;
        result->filters[filter] += mask * fy * fx * value * d;
        result->mask[at] += w * fy * fx * value * d;
      }
      result->offsets[2 * at] +=
          (corner / 2 ? 1 : -1) * fx * w * mask * value * d;
      result->offsets[2 * at + 1] +=
          (corner % 2 ? 1 : -1) * fy * w * mask * value * d;
    });
  }
  if (!round) return;
  for_products([&](int64_t c, int64_t filter, int64_t to) {
    const double error = Widen(testing::Rounded<T>(samples[c])) - samples[c];
    result->output[to] += Widen(p.filters[filter]) * error;
    result->filters[filter] += Widen(p.d_output[to]) * error;
  });
}

template <typename T>
Result Reference(const Problem<T>& p, bool round_samples) {
  const DeformConvShape& args = p.args;
  Result result;
  result.output.assign(p.d_output.size(), 0);
  result.features.assign(p.features.size(), 0);
  result.offsets.assign(p.offsets.size(), 0);
  result.filters.assign(p.filters.size(), 0);
  result.mask.assign(p.mask.size(), 0);
  result.bias.assign(p.bias.size(), 0);
  for (int64_t m = 0; m < args.batch * args.Outputs(); ++m) {
    for (int64_t o = 0; o < args.out_channels; ++o) {
      const int64_t at = m * args.out_channels + o;
      if (p.has_bias) result.output[at] += Widen(p.bias[o]);
      result.bias[o] += Widen(p.d_output[at]);
    }
    for (int64_t tap = 0; tap < args.Taps(); ++tap) {
      for (int64_t g = 0; g < args.offset_groups; ++g) {
        AddTap(p, m, tap, g, round_samples, &result);
      }
    }
  }
  return result;
}

template <typename T>
struct Outputs {
  GpuVector<T> output, features, filters, mask, bias;
  GpuVector<Accumulator<T>> offsets;

  explicit Outputs(const Problem<T>& p)
      : output(p.d_output.size()),
        features(p.features.size()),
        filters(p.filters.size()),
        mask(p.mask.size()),
        bias(p.bias.size()),
        offsets(p.offsets.size()) {}

  DeformConvArgs<T> Args(const Problem<T>& p) {
    return {p.Inputs(), output.data()};
  }
  DeformConvGradArgs<T> GradArgs(const Problem<T>& p) {
    return {p.Inputs(),
            p.d_output.data(),
            features.data(),
            offsets.data(),
            filters.data(),
            p.has_mask ? mask.data() : nullptr,
            p.has_bias ? bias.data() : nullptr};
  }
  void Expect(const Problem<T>& p, bool round_samples) const {
    const Result expected = Reference(p, round_samples);
    ExpectClose("output", output, expected.output);
    ExpectClose("d_features", features, expected.features);
    ExpectClose("d_offsets", offsets, expected.offsets);
    ExpectClose("d_filters", filters, expected.filters);
    if (p.has_mask) ExpectClose("d_mask", mask, expected.mask);
    if (p.has_bias) ExpectClose("d_bias", bias, expected.bias);
  }
  bool HasBitsOf(const Outputs& other) const {
    return HaveSameBits(output, other.output) &&
           HaveSameBits(features, other.features) &&
           HaveSameBits(offsets, other.offsets) &&
           HaveSameBits(filters, other.filters) &&
           HaveSameBits(mask, other.mask) && HaveSameBits(bias, other.bias);
  }
};

// Calls compute(device, &outputs) as ComputeOn does.
template <typename Device, typename T, typename Compute>
std::vector<Outputs<T>> ComputeWith(const Device& device, const Problem<T>& p,
                                    const Compute& compute) {
  const auto scratch_bytes = [&](const Gpu& gpu) {
    return std::max(DeformConvScratchBytes<T>(p.args),
                    DeformConvGradScratchBytes<T>(p.args, gpu.deterministic));
  };
  return testing::ComputeOn(device, Outputs<T>(p), scratch_bytes, compute);
}

template <typename Device, typename T>
std::vector<Outputs<T>> Run(const Device& device, const Problem<T>& p) {
  return ComputeWith(device, p, [&](const auto& on, Outputs<T>* to) {
    TFO_EXPECT_RUNS(DeformConv(on, to->Args(p)));
    TFO_EXPECT_RUNS(DeformConvGrad(on, to->GradArgs(p)));
  });
}

template <typename Device, typename T>
void Check(const Device& device, const Problem<T>& p,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "features ",
                              p.features.size(), ", outputs ",
                              p.d_output.size(), ", mask ", p.has_mask);
  const bool rounds = std::is_same_v<Device, Gpu> ||
                      (std::is_same_v<T, BFloat16> && HasTileProducts());
  for (const Outputs<T>& outputs : Run(device, p)) outputs.Expect(p, rounds);
}

// batch, height, width, channels, out height, width, channels, kernel,
// strides, top, left, dilations, groups, offset groups.
constexpr DeformConvShape kPlain = {2, 9, 7, 32, 9, 7, 40, 3, 3,
                                    1, 1, 1, 1,  1, 1, 1,  1};
constexpr DeformConvShape kGroups = {1, 8, 11, 24, 4, 6, 12, 3, 2,
                                     2, 2, 2,  0,  2, 1, 3,  2};
constexpr DeformConvShape kDeep = {1, 5, 6, 70, 3, 4, 35, 3, 3,
                                   1, 1, 0, 0,  1, 1, 1,  5};
constexpr DeformConvShape kLarge = {3, 17, 20, 3, 17, 20, 5, 1, 3,
                                    1, 1,  0,  1, 1,  1,  1, 3};
constexpr DeformConvShape kOnePixel = {1, 1, 1, 1, 1, 1, 1, 1, 1,
                                       1, 1, 0, 0, 1, 1, 1, 1};
// Of a GPU's tiles: 128 outputs, output channels and columns.
constexpr DeformConvShape kTile = {1, 9, 18, 16, 8, 16, 128, 2, 4,
                                   1, 1, 0,  1,  1, 1,  1,   1};
constexpr DeformConvShape kBeyondTile = {1, 4, 45, 8, 3, 43, 136, 2, 2,
                                         1, 1, 0,  1, 1, 1,  1,   1};
constexpr DeformConvShape kManyRows = {3, 9, 11, 24, 9, 11, 16, 1, 1,
                                       1, 1, 0,  0,  1, 1,  1,  1};
constexpr DeformConvShape kManyChannels = {1, 3, 4, 272, 3, 4, 16, 1, 1,
                                           1, 1, 0, 0,   1, 1, 1,  1};
constexpr DeformConvShape kManyOutputs = {1, 2, 3, 17, 2, 3, 290, 1, 1,
                                          1, 1, 0, 0,  1, 1, 1,   1};
constexpr DeformConvShape kPackedGroups = {1, 11, 12, 96, 11, 12, 48, 2, 2,
                                           1, 1,  1,  0,  1,  1,  3,  4};

TFO_TEST(DeformConv, EqualsDoubleLoops) {
  for (const DeformConvShape& args :
       {kPlain, kGroups, kDeep, kLarge, kOnePixel}) {
    Check(Cpu(), MakeProblem<float>(args, true, true));
    Check(Cpu(), MakeProblem<double>(args, true, false));
  }
  for (const DeformConvShape& args :
       {kPlain, kGroups, kPackedGroups, kManyOutputs}) {
    Check(Cpu(), MakeProblem<float>(args, false, false));
    Check(Cpu(), MakeProblem<Half>(args, true, true));
    Check(Cpu(), MakeProblem<BFloat16>(args, true, true));
  }
}

TFO_CUDA_TEST(DeformConvGpu, EqualsDoubleLoops) {
  for (const DeformConvShape& args :
       {kPlain, kGroups, kDeep, kLarge, kOnePixel}) {
    Check(Gpu(), MakeProblem<float>(args, true, true));
  }
  Check(Gpu(), MakeProblem<float>(kGroups, false, false));
  Check(Gpu(), MakeProblem<double>(kDeep, true, false));
  Check(Gpu(), MakeProblem<Half>(kPlain, true, true));
  Check(Gpu(), MakeProblem<BFloat16>(kGroups, true, true));
}

TFO_CUDA_TEST(DeformConvGpu, EqualsDoubleLoopsAroundTiles) {
  for (const DeformConvShape& args :
       {kTile, kBeyondTile, kManyRows, kManyChannels, kPackedGroups}) {
    Check(Gpu(), MakeProblem<float>(args, true, true));
    Check(Gpu(), MakeProblem<BFloat16>(args, true, false));
  }
  Check(Gpu(), MakeProblem<double>(kManyRows, false, true));
  Check(Gpu(), MakeProblem<double>(kPackedGroups, true, false));
  Check(Gpu(), MakeProblem<Half>(kBeyondTile, false, true));
  Check(Gpu(), MakeProblem<Half>(kPackedGroups, true, true));
  for (int n : {-1, 1}) {
    DeformConvShape args = kTile;
    args.out_channels += n;
    Check(Gpu(), MakeProblem<float>(args, true, true));
    args = kTile;
    args.channels += n;
    Check(Gpu(), MakeProblem<float>(args, true, false));
  }
}

// Arrays of packs that begin at any value.
TFO_CUDA_TEST(DeformConvGpu, AcceptsUnalignedArrays) {
  const Problem<float> p = MakeProblem<float>(kPackedGroups, true, false);
  const auto shifted = [](const GpuVector<float>& values) {
    GpuVector<float> result(values.size() + 1);
    std::copy(values.begin(), values.end(), result.begin() + 1);
    return result;
  };
  const GpuVector<float> features = shifted(p.features);
  const GpuVector<float> d_output = shifted(p.d_output);
  const auto compute = [&](const Gpu& gpu, Outputs<float>* to) {
    DeformConvArgs<float> forward = to->Args(p);
    forward.features = features.data() + 1;
    TFO_EXPECT_RUNS(DeformConv(gpu, forward));
    DeformConvGradArgs<float> grad = to->GradArgs(p);
    grad.d_output = d_output.data() + 1;
    TFO_EXPECT_RUNS(DeformConvGrad(gpu, grad));
  };
  for (const auto& outputs : ComputeWith(Gpu(), p, compute)) {
    outputs.Expect(p, true);
  }
}

// More than a part of the outputs in the gradient to filters, more than a wave.
TFO_TEST(DeformConv, SumsOfManyOutputsEqualDoubleLoops) {
  DeformConvShape args = kLarge;
  args.batch = 34;
  args.offset_groups = 1;
  Check(Cpu(), MakeProblem<float>(args, true, true));
  Check(Cpu(), MakeProblem<BFloat16>(args, true, true));
}

// Operands of 2^36 and 2^-36, and their unscaled results.
TFO_TEST(DeformConv, ScalesResultsWithOperands) {
  for (const float scale : {0x1p36f, 0x1p-36f}) {
    const Problem<float> p = MakeProblem<float>(kPackedGroups, true, false);
    const auto multiply = [](GpuVector<float>& values, float factor) {
      for (float& value : values) value *= factor;
    };
    Problem<float> scaled = p;
    for (auto* operand : {&scaled.features, &scaled.filters, &scaled.d_output})
      multiply(*operand, scale);
    Outputs<float> outputs = Run(Cpu(), scaled)[0];
    for (auto* result : {&outputs.output, &outputs.features, &outputs.filters,
                         &outputs.mask, &outputs.offsets}) {
      multiply(*result, 1 / scale);
      multiply(*result, 1 / scale);
    }
    multiply(outputs.mask, 1 / scale);
    multiply(outputs.offsets, 1 / scale);
    outputs.Expect(p, false);
  }
}

// Results at the levels amx and avx512, of a problem whose operand has this
// number, or is all multiplied by it if it is tiny.
template <typename T>
std::pair<Outputs<T>, Outputs<T>> RunWild(int operand, float wild) {
  Problem<T> p = MakeProblem<T>(kPackedGroups, true, false);
  GpuVector<T>& values =
      *std::array{&p.features, &p.mask, &p.filters, &p.d_output}[operand];
  values[values.size() / 2] = Narrow<T>(wild);
  for (T& value : values) {
    if (std::abs(wild) < 0x1p-40f) value = Narrow<T>(Widen(value) * wild);
  }
  const Outputs<T> tiles = Run(Cpu(), p)[0];
  SetActiveCpuLevelForTesting(CpuLevel::kAvx512);
  const Outputs<T> vectors = Run(Cpu(), p)[0];
  SetActiveCpuLevelForTesting(CpuLevel::kAmx);
  return {tiles, vectors};
}

// Numbers of three terms that are not finite, too large or too small take the
// path of the level avx512. Of bfloat16, what is not finite stays in its place.
TFO_TEST(DeformConv, TilesMultiplyWhatFits) {
  if (!HasTileProducts()) return;
  for (int operand = 0; operand < 4; ++operand) {
    for (const float wild : {1.0f, NAN, INFINITY, 0x1p41f, 0x1p-50f}) {
      const testing::Case of_test({}, "operand ", operand, ", ", wild);
      const auto [tiles, vectors] = RunWild<float>(operand, wild);
      const bool fits = wild == 1;
      // The forward pass does not read d_output.
      TFO_EXPECT_EQ(HaveSameBits(tiles.output, vectors.output),
                    !fits && operand < 3);
      TFO_EXPECT_EQ(HaveSameBits(tiles.features, vectors.features), !fits);
      TFO_EXPECT_EQ(HaveSameBits(tiles.filters, vectors.filters), !fits);
    }
    for (const float wild : {NAN, INFINITY, -INFINITY}) {
      const testing::Case of_test({}, "bfloat16 operand ", operand, ", ", wild);
      const auto [tiles, vectors] = RunWild<BFloat16>(operand, wild);
      const auto expect = [](const auto& actual, const auto& expected) {
        std::vector<double> wide;
        for (const auto value : expected) wide.push_back(Widen(value));
        ExpectClose("result", actual, wide);
      };
      expect(tiles.output, vectors.output);
      expect(tiles.features, vectors.features);
      expect(tiles.filters, vectors.filters);
    }
  }
}

// NaN, infinite and huge offsets.
TFO_DEVICE_TEST(DeformConv, WildOffsetsStayOutside) {
  Problem<float> p = MakeProblem<float>(kGroups, true, true);
  const int64_t per_output = 2 * p.args.Taps() * p.args.offset_groups;
  const float wild[] = {NAN, INFINITY, -INFINITY, 1e10f, -3e38f, 3e38f};
  for (int i = 0; i < 6; ++i) p.offsets[(i + 1) * per_output + i] = wild[i];
  // The first offset group of one output: two of three groups' channels.
  const Result expected = Reference(p, false);
  TFO_EXPECT_EQ(std::count_if(expected.output.begin(), expected.output.end(),
                              [](double value) { return std::isnan(value); }),
                8);
  Check(device, p);
}

// A tap at exactly -1, where training starts with padding, has weight 0 and the
// slope of the pixel at 0.
TFO_TEST(DeformConv, PaddedTapsHaveASlope) {
  DeformConvShape args = kOnePixel;
  args.top = 1;
  Problem<float> p = MakeProblem<float>(args, false, false);
  p.offsets = {0, 0};
  p.features = {3};
  p.filters = {2};
  p.d_output = {5};
  const auto outputs = Run(Cpu(), p)[0];
  TFO_EXPECT_EQ(outputs.output[0], 0.0f);
  TFO_EXPECT_EQ(outputs.offsets[0], 30.0f);
  TFO_EXPECT_EQ(outputs.offsets[1], 0.0f);
}

// Neighbors of whole pixels are not read: they may be NaN.
TFO_TEST(DeformConv, PixelsOfWeightZeroAreNotRead) {
  DeformConvShape args = kOnePixel;
  args.height = args.width = 2;
  args.channels = 3;
  Problem<float> p = MakeProblem<float>(args, false, false);
  p.offsets = {0, 0};
  for (int i = 3; i < 12; ++i) p.features[i] = NAN;
  const auto outputs = Run(Cpu(), p)[0];
  TFO_EXPECT(!std::isnan(outputs.output[0]));
  for (float d : outputs.filters) TFO_EXPECT(!std::isnan(d));
}

// The sample at a whole pixel whose right neighbor is NaN: the only gradient
// that asks for the neighbor is the slope to the right.
TFO_DEVICE_TEST(DeformConv, PixelsOfWeightZeroHaveSlopesOnly) {
  DeformConvShape args = kOnePixel;
  args.width = 2;
  Problem<float> p = MakeProblem<float>(args, true, false);
  p.offsets = {0, 0};
  p.features = {1, NAN};
  p.filters = {1};
  p.mask = {1};
  p.d_output = {1};
  for (const Outputs<float>& outputs : Run(device, p)) {
    TFO_EXPECT_EQ(outputs.mask[0], 1.0f);
    TFO_EXPECT_EQ(outputs.offsets[0], -1.0f);
    TFO_EXPECT(std::isnan(outputs.offsets[1]));
    TFO_EXPECT_EQ(outputs.filters[0], 1.0f);
    TFO_EXPECT_EQ(outputs.features[0], 1.0f);
    TFO_EXPECT_EQ(outputs.features[1], 0.0f);
  }
}

TFO_DEVICE_TEST(DeformConv, AcceptsEmptyInputs) {
  DeformConvShape no_images = kPlain, no_outputs = kPlain, no_pixels = kPlain;
  no_images.batch = 0;
  no_outputs.out_height = 0;
  no_pixels.width = 0;
  for (const DeformConvShape& args : {no_images, no_outputs, no_pixels}) {
    Check(device, MakeProblem<float>(args, true, true));
  }
}

TFO_CUDA_TEST(DeformConvGpu, RefusesSizesBeyondIntegers) {
  DeformConvShape channels = kOnePixel, depth = kOnePixel;
  channels.channels = channels.groups = int64_t{1} << 32;
  channels.out_channels = channels.channels;
  depth.channels = int64_t{1} << 32;
  for (const DeformConvShape& shape : {channels, depth}) {
    DeformConvArgs<float> forward = {};
    static_cast<DeformConvShape&>(forward) = shape;
    DeformConvGradArgs<float> grad = {};
    static_cast<DeformConvShape&>(grad) = shape;
    TFO_EXPECT_EQ(DeformConvScratchBytes<float>(shape), 0);
    TFO_EXPECT_EQ(DeformConvGradScratchBytes<float>(shape, true), 0);
    TFO_EXPECT(DeformConv(Gpu(), forward) != nullptr);
    TFO_EXPECT(DeformConvGrad(Gpu(), grad) != nullptr);
  }
}

template <typename T>
void TimeConvolution(int64_t height, int64_t width, int64_t channels) {
  DeformConvShape args = {};
  args.batch = 1;
  args.height = args.out_height = testing::BenchmarkSize(height);
  args.width = args.out_width = testing::BenchmarkSize(width);
  args.channels = args.out_channels = testing::BenchmarkSize(channels);
  args.kernel_height = args.kernel_width = 3;
  args.stride_y = args.stride_x = args.top = args.left = 1;
  args.dilation_y = args.dilation_x = args.groups = args.offset_groups = 1;
  const Problem<T> p = MakeProblem<T>(args, true, false);
  Outputs<T> outputs(p);
  const auto name_of = [&](const char* name) {
    return testing::Text(testing::NameOf<T>(), name, " [1, ", height, ", ",
                         width, ", ", channels, "]");
  };
  const int64_t num_bytes = (p.features.size() + p.d_output.size() +
                             p.filters.size() + p.mask.size()) *
                                sizeof(T) +
                            p.offsets.size() * sizeof(Accumulator<T>);
  const auto forward = outputs.Args(p);
  testing::TimeOnGpu(name_of("deform_conv"), num_bytes,
                     DeformConvScratchBytes<T>(args),
                     [&](const Gpu& gpu) { return DeformConv(gpu, forward); });
  const auto grad = outputs.GradArgs(p);
  testing::TimeOnGpu(name_of("deform_conv_grad"), 2 * num_bytes,
                     DeformConvGradScratchBytes<T>(args, false),
                     [&](const Gpu& gpu) { return DeformConvGrad(gpu, grad); });
}
TFO_BENCHMARK(DeformConv, Stages) {
  TimeConvolution<float>(100, 152, 128);
  TimeConvolution<Half>(100, 152, 128);
  TimeConvolution<float>(50, 76, 256);
  TimeConvolution<float>(25, 38, 512);
}

}  // namespace
}  // namespace tfo
