// Compares the distance transform with a search over all zero pixels.
#include "tensorflow_ops/image/cc/kernels/distance_transform/distance_transform.h"

#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "tensorflow_ops/image/cc/kernels/masks/masks_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;

// Squared distances of all pixels.
std::vector<double> SearchSquares(const Planes& planes,
                                  const std::vector<int>& values,
                                  double row_spacing, double column_spacing) {
  std::vector<double> squares(values.size(),
                              std::numeric_limits<double>::infinity());
  const auto index = [&](int64_t n, int64_t y, int64_t x, int64_t c) {
    return ((n * planes.height + y) * planes.width + x) * planes.channels + c;
  };
  for (int64_t n = 0; n < planes.images; ++n) {
    for (int64_t c = 0; c < planes.channels; ++c) {
      for (int64_t v = 0; v < planes.height; ++v) {
        for (int64_t u = 0; u < planes.width; ++u) {
          if (values[index(n, v, u, c)] != 0) continue;
          for (int64_t y = 0; y < planes.height; ++y) {
            for (int64_t x = 0; x < planes.width; ++x) {
              const double down = row_spacing * (y - v);
              const double across = column_spacing * (x - u);
              double& square = squares[index(n, y, x, c)];
              square = std::min(square, down * down + across * across);
            }
          }
        }
      }
    }
  }
  return squares;
}

// The same with spacing 1, searched once for all dtypes and CPU levels.
const std::vector<double>& SquaresOf(const Planes& planes,
                                     const std::string& pattern,
                                     const std::vector<int>& values) {
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, std::string>;
  static auto* const found = new std::map<Key, std::vector<double>>();
  const Key key = {planes.images, planes.height, planes.width, planes.channels,
                   pattern};
  if (found->count(key) == 0) {
    found->emplace(key, SearchSquares(planes, values, 1, 1));
  }
  return found->at(key);
}

// The value of T that is nearest to the root.
template <typename T>
T Root(double square) {
  const long double root = std::sqrt(static_cast<long double>(square));
  if constexpr (sizeof(T) >= 4) {
    return static_cast<T>(root);
  } else {
    const T first = Narrow<T>(static_cast<float>(root));
    T best = first;
    for (int step : {-1, 1}) {
      const T other = {static_cast<uint16_t>(first.bits + step)};
      const long double error = std::abs(Widen(best) - root);
      const long double of_other = std::abs(Widen(other) - root);
      if (of_other < error || (of_other == error && other.bits % 2 == 0)) {
        best = other;
      }
    }
    return std::isinf(root) ? first : best;
  }
}

// The pixels' memory: bits that are zero as `type` where values are.
GpuVector<char> Store(const std::vector<int>& values, PixelType type) {
  GpuVector<char> bytes(values.size() * type.bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    uint64_t pixel = values[i];
    if (type.is_float) {
      const uint64_t sign = uint64_t{1} << (8 * type.bytes - 1);
      // 0 and -0; NaN, a negative number, the smallest subnormal.
      pixel = values[i] == 0 ? (i % 2 ? sign : 0)
                             : (i % 3 ? sign | (values[i] + 7) : sign - 1);
      if (values[i] == 1) pixel = 1;
    } else if (values[i] == 2) {
      pixel <<= 8 * type.bytes - 2;
    }
    std::memcpy(&bytes[i * type.bytes], &pixel, type.bytes);
  }
  return bytes;
}

template <typename T, typename Device>
GpuVector<T> Run(const Device& device, const Planes& planes,
                 const GpuVector<char>& pixels, PixelType type,
                 double row_spacing, double column_spacing) {
  GpuVector<T> distances(planes.Elements());
  const DistanceTransformArgs<T> args = {planes,        type,
                                         row_spacing,   column_spacing,
                                         pixels.data(), distances.data()};
  testing::WithScratch(
      device, [&] { return DistanceScratch(planes, sizeof(T)).Bytes(); },
      [&](const Device& on) { TFO_EXPECT_RUNS(DistanceTransform(on, args)); },
      /*fill=*/77);
  return distances;
}

constexpr PixelType kTypes[] = {{1, false}, {2, false}, {4, false}, {8, false},
                                {2, true},  {4, true},  {8, true}};

