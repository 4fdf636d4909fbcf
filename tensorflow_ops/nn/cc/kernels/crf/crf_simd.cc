#include "tensorflow_ops/nn/cc/kernels/crf/crf_simd.h"

#include "tensorflow_ops/nn/cc/kernels/crf/crf_rows_simd.h"
#include "tensorflow_ops/nn/cc/kernels/rows/softmax_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

using S = ScaledVector<double>;
using V = DoubleVector;
inline constexpr int kCount = S::kCount;

// The largest of n values; finite: none is NaN or +inf.
template <typename T>
static CrfFrame Largest(const T* values, int64_t n) {
  CrfFrame frame = {-INFINITY, true};
  for (int64_t i = 0; i < n; ++i) {
    const double x = LoadOne(values + i);
    frame.finite &= x < INFINITY;
    frame.largest = x > frame.largest ? x : frame.largest;
  }
  return frame;
}

// e^(values - largest) of a row of n values.
template <typename T>
static void ExpRow(const T* values, int64_t n, int64_t stride, double largest,
                   const ScaledRows<double>& row) {
  const double shift = largest > -INFINITY ? largest : 0;
  for (int64_t i = 0; i < stride; ++i) {
    row.mantissas[i] = i < n ? LoadOne(values + i) - shift : -INFINITY;
  }
  S::I unused = {};
  for (int64_t i = 0; i < stride; i += kCount) {
    StoreAt(ScaledExp(Load(row.mantissas + i), unused).Normalized(), row, i);
  }
}

template <typename Value>
CrfFrame CrfMatrices(const Value* transitions, const CrfMatrix& matrix,
                     const CrfMatrix& transposed) {
  const int64_t tags = matrix.tags, stride = matrix.stride;
  const CrfFrame frame = Largest(transitions, tags * tags);
  for (int64_t i = 0; i < tags; ++i) {
    const ScaledRows<double> row = {matrix.exact.mantissas + i * stride,
                                    matrix.exact.exponents + i * stride};
    ExpRow(transitions + i * tags, tags, stride, frame.largest, row);
    for (int64_t j = 0; j < stride; j += kCount) {
      Store(Shares(LoadAt(row, j), 1.0, 0), matrix.plain + i * stride + j);
    }
  }
  ClearRow(transposed.exact, 0, tags * stride);
  for (int64_t i = 0; i < tags * stride; ++i) transposed.plain[i] = 0;
  for (int64_t i = 0; i < tags; ++i) {
    for (int64_t j = 0; j < tags; ++j) {
      const int64_t from = i * stride + j, to = j * stride + i;
      transposed.plain[to] = matrix.plain[from];
      transposed.exact.mantissas[to] = matrix.exact.mantissas[from];
      transposed.exact.exponents[to] = matrix.exact.exponents[from];
    }
  }
  return frame;
}

template <typename T>
CrfFrame CrfEmissions(const T* logits, int64_t tags, int64_t stride,
                      const ScaledRows<double>& row) {
  const CrfFrame frame = Largest(logits, tags);
  ExpRow(logits, tags, stride, frame.largest, row);
  return frame;
}

// The row in units of 2^exponent, the largest one, which is returned.
static int64_t ToPlain(int64_t stride, const ScaledRows<double>& row,
                       double* plain) {
  S::I largest = S::I{} + S::Limits::kZero;
  for (int64_t i = 0; i < stride; i += kCount) {
    largest = S::MaxOf(largest, LoadAt(row, i).exponent);
  }
  int64_t exponent = largest[0];
  for (int i = 1; i < kCount; ++i) {
    exponent = largest[i] > exponent ? int64_t{largest[i]} : exponent;
  }
  for (int64_t i = 0; i < stride; i += kCount) {
    Store(Shares(LoadAt(row, i), 1.0, exponent), plain + i);
  }
  return exponent;
}

// Sums of vectors [at, at + kVectors): plain * matrix.
template <int kVectors>
static TFO_INLINE void SumColumns(const CrfMatrix& matrix, const double* plain,
                                  int64_t at, V* sums) {
#pragma GCC unroll 4
  for (int k = 0; k < kVectors; ++k) sums[k] = V{};
  for (int64_t i = 0; i < matrix.tags; ++i) {
    const V p = V{} + plain[i];
    const double* const row = matrix.plain + i * matrix.stride + at;
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) {
      sums[k] = MulAdd(p, Load(row + k * kCount), sums[k]);
    }
  }
}

