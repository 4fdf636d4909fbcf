// Compares samples and gradients with plain loops in double precision.
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_testing.h"

namespace tfo {
namespace {

using testing::Axis;
using testing::AxisOfDefinition;
using testing::ExpectClose;
using testing::GpuVector;
using testing::HaveSameBits;
using testing::Tap;

struct Results {
  std::vector<double> output, d_features, d_grid;
};

// args with these sizes.
GridSampleSpec Sized(GridSampleSpec args, int64_t batch, int64_t height,
                     int64_t width, int64_t channels, int64_t samples) {
  args.batch = batch;
  args.height = height;
  args.width = width;
  args.channels = channels;
  args.samples = samples;
  return args;
}

GridSampleSpec InPixels(int64_t batch, int64_t height, int64_t width,
                        int64_t channels, int64_t samples) {
  GridSampleSpec args = {};
  args.coordinates = SampleCoordinates::kPixels;
  return Sized(args, batch, height, width, channels, samples);
}

struct Case {
  GridSampleSpec args;
  std::vector<double> features, grid, d_output;

  int64_t Feature(int64_t n, int64_t pixel, int64_t c) const {
    return (n * args.Pixels() + pixel) * args.channels + c;
  }
  int64_t Output(int64_t n, int64_t i, int64_t c) const {
    return (n * args.samples + i) * args.channels + c;
  }

