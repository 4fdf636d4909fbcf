// Activations of features plus a bias, and their gradients.
//
// Values of 16 bits are computed in float, and so are sums. NaN stays NaN, inf
// stays inf, and -inf gives -0, the limit.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ACTIVATIONS_ACTIVATIONS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ACTIVATIONS_ACTIVATIONS_H_

#include <cstdint>
#include <type_traits>
#include <utility>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// activation_formulas.h has their formulas.
enum class Activation { kGelu, kGeluTanh, kSilu };
inline constexpr std::pair<const char*, Activation> kActivations[] = {
    {"gelu", Activation::kGelu},
    {"gelu_tanh", Activation::kGeluTanh},
    {"silu", Activation::kSilu}};

// Calls run(constant) with the activation as an integral_constant.
template <typename Run>
Error WithActivation(Activation activation, const Run& run) {
  switch (activation) {
    case Activation::kGelu:
      return run(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kGeluTanh:
      return run(std::integral_constant<Activation, Activation::kGeluTanh>());
    default:
      return run(std::integral_constant<Activation, Activation::kSilu>());
  }
}

template <typename T>
struct BiasActivationArgs {
  Activation activation;
  int64_t rows, channels;
  const T* features;
  const T* bias;  // or null
  T* output;      // may be `features`
};

template <typename T, typename V>
void Describe(BiasActivationArgs<T>& a, V& v) {
  v.Enum("activation", kActivations, "gelu", &a.activation);
  v.In("features", "[..., channels]", &a.features);
  v.Optional("bias", "[channels]", &a.bias);
  v.Types("T");
  v.Out("output", "[..., channels]", &a.output, "features");
  v.Size("...", &a.rows);
  v.Size("channels", &a.channels);
}

template <typename T>
struct BiasActivationGradArgs {
  Activation activation;
  int64_t rows, channels;
  const T *d_output, *features;
  const T* bias;  // or null
  T* d_features;  // may be `d_output`
  T* d_bias;      // null if `bias` is
};

template <typename T, typename V>
void Describe(BiasActivationGradArgs<T>& a, V& v) {
  v.Enum("activation", kActivations, "gelu", &a.activation);
  v.In("d_output", "[..., channels]", &a.d_output);
  v.In("features", "[..., channels], the shape of d_output", &a.features);
  v.Optional("bias", "[channels]", &a.bias);
  v.Types("T");
  v.Out("d_features", "[..., channels]", &a.d_features, "d_output");
  v.OptionalOut("d_bias", "[channels]", "bias", &a.d_bias);
  v.Size("...", &a.rows);
  v.Size("channels", &a.channels);
}

template <typename T>
Error BiasActivation(const Cpu& cpu, const BiasActivationArgs<T>& args);
template <typename T>
Error BiasActivation(const Gpu& gpu, const BiasActivationArgs<T>& args);

template <typename T>
Error BiasActivationGrad(const Cpu& cpu, const BiasActivationGradArgs<T>& args);
template <typename T>
Error BiasActivationGrad(const Gpu& gpu, const BiasActivationGradArgs<T>& args);
// The scratch memory that the latter needs.
template <typename T>
int64_t BiasActivationGradScratchBytes(const BiasActivationGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ACTIVATIONS_ACTIVATIONS_H_