// The sums of one vector of columns, from `at` on, with exponents.
static S ExactColumns(const CrfMatrix& matrix, const ScaledRows<double>& from,
                      int64_t at) {
  S sum = {V{}, S::I{} + S::Limits::kZero};
  for (int64_t i = 0; i < matrix.tags; ++i) {
    const S product =
        Broadcast(from, i) * LoadAt(matrix.exact, i * matrix.stride + at);
    sum = (sum + product.Normalized()).Normalized();
  }
  return sum;
}

void CrfStep(const CrfMatrix& matrix, const ScaledRows<double>& from,
             const ScaledRows<double>& emissions, double* plain,
             const ScaledRows<double>& to) {
  const int64_t stride = matrix.stride;
  const S::I exponent = S::I{} + ToPlain(stride, from, plain);
  const auto finish = [&](auto vectors, int64_t at) {
    constexpr int kVectors = decltype(vectors)::kValue;
    V sums[kVectors];
    SumColumns<kVectors>(matrix, plain, at, sums);
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) {
      const int64_t i = at + k * kCount;
      S::I lane;
      for (int n = 0; n < kCount; ++n) lane[n] = i + n;
      const V counted = lane < matrix.tags ? sums[k] : V{} + 1.0;
      const bool exact = AnyLane(counted < kCrfLeastSum);
      StoreAt(exact ? ExactColumns(matrix, from, i)
                    : S{sums[k], exponent}.Normalized(),
              to, i);
    }
  };
  ForVectorGroups<4, kCount>(stride, 0, finish, [](int64_t, int64_t) {});
  if (emissions.mantissas != nullptr) CrfMultiply(stride, to, emissions, to);
}

void CrfMultiply(int64_t stride, const ScaledRows<double>& a,
                 const ScaledRows<double>& b, const ScaledRows<double>& to) {
  for (int64_t i = 0; i < stride; i += kCount) {
    StoreAt((LoadAt(a, i) * LoadAt(b, i)).Normalized(), to, i);
  }
}

double CrfTotal(int64_t stride, const ScaledRows<double>& row, double* mantissa,
                int64_t* exponent) {
  S sum = {V{}, S::I{} + S::Limits::kZero};
  for (int64_t i = 0; i < stride; i += kCount) {
    sum = (sum + LoadAt(row, i)).Normalized();
  }
  double mantissas[kCount];
  S::Exponent exponents[kCount];
  sum.Store(mantissas, exponents);
  const ScaledRows<double> lanes = {mantissas, exponents};
  S total = Broadcast(lanes, 0);
  for (int i = 1; i < kCount; ++i) {
    total = (total + Broadcast(lanes, i)).Normalized();
  }
  *mantissa = total.mantissa[0];
  *exponent = total.exponent[0];
  return LogOfScaled(*mantissa, *exponent);
}

void CrfShares(int64_t stride, const ScaledRows<double>& a,
               const ScaledRows<double>& b, double mantissa, int64_t exponent,
               double* shares) {
  for (int64_t i = 0; i < stride; i += kCount) {
    Store(Shares(LoadAt(a, i) * LoadAt(b, i), 1 / mantissa, exponent),
          shares + i);
  }
}

void CrfAddPairs(const CrfMatrix& matrix, const ScaledRows<double>& before,
                 const ScaledRows<double>& after, double scale, double mantissa,
                 int64_t exponent, double* plain, double* factors,
                 double* sums) {
  const int64_t tags = matrix.tags, stride = matrix.stride;
  double* const plain_after = plain + stride;
  const int64_t exponents =
      ToPlain(stride, before, plain) + ToPlain(stride, after, plain_after);
  // A product's share is e^transition times this, times both plain numbers.
  if (exponents - exponent < 600) {
    const S factor = {V{} + 1.0, S::I{} + exponents};
    const double unit = Shares(factor, 1.0, exponent)[0] * (scale / mantissa);
    for (int64_t i = 0; i < tags; ++i) {
      const V p = V{} + plain[i] * unit;
      double* const row = factors + i * stride;
      for (int64_t j = 0; j < stride; j += kCount) {
        Store(MulAdd(p, Load(plain_after + j), Load(row + j)), row + j);
      }
    }
    return;
  }
  for (int64_t i = 0; i < tags; ++i) {
    double* const row = sums + i * stride;
    const S way = Broadcast(before, i);
    for (int64_t j = 0; j < stride; j += kCount) {
      const S step = (way * LoadAt(matrix.exact, i * stride + j)).Normalized();
      const V share = Shares(step * LoadAt(after, j), 1 / mantissa, exponent);
      Store(MulAdd(V{} + scale, share, Load(row + j)), row + j);
    }
  }
}

