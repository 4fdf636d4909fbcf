// The sums over paths of one example of crf.h in plain doubles, for crf_cpu.cc.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_PATHS_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_PATHS_CPU_H_

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf_plain_simd.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf_simd.h"

namespace tfo::crf_internal {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The stride of rows of tags: a multiple of the doubles in the widest vector.
inline int64_t StrideOf(int64_t tags) { return (tags + 7) / 8 * 8; }

// Uninitialized doubles, aligned to the widest vector.
class AlignedDoubles {
 public:
  explicit AlignedDoubles(int64_t n) : memory_(new double[n + 8]) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    data_ = memory_.get() + (64 - address % 64) % 64 / sizeof(double);
  }
  double* get() const { return data_; }

 private:
  std::unique_ptr<double[]> memory_;
  double* data_;
};

// The range of scores; finite: below +inf, and no NaN.
struct CrfRange {
  double largest;
  bool finite;

  double Shift() const { return largest > -kInfinity ? largest : 0; }
};
template <typename T>
CrfRange RangeOf(const T* values, int64_t n) {
  CrfRange range = {-kInfinity, true};
  for (int64_t i = 0; i < n; ++i) {
    const double x = Widen(values[i]);
    range.finite &= x < kInfinity;
    range.largest = x > range.largest ? x : range.largest;
  }
  return range;
}

// e^(transitions - largest) of all examples.
class Matrices {
 public:
  template <typename Value>
  Matrices(const Value* transitions, int64_t tags)
      : plain_(2 * tags * StrideOf(tags)),
        forward{tags, StrideOf(tags), plain_.get()},
        backward{tags, StrideOf(tags), plain_.get() + tags * StrideOf(tags)},
        range(RangeOf(transitions, tags * tags)),
        plain_suffices(TFO_DISPATCH(CrfPlainSuffices<Value>)(
            transitions, tags * tags, range.largest)) {
    TFO_DISPATCH(CrfMatrices<Value>)
    (transitions, range.Shift(), forward, backward);
  }

 private:
  const AlignedDoubles plain_;

 public:
  const CrfMatrix forward, backward;
  const CrfRange range;
  const bool plain_suffices;
};

// The paths of one example. Calls return false where plain doubles do not
// suffice.
template <typename T>
class PlainPaths {
 public:
  PlainPaths(const CrfScores<T>& scores, const Matrices& matrices,
             int64_t example, bool keep_all_frames)
      : matrices_(matrices),
        logits_(scores.logits + example * scores.frames * scores.tags),
        kept_(keep_all_frames ? scores.lengths[example] : 2),
        doubles_((2 * kept_ + 2) * matrices.forward.stride + 2 * kCrfRowGuard +
                 scores.lengths[example]),
        exponents_(new int64_t[kept_]) {
    const int64_t frames = scores.lengths[example];
    const int64_t stride = matrices.forward.stride;
    double* const emissions = doubles_.get() + kept_ * stride;
    double* const scratch = emissions + kept_ * stride + kCrfRowGuard;
    double* const largest = scratch + 2 * stride + kCrfRowGuard;
    rows_ = {frames,    stride,           keep_all_frames, doubles_.get(),
             emissions, exponents_.get(), scratch,         largest};
  }

  bool Forward(double* log_z) {
    if (rows_.frames == 0 || !matrices_.plain_suffices) return false;
    if (!TFO_DISPATCH(CrfPlainForward<T>)(matrices_.forward, logits_, rows_,
                                          &total_)) {
      return false;
    }
    *log_z = total_.log;
    return true;
  }
  // Requires a Forward that kept all frames.
  template <typename Out>
  bool Backward(const CrfShares<Out>& shares) {
    return TFO_DISPATCH(CrfPlainBackward<Out>)(matrices_.backward, rows_,
                                               total_, shares);
  }
  const double* largest() const { return rows_.largest; }
  void AddPairs(double* factors) {
    TFO_DISPATCH(CrfPlainAddPairs)(matrices_.forward.tags, rows_, factors);
  }

 private:
  const Matrices& matrices_;
  const T* const logits_;
  const int64_t kept_;  // rows
  const AlignedDoubles doubles_;
  const std::unique_ptr<int64_t[]> exponents_;
  CrfPlainRows rows_;
  CrfPlainTotal total_;
};

}  // namespace tfo::crf_internal

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_PATHS_CPU_H_
