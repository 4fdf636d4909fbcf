// Compares one box with many kept ones, and many scores with one.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_SWEEP_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_SWEEP_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"

namespace tfo {

// Boxes as rows. After the last box, each row has kRowPadding readable values.
template <typename T>
struct BoxRows {
  T *x1, *y1, *x2, *y2, *area;
};
inline constexpr int kRowPadding = 16;

// One of these boxes.
template <typename T>
struct BoxRow {
  T x1, y1, x2, y2, area;
};

TFO_PER_CPU_LEVEL(
    // Returns whether one of the kept boxes [begin, end) has an IoU above the
    // threshold with the box. All boxes have an extent (box.h).
    template <typename T>
    bool AnyOverlaps(const BoxRows<T>& kept, int64_t begin, int64_t end,
                     const BoxRow<T>& box, T iou_threshold);
    // The same for boxes with ordinary unions.
    template <typename T>
    bool AnyOrdinaryOverlaps(const BoxRows<T>& kept, int64_t begin, int64_t end,
                             const BoxRow<T>& box, T iou_threshold);
    // Returns the first of the kept rectangles [begin, end) that touches the
    // box, or `end`.
    template <typename T>
    int64_t FirstTouching(const BoxRows<T>& kept, int64_t begin, int64_t end,
                          const BoxRow<T>& box);
    // Writes the places of the n scores above the threshold; returns how many
    // there are. `places` has room for n.
    template <typename T> int64_t FindAbove(const T* scores, int64_t n,
                                            T threshold, int32_t* places);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_SWEEP_SIMD_H_
