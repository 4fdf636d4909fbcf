// The taps of places outside, and the bands of rows that samples are in.
#include <algorithm>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_simd.h"
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
