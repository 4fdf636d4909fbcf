// Compares elementary functions of vectors with C's in long double, at every
// CPU level: over all exponents, densely near turning points, and at special
// values.
#include "tensorflow_ops/core/cc/simd/elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/elementwise_test_simd.h"
#include "tensorflow_ops/core/cc/testing/testing.h"

namespace tfo {
namespace {

template <typename T>
using Limits = std::numeric_limits<T>;

// Special values, neighborhoods of points where implementations branch, and
// then numbers of all exponents and in [-8, 8].
template <typename T>
std::vector<T> Samples() {
  constexpr T kInfinity = Limits<T>::infinity();
  std::vector<T> x = {0, kInfinity, Limits<T>::quiet_NaN(), Limits<T>::max(),
                      Limits<T>::denorm_min()};
  for (const double point :
       {0.34657359,   0.5,          0.70710678,
        1.0,          1.41421356,   2.0,
        20.0,         25.0,         50.0,
        87.33654,     88.722839,    89.0,
        89.415986,    91.0,         103.97208,
        708.39641853, 709.78271289, 710.47586007,
        712.0,        745.13321910, 0x1p-24,
        0x1p-25,      0x1p-53,      0x1p-54,
        0x1p20,       0x1p24,       double{Limits<T>::min()}}) {
    T low = point, high = point;
    for (int i = 0; i < 100; ++i) {
      x.insert(x.end(), {low, high});
      low = std::nextafter(low, T{0});
      high = std::nextafter(high, kInfinity);
    }
  }
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<T> uniform(0, 8);
  for (int i = 0; i < 40000; ++i) {
    const uint64_t bits = engine() >> 1;
    T any;
    memcpy(&any, reinterpret_cast<const char*>(&bits) + (8 - sizeof(T)),
           sizeof(T));
    x.insert(x.end(), {any, uniform(engine)});
  }
  const size_t n = x.size();
  for (size_t i = 0; i < n; ++i) x.push_back(-x[i]);
  return x;
}

// Returns the distance in units in the last place or, for subnormals, in units
// of the smallest normal number. Infinite if only one value is infinite or NaN,
// or if a zero has the wrong sign.
template <typename T>
double UlpsOff(T actual, long double exact) {
  const T nearest = static_cast<T>(exact);
  if (std::isnan(nearest) || std::isnan(actual)) {
    return std::isnan(nearest) == std::isnan(actual) ? 0 : INFINITY;
  }
  if (exact == 0) {
    return actual == 0 && std::signbit(actual) == std::signbit(nearest)
               ? 0
               : INFINITY;
  }
  if (std::isinf(nearest) || std::isinf(actual)) {
    // Within a unit of the largest number, both are correct.
    const bool at_the_end =
        nearest == actual ||
        (std::isfinite(exact) &&
         std::abs(exact) <
             Limits<T>::max() * (1 + 2.0L * Limits<T>::epsilon()) &&
         std::abs(actual) >= Limits<T>::max() * (1 - 2 * Limits<T>::epsilon()));
    return at_the_end && std::signbit(actual) == std::signbit(nearest)
               ? 0
               : INFINITY;
  }
  const long double off = std::abs(actual - exact);
  if (std::abs(nearest) <= Limits<T>::min()) {
    return off <= Limits<T>::min() ? 0 : INFINITY;
  }
  const int exponent = std::ilogb(exact) - (Limits<T>::digits - 1);
  return static_cast<double>(std::ldexp(off, -exponent));
}

template <typename T, typename Exact>
void ExpectUlps(const char* name, double ulps, const std::vector<T>& actual,
                const std::vector<T>& x, const Exact& exact) {
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double off = UlpsOff(actual[i], exact(i));
    if (off > worst) {
      worst = off;
      where = i;
    }
  }
  if (worst <= ulps) return;
  std::ostringstream message;
  message.precision(20);
  message << name << " of the " << 8 * sizeof(T) << "-bit number " << x[where]
          << " is " << actual[where] << ", expected " << exact(where)
          << ": off by " << worst << " ulp, expected " << ulps << " at most";
  testing::Fail(__FILE__, __LINE__, message.str());
}

template <typename T>
void CheckFunctions() {
  const std::vector<T> x = Samples<T>();
  const int64_t n = x.size();
  std::vector<T> y(n);
#define TFO_CHECK(Name, ulps)                            \
  TFO_DISPATCH(ApplyFunction<T>)                         \
  (TestedFunction::k##Name, x.data(), n, y.data());      \
  ExpectUlps(#Name, ulps, y, x, [&](size_t i) {          \
    return scalar::Name(static_cast<long double>(x[i])); \
  });
  TFO_TESTED_FUNCTIONS(TFO_CHECK)
#undef TFO_CHECK
}

TFO_TEST(Elementwise, FloatFunctions) { CheckFunctions<float>(); }
TFO_TEST(Elementwise, DoubleFunctions) { CheckFunctions<double>(); }

TFO_TEST(Elementwise, ResultsDoNotDependOnTheLane) {
  const std::vector<float> x = Samples<float>();
  const int64_t n = x.size();
  std::vector<float> all(n), moved(n);
#define TFO_CHECK(Name, ulps)                                       \
  TFO_DISPATCH(ApplyFunction<float>)                                \
  (TestedFunction::k##Name, x.data(), n, all.data());               \
  TFO_DISPATCH(ApplyFunction<float>)                                \
  (TestedFunction::k##Name, x.data() + 5, n - 5, moved.data() + 5); \
  TFO_EXPECT(memcmp(all.data() + 5, moved.data() + 5, (n - 5) * 4) == 0);
  TFO_TESTED_FUNCTIONS(TFO_CHECK)
#undef TFO_CHECK
}

}  // namespace
}  // namespace tfo
