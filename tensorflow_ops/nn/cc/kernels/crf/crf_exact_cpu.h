// The sums over paths of one example of crf.h with an exponent for each number,
// where plain doubles do not suffice, for crf_cpu.cc.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_EXACT_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_EXACT_CPU_H_

#include <algorithm>
#include <memory>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/crf/crf_paths_cpu.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled.h"

namespace tfo::crf_internal {

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
        after_(tags_, Number::One()),
        emitted_(tags_),
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
      const CrfRange range = RangeOf(logits, tags_);
      finite &= range.finite;
      largest_[t] = range.largest;
      Number *const to = Paths(t), *const emissions = Emissions(t);
      if (t == 0) {
        std::fill_n(to, tags_, Number::One());
      } else {
        Step(matrices_.forward, /*forward=*/true, Paths(t - 1), to);
      }
      TFO_DISPATCH(CrfExactRow<T>)(logits, range.Shift(), tags_, emissions);
      for (int64_t j = 0; j < tags_; ++j) to[j] = to[j] * emissions[j];
    }
    if (!finite) return kNan;
    total_ = frames_ == 0 ? Number::One() : Number::Zero();
    for (int64_t j = 0; frames_ > 0 && j < tags_; ++j) {
      total_ = total_ + Paths(frames_ - 1)[j];
    }
    return TFO_DISPATCH(CrfLog)(total_);
  }

  // Requires a Forward that kept all frames and returned a finite log Z. By
  // descending t, calls visit(t, tag, marginal), and pairs(t) for the steps
  // from t to t + 1, which may call AddPairs.
  template <typename Visit, typename Pairs>
  void Backward(const Visit& visit, const Pairs& pairs) {
    for (int64_t t = frames_ - 1; t >= 0; --t) {
      if (t < frames_ - 1) {
        for (int64_t j = 0; j < tags_; ++j) {
          emitted_[j] = after_[j] * Emissions(t + 1)[j];
        }
        pairs(t);
        Step(matrices_.backward, /*forward=*/false, emitted_.data(),
             after_.data());
      }
      for (int64_t j = 0; j < tags_; ++j) {
        visit(t, j, (Paths(t)[j] * after_[j]).Share(total_));
      }
    }
  }

  // Adds `scale` times the probabilities of steps from t: to `factors` (to be
  // multiplied with matrices.forward) or to `sums`, both [tags, stride].
  void AddPairs(int64_t t, double scale, double* factors, double* sums) {
    const int64_t stride = matrices_.forward.stride;
    double* const before = doubles_.get();
    double* const after = before + stride;
    const int64_t exponent = ToPlain(Paths(t), before) +
                             ToPlain(emitted_.data(), after) - total_.exponent;
    // A share is e^transition times this, times both plain numbers.
    if (exponent < 600) {
      const double unit = std::ldexp(scale / total_.mantissa,
                                     std::max<int64_t>(exponent, -5000));
      for (int64_t i = 0; i < tags_; ++i) before[i] *= unit;
      const CrfPlainRows rows = {
          2, stride, true, before, after - stride, nullptr, nullptr, nullptr};
      TFO_DISPATCH(CrfPlainAddPairs)(tags_, rows, factors);
      return;
    }
    const Number* const exact = matrices_.Exact(scores_.transitions).rows;
    for (int64_t i = 0; i < tags_; ++i) {
      for (int64_t j = 0; j < tags_; ++j) {
        const Number step = Paths(t)[i] * exact[i * tags_ + j];
        sums[i * stride + j] += scale * (step * emitted_[j]).Share(total_);
      }
    }
  }

  // [frames]: each frame's largest logit.
  const double* largest() const { return largest_.data(); }

 private:
  // Sums below this are computed again, with exponents, since the bits that a
  // double lost may matter. Larger ones are off by less than the number of tags
  // times 2^-1000.
  static constexpr double kLeastSum = 0x1p-600;

  Number* Paths(int64_t t) {
    return &paths_[(keep_all_frames_ ? t : t & 1) * tags_];
  }
  Number* Emissions(int64_t t) {
    return &emissions_[keep_all_frames_ ? t * tags_ : 0];
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

  // sum_i a[i] * b[i].
  Number Dot(const Number* a, const Number* b) const {
    int64_t exponent = 2 * Number::kZero;
    for (int64_t i = 0; i < tags_; ++i) {
      exponent = std::max(exponent, a[i].exponent + b[i].exponent);
    }
    double sum = 0;
    for (int64_t i = 0; i < tags_; ++i) {
      sum += a[i].mantissa * b[i].mantissa *
             Number::PowerOfTwo(a[i].exponent + b[i].exponent - exponent);
    }
    return Number::Normalized(sum, exponent);
  }

  // to = from * matrix, forward or backward.
  void Step(const CrfMatrix& matrix, bool forward, const Number* from,
            Number* to) {
    double* const plain = doubles_.get();
    double* const sums = plain + 2 * matrix.stride;
    const int64_t exponent = ToPlain(from, plain);
    TFO_DISPATCH(CrfPlainSums)(matrix, plain, sums);
    for (int64_t j = 0; j < tags_; ++j) {
      if (!(sums[j] < kLeastSum)) {
        to[j] = Number::Normalized(sums[j], exponent);
        continue;
      }
      const auto& exact = matrices_.Exact(scores_.transitions);
      to[j] = Dot(from, (forward ? exact.columns : exact.rows) + j * tags_);
    }
  }

  const CrfScores<T>& scores_;
  const Matrices& matrices_;
  const bool keep_all_frames_;
  const int64_t tags_, frames_;
  const T* const logits_;
  const std::unique_ptr<Number[]> paths_, emissions_;  // [frames, tags]
  std::vector<Number> after_, emitted_;
  const AlignedDoubles doubles_;  // 3 rows
  std::vector<double> largest_;
  Number total_ = Number::Zero();
};

}  // namespace tfo::crf_internal

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_EXACT_CPU_H_
