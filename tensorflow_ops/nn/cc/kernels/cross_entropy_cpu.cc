#include "tensorflow_ops/core/cc/rows.h"
#include "tensorflow_ops/nn/cc/kernels/cross_entropy.h"

namespace tfo {

template <typename T>
Error LabelLoss(const Cpu& cpu, const LabelLossArgs<T>& args) {
  return RunRowFunction(cpu, args);
}
template <typename T>
Error LabelLossGrad(const Cpu& cpu, const LabelLossGradArgs<T>& args) {
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

#define TFO_INSTANTIATE(T)                                               \
  template Error LabelLoss(const Cpu&, const LabelLossArgs<T>&);         \
  template Error LabelLossGrad(const Cpu&, const LabelLossGradArgs<T>&); \
  template Error CrossEntropy(const Cpu&, const CrossEntropyArgs<T>&);   \
  template Error CrossEntropyGrad(const Cpu&, const CrossEntropyGradArgs<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
