#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_greedy_simd.h"

#include "tensorflow_ops/nn/cc/kernels/rows/reductions_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// The index of the first value that is not below `largest`; n if there is none.
template <typename T>
static int64_t FindLargest(const T* row, int64_t n, Accumulator<T> largest) {
  using V = typename Lanes<T>::Vector;
  using Value = Accumulator<T>;
  constexpr int64_t kBlock = 4 * Lanes<T>::kCount;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = n - begin < kBlock ? n - begin : kBlock;
    V found = V{};
    ForVectors<T>(size, [&](auto part, int64_t at) {
      const V v = part.Load(row + begin + at, -static_cast<Value>(INFINITY));
      found = v >= Broadcast<V>(largest) ? Broadcast<V>(Value(1)) : found;
    });
    if (VectorLanes::Max(found)[0] == 0) continue;
    for (int64_t i = begin; i < begin + size; ++i) {
      if (LoadOne(row + i) >= largest) return i;
    }
  }
  return n;
}

#define TFO_DEFINE(T)                                                     \
  template <>                                                             \
  GreedyClass<Accumulator<T>> ReadGreedyClass<T>(const T* row,            \
                                                 int64_t classes) {       \
    const auto state = ReduceSoftmax(row, classes).Joined(VectorLanes()); \
    const Accumulator<T> largest = state.max[0], rest = state.rest[0];    \
    if (!(rest == rest)) return {rest, 0};                                \
    return {rest, FindLargest(row, classes, largest)};                    \
  }
TFO_DEFINE(float)
TFO_DEFINE(double)
TFO_DEFINE(Half)
TFO_DEFINE(BFloat16)
#undef TFO_DEFINE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
