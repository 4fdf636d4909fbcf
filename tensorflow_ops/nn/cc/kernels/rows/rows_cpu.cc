#include "tensorflow_ops/nn/cc/kernels/rows/rows_cpu.h"

#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/rows/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/rows/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/rows/softmax.h"

namespace tfo {

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

#define TFO_INSTANTIATE(...) \
  template Error RunRowFunction(const Cpu&, const __VA_ARGS__&)
TFO_FOR_SOFTMAX_FUNCTIONS(TFO_INSTANTIATE);
TFO_FOR_CROSS_ENTROPY_FUNCTIONS(TFO_INSTANTIATE);
TFO_FOR_LABEL_LOSS_FUNCTIONS(TFO_INSTANTIATE);
TFO_FOR_GAUSSIAN_KL_FUNCTIONS(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace tfo
