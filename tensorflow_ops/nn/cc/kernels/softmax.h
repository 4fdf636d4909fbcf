// Softmax, log-softmax and the entropy of a softmax along rows, with their
// gradients.
//
// A row whose logits are all -inf has no class: its softmax is 0, its
// log-softmax -inf, its entropy 0, and its gradients are 0. NaN or +inf in a
// row makes that row's results NaN.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SOFTMAX_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SOFTMAX_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// T is float, double, Half or BFloat16; matrices are [rows, classes]. Each
// function returns null or the launch's error; the Gpu overloads only enqueue.
// They want scratch memory where rows are long and few (core/cc/row_parts.h).

// kLog: the logarithm of the softmax in its place.
template <typename T, bool kLog>
struct SoftmaxArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 1;
  static constexpr double kCyclesPerClass = 2;
  int64_t rows, classes;
  const T* logits;
  T* output;
  Value* scratch = nullptr;  // on a GPU: RowScratch(rows, classes) values
};

template <typename T, bool kLog>
struct SoftmaxGradArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 1;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  const T *d_output, *output;
  T* d_logits;
  Value* scratch = nullptr;  // on a GPU: RowScratch(rows, classes) values
};

// Of each row: the largest logit, and sum e^(logit - largest) - 1.
template <typename Value>
struct SoftmaxSums {
  Value *largest, *rest;
};

template <typename T>
struct EntropyArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 0;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  const T* logits;
  Value* entropy;  // [rows], in nats
  SoftmaxSums<Value> sums;
  Value* scratch = nullptr;  // on a GPU: RowScratch(rows, classes) values
};

template <typename T>
struct EntropyGradArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 1;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  const Value* d_entropy;
  const T* logits;
  const Value* entropy;
  SoftmaxSums<const Value> sums;
  T* d_logits;
};

template <typename T, bool kLog>
Error Softmax(const Cpu& cpu, const SoftmaxArgs<T, kLog>& args);
template <typename T, bool kLog>
Error Softmax(const Gpu& gpu, const SoftmaxArgs<T, kLog>& args);
template <typename T, bool kLog>
Error SoftmaxGrad(const Cpu& cpu, const SoftmaxGradArgs<T, kLog>& args);
template <typename T, bool kLog>
Error SoftmaxGrad(const Gpu& gpu, const SoftmaxGradArgs<T, kLog>& args);
template <typename T>
Error Entropy(const Cpu& cpu, const EntropyArgs<T>& args);
template <typename T>
Error Entropy(const Gpu& gpu, const EntropyArgs<T>& args);
template <typename T>
Error EntropyGrad(const Cpu& cpu, const EntropyGradArgs<T>& args);
template <typename T>
Error EntropyGrad(const Gpu& gpu, const EntropyGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SOFTMAX_H_
