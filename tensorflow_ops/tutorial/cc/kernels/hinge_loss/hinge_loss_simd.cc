#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss_simd.h"

#include <cmath>

#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss_math.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

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

#define TFO_INSTANTIATE(T)                                      \
  template void HingeLossRow(const HingeLossArgs<T>&, int64_t); \
  template void HingeLossGradRow(const HingeLossGradArgs<T>&, int64_t)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
