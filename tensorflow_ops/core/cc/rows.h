// Functions of rows [rows, classes] that reduce a row, as softmax and its kin
// do: what they share. A function is an Args struct (its tensors and options,
// with `rows`, `classes`, a type Value, the number kOutputs of its results of
// the rows' shape and kCyclesPerClass, its cost), and a RowFunction<Args> in a
// *_simd.cc file (rows_simd.h), which defines the four loops below for it by
// TFO_DEFINE_ROW_FUNCTION.
#ifndef TENSORFLOW_OPS_CORE_CC_ROWS_H_
#define TENSORFLOW_OPS_CORE_CC_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Numbers that stand for a part of a row, or for the whole.
inline constexpr int kRowState = 4;

TFO_PER_CPU_LEVEL(
    // All of rows [begin, end).
    template <typename Args>
    void RunRows(const Args& args, int64_t begin, int64_t end);

    // In parts, for rows that are long and few: the state of classes
    // [begin, end) of a row;
    template <typename Args>
    void ReducePart(const Args& args, int64_t row, int64_t begin, int64_t end,
                    typename Args::Value* state);
    // the state of the row, which takes the first's place, and the results that
    // it has one of;
    template <typename Args>
    void JoinParts(const Args& args, int64_t row, int64_t parts,
                   typename Args::Value* states);
    // the results of classes [begin, end).
    template <typename Args>
    void MapPart(const Args& args, int64_t row, int64_t begin, int64_t end,
                 const typename Args::Value* state);)

// Runs a function on the processor. How rows are cut into parts depends on
// their shape alone, so the bits of a result do not depend on the threads.
template <typename Args>
Error RunRowFunction(const Cpu& cpu, const Args& args) {
  using Value = typename Args::Value;
  constexpr int64_t kGroup =
      16;  // rows that share vectors where rows are short
  constexpr int64_t kPart = 1 << 15;
  constexpr int64_t kFewRows = 16;
  const double cycles = args.classes * Args::kCyclesPerClass;
  if (args.rows == 0) return nullptr;
  if (args.rows >= kFewRows || args.classes < 2 * kPart) {
    const auto run = TFO_DISPATCH(RunRows<Args>);
    const int64_t group = args.classes < 1024 ? kGroup : 1;
    cpu.ParallelFor((args.rows + group - 1) / group, cycles * group + 50,
                    [&](int64_t begin, int64_t end) {
                      run(args, begin * group,
                          std::min(end * group, args.rows));
                    });
    return nullptr;
  }
  const int64_t parts = (args.classes + kPart - 1) / kPart;
  std::vector<Value> states(args.rows * parts * kRowState);
  const auto for_parts = [&](const auto& body) {
    cpu.ParallelFor(
        args.rows * parts, kPart * Args::kCyclesPerClass / 2,
        [&](int64_t first, int64_t last) {
          for (int64_t unit = first; unit < last; ++unit) {
            const int64_t row = unit / parts, begin = unit % parts * kPart;
            body(row, begin, std::min(begin + kPart, args.classes), unit);
          }
        });
  };
  for_parts([&](int64_t row, int64_t begin, int64_t end, int64_t unit) {
    TFO_DISPATCH(ReducePart<Args>)
    (args, row, begin, end, &states[unit * kRowState]);
  });
  for (int64_t row = 0; row < args.rows; ++row) {
    TFO_DISPATCH(JoinParts<Args>)
    (args, row, parts, &states[row * parts * kRowState]);
  }
  if (Args::kOutputs > 0) {
    for_parts([&](int64_t row, int64_t begin, int64_t end, int64_t) {
      TFO_DISPATCH(MapPart<Args>)
      (args, row, begin, end, &states[row * parts * kRowState]);
    });
  }
  return nullptr;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_ROWS_H_
