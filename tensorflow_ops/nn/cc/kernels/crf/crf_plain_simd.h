// The sums of crf.h in plain doubles, with one exponent for each row. Only
// *_simd.cc files include this header.
//
// Sufficient for typical scores; where a number could be lost, functions here
// return false, and the caller computes the example with an exponent for each
// number (crf_exact_simd.h).
//
// Nothing significant is lost: factors (e^transitions, e^logits, in units of
// the largest) are 0 or at least 2^-300, and a row's numbers, whose largest is
// about 2^450, are 0 or at least 2^-400. So no product underflows, and a 0
// comes from a forbidden tag or transition.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_PLAIN_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_PLAIN_SIMD_H_

#include <cstdint>
#include <memory>

#include "tensorflow_ops/nn/cc/kernels/crf/crf_matrices_simd.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf_rows_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

inline constexpr double kLeast = 0x1p-400;
inline constexpr int kUnit = 450;  // log2 of a row's largest number
inline constexpr double kLowestTop = 0x1p400, kHighestTop = 0x1p500;
inline constexpr double kMostUnit = 0x1p400;

// The memory of one example.
struct PlainRows {
  int64_t frames, stride;
  // Without keep_all_frames: two rows of paths, one of emissions.
  bool keep_all_frames;
  double* paths;       // rows, in units of 2^exponent
  double* emissions;   // rows and kRowGuard; PlainBackward changes them
  int64_t* exponents;  // of each row of paths
  double* scratch;     // 2 rows and kRowGuard
  double* largest;     // [frames], of logits

  int64_t RowOf(int64_t t) const { return keep_all_frames ? t : t & 1; }
};

// The sum over all paths, mantissa * 2^exponent, in units of the largest scores
// of each frame and of transitions.
struct PlainTotal {
  double mantissa;
  int64_t exponent;
  double log;  // of the sum
};

// Where a way back writes scale * (marginals - one-hot labels).
template <typename Out>
struct CrfShares {
  double scale;
  const IndexArray* labels;  // null: none
  int64_t first_label;       // of the example
  Out* out;                  // [frames, tags]
};

static TFO_INLINE V PowerOf(int64_t exponent) {
  return S::PowerOfTwo(Broadcast<S::I>(exponent));
}
// Numbers that are not 0 and below the limit.
static TFO_INLINE S::I TooSmall(V v) { return (v < kLeast) & (v > 0.0); }

// Multiplies a row by a power of 2 that makes its largest number about 2^450.
[[gnu::noinline]] static bool Rescale(V top, int64_t stride, double* row,
                                      int64_t* exponent) {
  const V largest = VectorLanes::Max(top);
  if (!(largest[0] > 0)) return false;
  const S::I bits = reinterpret_cast<S::I>(largest);
  const int64_t shift = kUnit - ((bits[0] >> 52) - S::Constants::kBias);
  const V factor = PowerOf(shift);
  S::I bad = {};
  for (int64_t i = 0; i < stride; i += kCount) {
    const V scaled = Load(row + i) * factor;
    bad |= TooSmall(scaled);
    Store(scaled, row + i);
  }
  *exponent -= shift;
  return !AnyLane(bad);
}

// row = e^(logits - largest).
template <typename T>
static TFO_INLINE bool ComputeEmissions(const T* logits, int64_t tags,
                                        int64_t stride, double* row,
                                        double* largest) {
  WidenRow(logits, tags, stride, row);
  V top = V{} - INFINITY;
  for (int64_t i = 0; i < stride; i += kCount) top = Max(Load(row + i), top);
  top = VectorLanes::Max(top);
  // For all dtypes but float64 an error of 1e-11 is none.
  constexpr int kTerms =
      std::is_same_v<T, double> ? S::Constants::kExpTerms : 8;
  const V one = Broadcast<V>(1.0);
  S::I good = ~S::I{};
  for (int64_t i = 0; i < stride; i += kCount) {
    const V score = Load(row + i), below = score - top;
    good &= (below >= kLeastScore) | (score == -INFINITY);
    const V x = Max(V{} - 800.0, below);
    V n, rest;
    V p = math_internal::ExpParts<kTerms>(x, n, rest);
    p = MulAdd(MulAdd(p, rest, one), rest, one);
    Store(math_internal::Scale</*kNegative=*/true>(p, n, x), row + i);
  }
  *largest = top[0];
  return top[0] > -INFINITY && !AnyLane(~good);
}

