#include "tensorflow_ops/core/cc/rows.h"
#include "tensorflow_ops/nn/cc/kernels/gaussian_kl.h"

namespace tfo {

template <typename T, bool kUnit>
Error GaussianKl(const Cpu& cpu, const GaussianKlArgs<T, kUnit>& args) {
  return RunRowFunction(cpu, args);
}
template <typename T, bool kUnit>
Error GaussianKlGrad(const Cpu& cpu, const GaussianKlGradArgs<T, kUnit>& args) {
  return RunRowFunction(cpu, args);
}

#define TFO_INSTANTIATE_FOR(T, unit)                                     \
  template Error GaussianKl(const Cpu&, const GaussianKlArgs<T, unit>&); \
  template Error GaussianKlGrad(const Cpu&, const GaussianKlGradArgs<T, unit>&)
#define TFO_INSTANTIATE(T)       \
  TFO_INSTANTIATE_FOR(T, false); \
  TFO_INSTANTIATE_FOR(T, true)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE
#undef TFO_INSTANTIATE_FOR

}  // namespace tfo
