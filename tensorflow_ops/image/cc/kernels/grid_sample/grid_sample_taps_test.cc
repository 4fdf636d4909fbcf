// The taps of places outside and beside halves, and the bands of rows that
// samples are in.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing/testing.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_testing.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/sample_axis.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/sample_bands.h"

namespace tfo {
namespace {

constexpr std::pair<SampleMode, SamplePadding> kModes[] = {
    {SampleMode::kBilinear, SamplePadding::kZeros},
    {SampleMode::kNearest, SamplePadding::kZeros},
    {SampleMode::kBicubic, SamplePadding::kZeros},
    {SampleMode::kBilinear, SamplePadding::kBorder},
    {SampleMode::kNearest, SamplePadding::kBorder},
    {SampleMode::kBicubic, SamplePadding::kBorder},
};

// Floats are multiples of 2 from 2^24 on, and of 128 at the largest size.
TFO_TEST(GridSampleTaps, LongSidesHaveAnOutside) {
  for (int64_t size : {1 << 24, 1 << 25, (1 << 25) + 1, 1 << 30}) {
    for (auto [mode, padding] : kModes) {
      GridSampleSpec args = {};
      args.mode = mode;
      args.padding = padding;
      args.coordinates = SampleCoordinates::kPixels;
      args.batch = args.height = args.samples = 1;
      args.width = size;
      SampleTaps<float> taps;
      SampleSlopes<float> slopes;
      for (float x : {-1e9f, 2e9f, 3e38f}) {
        const float grid[] = {x, 0};
        TFO_DISPATCH(FindTaps<float>)
        (args, grid, {nullptr, 0, 1}, &taps, &slopes);
        float sum = 0, slope = 0;
        for (int t = 0; t < taps.count; ++t) {
          sum += taps.weight[t][0];
          slope += slopes.x[t][0];
          if (taps.weight[t][0] == 0) continue;
          TFO_EXPECT_EQ(taps.pixel[t][0], x < 0 ? 0 : size - 1);
        }
        TFO_EXPECT_EQ(sum, args.padding == SamplePadding::kZeros ? 0.f : 1.f);
        TFO_EXPECT_EQ(slope, 0.f);
      }
    }
  }
}

// By pixel: the weight, and the slope.
using PixelWeights = std::map<int64_t, std::pair<double, double>>;

void ExpectSame(const PixelWeights& actual, const PixelWeights& expected,
                double rounding) {
  for (const auto& [a, b] : {std::pair(actual, expected), {expected, actual}}) {
    for (const auto& [pixel, pair] : a) {
      const auto at = b.find(pixel);
      const auto other = at == b.end() ? std::pair(0.0, 0.0) : at->second;
      TFO_EXPECT(std::abs(pair.first - other.first) <= rounding);
      TFO_EXPECT(std::abs(pair.second - other.second) <= rounding);
    }
  }
}

// As kernels find it: for CPUs, and for GPUs.
template <int kCount, typename C>
PixelWeights ScalarTaps(const GridSampleSpec& args, C x) {
  const auto taps =
      scalar::TapsOf<kCount, C>(AxisOf<C>(args, args.width), x, C(0));
  PixelWeights weights;
  for (int i = 0; i < kCount; ++i) {
    auto& [weight, slope] = weights[static_cast<int64_t>(taps.pixel[i])];
    weight += taps.weight[i];
    slope += taps.slope[i];
  }
  return weights;
}

// The taps of a row's places equal the definition's, in all modes.
template <typename C>
void CheckRow(int64_t width, std::vector<C> x) {
  const double rounding = sizeof(C) == 8 ? 1e-12 : 1e-6;
  x.resize((x.size() + kSampleBlock - 1) / kSampleBlock * kSampleBlock);
  for (int option = 0; option < 3 * 6 * 2 * 2; ++option) {
    GridSampleSpec args = {};
    args.mode = static_cast<SampleMode>(option % 3);
    args.padding = static_cast<SamplePadding>(option / 3 % 6);
    args.align_corners = option / 18 % 2 == 1;
    args.coordinates = option / 36 == 0 ? SampleCoordinates::kPixels
                                        : SampleCoordinates::kIndices;
    if (args.mode == SampleMode::kBicubic &&
        args.padding > SamplePadding::kReflection) {
      continue;  // the shape function refuses it
    }
    args.batch = args.height = 1;
    args.width = width;
    for (size_t first = 0; first < x.size(); first += kSampleBlock) {
      std::vector<C> grid;
      const bool y_first = YIsFirst(args.coordinates);
      for (int64_t i = 0; i < kSampleBlock; ++i) {
        const C place = x[first + i];
        grid.insert(grid.end(), {y_first ? 0 : place, y_first ? place : 0});
      }
      SampleTaps<C> taps;
      SampleSlopes<C> slopes;
      TFO_DISPATCH(FindTaps<C>)
      (args, grid.data(), {nullptr, 0, kSampleBlock}, &taps, &slopes);
      for (int64_t i = 0; i < kSampleBlock; ++i) {
        const C place = x[first + i];
        const testing::Case of_test({}, testing::NameOf<C>(), "mode ",
                                    option % 3, ", padding ", option / 3 % 6,
                                    ", align_corners ", args.align_corners,
                                    ", coordinates ", option / 36, ", width ",
                                    width, ", x ", testing::Text(place));
        PixelWeights expected, actual;
        for (const auto& [pixel, weight, slope] :
             testing::AxisOfDefinition(args, width, place, 0).taps) {
          if (pixel < 0) continue;
          expected[pixel].first += weight;
          expected[pixel].second += slope;
        }
        for (int t = 0; t < taps.count; ++t) {
          auto& [weight, slope] = actual[taps.pixel[t][i]];
          weight += taps.weight[t][i];
          slope += slopes.x[t][i];
        }
        ExpectSame(actual, expected, rounding);
        ExpectSame(
            args.mode == SampleMode::kNearest    ? ScalarTaps<1>(args, place)
            : args.mode == SampleMode::kBilinear ? ScalarTaps<2>(args, place)
                                                 : ScalarTaps<4>(args, place),
            expected, rounding);
      }
    }
  }
}

// Places beside halves and whole numbers are on their side of them, inside of
// the image, in each of its mirror images and in each period.
template <typename C>
void CheckBesideHalves() {
  std::vector<C> x = {C(1e-6), C(-1e-6)};
  for (int twice = -44; twice <= 44; ++twice) {
    const C half = static_cast<C>(twice) / 2;
    x.push_back(half);
    if (twice == 0) continue;
    x.push_back(std::nextafter(half, C(-100)));
    x.push_back(std::nextafter(half, C(100)));
  }
  for (int64_t width : {1, 2, 4, 5, 1000}) CheckRow<C>(width, x);
}
TFO_TEST(GridSampleTaps, PlacesBesideHalvesEqualTheDefinition) {
  CheckBesideHalves<float>();
  CheckBesideHalves<double>();
}

// From 2^23 on, floats are whole numbers: a sum with a half would round them.
TFO_TEST(GridSampleTaps, WholePlacesBeyond23BitsEqualTheDefinition) {
  constexpr int64_t kWidth = (1 << 23) + 16;
  std::vector<float> x;
  for (int64_t times : {0, 1, 2, 3, 5, 40}) {
    for (int64_t i = -19; i <= 19; ++i) {
      x.push_back(times * kWidth + i);
      x.push_back(-x.back());
    }
  }
  for (int64_t width : {int64_t{8}, int64_t{1000}, kWidth, 2 * kWidth - 33}) {
    CheckRow<float>(width, x);
    CheckRow<double>(width, {x.begin(), x.end()});
  }
}

// Samples are in the bands that they read only: an outside one is in none.
TFO_TEST(GridSampleTaps, BandsHoldSamplesThatReadThem) {
  GridSampleSpec args = {};
  args.coordinates = SampleCoordinates::kPixels;
  args.batch = 1;
  args.height = 64;
  args.width = 2;
  args.samples = 6;
  // On rows, between rows of one and two bands, below, above, on the edge.
  const float y[] = {5, 6.5, 7.5, 100, -3, 63.5};
  std::vector<float> grid;
  for (float v : y) grid.insert(grid.end(), {0, v});
  const SampleBands<float> bands(Cpu(), args, grid.data(), 3);
  TFO_EXPECT_EQ(bands.count(), 8);
  const std::vector<std::vector<int64_t>> expected = {{0, 1, 2}, {2}, {}, {},
                                                      {},        {},  {}, {5}};
  for (int64_t band = 0; band < 8; ++band) {
    const SampleList list = bands.Samples(0, band);
    TFO_EXPECT(std::equal(expected[band].begin(), expected[band].end(),
                          list.samples, list.samples + list.count));
  }
}

}  // namespace
}  // namespace tfo
