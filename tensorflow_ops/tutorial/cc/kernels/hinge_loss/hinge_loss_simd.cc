#include <algorithm>
#include <cmath>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss_math.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Of a logit. ParallelFor decides with it how many rows a thread needs.
constexpr double kCycles = 1;

template <typename T>
void HingeLossRow(const HingeLossArgs<T>& args, int64_t row) {
  const T* const logits = args.logits + row * args.classes;
  const int64_t label = args.labels[row];
  const auto of_label = LoadOne(logits + label);
  typename Lanes<T>::Vector sum{};
  typename Lanes<T>::Index rank{};
  const auto add = [&](const T* from, int64_t n) {
    ForVectors<T>(n, [&](auto part, int64_t at) {
      const auto x = part.Load(from + at, -INFINITY) - of_label;
      sum += part.Keep(HingeLossTerm(x));
      rank -= x > 0;  // a mask: lanes are 0 or -1
    });
  };
  // The classes before and after the label.
  add(logits, label);
  add(logits + label + 1, args.classes - label - 1);
  args.loss[row] = Narrow<T>(SumLanes(sum));
  args.rank[row] = static_cast<int32_t>(SumLanes(rank));
}

template <typename T>
void HingeLossGradRow(const HingeLossGradArgs<T>& args, int64_t row) {
  const T* const logits = args.logits + row * args.classes;
  T* const d_logits = args.d_logits + row * args.classes;
  const int64_t label = args.labels[row];
  const auto of_label = LoadOne(logits + label);
  const auto d_loss = LoadOne(args.d_loss + row);
  typename Lanes<T>::Vector sum{};
  const auto map = [&](const T* from, int64_t n, T* to) {
    ForVectors<T>(n, [&](auto part, int64_t at) {
      const auto x = part.Load(from + at, 0) - of_label;
      const auto d_x = HingeLossSlope(x) * d_loss;
      sum += part.Keep(d_x);
      part.Store(d_x, to + at);
    });
  };
  map(logits, label, d_logits);
  map(logits + label + 1, args.classes - label - 1, d_logits + label + 1);
  d_logits[label] = Narrow<T>(-SumLanes(sum));
}

}  // namespace

template <typename T>
Error HingeLoss(const Cpu& cpu, const HingeLossArgs<T>& args) {
  cpu.ParallelFor(args.rows, 10 + kCycles * args.classes,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) {
                      if (HasHingeLoss(args, row)) {
                        HingeLossRow(args, row);
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
  cpu.ParallelFor(
      args.rows, 10 + kCycles * args.classes, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          if (HasHingeLoss(args, row)) {
            HingeLossGradRow(args, row);
          } else {
            std::fill_n(args.d_logits + row * args.classes, args.classes, T{});
          }
        }
      });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(HingeLoss, HingeLossArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(HingeLossGrad, HingeLossGradArgs);

}  // namespace tfo
