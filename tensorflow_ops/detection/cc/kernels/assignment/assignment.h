// Linear sum assignment: the matching of rows and columns of the smallest sum
// of costs.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_ASSIGNMENT_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_ASSIGNMENT_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Matches rows with the first `counts` columns of each example: as many pairs
// as possible, then those of the smallest sum, or of the largest with
// `maximize`. NaN and +infinity (-infinity with `maximize`) forbid a pair; the
// other infinity counts as the lowest (greatest) finite number of T. Ties are
// broken in the same way on all devices.
template <typename T>
struct AssignmentArgs {
  int64_t batch, rows, columns;  // rows and columns below 2^31
  bool maximize;
  const T* costs;         // [batch, rows, columns]
  const int64_t* counts;  // [batch], or null for all columns. On a GPU, an
                          // example whose count is not in [0, columns] has no
                          // pairs; the CPU's caller has checked counts.
  int32_t* columns_of_rows;  // [batch, rows]; -1: none
  int32_t* rows_of_columns;  // [batch, columns]; -1: none
};

template <typename T>
Error LinearSumAssignment(const Cpu& cpu, const AssignmentArgs<T>& args);
template <typename T>
Error LinearSumAssignment(const Gpu& gpu, const AssignmentArgs<T>& args);

// Returns the bytes of gpu.scratch that the call needs.
template <typename T>
int64_t AssignmentScratchBytes(const AssignmentArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_ASSIGNMENT_H_
