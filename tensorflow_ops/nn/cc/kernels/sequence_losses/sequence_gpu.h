// Shared by the CUDA kernels of label sequences: losses, random fields,
// decoders. For .cu.cc files.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_GPU_H_

#include <algorithm>
#include <type_traits>

#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/nn/cc/kernels/rows/state.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/row_sums.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

namespace tfo {

// Reserves arrays one after another from `base` on; with a null base, only
// counts their bytes.
class ScratchLayout {
 public:
  explicit ScratchLayout(void* base)
      : base_(reinterpret_cast<uintptr_t>(base)) {}

  template <typename P>
  void Reserve(P** to, int64_t count) {
    *to = reinterpret_cast<P*>(base_ + bytes_);
    bytes_ += (count * sizeof(P) + 15) / 16 * 16;
  }
  int64_t bytes() const { return bytes_; }

 private:
  const uintptr_t base_;
  int64_t bytes_ = 0;
};

// Returns whether an example's lengths and labels are in range. All threads of
// the block must call it.
__device__ inline bool IsValid(const LabelSequences& s, int64_t example,
                               int64_t least_frames) {
  bool bad = !s.HasValidLengths(example, least_frames);
  const int64_t labels = bad ? 0 : s.label_lengths[example];
  for (int64_t u = threadIdx.x; u < labels; u += blockDim.x) {
    bad |= !s.IsLabel(s.Label(example, u));
  }
  return !__syncthreads_or(bad);
}

// The probabilities of a row's classes.
template <typename T>
struct RowProbabilities {
  using Value = Accumulator<T>;
  const T* logits;
  int64_t classes;
  double shift;

  __device__ RowProbabilities(const T* of_rows, int64_t of_classes,
                              const Value* largest, const Value* rest,
                              int64_t row)
      : logits(of_rows + row * of_classes), classes(of_classes) {
    scalar::SoftmaxState<Value> sums;
    sums.max = largest[row];
    sums.rest = rest[row];
    shift = static_cast<double>(sums.shift()) + sums.Log();
  }
  // Returns NaN if `label` is not a class.
  __device__ Scaled<Value> Of(int64_t label) const {
    const bool is_class = label >= 0 && label < classes;
    const double x = is_class ? Widen(logits[label]) : NAN;
    return Scaled<Value>::Exp(x - shift);
  }
};

// The probability of an example's labels; not valid if lengths or labels are
// out of range.
template <typename Value>
struct TotalProbability {
  Scaled<Value> probability;
  bool valid;

  __device__ double Loss() const {
    return valid ? 0 - probability.Log() : static_cast<double>(NAN);
  }
  // Returns the factor of the gradient: 0 if d_loss is 0, NaN if the loss is
  // NaN, 0 if the loss is infinite, else d_loss.
  __device__ Value ScaleOf(Value d_loss) const {
    if (d_loss == 0) return Value(0);
    const Value mantissa = probability.mantissa;
    if (!valid || mantissa != mantissa) return static_cast<Value>(NAN);
    return mantissa == 0 ? Value(0) : d_loss;
  }
};

namespace sequence_internal {

inline constexpr int kLossThreads = 128;

// Scratch memory of a loss; ctc_loss_gpu.h and rnnt_loss_gpu.h define it.
template <typename Loss, typename T>
struct LossMemory;

}  // namespace sequence_internal
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_GPU_H_