  Results Expected() const {
    Results results = {std::vector<double>(d_output.size()),
                       std::vector<double>(features.size()),
                       std::vector<double>(grid.size())};
    const bool flow = YIsFirst(args.coordinates);
    for (int64_t n = 0; n < args.batch; ++n) {
      for (int64_t i = 0; i < args.samples; ++i) {
        const double* const g = &grid[2 * (n * args.samples + i)];
        const Axis y = AxisOfDefinition(args, args.height, g[flow ? 0 : 1],
                                        i / args.flow_columns);
        const Axis x = AxisOfDefinition(args, args.width, g[flow ? 1 : 0],
                                        i % args.flow_columns);
        double* const d = &results.d_grid[2 * (n * args.samples + i)];
        for (int64_t c = 0; c < args.channels; ++c) {
          const int64_t o = Output(n, i, c);
          if (y.nan || x.nan) {
            results.output[o] = NAN;
            continue;
          }
          for (const Tap& v : y.taps) {
            for (const Tap& u : x.taps) {
              const int64_t f = Feature(n, v.pixel * args.width + u.pixel, c);
              const bool outside = v.pixel < 0 || u.pixel < 0;
              const double value = outside ? args.fill_value : features[f];
              if (v.weight * u.weight != 0) {
                results.output[o] += v.weight * u.weight * value;
                if (!outside) {
                  results.d_features[f] += v.weight * u.weight * d_output[o];
                }
              }
              d[flow ? 0 : 1] += v.slope * u.weight * value * d_output[o];
              d[flow ? 1 : 0] += v.weight * u.slope * value * d_output[o];
            }
          }
        }
      }
    }
    return results;
  }
};

// Values that every dtype holds exactly, in eighths; places in eighths of a
// pixel, inside and outside, on whole pixels and far away.
Case MakeCase(GridSampleSpec args, uint32_t seed) {
  std::mt19937 engine(seed);
  const auto eighths = [&](int64_t n, int low, int high) {
    std::uniform_int_distribution<int> draw(8 * low, 8 * high);
    std::vector<double> values(n);
    for (double& value : values) value = draw(engine) / 8.0;
    return values;
  };
  args.flow_columns = std::max<int64_t>(args.flow_columns, 1);
  Case c = {args,
            eighths(args.batch * args.Pixels() * args.channels, -2, 2),
            {},
            eighths(args.batch * args.samples * args.channels, -2, 2)};
  const int span = static_cast<int>(std::max(args.height, args.width));
  if (args.coordinates == SampleCoordinates::kNormalized) {
    c.grid = eighths(2 * args.batch * args.samples, -2, 2);
  } else {
    c.grid = eighths(2 * args.batch * args.samples, -span, 2 * span);
  }
  return c;
}

template <typename V>
GpuVector<V> As(const std::vector<double>& values) {
  GpuVector<V> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    result[i] = testing::Rounded<V>(values[i]);
  }
  return result;
}

template <typename T>
struct Actual {
  GpuVector<T> output, d_features;
  GpuVector<Accumulator<T>> d_grid;
};

template <typename T, typename Device>
Actual<T> Run(const Device& device, const Case& c) {
  using Sum = Accumulator<T>;
  const auto features = As<T>(c.features), d_output = As<T>(c.d_output);
  // Not aligned for pairs.
  auto values = As<Sum>(c.grid);
  values.insert(values.begin(), Sum(0));
  const Sum* const grid = values.data() + 1;
  Actual<T> actual = {GpuVector<T>(c.d_output.size()),
                      GpuVector<T>(c.features.size()),
                      GpuVector<Sum>(c.grid.size())};
  TFO_EXPECT_RUNS(GridSample<T>(
      device, {c.args, features.data(), grid, nullptr, actual.output.data()}));
  const GridSampleGradArgs<T> grad = {c.args, d_output.data(), grid,
                                      actual.d_features.data()};
  testing::WithScratch(
      device, [&] { return GridSampleGradScratchBytes(c.args, sizeof(T)); },
      [&](const Device& on) { TFO_EXPECT_RUNS(GridSampleGrad(on, grad)); });
  TFO_EXPECT_RUNS(GridSampleGridGrad<T>(
      device,
      {c.args, d_output.data(), features.data(), grid, actual.d_grid.data()}));
  return actual;
}

std::vector<double> Directions(int64_t n) {
  std::vector<double> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = (i * 7 % 5 - 2) / 2.0;
  return values;
}

template <typename T, typename Device>
Actual<T> Check(const Device& device, const Case& c,
                const testing::Caller& caller = {}) {
  const GridSampleSpec& args = c.args;
  const testing::Case of_test(
      caller, testing::NameOf<T>(), "mode ", static_cast<int>(args.mode),
      ", padding ", static_cast<int>(args.padding), ", coordinates ",
      static_cast<int>(args.coordinates), ", align_corners ",
      args.align_corners, ", fill_value ", args.fill_value, ", features ",
      args.batch, " x ", args.height, " x ", args.width, " x ", args.channels,
      ", samples ", args.samples);
  const Results expected = c.Expected();
  const Actual<T> actual = Run<T>(device, c);
  ExpectClose("output", actual.output, expected.output);
  ExpectClose("d_features", actual.d_features, expected.d_features);
  ExpectClose("d_grid", actual.d_grid, expected.d_grid);
  // The tangent is the transpose of the gradient to the grid.
  GpuVector<T> tangent(c.d_output.size());
  const auto direction = As<Accumulator<T>>(Directions(c.grid.size()));
  const auto features = As<T>(c.features);
  const auto grid = As<Accumulator<T>>(c.grid);
  TFO_EXPECT_RUNS(GridSample<T>(device, {c.args, features.data(), grid.data(),
                                         direction.data(), tangent.data()}));
  double along_grid = 0, along_output = 0, size = 1;
  for (size_t i = 0; i < direction.size(); ++i) {
    along_grid += direction[i] * expected.d_grid[i];
  }
  for (size_t i = 0; i < tangent.size(); ++i) {
    const double product = Widen(tangent[i]) * c.d_output[i];
    along_output += product;
    size += std::abs(product);
  }
  const double rounding = sizeof(T) == 2 ? 1e-2 : 1e-5;
  TFO_EXPECT(std::abs(along_grid - along_output) <= rounding * size);
  return actual;
}

// Calls check(args) for all modes and paddings.
template <typename Body>
void ForModes(const Body& body) {
  for (auto mode :
       {SampleMode::kBilinear, SampleMode::kNearest, SampleMode::kBicubic}) {
    for (auto padding : {SamplePadding::kZeros, SamplePadding::kBorder,
                         SamplePadding::kReflection, SamplePadding::kConstant,
                         SamplePadding::kWrap, SamplePadding::kGridWrap}) {
      if (mode == SampleMode::kBicubic &&
          padding > SamplePadding::kReflection) {
        continue;  // the shape function refuses it
      }
      for (bool align : {false, true}) {
        GridSampleSpec args = {};
        args.mode = mode;
        args.padding = padding;
        args.align_corners = align;
        body(args);
      }
    }
  }
}

template <typename T, typename Device>
void CheckModes(const Device& device) {
  uint32_t seed = 0;
  ForModes([&](GridSampleSpec args) {
    for (auto coordinates :
         {SampleCoordinates::kNormalized, SampleCoordinates::kPixels,
          SampleCoordinates::kFlow, SampleCoordinates::kIndices}) {
      ++seed;
      args.fill_value = seed % 2 == 0 ? 0 : 1.5;
      args.coordinates = coordinates;
      args.flow_columns = 7;
      args = Sized(args, 2, 4, 8, seed % 5 == 0 ? 20 : 3, 35);
      Check<T>(device, MakeCase(args, seed));
    }
  });
}

TFO_TEST(GridSample, AllModesEqualTheDefinition) {
  const Cpu cpu = testing::ThreadedCpu(3);
  CheckModes<float>(cpu);
  CheckModes<double>(cpu);
}
TFO_TEST(GridSample, Bits16EqualTheDefinition) {
  const Cpu cpu = testing::ThreadedCpu(2);
  for (int64_t channels : {1, 3, 33}) {
    const Case c = MakeCase(InPixels(1, 8, 8, channels, 20), 7);
    Check<Half>(cpu, c);
    Check<BFloat16>(cpu, c);
  }
}

// Blocks that are not full, channels of all kinds of vectors.
TFO_TEST(GridSample, SizesEqualTheDefinition) {
  uint32_t seed = 0;
  for (int64_t channels : {1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 33, 64, 100}) {
    for (int64_t samples : {1, 63, 64, 130}) {
      const GridSampleSpec args =
          InPixels(1 + seed % 2, 7, 5, channels, samples);
      ++seed;
      Check<float>(testing::ThreadedCpu(1 + seed % 4), MakeCase(args, seed));
    }
  }
}

TFO_TEST(GridSample, OnePixelEqualsTheDefinition) {
  uint32_t seed = 0;
  ForModes([&](GridSampleSpec args) {
    args.coordinates = SampleCoordinates::kIndices;
    for (int64_t width : {1, 2}) {
      Check<float>(Cpu(), MakeCase(Sized(args, 1, 1, width, 2, 20), ++seed));
      args.coordinates = SampleCoordinates::kNormalized;
    }
  });
}

// An infinite coordinate is far outside, of one pixel's row, too.
TFO_DEVICE_TEST(GridSample, InfinityIsOutsideOfOnePixel) {
  ForModes([&](GridSampleSpec args) {
    Case c = MakeCase(Sized(args, 1, 1, 5, 2, 4), 1);
    c.grid = {0, INFINITY, 0, -INFINITY, INFINITY, 0, 0, 0.5};
    Check<float>(device, c);
    std::swap(c.args.height, c.args.width);
    for (int i = 0; i < 4; ++i) std::swap(c.grid[2 * i], c.grid[2 * i + 1]);
    Check<float>(device, c);
  });
}

// A direction counts only where the slope along it is not 0.
TFO_DEVICE_TEST(GridSample, InfiniteDirectionsWithoutASlope) {
  GridSampleSpec args = InPixels(1, 4, 5, 3, 2);
  args.padding = SamplePadding::kBorder;
  Case c = MakeCase(args, 6);
  c.grid = {1.25, 9, 2.5, -7};  // outside of the image in y
  const auto features = As<float>(c.features), grid = As<float>(c.grid);
  const auto tangent = [&](double y) {
    const auto direction = As<float>({1, y, -2, y});
    GpuVector<float> to(c.d_output.size());
    TFO_EXPECT_RUNS(GridSample<float>(
        device,
        {c.args, features.data(), grid.data(), direction.data(), to.data()}));
    return to;
  };
  TFO_EXPECT(testing::HaveSameBits(tangent(0), tangent(INFINITY)));
}

// Samples that wrap are not like those inside: their pixels are not neighbors.
TFO_TEST(GridSample, WrappedPlacesEqualTheDefinition) {
  for (int64_t channels : {1, 3, 5, 20}) {
    for (auto coordinates :
         {SampleCoordinates::kPixels, SampleCoordinates::kIndices}) {
      GridSampleSpec args = Sized({}, 1, 5, 6, channels, 130);
      args.padding = SamplePadding::kGridWrap;
      args.coordinates = coordinates;
      Case c = MakeCase(args, 12);
      for (int64_t i = 0; i < 130; ++i) {
        c.grid[2 * i] = 4.25 + i % 5;
        c.grid[2 * i + 1] = -0.75 + i % 3 * 2;
      }
      Check<float>(testing::ThreadedCpu(2), c);
      Check<Half>(Cpu(), c);
    }
  }
}

// What pixels outside are worth, also if it is not finite: only samples and
// gradients that they are part of change.
TFO_DEVICE_TEST(GridSample, FillValuesThatAreNotFinite) {
  for (double fill : {INFINITY, NAN}) {
    for (int64_t channels : {1, 3, 20}) {
      GridSampleSpec args = InPixels(1, 3, 4, channels, 4);
      args.fill_value = fill;
      Case c = MakeCase(args, 9);
      c.grid = {1.25, 1.5, 3, 2, -0.5, 1, 7, 7};  // inside, edge, halfway, far
      for (double& d : c.d_output) d = 1;
      const auto with_fill = Run<float>(device, c);
      c.args.fill_value = 0;
      const auto without = Run<float>(device, c);
      for (int64_t i = 0; i < 4 * channels; ++i) {
        if (i < 2 * channels) {
          TFO_EXPECT_EQ(with_fill.output[i], without.output[i]);
        } else {
          TFO_EXPECT_EQ(with_fill.output[i] == fill, !std::isnan(fill));
        }
      }
      TFO_EXPECT(
          testing::HaveSameBits(with_fill.d_features, without.d_features));
      for (int i : {0, 1, 6, 7}) {
        TFO_EXPECT_EQ(with_fill.d_grid[i], without.d_grid[i]);
      }
      for (int i : {2, 3, 4}) TFO_EXPECT(!std::isfinite(with_fill.d_grid[i]));
    }
  }
}

// Neighbors share pixels, in rows as short as can be, and with a hole.
TFO_TEST(GridSample, SmoothPlacesEqualTheDefinition) {
  for (int64_t width : {1, 2, 3, 4, 9}) {
    Case c = MakeCase(InPixels(1, 20, width, 3, 20 * width), 4);
    for (int64_t i = 0; i < 20 * width; ++i) {
      c.grid[2 * i] = i % 7 == 3 ? -5 : i % width + 0.25;
      c.grid[2 * i + 1] = i / width - i % width / 4 + 0.5;
    }
    for (int n : {1, 3}) Check<float>(testing::ThreadedCpu(n), c);
  }
}

// Vectors of samples whose taps all count.
TFO_TEST(GridSample, PlacesInsideEqualTheDefinition) {
  for (auto padding : {SamplePadding::kZeros, SamplePadding::kBorder,
                       SamplePadding::kReflection, SamplePadding::kGridWrap}) {
    for (auto coordinates :
         {SampleCoordinates::kPixels, SampleCoordinates::kFlow}) {
      for (int64_t channels : {1, 2, 3, 4, 5, 9, 16, 40}) {
        GridSampleSpec args = Sized({}, 2, 9, 12, channels, 131);
        args.padding = padding;
        args.coordinates = coordinates;
        args.flow_columns = 20;
        Case c = MakeCase(args, 8);
        const bool flow = coordinates == SampleCoordinates::kFlow;
        for (int64_t i = 0; i < 2 * args.samples; ++i) {
          const int64_t own = i % args.samples;
          const double y = 0.25 + i * 7 % 8, x = 0.375 + i % 11;
          c.grid[2 * i] = flow ? own / args.flow_columns - y : x;
          c.grid[2 * i + 1] = flow ? own % args.flow_columns - x : y;
        }
        const Cpu cpu = testing::ThreadedCpu(2);
        Check<float>(cpu, c);
        Check<double>(cpu, c);
        Check<BFloat16>(cpu, c);
      }
    }
  }
}

// Outputs that do not fit into caches are written past them.
TFO_TEST(GridSample, LargeOutputsEqualTheirParts) {
  const int64_t parts = 4, part = (int64_t{1} << 14) + 1;
  const GridSampleSpec of_part = InPixels(1, 4, 4, 64, part);
  const GridSampleSpec of_all = InPixels(1, 4, 4, 64, parts * part);
  const auto image = testing::RandomValues<float>(16 * 64, 1);
  auto grid = testing::RandomValues<float>(2 * parts * part, 2);
  grid[77] = NAN;
  std::vector<float> expected(parts * part * 64);
  GpuVector<float> memory(expected.size() + 1);  // aligned
  for (int shift : {0, 1}) {
    float* const output = &memory[shift];
    GridSample<float>(testing::ThreadedCpu(2),
                      {of_all, image.data(), grid.data(), nullptr, output});
    for (int64_t i = 0; i < parts * part; i += part) {
      GridSample<float>(Cpu(), {of_part, image.data(), &grid[2 * i], nullptr,
                                &expected[i * 64]});
    }
    TFO_EXPECT(memcmp(output, expected.data(), expected.size() * 4) == 0);
  }
}

// Tall images are shared out by bands of rows: the bits must not depend on it.
TFO_TEST(GridSample, ThreadsDoNotChangeBits) {
  for (int64_t channels : {2, 3}) {
    GridSampleSpec args = InPixels(1, 67, 9, channels, 9000);
    args.mode = channels == 2 ? SampleMode::kBicubic : SampleMode::kBilinear;
    Case c = MakeCase(args, 3);
    const std::vector<float> noise =
        testing::RandomValues<float>(c.d_output.size() + c.grid.size(), 5);
    for (size_t i = 0; i < c.d_output.size(); ++i) c.d_output[i] = noise[i];
    for (size_t i = 0; i < c.grid.size(); ++i) c.grid[i] += noise[i];
    const auto one = Run<float>(Cpu(), c);
    const auto half = Run<Half>(Cpu(), c);
    for (int threads : {2, 5}) {
      const Cpu cpu = testing::ThreadedCpu(threads);
      const auto many = Run<float>(cpu, c);
      TFO_EXPECT(HaveSameBits(one.output, many.output));
      TFO_EXPECT(HaveSameBits(one.d_features, many.d_features));
      TFO_EXPECT(HaveSameBits(one.d_grid, many.d_grid));
      TFO_EXPECT(HaveSameBits(half.d_features, Run<Half>(cpu, c).d_features));
    }
  }
}

const double kWild[] = {NAN,   INFINITY,   -INFINITY,     1e10, -1e10, 3e38,
                        -3e38, 2147483648, -2147483649.0, 16.5, -3.25, 0};

// A wild coordinate with a tame one, in each place.
Case WildCase(GridSampleSpec args) {
  const int64_t wild = std::size(kWild);
  args.flow_columns = 2 * wild;
  Case c = MakeCase(Sized(args, 1, 4, 8, 3, 2 * wild), 11);
  for (int64_t i = 0; i < 2 * wild; ++i) {
    c.grid[2 * i] = i < wild ? kWild[i % wild] : 0.25;
    c.grid[2 * i + 1] = i < wild ? 0.25 : kWild[i % wild];
  }
  return c;
}

// A place that overflows is infinite. The definition in double must see the
// same place: wild coordinates are given in pixels and as a flow.
TFO_DEVICE_TEST(GridSample, WildPlacesEqualTheDefinition) {
  ForModes([&](GridSampleSpec args) {
    for (auto coordinates :
         {SampleCoordinates::kPixels, SampleCoordinates::kFlow,
          SampleCoordinates::kIndices}) {
      args.coordinates = coordinates;
      args.fill_value = 1.5;
      Case c = WildCase(args);
      for (double& g : c.grid) {
        g = static_cast<float>(g);
        // A flow's place rounds before it moves.
        const bool rounds = std::isfinite(g) && std::abs(g) > 100;
        if (coordinates == SampleCoordinates::kFlow && rounds) g = 7;
      }
      Check<float>(device, c);
    }
    // Normalized, 3e38 overflows: infinite.
    args.coordinates = SampleCoordinates::kNormalized;
    Case c = WildCase(args);
    Run<float>(device, c);
  });
}

TFO_TEST(GridSample, PixelsOfWeightZeroAreNotRead) {
  ForModes([&](GridSampleSpec args) {
    args.coordinates = SampleCoordinates::kPixels;
    for (int64_t channels : {1, 3, 17}) {
      args = Sized(args, 1, 5, 5, channels, 1);
      std::vector<float> features(25 * channels, NAN);
      for (int64_t c = 0; c < channels; ++c) features[12 * channels + c] = 2;
      const float grid[] = {2, 2};
      std::vector<float> output(channels);
      GridSample<float>(Cpu(),
                        {args, features.data(), grid, nullptr, output.data()});
      for (float value : output) TFO_EXPECT_EQ(value, 2.f);
    }
  });
}

TFO_CUDA_TEST(GridSample, CudaAllModesEqualTheDefinition) {
  CheckModes<float>(Gpu());
}
TFO_CUDA_TEST(GridSample, CudaTypesEqualTheDefinition) {
  for (int64_t channels : {3, 4, 40}) {
    const Case c = MakeCase(InPixels(2, 6, 8, channels, 70), 5);
    for (const Gpu& gpu : testing::Gpus()) {
      testing::ForTypes([&](auto type) { Check<decltype(type)>(gpu, c); });
    }
  }
}

template <typename T>
void TimeSamples(int64_t batch, int64_t side, int64_t channels,
                 bool deterministic = false) {
  const int64_t own = testing::BenchmarkSize(side);
  GridSampleSpec args = Sized({}, testing::BenchmarkSize(batch), own, own,
                              testing::BenchmarkSize(channels), own * own);
  args.align_corners = true;
  const int64_t size = args.batch * args.Pixels() * args.channels;
  const auto features = testing::RandomOnGpu<T>(size, 1);
  const auto d = testing::RandomOnGpu<T>(size, 2);
  GpuVector<T> output(size), to(size);
  GpuVector<Accumulator<T>> grid, to_grid(2 * args.batch * args.samples);
  // As a small rotation: neighbors read neighbors.
  for (int64_t i = 0; i < args.batch * args.samples; ++i) {
    const float x = 2.0f * (i % args.width) / args.width - 1;
    const float y = 2.0f * (i / args.width % args.height) / args.height - 1;
    grid.push_back(0.9f * x - 0.1f * y);
    grid.push_back(0.1f * x + 0.9f * y);
  }
  const auto name_of = [&](const char* name) {
    return testing::Text(testing::NameOf<T>(), name, " [", batch, ", ", side,
                         ", ", side, ", ", channels, "]");
  };
  const int64_t num_bytes =
      2 * size * sizeof(T) + grid.size() * sizeof(Accumulator<T>);
  if (!deterministic) {
    testing::TimeOnGpu(
        name_of("grid_sample"), num_bytes, 0, [&](const Gpu& gpu) {
          return GridSample<T>(gpu, {args, features.data(), grid.data(),
                                     nullptr, output.data()});
        });
  }
  testing::TimeOnGpu(
      name_of(deterministic ? "grid_sample_grad_deterministic"
                            : "grid_sample_grad"),
      2 * num_bytes, GridSampleGradScratchBytes(args, sizeof(T)), [&](Gpu gpu) {
        gpu.deterministic = deterministic;
        const Error error = GridSampleGridGrad<T>(
            gpu,
            {args, d.data(), features.data(), grid.data(), to_grid.data()});
        return error != nullptr
                   ? error
                   : GridSampleGrad<T>(
                         gpu, {args, d.data(), grid.data(), to.data()});
      });
}
TFO_BENCHMARK(GridSample, Maps) {
  TimeSamples<float>(4, 128, 64);
  TimeSamples<float>(4, 128, 64, true);
  TimeSamples<BFloat16>(4, 128, 64);
  TimeSamples<float>(4, 512, 3);
}

}  // namespace
}  // namespace tfo
