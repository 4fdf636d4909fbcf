// A round of soft_nms.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_SOFT_NMS_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_SOFT_NMS_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_sweep_simd.h"
#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms.h"

namespace tfo {

// All return the place of the greatest of the n scores, the first of equal
// ones; a place outside of [0, n) if all are NaN or -infinity.
TFO_PER_CPU_LEVEL(
    template <typename T> int64_t PlaceOfBest(const T* scores, int64_t n);
    // Multiplies the scores by the decay that the taken box causes.
    template <typename T>
    int64_t DecayScores(const SoftNmsArgs<T>& args, const BoxRows<T>& boxes,
                        int64_t n, const BoxRow<T>& taken, T* scores);
    // The same for boxes with ordinary unions (box.h).
    template <typename T>
    int64_t DecayOrdinaryScores(const SoftNmsArgs<T>& args,
                                const BoxRows<T>& boxes, int64_t n,
                                const BoxRow<T>& taken, T* scores);
    // The same with the IoU of each box and the taken one.
    template <typename T>
    int64_t DecayByIou(const SoftNmsArgs<T>& args, const T* iou, int64_t n,
                       T* scores);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_SOFT_NMS_SIMD_H_