template <typename T, typename Device>
void CheckPatterns(const Device& device, const std::vector<Planes>& sizes,
                   const testing::Caller& caller = {}) {
  int turn = 0;
  for (const Planes& planes : sizes) {
    for (const auto& [name, pattern] : testing::Patterns()) {
      const std::vector<int> values = testing::Draw(planes, pattern);
      const PixelType type = kTypes[turn++ % std::size(kTypes)];
      const testing::Case of_test(caller, testing::NameOf<T>(), name, " ",
                                  planes.height, " x ", planes.width,
                                  ", pixels of ", type.bytes, " bytes");
      const auto actual =
          Run<T>(device, planes, Store(values, type), type, 1, 1);
      const auto& squares = SquaresOf(planes, name, values);
      for (size_t i = 0; i < squares.size(); ++i) {
        const T expected = Root<T>(squares[i]);
        if (std::memcmp(&actual[i], &expected, sizeof(T)) == 0) continue;
        testing::Fail(__FILE__, __LINE__,
                      testing::Text("distance ", i, " is ", Widen(actual[i]),
                                    ", expected ", Widen(expected)));
        break;
      }
    }
  }
}

template <typename Device>
void CheckSpacings(const Device& device, const Planes& planes,
                   const testing::Caller& caller = {}) {
  for (const auto& [row, column] : {std::pair{0.5, 2.0},
                                    {3.0, 0.1},
                                    {1e-38, 1e38},
                                    {1e38, 1e-38},
                                    {1e-30, 1e-30},
                                    {2.0, 2.0},
                                    {1.0, 0.75}}) {
    for (const auto& [name, pattern] : testing::Patterns()) {
      if (name != "zeros" && name != "one pixel" && name != "one zero pixel" &&
          name != "sparse zeros" && name != "blobs") {
        continue;
      }
      const testing::Case of_test(caller, name, ", spacing ", row, ", ",
                                  column);
      const std::vector<int> values = testing::Draw(planes, pattern);
      const auto actual = Run<double>(device, planes, Store(values, {1, false}),
                                      {1, false}, row, column);
      const auto squares = SearchSquares(planes, values, row, column);
      for (size_t i = 0; i < squares.size(); ++i) {
        const double expected = std::sqrt(squares[i]);
        if (actual[i] == expected ||
            std::abs(actual[i] - expected) <= 1e-14 * expected) {
          continue;
        }
        testing::Fail(__FILE__, __LINE__,
                      testing::Text("distance ", i, " is ", actual[i],
                                    ", expected ", expected));
        break;
      }
    }
  }
}

// Sides whose squares int32 and float32 do not hold.
template <typename Device>
void CheckLongSides(const Device& device, int64_t length) {
  for (const Planes& planes :
       {Planes{1, length, 1, 1}, Planes{1, 6, length, 1}}) {
    std::vector<int> values(planes.Elements(), 1);
    values[5] = 0;
    const auto actual =
        Run<float>(device, planes, Store(values, {1, false}), {1, false}, 1, 1);
    for (int64_t i = 0; i < planes.Elements(); i += 997) {
      const double along = planes.width > 1 ? i % length - 5 : i - 5;
      const double down = planes.width > 1 ? i / length : 0;
      TFO_EXPECT_EQ(actual[i], Root<float>(along * along + down * down));
    }
  }
}

// Roots that float32 rounds to the middle between two numbers of 16 bits, such
// as that of 4098^2 + 1: a second rounding would go the wrong way.
template <typename T, typename Device>
void CheckRoundsOnce(const Device& device) {
  const Planes planes = {1, 4120, 2, 1};
  std::vector<int> values(planes.Elements(), 1);
  values[0] = 0;
  const auto actual =
      Run<T>(device, planes, Store(values, {1, false}), {1, false}, 1, 1);
  for (int64_t y = 0; y < planes.height; ++y) {
    TFO_EXPECT_EQ(Widen(actual[2 * y + 1]),
                  Widen(Root<T>(static_cast<double>(y * y + 1))));
  }
}

TFO_TEST(DistanceTransform, SixteenBitsAreRoundedOnce) {
  CheckRoundsOnce<Half>(testing::ThreadedCpu(2));
  CheckRoundsOnce<BFloat16>(testing::ThreadedCpu(2));
}

TFO_TEST(DistanceTransform, IsTheNearestZeroPixels) {
  testing::ForTypes([](auto type) {
    CheckPatterns<decltype(type)>(testing::ThreadedCpu(3),
                                  testing::MaskSizes());
  });
}

