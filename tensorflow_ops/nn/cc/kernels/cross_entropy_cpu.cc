#include "tensorflow_ops/core/cc/rows.h"
#include "tensorflow_ops/nn/cc/kernels/cross_entropy.h"

namespace tfo {

template <typename T, typename Label>
Error LabelLoss(const Cpu& cpu, const LabelLossArgs<T, Label>& args) {
  return RunRowFunction(cpu, args);
}
template <typename T, typename Label>
Error LabelLossGrad(const Cpu& cpu, const LabelLossGradArgs<T, Label>& args) {
  return RunRowFunction(cpu, args);
}
template <typename T>
Error CrossEntropy(const Cpu& cpu, const CrossEntropyArgs<T>& args) {
  return RunRowFunction(cpu, args);
}
template <typename T>
Error CrossEntropyGrad(const Cpu& cpu, const CrossEntropyGradArgs<T>& args) {
  return RunRowFunction(cpu, args);
}

#define TFO_INSTANTIATE_LABELS(T, Label)                                \
  template Error LabelLoss(const Cpu&, const LabelLossArgs<T, Label>&); \
  template Error LabelLossGrad(const Cpu&, const LabelLossGradArgs<T, Label>&)
#define TFO_INSTANTIATE(T)                                             \
  TFO_INSTANTIATE_LABELS(T, int32_t);                                  \
  TFO_INSTANTIATE_LABELS(T, int64_t);                                  \
  template Error CrossEntropy(const Cpu&, const CrossEntropyArgs<T>&); \
  template Error CrossEntropyGrad(const Cpu&, const CrossEntropyGradArgs<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE
#undef TFO_INSTANTIATE_LABELS

}  // namespace tfo
