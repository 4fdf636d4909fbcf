// The sums over paths of one example of crf.h with an exponent for each number,
// where plain doubles do not suffice. Only *_simd.cc files include this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_EXACT_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_EXACT_SIMD_H_

#include <algorithm>
#include <memory>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/crf/crf_plain_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Sets to[n] to e^(scores - shift). Does not call the C library, whose exp of
// doubles needs glibc 2.29.
template <typename T>
void ExactRow(const T* scores, double shift, int64_t n, Scaled<double>* to) {
  for (int64_t i = 0; i < n; i += kCount) {
    const int64_t count = n - i < kCount ? n - i : kCount;
    V x = {};
    for (int64_t k = 0; k < count; ++k) x[k] = LoadOne(scores + i + k) - shift;
    S::I unused = {};
    const S exact = ScaledExp(x, unused).Normalized();
    for (int64_t k = 0; k < count; ++k) {
      to[i + k] = {exact.mantissa[k], exact.exponent[k]};
    }
  }
}

template <typename T>
class ExactPaths {
 public:
  using Number = Scaled<double>;

  ExactPaths(const CrfScores<T>& scores, const Matrices& matrices,
             int64_t example, bool keep_all_frames)
      : scores_(scores),
        matrices_(matrices),
        keep_all_frames_(keep_all_frames),
        tags_(scores.tags),
        frames_(scores.lengths[example]),
        logits_(scores.logits + example * scores.frames * scores.tags),
        paths_(new Number[(keep_all_frames ? frames_ : 2) * tags_]),
        emissions_(new Number[(keep_all_frames ? frames_ : 1) * tags_]),
        doubles_(3 * matrices.forward.stride),
        largest_(frames_) {
    // Padding of rows of doubles.
    std::fill_n(doubles_.get(), 3 * matrices.forward.stride, 0.0);
  }

  // Computes paths to each tag. Returns log Z, in units of largest() and of the
  // largest transition, or NaN.
  double Forward() {
    bool finite = frames_ < 2 || matrices_.range.finite;
    for (int64_t t = 0; t < frames_; ++t) {
      const T* const logits = logits_ + t * tags_;
      const Range range = RangeOf(logits, tags_);
      finite &= range.finite;
      largest_[t] = range.largest;
      Number *const to = Paths(t), *const emissions = Emissions(t);
      if (t == 0) {
        std::fill_n(to, tags_, Number::One());
      } else {
        Step</*kForward=*/true>(Paths(t - 1), to);
      }
      ExactRow(logits, range.Shift(), tags_, emissions);
      for (int64_t j = 0; j < tags_; ++j) to[j] = to[j] * emissions[j];
    }
    if (!finite) return kNan;
    total_ = frames_ == 0 ? Number::One() : Number::Zero();
    for (int64_t j = 0; frames_ > 0 && j < tags_; ++j) {
      total_ = total_ + Paths(frames_ - 1)[j];
    }
    return LogOfScaled(total_.mantissa, total_.exponent);
  }

  // Requires a Forward that kept all frames and returned a finite log Z. Writes
  // shares. Adds `scale` times the probabilities of transitions to `factors`
  // (to be multiplied with matrices.forward) or to `sums`, both [tags, stride],
  // unless they are null.
  template <typename Out>
  void Backward(const CrfShares<Out>& shares, double* factors, double* sums) {
    std::vector<Number> after(tags_, Number::One()), emitted(tags_);
    for (int64_t t = frames_ - 1; t >= 0; --t) {
      const Number* const paths = Paths(t);
      if (t < frames_ - 1) {
        for (int64_t j = 0; j < tags_; ++j) {
          emitted[j] = after[j] * Emissions(t + 1)[j];
        }
        if (sums != nullptr) {
          AddPairs(paths, emitted.data(), shares.scale, factors, sums);
        }
        Step</*kForward=*/false>(emitted.data(), after.data());
      }
      const int64_t label = shares.labels == nullptr
                                ? -1
                                : (*shares.labels)[shares.first_label + t];
      for (int64_t j = 0; j < tags_; ++j) {
        const double marginal = (paths[j] * after[j]).Share(total_);
        shares.out[t * tags_ + j] = Narrow<Out>(static_cast<Accumulator<Out>>(
            shares.scale * (marginal - (j == label))));
      }
    }
  }

  // [frames]: each frame's largest logit.
  const double* largest() const { return largest_.data(); }