// to[j] = max_i (from[i] + transitions[i][j]); NaN is not above any score.
static TFO_INLINE void BestSums(const double* transitions, const double* from,
                                int64_t tags, int64_t stride, double* to) {
  ForColumnGroups(stride, [&](auto vectors, int64_t at) {
    constexpr int kVectors = decltype(vectors)::kValue;
    V best[kVectors];
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) best[k] = V{} - INFINITY;
    for (int64_t i = 0; i < tags; ++i) {
      const V way = V{} + from[i];
      const double* const row = transitions + i * stride + at;
#pragma GCC unroll 8
      for (int k = 0; k < kVectors; ++k) {
        best[k] = Max(way + Load(row + k * kCount), best[k]);
      }
    }
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) Store(best[k], to + at + k * kCount);
  });
}

template <typename T>
double CrfBestWays(const double* transitions, const T* logits, int64_t frames,
                   int64_t tags, int64_t stride, double* ways, double* row) {
  double shifts = 0;
  for (int64_t t = 0; t < frames; ++t) {
    double* const to = ways + t * stride;
    WidenRow(logits + t * tags, tags, stride, row);
    if (t > 0) BestSums(transitions, to - stride, tags, stride, to);
    V top = V{} - INFINITY;
    for (int64_t i = 0; i < stride; i += kCount) top = Max(Load(row + i), top);
    const double shift = FiniteShift(VectorLanes::Max(top)[0]);
    for (int64_t i = 0; i < stride; i += kCount) {
      const V score = Load(row + i) - shift + (t > 0 ? Load(to + i) : V{});
      Store(score == score ? score : V{} - INFINITY, to + i);
    }
    shifts += shift;
  }
  return shifts;
}

// The lowest i with the largest from[i] + transitions[i]; 0 if all are -inf.
static TFO_INLINE int32_t BestBefore(const double* from,
                                     const double* transitions,
                                     int64_t stride) {
  V best = V{} - INFINITY;
  for (int64_t i = 0; i < stride; i += kCount) {
    best = Max(Load(from + i) + Load(transitions + i), best);
  }
  best = VectorLanes::Max(best);
  if (best[0] == -INFINITY) return 0;
  S::I lane;
  for (int k = 0; k < kCount; ++k) lane[k] = k;
  V first = V{} + INFINITY;  // as doubles, which have a minimum at all levels
  for (int64_t i = 0; i < stride; i += kCount) {
    const V at = __builtin_convertvector(lane + i, V);
    const V score = Load(from + i) + Load(transitions + i);
    first = -Max(score == best ? -at : V{} - INFINITY, -first);
  }
  return static_cast<int32_t>(-VectorLanes::Max(-first)[0]);
}

void CrfTrace(const double* transposed, const double* ways, int64_t frames,
              int64_t stride, int32_t last, int32_t* labels) {
  labels[frames - 1] = last;
  for (int64_t t = frames - 1; t > 0; --t) {
    last =
        BestBefore(ways + (t - 1) * stride, transposed + last * stride, stride);
    labels[t - 1] = last;
  }
}

#define TFO_INSTANTIATE(T)                                               \
  template CrfFrame CrfEmissions(const T*, int64_t, int64_t,             \
                                 const ScaledRows<double>&);             \
  template double CrfBestWays(const double*, const T*, int64_t, int64_t, \
                              int64_t, double*, double*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

template CrfFrame CrfMatrices(const float*, const CrfMatrix&, const CrfMatrix&);
template CrfFrame CrfMatrices(const double*, const CrfMatrix&,
                              const CrfMatrix&);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