// Calls finish(at, sums) for vectors of from * matrix.
template <typename Finish>
static TFO_INLINE void ForSums(const Matrix& matrix, const double* from,
                               const Finish& finish) {
  const int64_t tags = matrix.tags, stride = matrix.stride;
  ForColumnGroups(stride, [&](auto vectors, int64_t at) {
    constexpr int kVectors = decltype(vectors)::kValue;
    // Enough sums at once to hide what one addition takes.
    constexpr int kChains = kVectors >= 4 ? 1 : kVectors >= 2 ? 2 : 4;
    V sums[kChains][kVectors];
    for (auto& chain : sums) {
#pragma GCC unroll 8
      for (V& sum : chain) sum = V{};
    }
    const double* row = matrix.plain + at;
    const auto add = [&](int64_t i, V* chain) {
      const V p = Broadcast<V>(from[i]);
#pragma GCC unroll 8
      for (int k = 0; k < kVectors; ++k) {
        chain[k] = MulAdd(p, Load(row + k * kCount), chain[k]);
      }
      row += stride;
    };
    int64_t i = 0;
    for (; i + kChains <= tags; i += kChains) {
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c) add(i + c, sums[c]);
    }
    for (; i < tags; ++i) add(i, sums[0]);
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) {
      V sum = sums[0][k];
#pragma GCC unroll 4
      for (int c = 1; c < kChains; ++c) sum += sums[c][k];
      finish(at + k * kCount, sum);
    }
  });
}

// to = from * matrix, without checks.
inline void PlainSums(const Matrix& matrix, const double* from, double* to) {
  ForSums(matrix, from, [&](int64_t at, V sum) { Store(sum, to + at); });
}

// to = from * matrix, times emissions if there are any.
template <bool kEmits>
static TFO_INLINE bool Step(const Matrix& matrix, const double* from,
                            const double* emissions, double* to,
                            int64_t* exponent) {
  V top = V{};
  S::I bad = {};
  ForSums(matrix, from, [&](int64_t at, V sum) {
    if constexpr (kEmits) sum *= Load(emissions + at);
    bad |= TooSmall(sum);
    top = Max(sum, top);
    Store(sum, to + at);
  });
  if (AnyLane(bad)) return false;
  if (AnyLane(top > kHighestTop) || !AnyLane(top > kLowestTop)) {
    return Rescale(top, matrix.stride, to, exponent);
  }
  return true;
}

// Computes paths to each tag, for at least one frame.
template <typename T>
bool PlainForward(const Matrix& matrix, const T* logits, const PlainRows& rows,
                  PlainTotal* total) {
  const int64_t tags = matrix.tags, stride = matrix.stride;
  for (int64_t t = 0; t < rows.frames; ++t) {
    double* const to = rows.paths + rows.RowOf(t) * stride;
    double* const emissions =
        rows.emissions + (rows.keep_all_frames ? t * stride : 0);
    int64_t* const exponent = rows.exponents + rows.RowOf(t);
    if (!ComputeEmissions(logits + t * tags, tags, stride, emissions,
                          rows.largest + t)) {
      return false;
    }
    if (t == 0) {
      for (int64_t i = 0; i < stride; i += kCount) {
        Store(Load(emissions + i) * 0x1p450, to + i);
      }
      *exponent = -kUnit;
      continue;
    }
    const int64_t before = rows.RowOf(t - 1);
    *exponent = rows.exponents[before];
    if (!Step</*kEmits=*/true>(matrix, rows.paths + before * stride, emissions,
                               to, exponent)) {
      return false;
    }
  }
  const int64_t last = rows.RowOf(rows.frames - 1);
  V sum = V{};
  for (int64_t i = 0; i < stride; i += kCount) {
    sum += Load(rows.paths + last * stride + i);
  }
  const S normal =
      S{Broadcast<V>(SumLanes(sum)), Broadcast<S::I>(rows.exponents[last])}
          .Normalized();
  *total = {normal.mantissa[0], normal.exponent[0],
            LogOfScaled(normal.mantissa[0], normal.exponent[0])};
  return true;
}

// Writes scale * (marginals - one-hot labels) of a frame. `row` has room for
// a row.
template <typename Out>
static TFO_INLINE void WriteShares(const CrfShares<Out>& shares, int64_t t,
                                   int64_t tags, int64_t stride,
                                   const double* paths, const double* after,
                                   double unit, double* row) {
  // In this order, a small scale does not underflow with the unit.
  for (int64_t i = 0; i < stride; i += kCount) {
    const V marginals = Load(paths + i) * Load(after + i) * unit;
    Store(marginals * shares.scale, row + i);
  }
  if (shares.labels != nullptr) {
    const int64_t label = (*shares.labels)[shares.first_label + t];
    row[label] = shares.scale * (paths[label] * after[label] * unit - 1);
  }
  NarrowRow(row, tags, shares.out + t * tags);
}

