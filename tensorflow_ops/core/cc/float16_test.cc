#include "tensorflow_ops/core/cc/float16.h"

#include <cmath>

#include "tensorflow_ops/core/cc/simd/convert_simd.h"
#include "tensorflow_ops/core/cc/testing/testing.h"

namespace tfo {
namespace {

// Returns the value that the format defines for the bits.
double Decode(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction ? NAN : sign * INFINITY;
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias - fraction_bits)
                       : sign * std::ldexp(fraction + (1 << fraction_bits),
                                           exponent - bias - fraction_bits);
}
double Decode(Half h) { return Decode(h.bits, 5, 10); }
double Decode(BFloat16 h) { return Decode(h.bits, 8, 7); }

bool Same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

template <typename T>
void ExpectWidensAndNarrowsAllValues() {
  for (int bits = 0; bits < 65536; ++bits) {
    const T value = {static_cast<uint16_t>(bits)};
    const float wide = Widen(value);
    TFO_EXPECT(Same(wide, Decode(value)));
    const T back = Narrow<T>(wide);
    TFO_EXPECT(std::isnan(wide) ? std::isnan(Widen(back)) : back.bits == bits);
  }
}
TFO_TEST(Float16, HalfConvertsBothWays) {
  ExpectWidensAndNarrowsAllValues<Half>();
}
TFO_TEST(Float16, BFloat16ConvertsBothWays) {
  ExpectWidensAndNarrowsAllValues<BFloat16>();
}

// Rounds numbers between neighbors to the nearer one, ties to even.
template <typename T>
void ExpectNarrowsToNearest() {
  const uint16_t infinity =
      sizeof(T) == 2 && Decode(T{0x7C00}) == INFINITY ? 0x7C00 : 0x7F80;
  for (uint16_t bits = 0; bits + 1 < infinity; ++bits) {
    const T low = {bits}, high = {static_cast<uint16_t>(bits + 1)};
    const float middle = static_cast<float>((Decode(low) + Decode(high)) / 2);
    const float below = std::nextafter(middle, -INFINITY),
                above = std::nextafter(middle, INFINITY);
    const float values[] = {below, middle, above};
    const uint16_t expected[] = {bits, static_cast<uint16_t>(bits + (bits & 1)),
                                 high.bits};
    T narrowed[3];
    TFO_DISPATCH(NarrowArray<T>)(values, narrowed, 3);
    for (int i = 0; i < 3; ++i) {
      TFO_EXPECT_EQ(Narrow<T>(values[i]).bits, expected[i]);
      TFO_EXPECT_EQ(Narrow<T>(-values[i]).bits, expected[i] | 0x8000);
      TFO_EXPECT_EQ(narrowed[i].bits, expected[i]);
    }
  }
}
TFO_TEST(Float16, HalfNarrowsToNearest) { ExpectNarrowsToNearest<Half>(); }
TFO_TEST(Float16, BFloat16NarrowsToNearest) {
  ExpectNarrowsToNearest<BFloat16>();
}

// Uses lengths around a vector's: all values are converted, and nothing is
// written past the end.
template <typename T>
void ExpectArraysNarrowLikeSingleValues() {
  std::vector<float> from = testing::RandomValues<float>(70, 1);
  from[3] = NAN, from[20] = INFINITY, from[21] = -INFINITY, from[22] = 1e30f,
  from[23] = 65519.0f, from[24] = 65520.0f, from[25] = 3e-8f, from[26] = -6e-6f,
  from[40] = -NAN;
  for (int n = 0; n <= 70; ++n) {
    std::vector<T> to(71, T{12345});
    TFO_DISPATCH(NarrowArray<T>)(from.data(), to.data(), n);
    for (int i = 0; i < n; ++i) {
      TFO_EXPECT(Same(Widen(to[i]), Widen(Narrow<T>(from[i]))));
    }
    TFO_EXPECT_EQ(to[n].bits, 12345);
  }
}
TFO_TEST(Float16, HalfArrays) { ExpectArraysNarrowLikeSingleValues<Half>(); }
TFO_TEST(Float16, BFloat16Arrays) {
  ExpectArraysNarrowLikeSingleValues<BFloat16>();
}

}  // namespace
}  // namespace tfo
