// The sums over paths of one example of crf.h, for crf_cpu.cc.
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

// Rows of scaled numbers. Uninitialized.
class Rows {
 public:
  Rows(int64_t rows, int64_t stride)
      : stride_(stride),
        mantissas_(new double[rows * stride]),
        exponents_(new int64_t[rows * stride]) {}
  ScaledRows<double> operator[](int64_t row) const {
    return {mantissas_.get() + row * stride_, exponents_.get() + row * stride_};
  }

 private:
  const int64_t stride_;
  const std::unique_ptr<double[]> mantissas_;
  const std::unique_ptr<int64_t[]> exponents_;
};

// e^transitions of all examples.
class Matrices {
 public:
  template <typename Value>
  Matrices(const Value* transitions, int64_t tags)
      : stride_(StrideOf(tags)),
        plain_(2 * tags * stride_),
        exact_(2 * tags, stride_),
        forward{tags, stride_, plain_.get(), exact_[0]},
        backward{tags, stride_, plain_.get() + tags * stride_, exact_[tags]},
        frame(TFO_DISPATCH(CrfMatrices<Value>)(transitions, forward, backward)),
        plain_suffices(TFO_DISPATCH(CrfPlainSuffices<Value>)(
            transitions, tags * tags, frame.largest)) {}

 private:
  const int64_t stride_;
  const AlignedDoubles plain_;
  const Rows exact_;

 public:
  const CrfMatrix forward, backward;
  const CrfFrame frame;
  const bool plain_suffices;
};

// The paths of one example.
template <typename T>
class Paths {
 public:
  Paths(const CrfScores<T>& scores, const Matrices& matrices, int64_t example,
        bool keep_all_frames)
      : scores_(scores),
        matrices_(matrices),
        keep_all_frames_(keep_all_frames),
        frames_(scores.lengths[example]),
        stride_(matrices.forward.stride),
        logits_(scores.logits + example * scores.frames * scores.tags),
        paths_(keep_all_frames ? frames_ : 2, stride_),
        emissions_(keep_all_frames ? frames_ : 1, stride_),
        after_(2, stride_),
        plain_(new double[2 * stride_]),
        largest_(new double[frames_]) {}

  // Computes paths to each tag. Returns log Z, in units of largest() and of the
  // largest transition, or NaN.
  double Forward() {
    bool finite = frames_ < 2 || matrices_.frame.finite;
    for (int64_t t = 0; t < frames_; ++t) {
      const auto emissions = emissions_[keep_all_frames_ ? t : 0];
      const CrfFrame frame = TFO_DISPATCH(CrfEmissions<T>)(
          logits_ + t * scores_.tags, scores_.tags, stride_, emissions);
      finite &= frame.finite;
      largest_[t] = frame.largest;
      const auto to = paths_[RowOf(t)];
      if (t == 0) {
        std::copy_n(emissions.mantissas, stride_, to.mantissas);
        std::copy_n(emissions.exponents, stride_, to.exponents);
        continue;
      }
      TFO_DISPATCH(CrfStep)
      (matrices_.forward, paths_[RowOf(t - 1)], emissions, plain_.get(), to);
    }
    if (!finite) return kNan;
    if (frames_ == 0) return 0;
    return TFO_DISPATCH(CrfTotal)(stride_, paths_[RowOf(frames_ - 1)],
                                  &mantissa_, &exponent_);
  }

  // Requires a Forward that kept all frames and returned a finite log Z. By
  // descending t, calls visit(t, marginals), and pairs(before, after) for t and
  // t + 1.
  template <typename Visit, typename Pairs>
  void Backward(const Visit& visit, const Pairs& pairs) {
    std::vector<double> marginals(stride_);
    const auto after = after_[0], emitted = after_[1];
    std::fill_n(after.mantissas, stride_, 1.0);
    std::fill_n(after.exponents, stride_, int64_t{0});
    const ScaledRows<double> none = {nullptr, nullptr};
    for (int64_t t = frames_ - 1; t >= 0; --t) {
      if (t < frames_ - 1) {
        TFO_DISPATCH(CrfMultiply)(stride_, after, emissions_[t + 1], emitted);
        pairs(paths_[t], emitted);
        TFO_DISPATCH(CrfStep)
        (matrices_.backward, emitted, none, plain_.get(), after);
      }
      TFO_DISPATCH(CrfShares)
      (stride_, paths_[t], after, mantissa_, exponent_, marginals.data());
      visit(t, marginals.data());
    }
  }

  double mantissa() const { return mantissa_; }
  int64_t exponent() const { return exponent_; }
  double* plain() const { return plain_.get(); }
  // [frames]: each frame's largest logit.
  const double* largest() const { return largest_.get(); }

 private:
  int64_t RowOf(int64_t t) const { return keep_all_frames_ ? t : t & 1; }

  const CrfScores<T>& scores_;
  const Matrices& matrices_;
  const bool keep_all_frames_;
  const int64_t frames_, stride_;
  const T* const logits_;
  const Rows paths_, emissions_, after_;
  const std::unique_ptr<double[]> plain_, largest_;
  double mantissa_ = 0;
  int64_t exponent_ = 0;
};

// The same in plain doubles. Calls return false where these do not suffice.
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
  bool Backward(const CrfPlainShares<Out>& shares) {
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
