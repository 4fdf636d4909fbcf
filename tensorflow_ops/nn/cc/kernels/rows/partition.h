// Splits rows that are long and few into parts: threads or blocks reduce each
// part on its own, then the states of parts are merged in order.
//
// Depends on the shape alone, so results do not depend on how many threads
// there are.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_PARTITION_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_PARTITION_H_

#include <algorithm>
#include <cstdint>

#include "tensorflow_ops/core/cc/int_math.h"

namespace tfo {

// Scalars in the saved state of a part or row (state.h).
inline constexpr int kRowState = 4;

// On the CPU: classes in a part; all of them where rows are not split.
inline int64_t CpuPartSize(int64_t rows, int64_t classes) {
  constexpr int64_t kPart = 1 << 15, kFewRows = 16;
  return rows >= kFewRows || classes < 2 * kPart ? classes : kPart;
}

// On a GPU: parts of a row; 1 where rows are not split.
inline int64_t GpuParts(int64_t rows, int64_t classes) {
  constexpr int64_t kPart = 1 << 14;
  constexpr int64_t kMaxPart = 1 << 28;  // positions in a part are ints
  constexpr int64_t kFewRows = 512, kMaxUnits = 1024;
  const int64_t min_parts = DivideUp(classes, kMaxPart);
  if (rows >= kFewRows || rows == 0 || classes < 2 * kPart) {
    return std::max<int64_t>(min_parts, 1);
  }
  return std::max(
      min_parts, std::min(DivideUp(kMaxUnits, rows), DivideUp(classes, kPart)));
}

// On a GPU: values of scratch memory of a function that reduces rows; may be 0.
inline int64_t GpuStateValues(int64_t rows, int64_t classes) {
  const int64_t parts = GpuParts(rows, classes);
  return parts > 1 ? rows * parts * kRowState : 0;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_PARTITION_H_
