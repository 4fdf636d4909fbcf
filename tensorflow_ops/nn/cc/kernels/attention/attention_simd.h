// Shared by the forward and the backward pass of attention.h on the CPU: packed
// queries, keys and values, and their products.
//
// clang-format off
// Words:
//   example  an entry of the batch, with lengths and an offset of its own
//   group    the heads of query that share a head of key and value
//   seen     the keys that lengths and window leave to a query; a Span
//   pair     a query and a key; excluded if the key is not seen, or masked
//   score    of a pair; its weight is e^score, relative to a maximum or to lse
//   panel    up to PanelColumns queries of a head, a lane each (gemm_simd.h)
//   band     panels that a thread computes together
//   block    up to kBlockKeys keys of a head, packed once for a band
//   tile     rows of packs (gemm_simd.h, amx_gemm_simd.h): of keys, or of weights
//   pack     what products take at once: a number, two of bfloat16, or 32 in 1 or 3 terms
//   few      fewer queries than pay for panels: HasFewQueries
//   part     what a span of kSpanKeys keys adds to a few queries' sums
// clang-format on
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SIMD_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/simd/convert_simd.h"
#include "tensorflow_ops/core/cc/simd/gemm_simd.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_scores_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace attention {

// By long double: exp and log of doubles need glibc 2.29, which TensorFlow's
// own wheels do not.
inline float Exp(float x) { return std::exp(x); }
inline double Exp(double x) {
  return static_cast<double>(std::exp(static_cast<long double>(x)));
}
inline float Log(float x) { return std::log(x); }
inline double Log(double x) {
  return static_cast<double>(std::log(static_cast<long double>(x)));
}

// Writes rows of sums as rows of T, `stride` apart.
template <typename T>
void NarrowRows(const Accumulator<T>* sums, int64_t sums_stride, int64_t count,
                int64_t columns, int64_t stride, T* to) {
  for (int64_t i = 0; i < count; ++i) {
    NarrowArray<T>(sums + i * sums_stride, to + i * stride, columns);
  }
}

// Are weights rounded to bfloat16?
template <typename P>
inline constexpr bool kRoundsWeights = std::is_same_v<P, BFloat16Pack>;

// Rows of any depth: a tile for each kDepth.
template <typename T, typename P>
class PackedRows {
 public:
  using C = Accumulator<T>;
  PackedRows(int64_t rows, int64_t depth)
      : rows_(rows),
        depth_(depth),
        tiles_(DivideUp(depth, kDepth) * rows * kGemmStride) {}

  void Pack(const T* from, int64_t stride, int64_t count) const {
    for (int64_t d = 0; d < depth_; d += kDepth) {
      PackTile<T, P>(from + d, stride, count, std::min(kDepth, depth_ - d),
                     Tile(d));
    }
  }
  // Writes the products of `count` rows, from `first` on, with panels to rows
  // of kGemmStride.
  void Multiply(int64_t first, int64_t count, const P* panel, C* to) const {
    const int64_t columns = PanelColumns<C>();
    // Of no depth, too: products are 0.
    int64_t d = 0;
    do {
      const int64_t depth = PackCount<P>(std::min(kDepth, depth_ - d));
      MultiplyTile<P>(Tile(d) + first * kGemmStride, count, depth, panel,
                      columns, d > 0, to, kGemmStride);
      panel += depth * columns;
      d += kDepth;
    } while (d < depth_);
  }

 private:
  static constexpr int64_t kDepth = kGemmDepth * kPackNumbers<P>;

  P* Tile(int64_t d) const {
    return tiles_.data() + d / kDepth * rows_ * kGemmStride;
  }
  const int64_t rows_, depth_;
  const Buffer<P> tiles_;
};

// The rows with a number that is not finite.
template <typename T>
std::vector<int64_t> NonFiniteRows(const T* rows, int64_t stride, int64_t count,
                                   int64_t columns) {
  const auto are_finite = [&](int64_t first, int64_t n) {
    return std::isfinite(
        GreatestMagnitude<T>(rows + first * stride, stride, n, columns));
  };
  std::vector<int64_t> result;
  if (are_finite(0, count)) return result;
  for (int64_t i = 0; i < count; ++i) {
    if (!are_finite(i, 1)) result.push_back(i);
  }
  return result;
}

// Multiplies each of `count` rows, `stride` apart, by its factor. A factor of 0
// makes 0 also of infinity.
template <typename C>
void ScaleRows(const C* factors, int64_t count, int64_t columns, int64_t stride,
               C* rows) {
  for (int64_t i = 0; i < count; ++i, rows += stride) {
    if (factors[i] == 0) {
      std::fill_n(rows, columns, C{0});
      continue;
    }
    ForVectors<C>(columns, [&](auto part, int64_t at) {
      part.Store(part.Load(rows + at, 0) * factors[i], rows + at);
    });
  }
}

