#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/sequence/cc/kernels/crf.h"
#include "tensorflow_ops/sequence/cc/kernels/crf_simd.h"

namespace tfo {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of rows of tags: a multiple of the doubles in the widest vector.
int64_t StrideOf(int64_t tags) { return (tags + 7) / 8 * 8; }

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
        plain_(new double[2 * tags * stride_]),
        exact_(2 * tags, stride_),
        forward{tags, stride_, plain_.get(), exact_[0]},
        backward{tags, stride_, plain_.get() + tags * stride_, exact_[tags]},
        frame(
            TFO_DISPATCH(CrfMatrices<Value>)(transitions, forward, backward)) {}

 private:
  const int64_t stride_;
  const std::unique_ptr<double[]> plain_;
  const Rows exact_;

 public:
  const CrfMatrix forward, backward;
  const CrfFrame frame;
};

// The paths of one example.
template <typename T>
class Paths {
 public:
  Paths(const CrfScores<T>& scores, const Matrices& matrices, int64_t example,
        bool keeps)
      : scores_(scores),
        matrices_(matrices),
        keeps_(keeps),
        frames_(scores.lengths[example]),
        stride_(matrices.forward.stride),
        logits_(scores.logits + example * scores.frames * scores.tags),
        paths_(keeps ? frames_ : 2, stride_),
        emissions_(keeps ? frames_ : 1, stride_),
        after_(2, stride_),
        plain_(new double[2 * stride_]) {}

  // Computes paths to each tag. Returns log Z, or NaN.
  double Forward() {
    double log = 0;
    bool finite = frames_ < 2 || matrices_.frame.finite;
    for (int64_t t = 0; t < frames_; ++t) {
      const auto emissions = emissions_[keeps_ ? t : 0];
      const CrfFrame frame = TFO_DISPATCH(CrfEmissions<T>)(
          logits_ + t * scores_.tags, scores_.tags, stride_, emissions);
      finite &= frame.finite;
      log += Shift(frame);
      const auto to = paths_[RowOf(t)];
      if (t == 0) {
        std::copy_n(emissions.mantissas, stride_, to.mantissas);
        std::copy_n(emissions.exponents, stride_, to.exponents);
        continue;
      }
      log += Shift(matrices_.frame);
      TFO_DISPATCH(CrfStep)
      (matrices_.forward, paths_[RowOf(t - 1)], emissions, plain_.get(), to);
    }
    if (!finite) return kNan;
    if (frames_ == 0) return 0;
    return log + TFO_DISPATCH(CrfTotal)(stride_, paths_[RowOf(frames_ - 1)],
                                        &mantissa_, &exponent_);
  }

  // After Forward, which has kept paths, of a finite log Z: calls
  // visit(t, marginals), and pairs(before, after) for t and t + 1, by falling
  // t.
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

 private:
  int64_t RowOf(int64_t t) const { return keeps_ ? t : t & 1; }
  static double Shift(const CrfFrame& frame) {
    return frame.largest > -kInfinity ? frame.largest : 0;
  }

  const CrfScores<T>& scores_;
  const Matrices& matrices_;
  const bool keeps_;
  const int64_t frames_, stride_;
  const T* const logits_;
  const Rows paths_, emissions_, after_;
  const std::unique_ptr<double[]> plain_;
  double mantissa_ = 0;
  int64_t exponent_ = 0;
};

// Calls body(example, t, label, label before) for the labels of an example.
template <typename T, typename Body>
void ForLabels(const CrfScores<T>& s, const IntValues& labels, int64_t example,
               const Body& body) {
  int64_t before = 0;
  for (int64_t t = 0; t < s.lengths[example]; ++t) {
    const int64_t label = labels[example * s.frames + t];
    body(t, label, before);
    before = label;
  }
}

template <typename T>
double CyclesOf(const CrfScores<T>& s) {
  return s.frames * (s.tags * static_cast<double>(s.tags) / 4 + 200) + 500;
}

