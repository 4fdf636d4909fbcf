#include "tensorflow_ops/detection/cc/kernels/nms/nms_sweep_simd.h"

#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
TFO_INLINE typename Lanes<T>::Index FirstLanes(int64_t n) {
  typename Lanes<T>::Index lane;
  for (int i = 0; i < Lanes<T>::kCount; ++i) lane[i] = i;
  return lane < static_cast<typename Lanes<T>::Integer>(n);
}

template <typename T>
TFO_INLINE Box<typename Lanes<T>::Vector> LoadBoxes(const BoxRows<T>& rows,
                                                    int64_t at) {
  return {Load(rows.x1 + at), Load(rows.y1 + at), Load(rows.x2 + at),
          Load(rows.y2 + at)};
}

template <typename T>
TFO_INLINE Box<typename Lanes<T>::Vector> Repeat(const BoxRow<T>& box) {
  using V = typename Lanes<T>::Vector;
  return {Broadcast<V>(box.x1), Broadcast<V>(box.y1), Broadcast<V>(box.x2),
          Broadcast<V>(box.y2)};
}

// Bit i is set where lane i of a comparison is true.
template <typename Mask>
TFO_INLINE uint32_t LaneBits(Mask mask) {
#ifdef __AVX512F__
  const __m512i m = reinterpret_cast<__m512i>(mask);
  if constexpr (sizeof(mask[0]) == 4) return _mm512_test_epi32_mask(m, m);
  return _mm512_test_epi64_mask(m, m);
#elif defined(__aarch64__)
  uint32_t bits = 0;
  for (size_t i = 0; i < sizeof(mask) / sizeof(mask[0]); ++i) {
    bits |= static_cast<uint32_t>(mask[i] & 1) << i;
  }
  return bits;
#else
  if constexpr (sizeof(mask[0]) == 4) {
    return _mm256_movemask_ps(reinterpret_cast<__m256>(mask));
  }
  return _mm256_movemask_pd(reinterpret_cast<__m256d>(mask));
#endif
}

template <bool kAnySize, typename T>
TFO_INLINE bool AnyOverlapsOf(const BoxRows<T>& kept, int64_t begin,
                              int64_t end, const BoxRow<T>& box,
                              T iou_threshold) {
  using V = typename Lanes<T>::Vector;
  constexpr int kCount = Lanes<T>::kCount;
  const Box<V> corners = Repeat(box);
  const V area = Broadcast<V>(box.area),
          threshold = Broadcast<V>(iou_threshold);
  const auto overlaps = [&](int64_t at) {
    const Overlap<V> overlap = OverlapOf<kAnySize>(
        LoadBoxes(kept, at), Load(kept.area + at), corners, area);
    // Without a division.
    return overlap.intersection > threshold * overlap.uni;
  };
  int64_t at = begin;
  for (; at + kCount <= end; at += kCount) {
    if (AnyLane(overlaps(at))) return true;
  }
  return at < end && AnyLane(overlaps(at) & FirstLanes<T>(end - at));
}

}  // namespace

template <typename T>
bool AnyOverlaps(const BoxRows<T>& kept, int64_t begin, int64_t end,
                 const BoxRow<T>& box, T iou_threshold) {
  return AnyOverlapsOf<true>(kept, begin, end, box, iou_threshold);
}
template <typename T>
bool AnyOrdinaryOverlaps(const BoxRows<T>& kept, int64_t begin, int64_t end,
                         const BoxRow<T>& box, T iou_threshold) {
  return AnyOverlapsOf<false>(kept, begin, end, box, iou_threshold);
}

template <typename T>
int64_t FirstTouching(const BoxRows<T>& kept, int64_t begin, int64_t end,
                      const BoxRow<T>& box) {
  using V = typename Lanes<T>::Vector;
  constexpr int kCount = Lanes<T>::kCount;
  const Box<V> corners = Repeat(box);
  for (int64_t at = begin; at < end; at += kCount) {
    const Box<V> others = LoadBoxes(kept, at);
    const typename Lanes<T>::Index touches =
        (others.x1 <= corners.x2) & (others.x2 >= corners.x1) &
        (others.y1 <= corners.y2) & (others.y2 >= corners.y1) &
        FirstLanes<T>(end - at);
    if (!AnyLane(touches)) continue;
    for (int i = 0; i < kCount; ++i) {
      if (touches[i] != 0) return at + i;
    }
  }
  return end;
}

// Whole numbers in the order of the scores, with one number for 0 and -0.
// Comparisons of the scores themselves would take subnormal ones for zeros on
// threads that flush them.
template <typename Integer, typename Bits>
TFO_INLINE Bits OrderOf(Bits score) {
  constexpr int kSign = 8 * sizeof(Integer) - 1;
  constexpr Integer kMagnitude = static_cast<Integer>(
      sizeof(Integer) == 4 ? 0x7FFFFFFF : 0x7FFFFFFFFFFFFFFF);
  const Bits is_negative = score >> kSign;  // -1 or 0
  return (score ^ (is_negative & kMagnitude)) - is_negative;
}

template <typename T>
int64_t FindAbove(const T* scores, int64_t n, T threshold, int32_t* places) {
  using Integer = typename Lanes<T>::Integer;
  using Index = typename Lanes<T>::Index;
  constexpr int kCount = Lanes<T>::kCount;
  constexpr Integer kInfinity = static_cast<Integer>(
      sizeof(Integer) == 4 ? 0x7F800000 : 0x7FF0000000000000);
  Integer limit;
  memcpy(&limit, &threshold, sizeof(limit));
  limit = OrderOf<Integer>(limit);
  int64_t found = 0, at = 0;
  for (; at + kCount <= n; at += kCount) {
    Index bits;
    memcpy(&bits, scores + at, sizeof(bits));
    // Not NaN: a negative one is below all numbers.
    uint32_t above =
        LaneBits((OrderOf<Integer>(bits) > limit) & (bits <= kInfinity));
    for (; above != 0; above &= above - 1) {
      places[found++] = static_cast<int32_t>(at + __builtin_ctz(above));
    }
  }
  for (; at < n; ++at) {
    Integer bits;
    memcpy(&bits, scores + at, sizeof(bits));
    if (OrderOf<Integer>(bits) > limit && bits <= kInfinity) {
      places[found++] = static_cast<int32_t>(at);
    }
  }
  return found;
}

template bool AnyOverlaps(const BoxRows<float>&, int64_t, int64_t,
                          const BoxRow<float>&, float);
template bool AnyOverlaps(const BoxRows<double>&, int64_t, int64_t,
                          const BoxRow<double>&, double);
template bool AnyOrdinaryOverlaps(const BoxRows<float>&, int64_t, int64_t,
                                  const BoxRow<float>&, float);
template bool AnyOrdinaryOverlaps(const BoxRows<double>&, int64_t, int64_t,
                                  const BoxRow<double>&, double);
template int64_t FirstTouching(const BoxRows<float>&, int64_t, int64_t,
                               const BoxRow<float>&);
template int64_t FirstTouching(const BoxRows<double>&, int64_t, int64_t,
                               const BoxRow<double>&);
template int64_t FindAbove(const float*, int64_t, float, int32_t*);
template int64_t FindAbove(const double*, int64_t, double, int32_t*);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
