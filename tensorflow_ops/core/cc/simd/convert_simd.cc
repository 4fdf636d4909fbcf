#include "tensorflow_ops/core/cc/simd/convert_simd.h"

#include "tensorflow_ops/core/cc/simd/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename T>
void NarrowArray(const Accumulator<T>* from, T* to, int64_t n) {
  constexpr int kCount = Lanes<T>::kCount;
  int64_t i = 0;
  for (; i + kCount <= n; i += kCount) Store(Load(from + i), to + i);
  if (i < n) StoreFirst(LoadFirst(from + i, n - i), to + i, n - i);
}

template void NarrowArray<float>(const float*, float*, int64_t);
template void NarrowArray<double>(const double*, double*, int64_t);
template void NarrowArray<Half>(const float*, Half*, int64_t);
template void NarrowArray<BFloat16>(const float*, BFloat16*, int64_t);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