template <typename T>
Error Run(const Cpu& cpu, const CrfLikelihoodArgs<T>& args) {
  const CrfScores<T>& s = args.scores;
  const Matrices matrices(s.transitions, s.tags);
  cpu.ParallelFor(s.batch, CyclesOf(s), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Paths<T> paths(s, matrices, i, /*keeps=*/false);
      const double log = paths.Forward();
      double score = 0;
      ForLabels(s, args.labels, i, [&](int64_t t, int64_t label, int64_t from) {
        score += Widen(s.logits[(i * s.frames + t) * s.tags + label]);
        if (t > 0) score += s.transitions[from * s.tags + label];
      });
      // Without an allowed sequence, this one is forbidden.
      const double result = log == -kInfinity ? log : score - log;
      args.log_likelihood[i] = result > 0 ? 0 : result;  // above by rounding
    }
  });
  return nullptr;
}

// The gradients of the examples [begin, end), in order.
template <typename T>
void RunGroup(const CrfLikelihoodGradArgs<T>& args, const Matrices& matrices,
              int64_t begin, int64_t end, double* factors, double* sums) {
  const CrfScores<T>& s = args.scores;
  const int64_t stride = matrices.forward.stride;
  for (int64_t i = begin; i < end; ++i) {
    T* const d_logits = args.d_logits + i * s.frames * s.tags;
    const int64_t length = s.lengths[i];
    const double d = args.d[i];
    std::fill(d_logits + length * s.tags, d_logits + s.frames * s.tags, T());
    Paths<T> paths(s, matrices, i, /*keeps=*/true);
    const double log = d == 0 ? -kInfinity : paths.Forward();
    if (log == -kInfinity || log != log) {
      const double value = log == -kInfinity ? 0 : kNan;
      std::fill(d_logits, d_logits + length * s.tags,
                Narrow<T>(static_cast<Accumulator<T>>(value)));
      if (log != log && length > 1) {
        std::fill_n(sums, s.tags * stride, kNan);
      }
      continue;
    }
    ForLabels(s, args.labels, i, [&](int64_t t, int64_t label, int64_t from) {
      if (t > 0) sums[from * stride + label] += d;
    });
    paths.Backward(
        [&](int64_t t, const double* marginals) {
          const int64_t label = args.labels[i * s.frames + t];
          for (int64_t j = 0; j < s.tags; ++j) {
            const double one_hot = j == label ? 1 : 0;
            d_logits[t * s.tags + j] = Narrow<T>(
                static_cast<Accumulator<T>>(d * (one_hot - marginals[j])));
          }
        },
        [&](const ScaledRows<double>& before, const ScaledRows<double>& after) {
          TFO_DISPATCH(CrfAddPairs)
          (matrices.forward, before, after, -d, paths.mantissa(),
           paths.exponent(), paths.plain(), factors, sums);
        });
  }
}

template <typename T>
Error Run(const Cpu& cpu, const CrfLikelihoodGradArgs<T>& args) {
  const CrfScores<T>& s = args.scores;
  const Matrices matrices(s.transitions, s.tags);
  const int64_t stride = matrices.forward.stride, cells = s.tags * stride;
  // Sums of groups of examples, which do not depend on the threads: fewer
  // groups of many tags, for their memory.
  constexpr int64_t kMaxCells = int64_t{1} << 22;
  const int64_t groups =
      std::min(s.batch, std::clamp<int64_t>(kMaxCells / cells, 2, 16));
  std::vector<double> sums(groups * 2 * cells);
  cpu.ParallelFor(groups, groups > 0 ? 4 * CyclesOf(s) * s.batch / groups : 0,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t g = begin; g < end; ++g) {
                      double* const factors = &sums[g * 2 * cells];
                      RunGroup(args, matrices, g * s.batch / groups,
                               (g + 1) * s.batch / groups, factors,
                               factors + cells);
                    }
                  });
  for (int64_t i = 0; i < s.tags; ++i) {
    for (int64_t j = 0; j < s.tags; ++j) {
      const int64_t cell = i * stride + j;
      const double plain = matrices.forward.plain[cell];
      double sum = 0;
      for (int64_t g = 0; g < groups; ++g) {
        const double* const of_group = &sums[g * 2 * cells];
        sum += of_group[cell] * plain + of_group[cells + cell];
      }
      args.d_transitions[i * s.tags + j] = sum;
    }
  }
  return nullptr;
}

