// The inner loop of the assignment, compiled once per CPU level.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_ASSIGNMENT_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_ASSIGNMENT_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/assignment/sink_scan.h"

namespace tfo {

TFO_PER_CPU_LEVEL(
    // Updates `nearest` and `from` where the way through the source is shorter.
    // Returns the nearest sink: of equal ones, the first without an owner, else
    // the first; -1 if none is reached. Sets *low to its distance.
    int64_t RelaxSinks(const SinkScan& scan, double* low);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_ASSIGNMENT_SIMD_H_
