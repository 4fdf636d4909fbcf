// The loops of row functions (rows.h) in vectors, which rows_cpu.cc calls with
// rows or parts for each thread.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_CPU_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows.h"

namespace tfo {

// rows_simd.h defines these.
TFO_PER_CPU_LEVEL(
    // Computes rows [begin, end).
    template <typename Args>
    void RunRows(const Args& args, int64_t begin, int64_t end);

    // For rows in parts. Saves the state of classes [begin, end) of a row.
    template <typename Args>
    void ReducePart(const Args& args, int64_t row, int64_t begin, int64_t end,
                    typename Args::Value* state);
    // Merges the states of a row's parts into the first, and stores the row's
    // own results.
    template <typename Args>
    void JoinParts(const Args& args, int64_t row, int64_t parts,
                   typename Args::Value* states);
    // Computes the results of classes [begin, end) of a row. `state` is the
    // row's, or null where nothing is reduced.
    template <typename Args>
    void MapPart(const Args& args, int64_t row, int64_t begin, int64_t end,
                 const typename Args::Value* state);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_CPU_H_