template <typename T>
Error Run(const Cpu& cpu, const CrfMarginalsArgs<T>& args) {
  using Value = Accumulator<T>;
  const CrfScores<T>& s = args.scores;
  const Matrices matrices(s.transitions, s.tags);
  cpu.ParallelFor(s.batch, 3 * CyclesOf(s), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Value* const marginals = args.marginals + i * s.frames * s.tags;
      const int64_t length = s.lengths[i];
      std::fill(marginals + length * s.tags, marginals + s.frames * s.tags,
                Value(0));
      Paths<T> paths(s, matrices, i, /*keeps=*/true);
      const double log = paths.Forward();
      if (log == -kInfinity || log != log) {
        std::fill(marginals, marginals + length * s.tags,
                  Value(log != log ? kNan : 0));
        continue;
      }
      paths.Backward(
          [&](int64_t t, const double* of_frame) {
            for (int64_t j = 0; j < s.tags; ++j) {
              marginals[t * s.tags + j] = of_frame[j];
            }
          },
          [](const auto&, const auto&) {});
    }
  });
  return nullptr;
}

// Decodes one example; `transitions` as CrfBestStep takes them.
template <typename T>
void Decode(const CrfDecodeArgs<T>& args, const double* transitions,
            int64_t example) {
  const CrfScores<T>& s = args.scores;
  const int64_t length = s.lengths[example], stride = StrideOf(s.tags);
  int32_t* const labels = args.labels + example * s.frames;
  std::fill(labels + length, labels + s.frames, 0);
  args.best[example] = 0;
  if (length == 0) return;
  const T* const logits = s.logits + example * s.frames * s.tags;
  std::vector<double> ways(2 * stride, -kInfinity);
  const std::unique_ptr<int32_t[]> before(new int32_t[length * stride]);
  double* from = ways.data();
  double* to = from + stride;
  for (int64_t j = 0; j < s.tags; ++j) {
    const double score = Widen(logits[j]);
    from[j] = score == score ? score : -kInfinity;
  }
  for (int64_t t = 1; t < length; ++t) {
    TFO_DISPATCH(CrfBestStep<T>)
    (transitions, from, logits + t * s.tags, s.tags, stride, to,
     &before[t * stride]);
    std::swap(from, to);
  }
  const double* const best = std::max_element(from, from + s.tags);
  args.best[example] = *best;
  int32_t label = static_cast<int32_t>(best - from);
  for (int64_t t = length - 1; t >= 0; --t) {
    labels[t] = label;
    if (t > 0) label = before[t * stride + label];
  }
}

template <typename T>
Error Run(const Cpu& cpu, const CrfDecodeArgs<T>& args) {
  const CrfScores<T>& s = args.scores;
  const int64_t stride = StrideOf(s.tags);
  std::vector<double> transitions(s.tags * stride, -kInfinity);
  for (int64_t i = 0; i < s.tags; ++i) {
    for (int64_t j = 0; j < s.tags; ++j) {
      const double score = s.transitions[i * s.tags + j];
      if (score == score) transitions[i * stride + j] = score;
    }
  }
  cpu.ParallelFor(s.batch, CyclesOf(s), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) Decode(args, transitions.data(), i);
  });
  return nullptr;
}

}  // namespace

template <template <typename> class Args, typename T>
Error RunCrf(const Cpu& cpu, const Args<T>& args) {
  return Run(cpu, args);
}

#define TFO_INSTANTIATE(T)                                            \
  template Error RunCrf(const Cpu&, const CrfLikelihoodArgs<T>&);     \
  template Error RunCrf(const Cpu&, const CrfLikelihoodGradArgs<T>&); \
  template Error RunCrf(const Cpu&, const CrfMarginalsArgs<T>&);      \
  template Error RunCrf(const Cpu&, const CrfDecodeArgs<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