 private:
  // Sums below this are computed again, with exponents, since the bits that a
  // double lost may matter. Larger ones are off by less than the number of tags
  // times 2^-1000. Most are larger, even if transitions are masked by -1e4.
  static constexpr double kLeastSum = 0x1p-600;

  Number* Paths(int64_t t) {
    return &paths_[(keep_all_frames_ ? t : t & 1) * tags_];
  }
  Number* Emissions(int64_t t) {
    return &emissions_[keep_all_frames_ ? t * tags_ : 0];
  }
  // e^(transitions - largest), [tags, tags].
  const Number* Exact() {
    if (exact_ == nullptr) {
      exact_.reset(new Number[tags_ * tags_]);
      ExactRow(scores_.transitions, matrices_.range.Shift(), tags_ * tags_,
               exact_.get());
    }
    return exact_.get();
  }

  // Writes a row in units of 2^exponent, and returns the largest exponent.
  int64_t ToPlain(const Number* row, double* plain) const {
    int64_t exponent = Number::kZero;
    for (int64_t i = 0; i < tags_; ++i) {
      exponent = std::max(exponent, row[i].exponent);
    }
    for (int64_t i = 0; i < tags_; ++i) {
      plain[i] =
          row[i].mantissa * Number::PowerOfTwo(row[i].exponent - exponent);
    }
    return exponent;
  }

  // to = from * matrix, forward or backward.
  template <bool kForward>
  void Step(const Number* from, Number* to) {
    const Matrix& matrix = kForward ? matrices_.forward : matrices_.backward;
    double* const plain = doubles_.get();
    double* const sums = plain + 2 * matrix.stride;
    const int64_t exponent = ToPlain(from, plain);
    PlainSums(matrix, plain, sums);
    for (int64_t j = 0; j < tags_; ++j) {
      to[j] = sums[j] < kLeastSum
                  ? Dot(from, Exact() + (kForward ? j : j * tags_),
                        kForward ? tags_ : 1)
                  : Number::Normalized(sums[j], exponent);
    }
  }

  // sum_i a[i] * b[i * step].
  Number Dot(const Number* a, const Number* b, int64_t step) const {
    int64_t exponent = 2 * Number::kZero;
    for (int64_t i = 0; i < tags_; ++i) {
      exponent = std::max(exponent, a[i].exponent + b[i * step].exponent);
    }
    double sum = 0;
    for (int64_t i = 0; i < tags_; ++i) {
      sum +=
          a[i].mantissa * b[i * step].mantissa *
          Number::PowerOfTwo(a[i].exponent + b[i * step].exponent - exponent);
    }
    return Number::Normalized(sum, exponent);
  }

  // Adds scale * paths[i] * matrix[i, j] * emitted[j] / total.
  void AddPairs(const Number* paths, const Number* emitted, double scale,
                double* factors, double* sums) {
    const int64_t stride = matrices_.forward.stride;
    double* const before = doubles_.get();
    double* const after = before + stride;
    const int64_t exponent =
        ToPlain(paths, before) + ToPlain(emitted, after) - total_.exponent;
    // A share is e^transition times this, times both plain numbers.
    if (exponent < 600) {
      const double unit = std::ldexp(scale / total_.mantissa,
                                     std::max<int64_t>(exponent, -5000));
      for (int64_t i = 0; i < tags_; ++i) before[i] *= unit;
      const PlainRows rows = {2,       stride,  true,   before, after - stride,
                              nullptr, nullptr, nullptr};
      PlainAddPairs(tags_, rows, factors);
      return;
    }
    const Number* const exact = Exact();
    for (int64_t i = 0; i < tags_; ++i) {
      for (int64_t j = 0; j < tags_; ++j) {
        const Number step = paths[i] * exact[i * tags_ + j];
        sums[i * stride + j] += scale * (step * emitted[j]).Share(total_);
      }
    }
  }

  const CrfScores<T>& scores_;
  const Matrices& matrices_;
  const bool keep_all_frames_;
  const int64_t tags_, frames_;
  const T* const logits_;
  const std::unique_ptr<Number[]> paths_, emissions_;  // [frames, tags]
  const AlignedDoubles doubles_;                       // 3 rows
  std::vector<double> largest_;
  std::unique_ptr<Number[]> exact_;
  Number total_ = Number::Zero();
};

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_EXACT_SIMD_H_
