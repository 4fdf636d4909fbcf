// RunRowFunction on the CPU (rows.h): splits rows over threads. *_cpu.cc files
// instantiate it with TFO_INSTANTIATE_ROW_FUNCTION_ON_CPU(Args).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_CPU_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/int_math.h"
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

template <typename Args>
Error RunRowFunction(const Cpu& cpu, const Args& args) {
  using Value = typename Args::Value;
  const double cycles = args.classes * Args::kCyclesPerClass;
  if (args.rows == 0) return nullptr;
  const int64_t part = CpuPartSize(args.rows, args.classes);
  if (part == args.classes) {
    const auto run = TFO_DISPATCH(RunRows<Args>);
    // Short rows share vectors (rows_simd.h).
    const int64_t group = args.classes < 1024 ? 16 : 1;
    cpu.ParallelFor(DivideUp(args.rows, group), cycles * group + 50,
                    [&](int64_t begin, int64_t end) {
                      run(args, begin * group,
                          std::min(end * group, args.rows));
                    });
    return nullptr;
  }
  const int64_t parts = DivideUp(args.classes, part);
  std::vector<Value> states(Args::kReduces ? args.rows * parts * kRowState : 0);
  const auto state_of = [&](int64_t row, int64_t i) {
    return Args::kReduces ? &states[(row * parts + i) * kRowState] : nullptr;
  };
  // Calls body(row, i, begin, end) for part i of each row.
  const auto for_parts = [&](const auto& body) {
    cpu.ParallelFor(args.rows * parts, part * Args::kCyclesPerClass / 2,
                    [&](int64_t first, int64_t last) {
                      for (int64_t unit = first; unit < last; ++unit) {
                        const int64_t begin = unit % parts * part;
                        body(unit / parts, unit % parts, begin,
                             std::min(begin + part, args.classes));
                      }
                    });
  };
  if constexpr (Args::kReduces) {
    for_parts([&](int64_t row, int64_t i, int64_t begin, int64_t end) {
      TFO_DISPATCH(ReducePart<Args>)(args, row, begin, end, state_of(row, i));
    });
    for (int64_t row = 0; row < args.rows; ++row) {
      TFO_DISPATCH(JoinParts<Args>)(args, row, parts, state_of(row, 0));
    }
  }
  if constexpr (Args::kOutputs > 0) {
    for_parts([&](int64_t row, int64_t, int64_t begin, int64_t end) {
      TFO_DISPATCH(MapPart<Args>)(args, row, begin, end, state_of(row, 0));
    });
  }
  return nullptr;
}

}  // namespace tfo

#define TFO_INSTANTIATE_ROW_FUNCTION_ON_CPU(...) \
  template Error RunRowFunction(const Cpu&, const __VA_ARGS__&)

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_CPU_H_
