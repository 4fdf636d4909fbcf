// The Kullback-Leibler divergence KL(q || p) of Gaussians with independent
// dimensions, row by row, and its gradients: with means m and logarithms s of
// variances, 1/2 sum(e^(s_q - s_p) - 1 - (s_q - s_p) + (m_q - m_p)^2 e^-s_p).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_GAUSSIAN_KL_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_GAUSSIAN_KL_H_

#include "tensorflow_ops/nn/cc/kernels/rows/rows.h"

namespace tfo {

// T is float, double, Half or BFloat16; matrices are [rows, classes], where a
// class is a dimension. kUnit: p is the unit Gaussian, m = s = 0, and its
// pointers are unused.

template <typename T, bool kUnit>
struct GaussianKlArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 0;
  static constexpr bool kReduces = true;
  static constexpr double kCyclesPerClass = 3;
  int64_t rows, classes;
  const T *q_mean, *q_log_variance, *p_mean, *p_log_variance;
  Value* divergence;  // [rows], in nats
};

template <typename T, bool kUnit>
struct GaussianKlGradArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = kUnit ? 2 : 4;
  static constexpr bool kReduces = false;
  static constexpr double kCyclesPerClass = 4;
  int64_t rows, classes;
  const Value* d_divergence;
  const T *q_mean, *q_log_variance, *p_mean, *p_log_variance;
  T *d_q_mean, *d_q_log_variance, *d_p_mean, *d_p_log_variance;
};

template <typename T>
using UnitGaussianKlArgs = GaussianKlArgs<T, true>;
template <typename T>
using UnitGaussianKlGradArgs = GaussianKlGradArgs<T, true>;
template <typename T>
using TwoGaussiansKlArgs = GaussianKlArgs<T, false>;
template <typename T>
using TwoGaussiansKlGradArgs = GaussianKlGradArgs<T, false>;

}  // namespace tfo

#define TFO_FOR_GAUSSIAN_KL_FUNCTIONS(DEFINE)         \
  TFO_FOR_ROW_DTYPES(DEFINE, UnitGaussianKlArgs);     \
  TFO_FOR_ROW_DTYPES(DEFINE, UnitGaussianKlGradArgs); \
  TFO_FOR_ROW_DTYPES(DEFINE, TwoGaussiansKlArgs);     \
  TFO_FOR_ROW_DTYPES(DEFINE, TwoGaussiansKlGradArgs)

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_GAUSSIAN_KL_H_
