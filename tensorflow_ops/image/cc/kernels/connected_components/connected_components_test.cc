// Compares connected components with a flood fill from each first pixel.
#include "tensorflow_ops/image/cc/kernels/connected_components/connected_components.h"

#include "tensorflow_ops/image/cc/kernels/masks/masks_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;

struct Result {
  std::vector<int32_t> labels, counts;
};

Result FloodFill(const Planes& planes, const std::vector<int>& values,
                 bool diagonal) {
  Result result = {std::vector<int32_t>(values.size()),
                   std::vector<int32_t>(planes.Count())};
  for (int64_t plane = 0; plane < planes.Count(); ++plane) {
    const int64_t first =
        plane / planes.channels * planes.Pixels() * planes.channels +
        plane % planes.channels;
    const auto index = [&](int64_t y, int64_t x) {
      return first + (y * planes.width + x) * planes.channels;
    };
    int32_t count = 0;
    for (int64_t y = 0; y < planes.height; ++y) {
      for (int64_t x = 0; x < planes.width; ++x) {
        const int value = values[index(y, x)];
        if (value == 0 || result.labels[index(y, x)] != 0) continue;
        ++count;
        std::vector<std::pair<int64_t, int64_t>> left = {{y, x}};
        result.labels[index(y, x)] = count;
        while (!left.empty()) {
          const auto [v, u] = left.back();
          left.pop_back();
          for (int64_t dy = -1; dy <= 1; ++dy) {
            for (int64_t dx = -1; dx <= 1; ++dx) {
              if (!diagonal && dy != 0 && dx != 0) continue;
              const int64_t b = v + dy, a = u + dx;
              if (b < 0 || b >= planes.height || a < 0 || a >= planes.width ||
                  values[index(b, a)] != value ||
                  result.labels[index(b, a)] != 0) {
                continue;
              }
              result.labels[index(b, a)] = count;
              left.push_back({b, a});
            }
          }
        }
      }
    }
    result.counts[plane] = count;
  }
  return result;
}

// Spreads values over the bits of a pixel.
GpuVector<char> Store(const std::vector<int>& values, int64_t bytes) {
  GpuVector<char> pixels(values.size() * bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits[] = {0, ~uint64_t{0}, uint64_t{1} << (8 * bytes - 1),
                             1};
    std::memcpy(&pixels[i * bytes], &bits[values[i]], bytes);
  }
  return pixels;
}

template <typename Device>
void Check(const Device& device, const std::string& name, const Planes& planes,
           const std::vector<int>& values, int64_t bytes, bool diagonal,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, name, " ", planes.height, " x ",
                              planes.width, ", ", diagonal ? 8 : 4,
                              " neighbors, ", bytes, " bytes");
  const GpuVector<char> pixels = Store(values, bytes);
  GpuVector<int32_t> labels(planes.Elements(), -7), counts(planes.Count(), -7);
  const ConnectedComponentsArgs args = {
      planes, bytes, diagonal, pixels.data(), labels.data(), counts.data()};
  testing::WithScratch(
      device, [&] { return ConnectedComponentsScratch(planes).Bytes(); },
      [&](const Device& on) { TFO_EXPECT_RUNS(ConnectedComponents(on, args)); },
      /*fill=*/77);
  const Result expected = FloodFill(planes, values, diagonal);
  for (size_t i = 0; i < expected.labels.size(); ++i) {
    if (labels[i] == expected.labels[i]) continue;
    testing::Fail(__FILE__, __LINE__,
                  testing::Text("label ", i, " is ", labels[i], ", expected ",
                                expected.labels[i]));
    break;
  }
  TFO_EXPECT(std::equal(counts.begin(), counts.end(), expected.counts.begin()));
}

template <typename Device>
void CheckPatterns(const Device& device, const std::vector<Planes>& sizes) {
  constexpr bool kOnGpu = std::is_same_v<Device, Gpu>;
  int turn = 0, size = 0;
  for (const Planes& planes : sizes) {
    int pattern_number = ++size;
    for (const auto& [name, pattern] : testing::Patterns()) {
      const std::vector<int> values = testing::Draw(planes, pattern);
      const bool diagonal_on_gpu = ++pattern_number % 2 == 0;
      for (bool diagonal : {false, true}) {
        const int64_t bytes = int64_t{1} << (turn++ / 2 % 4);
        // Emulated kernels are slow: sizes and patterns alternate.
        if (kOnGpu && diagonal != diagonal_on_gpu) continue;
        Check(device, name, planes, values, bytes, diagonal);
      }
    }
  }
}

