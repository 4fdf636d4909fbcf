#include "tensorflow_ops/core/cc/simd/elementwise_test_simd.h"

#include "tensorflow_ops/core/cc/simd/elementwise.h"
#include "tensorflow_ops/core/cc/simd/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename T>
void ApplyFunction(TestedFunction function, const T* x, int64_t n, T* y) {
  switch (function) {
#define TFO_CASE(Name, ulp)                           \
  case TestedFunction::k##Name:                       \
    ForVectors<T>(n, [&](auto part, int64_t at) {     \
      part.Store(Name(part.Load(x + at, 0)), y + at); \
    });                                               \
    break;
    TFO_TESTED_FUNCTIONS(TFO_CASE)
#undef TFO_CASE
  }
}

#define TFO_INSTANTIATE(T) \
  template void ApplyFunction(TestedFunction, const T*, int64_t, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
