// The passes of row_sums.h over some rows, on the calling thread. Only
// *_simd.cc files include this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROW_SUMS_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROW_SUMS_SIMD_H_

#include <algorithm>

#include "tensorflow_ops/nn/cc/kernels/rows/row_sums.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_cpu.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Rows that are computed together, so that the next pass finds them in the
// cache.
inline int64_t RowsAtOnce(int64_t classes) {
  return std::clamp<int64_t>((1 << 15) / std::max<int64_t>(classes, 1), 16,
                             512);
}

// Whether to compute rows of a few vectors one by one: RunRows would transpose
// them into tiles, which takes longer than everything else.
inline bool PreferRowByRow(int64_t rows, int64_t classes) {
  // Larger results bypass the caches, a block of rows at a time.
  return classes >= 64 && classes <= 1024 && rows * classes < (1 << 22);
}

// The sums of rows [begin, end).
template <typename T>
void SumRows(const RowSumsArgs<T>& args, int64_t begin, int64_t end) {
  if (!PreferRowByRow(args.rows, args.classes)) {
    return RunRows(args, begin, end);
  }
  for (int64_t row = begin; row < end; ++row) {
    Accumulator<T> state[kRowState];
    ReducePart(args, row, 0, args.classes, state);
    args.largest[row] = state[0];
    args.rest[row] = state[1];
  }
}

// The scaled softmax of rows [begin, end).
template <typename T>
void MapRows(const ScaledSoftmaxArgs<T>& args, int64_t begin, int64_t end) {
  if (!PreferRowByRow(args.rows, args.classes)) {
    return RunRows(args, begin, end);
  }
  for (int64_t row = begin; row < end; ++row) {
    MapPart(args, row, 0, args.classes,
            static_cast<const Accumulator<T>*>(nullptr));
  }
}

// Calls body(begin, end) for blocks of rows [begin, end).
template <typename Body>
void ForRowBlocks(int64_t begin, int64_t end, int64_t classes,
                  const Body& body) {
  const int64_t at_once = RowsAtOnce(classes);
  for (int64_t row = begin; row < end; row += at_once) {
    body(row, std::min(row + at_once, end));
  }
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROW_SUMS_SIMD_H_
