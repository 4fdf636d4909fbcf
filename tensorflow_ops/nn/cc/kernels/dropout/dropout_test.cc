// Compares dropout with a plain loop over Philox's words.
#include "tensorflow_ops/nn/cc/kernels/dropout/dropout.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/philox.h"
#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::HaveSameBits;
using testing::ThreadedCpu;

constexpr uint64_t kKey = 0x123456789ABCDEF0;

// The random bits of number i.
template <typename T>
uint64_t BitsOf(const std::vector<uint64_t>& counter, int64_t i) {
  const uint32_t key[2] = {static_cast<uint32_t>(kKey), kKey >> 32};
  const int numbers = sizeof(T) == 8 ? 2 : 4;
  uint32_t words[4];
  uint64_t carry = i / numbers;
  for (int w = 0; w < 4; ++w) {
    carry += static_cast<uint32_t>(counter[w / 2] >> (w % 2 * 32));
    words[w] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  Philox(key, words);
  if (sizeof(T) == 8) {
    const uint64_t high = words[i % 2 * 2] & 0xFFFFF;
    return high << 32 | words[i % 2 * 2 + 1];
  }
  const uint32_t fraction = std::is_same_v<T, float>  ? 0x7FFFFF
                            : std::is_same_v<T, Half> ? 0x3FF
                                                      : 0x7F;
  return words[i % 4] & fraction;
}

// `skip`: numbers by which tensors miss their alignment.
template <typename T, typename Device>
void Check(const Device& device, int64_t size,
           const std::vector<uint64_t>& counter, double rate, bool in_place,
           int64_t skip = 0, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), size, " numbers",
                              in_place ? " in place" : "", ", rate ", rate,
                              ", counter ", counter[0], " ", counter[1],
                              ", skip ", skip);
  const GpuVector<uint64_t> key{kKey}, start = testing::ToGpu(counter);
  GpuVector<T> x = testing::RandomOnGpu<T>(size + skip, 1), gradient = x,
               other(size + skip), d_other(size + skip);
  for (int64_t i = 0; i < size; i += 7) {  // dropped ones become 0, too
    x[skip + i] = Narrow<T>(i % 2 ? std::numeric_limits<float>::quiet_NaN()
                                  : std::numeric_limits<float>::infinity());
  }
  const int64_t least =
      static_cast<int64_t>(std::ceil(std::ldexp(rate, kDropoutBits<T>)));
  const auto scale = static_cast<Accumulator<T>>(1.3);
  std::vector<T> expected(size + skip), d_expected(size + skip);
  std::vector<uint8_t> bits(DropoutMaskBytes(size));
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = skip + i;
    if (BitsOf<T>(counter, i) < static_cast<uint64_t>(least)) continue;
    bits[i / 8] |= 1 << i % 8;
    expected[at] = Narrow<T>(Widen(x[at]) * scale);
    d_expected[at] = Narrow<T>(Widen(gradient[at]) * scale);
  }
  GpuVector<uint8_t> mask(bits.size() + 1, 77);
  GpuVector<T>&y = in_place ? x : other, &d_x = in_place ? gradient : d_other;
  if (in_place) std::fill_n(x.begin(), skip, T{});
  TFO_EXPECT_RUNS(Dropout(
      device, DropoutArgs<T>{size, least, scale, x.data() + skip, key.data(),
                             start.data(), y.data() + skip, mask.data()}));
  TFO_EXPECT_RUNS(DropoutGrad(
      device, DropoutGradArgs<T>{size, scale, gradient.data() + skip,
                                 mask.data(), d_x.data() + skip}));
  if (in_place) std::fill_n(gradient.begin(), skip, T{});
  TFO_EXPECT(HaveSameBits(expected, y));
  TFO_EXPECT(HaveSameBits(d_expected, d_x));
  TFO_EXPECT_EQ(mask.back(), 77);
  mask.pop_back();
  TFO_EXPECT(HaveSameBits(bits, mask));
}

template <typename Device>
void CheckAll(const Device& device) {
  testing::ForTypes([&](auto type) {
    using T = decltype(type);
    constexpr uint64_t kMost = ~uint64_t{0};
    for (const int64_t size :
         {0, 1, 3, 4, 7, 8, 9, 31, 63, 64, 65, 127, 1000}) {
      Check<T>(device, size, {5, 6}, 0.3, size % 2);
      Check<T>(device, size, {kMost - 2, 6}, 0.3, size % 2, 1);
    }
    // All lanes where a counter may carry over 32, 64, 96 and 128 bits.
    for (uint64_t before = 0; before < 34; ++before) {
      Check<T>(device, 128, {0xFFFFFFFF - before, 0}, 0.3, false);
      Check<T>(device, 128, {kMost - before, 0xFFFFFFFF}, 0.3, false);
      Check<T>(device, 128, {kMost - before, kMost}, 0.3, false);
    }
    for (const double rate : {0.0, 1e-9, 0.5, 0.999, 1.0}) {
      Check<T>(device, 300, {kMost - 40, 1}, rate, false);
    }
  });
}

TFO_TEST(Dropout, DropsByTheBitsOfPhilox) {
  for (const int threads : {1, 3}) CheckAll(ThreadedCpu(threads));
}
TFO_CUDA_TEST(Dropout, CudaDropsByTheBitsOfPhilox) { CheckAll(Gpu()); }

// Large outputs are stored past the caches.
TFO_TEST(Dropout, LargeTensors) {
  Check<float>(ThreadedCpu(3), kStreamBytes / 4 + 5, {1, 2}, 0.4, false);
  Check<Half>(ThreadedCpu(2), kStreamBytes / 2 + 70, {1, 2}, 0.4, false, 1);
}

template <typename T>
void Time() {
  const int64_t size = testing::BenchmarkSize(1 << 24);
  const GpuVector<T> x = testing::RandomOnGpu<T>(size, 1);
  const GpuVector<uint64_t> key{kKey}, counter{1, 2};
  GpuVector<T> y(size);
  GpuVector<uint8_t> mask(DropoutMaskBytes(size));
  const int64_t bytes = 2 * size * sizeof(T) + mask.size();
  const DropoutArgs<T> args{size,     50,         1.1f,
                            x.data(), key.data(), counter.data(),
                            y.data(), mask.data()};
  const DropoutGradArgs<T> grad{size, 1.1f, x.data(), mask.data(), y.data()};
  const auto name = [&](const char* op) {
    return testing::Text(testing::NameOf<T>(), op, " [", size, "]");
  };
  testing::TimeOnGpu(name("dropout"), bytes, 0,
                     [&](const Gpu& gpu) { return Dropout(gpu, args); });
  testing::TimeOnGpu(name("dropout_grad"), bytes, 0,
                     [&](const Gpu& gpu) { return DropoutGrad(gpu, grad); });
}
TFO_BENCHMARK(Dropout, Large) {
  Time<float>();
  Time<BFloat16>();
}

}  // namespace
}  // namespace tfo