// After PlainForward with rows.keep_all_frames: writes shares. Leaves in
// paths t and emissions t + 1 rows whose products, times `matrix`, are
// `scale` times the probabilities of transitions.
template <typename Out>
bool PlainBackward(const Matrix& transposed, const PlainRows& rows,
                   const PlainTotal& total, const CrfShares<Out>& shares) {
  const int64_t tags = transposed.tags, stride = transposed.stride;
  double* const after = rows.scratch;
  double* const written = rows.scratch + stride;
  for (int64_t i = 0; i < stride; ++i) after[i] = i < tags ? 0x1p450 : 0;
  int64_t exponent = -kUnit;
  // A path's probability is this times its numbers before and after a frame.
  const auto unit_of = [&](int64_t t) {
    const int64_t of_unit = rows.exponents[t] + exponent - total.exponent;
    return of_unit < 500 ? PowerOf(of_unit)[0] / total.mantissa : INFINITY;
  };
  for (int64_t t = rows.frames - 1; t >= 0; --t) {
    double* const paths = rows.paths + t * stride;
    double of_pairs = 0;
    if (t < rows.frames - 1) {
      double* const emitted = rows.emissions + (t + 1) * stride;
      for (int64_t i = 0; i < stride; i += kCount) {
        Store(Load(after + i) * Load(emitted + i), emitted + i);
      }
      of_pairs = unit_of(t);
      if (!Step</*kEmits=*/false>(transposed, emitted, nullptr, after,
                                  &exponent)) {
        return false;
      }
    }
    const double unit = unit_of(t);
    if (!(unit < kMostUnit && of_pairs < kMostUnit)) return false;
    WriteShares(shares, t, tags, stride, paths, after, unit, written);
    for (int64_t i = 0; i < stride; i += kCount) {
      Store(Load(paths + i) * of_pairs * shares.scale, paths + i);
    }
  }
  return true;
}

// The products of kRows tags of paths and kVectors vectors of emissions, summed
// over frames [begin, end).
template <int kRows, int kVectors>
static TFO_INLINE void AddProducts(const PlainRows& rows, int64_t begin,
                                   int64_t end, int64_t i, int64_t j,
                                   double* factors) {
  const int64_t stride = rows.stride;
  V sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) {
      sums[r][k] = Load(factors + (i + r) * stride + j + k * kCount);
    }
  }
  for (int64_t t = begin; t < end; ++t) {
    const double* const before = rows.paths + t * stride + i;
    const double* const after = rows.emissions + (t + 1) * stride + j;
    V columns[kVectors];
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) columns[k] = Load(after + k * kCount);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const V p = Broadcast<V>(before[r]);
#pragma GCC unroll 4
      for (int k = 0; k < kVectors; ++k) {
        sums[r][k] = MulAdd(p, columns[k], sums[r][k]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) {
      Store(sums[r][k], factors + (i + r) * stride + j + k * kCount);
    }
  }
}

// Adds the products of these rows to factors [tags, stride].
inline void PlainAddPairs(int64_t tags, const PlainRows& rows,
                          double* factors) {
#if defined(__AVX512F__) || defined(__aarch64__)
  constexpr int kMost = 4;
#else
  constexpr int kMost = 2;
#endif
  constexpr int64_t kFrames = 32;  // of rows that a cache holds
  for (int64_t t = 0; t < rows.frames - 1; t += kFrames) {
    const int64_t left = rows.frames - 1 - t;
    const int64_t end = t + (left < kFrames ? left : kFrames);
    const auto columns = [&](auto vectors, int64_t j) {
      constexpr int kVectors = decltype(vectors)::kValue;
      int64_t i = 0;
      for (; i + 4 <= tags; i += 4) {
        AddProducts<4, kVectors>(rows, t, end, i, j, factors);
      }
      for (; i < tags; ++i) {
        AddProducts<1, kVectors>(rows, t, end, i, j, factors);
      }
    };
    ForVectorGroups<kMost, kCount>(rows.stride, 0, columns,
                                   [](int64_t, int64_t) {});
  }
}

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
        doubles_((2 * kept_ + 2) * matrices.forward.stride + 2 * kRowGuard +
                 scores.lengths[example]),
        exponents_(new int64_t[kept_]) {
    const int64_t frames = scores.lengths[example];
    const int64_t stride = matrices.forward.stride;
    double* const emissions = doubles_.get() + kept_ * stride;
    double* const scratch = emissions + kept_ * stride + kRowGuard;
    double* const largest = scratch + 2 * stride + kRowGuard;
    rows_ = {frames,    stride,           keep_all_frames, doubles_.get(),
             emissions, exponents_.get(), scratch,         largest};
  }

  bool Forward(double* log_z) {
    if (rows_.frames == 0 || !matrices_.plain_suffices) return false;
    if (!PlainForward(matrices_.forward, logits_, rows_, &total_)) {
      return false;
    }
    *log_z = total_.log;
    return true;
  }
  // Requires a Forward that kept all frames.
  template <typename Out>
  bool Backward(const CrfShares<Out>& shares) {
    return PlainBackward(matrices_.backward, rows_, total_, shares);
  }
  const double* largest() const { return rows_.largest; }
  void AddPairs(double* factors) {
    PlainAddPairs(matrices_.forward.tags, rows_, factors);
  }

 private:
  const Matrices& matrices_;
  const T* const logits_;
  const int64_t kept_;  // rows
  const AlignedDoubles doubles_;
  const std::unique_ptr<int64_t[]> exponents_;
  PlainRows rows_;
  PlainTotal total_;
};

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_PLAIN_SIMD_H_