// Panels of the columns of rows of any width, for products that sum over these
// rows. Rows with a number that is not finite are 0 in the panels: a pair of
// weight 0 must not meet them. Their other pairs are added one by one.
template <typename T, typename P>
class PackedColumns {
 public:
  using C = Accumulator<T>;
  PackedColumns(int64_t rows, int64_t width)
      : columns_(PanelColumns<C>()),
        width_(width),
        panels_(PackCount<P>(rows) * padded_width()) {}

  int64_t padded_width() const { return RoundUp(width_, columns_); }

  void Pack(const T* from, int64_t stride, int64_t count) {
    from_ = from;
    stride_ = stride;
    depth_ = PackCount<P>(count);
    PackPanels<T, P>(from, stride, 1, count, width_, panels_.data());
    non_finite_ = NonFiniteRows(from, stride, count, width_);
    for (const int64_t i : non_finite_) {
      for (int64_t d = 0; d < padded_width(); d += columns_) {
        P* const row = panels_.data() + d * depth_ + i / kNumbers * columns_;
        for (int64_t x = 0; x < columns_; ++x) {
          NumbersOf(row + x)[i % kNumbers] = {};
        }
      }
    }
  }

  // sums [count, padded_width] += weights^T rows, for the rows of `span`, which
  // begins with a pack; weights [rows, kGemmStride].
  void AddTransposed(const P* weights, const Span& span, int64_t count,
                     C* sums) const {
    const int64_t begin = span.begin / kNumbers;
    const int64_t depth = PackCount<P>(span.end) - begin;
    for (int64_t d = 0; d < padded_width(); d += columns_) {
      MultiplyTransposedTile<P>(weights + begin * kGemmStride, count, depth,
                                panels_.data() + d * depth_ + begin * columns_,
                                columns_, true, sums + d, padded_width());
    }
    for (const int64_t i : non_finite_) {
      if (i < span.begin || i >= span.end) continue;
      AddOneByOne(weights + i / kNumbers * kGemmStride, 1, i, count, sums);
    }
  }

  // Multiplies `count` rows of AddTransposed's sums by their factors.
  void Scale(const C* factors, int64_t count, C* sums) const {
    ScaleRows<C>(factors, count, padded_width(), padded_width(), sums);
  }

  // Writes `count` rows of AddTransposed's sums as rows of T.
  void Write(const C* sums, int64_t count, int64_t stride, T* to) const {
    NarrowRows(sums, padded_width(), count, width_, stride, to);
  }

  // sums += weights rows, for the rows of `span` of sums [.., padded_width] and
  // weights [.., kGemmStride].
  void Add(const P* weights, const Span& span, C* sums) const {
    const int64_t count = span.end - span.begin;
    weights += span.begin * kGemmStride;
    sums += span.begin * padded_width();
    MultiplyTile<P>(weights, count, depth_, panels_.data(), padded_width(),
                    true, sums, padded_width());
    for (const int64_t i : non_finite_) {
      AddOneByOne(weights + i / kNumbers, kGemmStride, i, count, sums);
    }
  }

 private:
  static constexpr int64_t kNumbers = kPackNumbers<P>;

  void AddOneByOne(const P* weights, int64_t weight_stride, int64_t i,
                   int64_t count, C* sums) const {
    for (int64_t m = 0; m < count; ++m) {
      const C weight =
          Widen(NumbersOf(weights + m * weight_stride)[i % kNumbers]);
      if (weight == 0) continue;
      for (int64_t d = 0; d < width_; ++d) {
        sums[m * padded_width() + d] += weight * Widen(from_[i * stride_ + d]);
      }
    }
  }

  const int64_t columns_, width_;
  const Buffer<P> panels_;
  const T* from_ = nullptr;
  int64_t stride_ = 0, depth_ = 0;
  std::vector<int64_t> non_finite_;
};

// The dropout; threshold 0 if there is none, and then the seed is not read.
template <typename T>
AttentionDropout DropoutOf(const AttentionOperands<T>& args) {
  if (args.dropout == 0) return {};
  return {{args.seed[0], args.seed[1]},
          static_cast<uint32_t>(std::lround(65536 * args.dropout))};
}

// Cycles of `products` products of a pair of a query and a key.
template <typename T>
double CyclesPerPair(const AttentionSpec& spec, int products) {
  return products *
         (static_cast<double>(spec.depth + spec.value_depth) / 2 + 8) *
         sizeof(Accumulator<T>) / 64;
}

}  // namespace attention
}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SIMD_H_
