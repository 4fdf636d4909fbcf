// A round of soft_nms.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_SOFT_NMS_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_SOFT_NMS_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/nms_sweep_simd.h"
#include "tensorflow_ops/detection/cc/kernels/soft_nms.h"

namespace tfo {

TFO_PER_CPU_LEVEL(
    // Multiplies the n scores by the decay that the taken box causes.
    template <typename T>
    void DecayScores(const SoftNmsArgs<T>& args, const BoxRows<T>& boxes,
                     int64_t n, const BoxRow<T>& taken, T* scores);
    // The same with the IoU of each box and the taken one.
    template <typename T> void DecayByIou(const SoftNmsArgs<T>& args,
                                          const T* iou, int64_t n, T* scores);
    // Returns the place of the greatest of n scores, the first of equal ones;
    // -1 if all are NaN or -infinity.
    template <typename T> int64_t PlaceOfBest(const T* scores, int64_t n);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_SOFT_NMS_SIMD_H_
