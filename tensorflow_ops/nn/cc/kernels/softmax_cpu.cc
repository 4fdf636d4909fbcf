#include "tensorflow_ops/core/cc/rows.h"
#include "tensorflow_ops/nn/cc/kernels/softmax.h"

namespace tfo {

template <typename T, bool kLog>
Error Softmax(const Cpu& cpu, const SoftmaxArgs<T, kLog>& args) {
  return RunRowFunction(cpu, args);
}
template <typename T, bool kLog>
Error SoftmaxGrad(const Cpu& cpu, const SoftmaxGradArgs<T, kLog>& args) {
  return RunRowFunction(cpu, args);
}
template <typename T>
Error Entropy(const Cpu& cpu, const EntropyArgs<T>& args) {
  return RunRowFunction(cpu, args);
}
template <typename T>
Error EntropyGrad(const Cpu& cpu, const EntropyGradArgs<T>& args) {
  return RunRowFunction(cpu, args);
}

#define TFO_INSTANTIATE_FOR(T, log)                               \
  template Error Softmax(const Cpu&, const SoftmaxArgs<T, log>&); \
  template Error SoftmaxGrad(const Cpu&, const SoftmaxGradArgs<T, log>&)
#define TFO_INSTANTIATE(T)                                   \
  TFO_INSTANTIATE_FOR(T, false);                             \
  TFO_INSTANTIATE_FOR(T, true);                              \
  template Error Entropy(const Cpu&, const EntropyArgs<T>&); \
  template Error EntropyGrad(const Cpu&, const EntropyGradArgs<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE
#undef TFO_INSTANTIATE_FOR

}  // namespace tfo