TFO_TEST(DistanceTransform, SpacingsScaleRowsAndColumns) {
  CheckSpacings(testing::ThreadedCpu(2), {2, 11, 150, 1});
}

TFO_TEST(DistanceTransform, LongSidesAreExact) {
  CheckLongSides(testing::ThreadedCpu(2), 100003);
}

TFO_TEST(DistanceTransform, SameBitsForAnyNumberOfThreads) {
  const Planes planes = {1, 300, 513, 1};
  for (const auto& [name, pattern] : testing::Patterns()) {
    const auto pixels = Store(testing::Draw(planes, pattern), {1, false});
    for (double column : {1.0, 0.3}) {
      const auto one = Run<float>(testing::ThreadedCpu(1), planes, pixels,
                                  {1, false}, 1, column);
      for (int threads : {2, 7}) {
        TFO_EXPECT(testing::HaveSameBits(
            one, Run<float>(testing::ThreadedCpu(threads), planes, pixels,
                            {1, false}, 1, column)));
      }
    }
  }
}

TFO_TEST(DistanceTransform, EmptyImagesAreNotTouched) {
  for (const Planes& planes : {Planes{0, 4, 4, 1}, Planes{2, 0, 4, 1},
                               Planes{2, 4, 0, 1}, Planes{2, 4, 4, 0}}) {
    const DistanceTransformArgs<float> args = {planes, {1, false}, 1,
                                               1,      nullptr,    nullptr};
    TFO_EXPECT(DistanceTransform(Cpu{}, args) == nullptr);
  }
}

// Emulated kernels are slow, so these cover a few sizes only.
TFO_CUDA_TEST(DistanceTransform, CudaFloat) {
  CheckPatterns<float>(Gpu{}, {{1, 1, 33, 1},
                               {1, 33, 1, 1},
                               {2, 13, 33, 1},
                               {1, 3, 40, 3},
                               {1, 1, 1, 40},
                               // A segment of a row or column has several.
                               {1, 12, 300, 1},
                               {1, 1100, 2, 1},
                               // The most that shared memory holds, and more.
                               {1, 1, 4096, 1},
                               {1, 1, 4097, 1}});
}

TFO_CUDA_TEST(DistanceTransform, CudaOtherDtypes) {
  const std::vector<Planes> sizes = {{2, 9, 7, 2}};
  CheckPatterns<double>(Gpu{}, sizes);
  CheckPatterns<Half>(Gpu{}, sizes);
  CheckPatterns<BFloat16>(Gpu{}, sizes);
}

TFO_CUDA_TEST(DistanceTransform, CudaSixteenBitsAreRoundedOnce) {
  CheckRoundsOnce<Half>(Gpu{});
}

TFO_CUDA_TEST(DistanceTransform, CudaSpacings) {
  CheckSpacings(Gpu{}, {1, 7, 40, 1});
  CheckSpacings(Gpu{}, {1, 3, 160, 1});
}

// More than a block's shared memory, in two blocks.
TFO_CUDA_TEST(DistanceTransform, CudaLongSides) { CheckLongSides(Gpu{}, 6007); }

TFO_CUDA_TEST(DistanceTransform, CudaEmptyImagesAreNotTouched) {
  const DistanceTransformArgs<float> args = {{2, 0, 4, 1}, {1, false}, 1, 1,
                                             nullptr,      nullptr};
  TFO_EXPECT(DistanceTransform(Gpu{}, args) == nullptr);
}

TFO_BENCHMARK(DistanceTransform, Masks) {
  for (const Planes& of : {Planes{8, 512, 512, 1}, Planes{1, 2048, 2048, 1}}) {
    const Planes planes = {of.images, testing::BenchmarkSize(of.height),
                           testing::BenchmarkSize(of.width), 1};
    const auto masks = testing::BenchmarkMasks(planes);
    GpuVector<float> distances(planes.Elements());
    const DistanceTransformArgs<float> args = {
        planes, {1, false}, 1, 1, masks.data(), distances.data()};
    testing::TimeOnGpu(
        testing::Text("float32 distance_transform [", of.images, ", ",
                      of.height, ", ", of.width, "]"),
        5 * planes.Elements(), DistanceScratch(planes, sizeof(float)).Bytes(),
        [&](const Gpu& gpu) { return DistanceTransform(gpu, args); });
  }
}

}  // namespace
}  // namespace tfo