TFO_TEST(ConnectedComponents, EqualFloodFill) {
  for (int threads : {1, 3, 20}) {
    CheckPatterns(testing::ThreadedCpu(threads), testing::MaskSizes());
  }
}

TFO_TEST(ConnectedComponents, PixelsOfEverySizeAndWidth) {
  for (const auto& [name, pattern] : testing::Patterns()) {
    for (int64_t width : {31, 63, 64, 65, 127, 128, 130, 200}) {
      const Planes planes = {1, 10, width, 1};
      const std::vector<int> values = testing::Draw(planes, pattern);
      for (int64_t bytes : {1, 2, 4, 8}) {
        for (bool diagonal : {false, true}) {
          Check(testing::ThreadedCpu(2), name, planes, values, bytes, diagonal);
        }
      }
    }
  }
}

TFO_TEST(ConnectedComponents, BandsOfALargeImageAreJoined) {
  const Planes planes = {1, 400, 600, 1};
  for (const auto& [name, pattern] : testing::Patterns()) {
    const std::vector<int> values = testing::Draw(planes, pattern);
    for (bool diagonal : {false, true}) {
      for (int threads : {2, 5}) {
        Check(testing::ThreadedCpu(threads), name, planes, values, 1, diagonal);
      }
    }
  }
}

TFO_TEST(ConnectedComponents, EmptyImagesHaveNone) {
  for (const Planes& planes : {Planes{0, 4, 4, 1}, Planes{2, 0, 4, 1},
                               Planes{2, 4, 0, 3}, Planes{2, 4, 4, 0}}) {
    Check(Cpu{}, "empty", planes, {}, 1, false);
  }
}

TFO_CUDA_TEST(ConnectedComponents, CudaEqualsFloodFill) {
  CheckPatterns(Gpu{}, {{1, 1, 33, 1},
                        {1, 33, 1, 1},
                        {2, 13, 33, 1},
                        {3, 9, 7, 5},
                        {1, 17, 65, 2},
                        {1, 5, 300, 1}});
}

TFO_CUDA_TEST(ConnectedComponents, CudaLargeImage) {
  // Several chunks of pixels, and more than one tile of their sums.
  for (const auto& [name, pattern] : testing::Patterns()) {
    const Planes planes = {1, 70, 150, 1};
    Check(Gpu{}, name, planes, testing::Draw(planes, pattern), 1, true);
  }
  const Planes planes = {1, 700, 800, 1};
  const auto values =
      testing::Draw(planes, [](int64_t y, int64_t x) { return (y + x) % 2; });
  Check(Gpu{}, "checkerboard", planes, values, 1, false);
}

TFO_CUDA_TEST(ConnectedComponents, CudaEmptyImagesHaveNone) {
  for (const Planes& planes : {Planes{0, 4, 4, 1}, Planes{2, 0, 4, 1}}) {
    Check(Gpu{}, "empty", planes, {}, 1, false);
  }
}

TFO_BENCHMARK(ConnectedComponents, Masks) {
  for (const Planes& of : {Planes{8, 512, 512, 1}, Planes{1, 2048, 2048, 1}}) {
    const Planes planes = {of.images, testing::BenchmarkSize(of.height),
                           testing::BenchmarkSize(of.width), 1};
    const auto masks = testing::BenchmarkMasks(planes);
    GpuVector<int32_t> labels(planes.Elements()), counts(planes.images);
    const ConnectedComponentsArgs args = {
        planes, 1, true, masks.data(), labels.data(), counts.data()};
    testing::TimeOnGpu(
        testing::Text("connected_components [", of.images, ", ", of.height,
                      ", ", of.width, "]"),
        5 * planes.Elements(), ConnectedComponentsScratch(planes).Bytes(),
        [&](const Gpu& gpu) { return ConnectedComponents(gpu, args); });
  }
}

}  // namespace
}  // namespace tfo
