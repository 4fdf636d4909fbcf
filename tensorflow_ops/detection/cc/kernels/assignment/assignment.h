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
  int64_t batch, rows, columns;
  bool maximize;
  const T* costs;
  // Null for all columns. On a GPU, an example whose count is not in [0,
  // columns] has no pairs; the CPU's caller has checked counts.
  const int64_t* counts;
  int32_t *columns_of_rows, *rows_of_columns;  // -1: none
};

template <typename T, typename V>
void Describe(AssignmentArgs<T>& a, V& v) {
  v.In("costs", "[..., rows, columns]", &a.costs);
  v.Option("maximize", false, &a.maximize);
  v.Types("T");
  v.Optional("counts", "[...], the leading dims of costs", &a.counts);
  v.Size("...", &a.batch);
  v.Size("rows", &a.rows);
  v.Size("columns", &a.columns);
  v.Check(a.rows <= INT32_MAX && a.columns <= INT32_MAX, "costs have ", a.rows,
          " rows and ", a.columns,
          " columns, expected fewer than 2^31: indices are int32");
  v.Out("columns", "[..., rows]", &a.columns_of_rows);
  v.Out("rows", "[..., columns]", &a.rows_of_columns);
}

template <typename T>
Error LinearSumAssignment(const Cpu& cpu, const AssignmentArgs<T>& args);
template <typename T>
Error LinearSumAssignment(const Gpu& gpu, const AssignmentArgs<T>& args);

// Returns the bytes of gpu.scratch that the call needs.
template <typename T>
int64_t AssignmentScratchBytes(const AssignmentArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_ASSIGNMENT_H_
