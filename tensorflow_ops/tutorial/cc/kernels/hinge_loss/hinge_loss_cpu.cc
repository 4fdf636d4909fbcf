#include <algorithm>

#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss_simd.h"

namespace tfo {
namespace {

// Of a logit. ParallelFor decides with it how many rows a thread needs.
constexpr double kCycles = 1;

}  // namespace

template <typename T>
Error HingeLoss(const Cpu& cpu, const HingeLossArgs<T>& args) {
  const auto run_row = TFO_DISPATCH(HingeLossRow<T>);
  cpu.ParallelFor(args.rows, 10 + kCycles * args.classes,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) {
                      if (HasHingeLoss(args, row)) {
                        run_row(args, row);
                      } else {
                        args.loss[row] = {};
                        args.rank[row] = 0;
                      }
                    }
                  });
  return nullptr;
}

template <typename T>
Error HingeLossGrad(const Cpu& cpu, const HingeLossGradArgs<T>& args) {
  const auto run_row = TFO_DISPATCH(HingeLossGradRow<T>);
  cpu.ParallelFor(
      args.rows, 10 + kCycles * args.classes, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          if (HasHingeLoss(args, row)) {
            run_row(args, row);
          } else {
            std::fill_n(args.d_logits + row * args.classes, args.classes, T{});
          }
        }
      });
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(HingeLoss, Cpu, HingeLossArgs);
TFO_INSTANTIATE_ALGORITHM(HingeLossGrad, Cpu, HingeLossGradArgs);

}  // namespace tfo
