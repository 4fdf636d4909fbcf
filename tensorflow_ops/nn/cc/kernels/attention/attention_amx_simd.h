// The classes of attention_simd.h for products by AMX's tiles.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_AMX_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_AMX_SIMD_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/simd/amx_gemm_simd.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace attention {

template <>
inline constexpr bool kRoundsWeights<AmxPack<1>> = true;

// Products of rows with a number that is not finite are those of this number.
template <typename T, int kTerms>
class PackedRows<T, AmxPack<kTerms>> {
 public:
  PackedRows(int64_t rows, int64_t depth)
      : depth_(depth),
        row_packs_(PackCount<AmxPack<kTerms>>(depth)),
        packs_(RoundUp(rows, kAmxRows) * row_packs_) {}

  void Pack(const T* from, int64_t stride, int64_t count) {
    from_ = from;
    stride_ = stride;
    non_finite_ = NonFiniteRows(from, stride, count, depth_);
    cpu_avx512::PackAmxRows(from, stride, 1, count, depth_, row_packs_,
                            packs_.data());
  }
  // `first` is a multiple of kAmxRows.
  void Multiply(int64_t first, int64_t count, const AmxPack<kTerms>* panel,
                float* to) const {
    cpu_avx512::MultiplyAmx(packs_.data() + first * row_packs_, row_packs_,
                            count, row_packs_, panel, kAmxColumns, false, to,
                            kGemmStride);
    for (const int64_t i : non_finite_) {
      if (first <= i && i < first + count) {
        MultiplyNonFinite(from_ + i * stride_, panel,
                          to + (i - first) * kGemmStride);
      }
    }
  }

 private:
  void MultiplyNonFinite(const T* row, const AmxPack<kTerms>* panel,
                         float* to) const {
    std::fill_n(to, kAmxColumns, 0.0f);
    for (int64_t d = 0; d < depth_; ++d) {
      const float number = Widen(row[d]);
      if (std::isfinite(number)) continue;
      for (int64_t x = 0; x < kAmxColumns; ++x) {
        to[x] += number * AmxPanelNumber(panel, row_packs_, d, x);
      }
      if (std::isnan(number)) return;
    }
  }

  const int64_t depth_, row_packs_;
  const Buffer<AmxPack<kTerms>> packs_;
  const T* from_ = nullptr;
  int64_t stride_ = 0;
  std::vector<int64_t> non_finite_;
};

// PackedColumns with Add only.
template <typename T, int kTerms>
class AmxColumns {
 public:
  AmxColumns(int64_t rows, int64_t width)
      : width_(width),
        panels_(PackCount<AmxPack<kTerms>>(rows) * padded_width()) {}

  int64_t padded_width() const { return RoundUp(width_, kAmxColumns); }

  void Pack(const T* from, int64_t stride, int64_t count) {
    depth_ = PackCount<AmxPack<kTerms>>(count);
    cpu_avx512::PackAmxPanels(from, stride, 1, count, width_, panels_.data());
  }

  // Weights are those of `span` only, packed by PackAmxRows.
  void Add(const AmxPack<kTerms>* weights, const Span& span,
           float* sums) const {
    cpu_avx512::MultiplyAmx(weights, depth_, span.end - span.begin, depth_,
                            panels_.data(), padded_width(), true,
                            sums + span.begin * padded_width(), padded_width());
  }

 private:
  const int64_t width_;
  int64_t depth_ = 0;
  const Buffer<AmxPack<kTerms>> panels_;
};

// PackedColumns with AddTransposed only. Sums are transposed: [padded_width,
// kAmxColumns] for each panel.
template <typename T, int kTerms>
class AmxTransposedColumns {
 public:
  AmxTransposedColumns(int64_t rows, int64_t width)
      : width_(width),
        row_packs_(PackCount<AmxPack<kTerms>>(rows)),
        packs_(padded_width() * row_packs_),
        numbers_(kAmxColumns * kAmxColumns) {}

  int64_t padded_width() const { return RoundUp(width_, kAmxColumns); }

  void Pack(const T* from, int64_t stride, int64_t count) {
    non_finite_ = NonFiniteRows(from, stride, count, width_);
    finite_.clear();
    from_ = from;
    stride_ = stride;
    if (!non_finite_.empty()) {
      for (int64_t i = 0; i < count; ++i) {
        finite_.insert(finite_.end(), from + i * stride,
                       from + i * stride + width_);
      }
      for (const int64_t i : non_finite_) {
        std::fill_n(finite_.begin() + i * width_, width_, T{});
      }
      from = finite_.data();
      stride = width_;
    }
    cpu_avx512::PackAmxRows(from, 1, stride, width_, count, row_packs_,
                            packs_.data());
  }

  // Weights are those of `span` and of a panel only, packed by PackAmxPanels.
  void AddTransposed(const AmxPack<kTerms>* weights, const Span& span,
                     int64_t count, float* sums) const {
    const int64_t depth = PackCount<AmxPack<kTerms>>(span.end - span.begin);
    cpu_avx512::MultiplyAmx(Tiles(span.begin), row_packs_, width_, depth,
                            weights, kAmxColumns, true, sums, kAmxColumns);
    for (const int64_t i : non_finite_) {
      if (i < span.begin || i >= span.end) continue;
      for (int64_t m = 0; m < count; ++m) {
        const float weight = AmxPanelNumber(weights, depth, i - span.begin, m);
        if (weight == 0) continue;
        for (int64_t d = 0; d < width_; ++d) {
          sums[d * kAmxColumns + m] += weight * Widen(from_[i * stride_ + d]);
        }
      }
    }
  }

  void Scale(const float* factors, int64_t, float* sums) const {
    cpu_avx512::ScaleAmxColumns(factors, width_, sums);
  }

  void Write(const float* sums, int64_t count, int64_t stride, T* to) const {
    for (int64_t i = 0; i < count; i += kAmxColumns) {
      const int64_t rows = std::min(kAmxColumns, count - i);
      for (int64_t d = 0; d < width_; d += kAmxColumns) {
        const int64_t columns = std::min(kAmxColumns, width_ - d);
        cpu_avx512::PackPanels(sums + i * padded_width() + d * kAmxColumns, 1,
                               kAmxColumns, rows, columns, numbers_.data());
        NarrowRows(numbers_.data(), kAmxColumns, rows, columns, stride,
                   to + i * stride + d);
      }
    }
  }

 private:
  AmxPack<kTerms>* Tiles(int64_t row) const {
    return packs_.data() + PackCount<AmxPack<kTerms>>(row) * kAmxRows;
  }

  const int64_t width_, row_packs_;
  const Buffer<AmxPack<kTerms>> packs_;
  const Buffer<float> numbers_;
  const T* from_ = nullptr;
  int64_t stride_ = 0;
  std::vector<int64_t> non_finite_;
  std::vector<T> finite_;  // rows, with zeros for those
};

// The classes for packs P.
template <typename P>
struct OperandsOf {
  template <typename T>
  using Columns = PackedColumns<T, P>;
  template <typename T>
  using TransposedColumns = PackedColumns<T, P>;
};
template <int kTerms>
struct OperandsOf<AmxPack<kTerms>> {
  template <typename T>
  using Columns = AmxColumns<T, kTerms>;
  template <typename T>
  using TransposedColumns = AmxTransposedColumns<T, kTerms>;
};

// Whether to multiply the numbers of an example's key head by tiles. Those of
// queries must be finite. Three terms also require finite products that do not
// overflow, and terms that are normal numbers unless they are too small to
// matter. Of a single panel, products take as long as this look at its keys.
template <typename T>
bool FitTiles(const AttentionOperands<T>& args, const T* d_output,
              const Accumulator<T>* d_log_sum_exp, const Example& example,
              int64_t key_head) {
  const int64_t group = args.heads / args.key_heads;
  if (group * DivideUp(example.queries, kAmxColumns) < 2) return false;
  // What blocks with seen keys pack.
  constexpr int64_t kBlock = 256;
  Span keys =
      SeenKeys(args, example, Panel{0, 0, example.queries}, 0, example.keys);
  keys = {keys.begin / kBlock * kBlock,
          std::min(RoundUp(keys.end, kBlock), example.keys)};
  const auto greatest = [](const T* rows, int64_t first, int64_t count,
                           int64_t stride, int64_t from, int64_t columns) {
    return double{GreatestMagnitude<T>(rows + first * stride + from, stride,
                                       count, columns)};
  };
  const auto of_queries = [&](const T* rows, int64_t depth) {
    return greatest(rows, example.first_query, example.queries,
                    args.heads * depth, key_head * group * depth,
                    group * depth);
  };
  // Of keys that are finite.
  const auto of_keys = [&](const T* rows, int64_t depth) {
    const auto of = [&](int64_t first, int64_t count) {
      return greatest(rows, example.first_key + first, count,
                      args.key_heads * depth, key_head * depth, depth);
    };
    double result = of(keys.begin, keys.end - keys.begin);
    if (std::isfinite(result)) return result;
    result = 0;
    for (int64_t i = keys.begin; i < keys.end; ++i) {
      const double of_key = of(i, 1);
      if (std::isfinite(of_key)) result = std::max(result, of_key);
    }
    return result;
  };
  const auto fits = [](double x, double least, double most) {
    if (std::is_same_v<T, BFloat16>) return std::isfinite(x);
    return x == 0 || (least <= x && x <= most);
  };
  const double value = of_keys(args.value, args.value_depth);
  if (!fits(value, 0x1p-60, 0x1p40) ||
      !fits(of_queries(args.query, args.depth), 0x1p-60, 0x1p40) ||
      !fits(of_keys(args.key, args.depth), 0x1p-60, 0x1p40)) {
    return false;
  }
  if (d_output == nullptr) return true;
  for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
    if (d_log_sum_exp == nullptr) break;
    const double of_sums = GreatestMagnitude<Accumulator<T>>(
        d_log_sum_exp + FirstSum(args, example, h), 0, 1, example.queries);
    if (!fits(of_sums, 0, 0x1p60)) return false;
  }
  const double gradient = of_queries(d_output, args.value_depth);
  return fits(gradient, 0x1p-60, 0x1p40) &&
         fits(gradient * value * std::abs(args.scale), 0x1p-80, 0x1p60);
}

// Key heads of examples.
struct KeyHeads {
  std::vector<char> are_in;  // [batch, key_heads]; empty: all are
  bool Have(int64_t i) const { return are_in.empty() || are_in[i] != 0; }
};

// Calls run(P(), heads) once for each kind of pack P that this call uses, with
// the key heads that use it.
template <typename T, typename Run>
void WithPacks([[maybe_unused]] const Cpu& cpu,
               [[maybe_unused]] const AttentionOperands<T>& args,
               [[maybe_unused]] const T* d_output,
               [[maybe_unused]] const Accumulator<T>* d_log_sum_exp,
               const Run& run) {
  // Tiles are of the level avx512.
  if constexpr (kVectorBytes == 64 && !std::is_same_v<T, double>) {
    if (HasTileProducts()) {
      KeyHeads fit{std::vector<char>(args.batch * args.key_heads)};
      const double numbers =
          1.0 * args.queries * args.heads / args.key_heads + 2.0 * args.keys;
      cpu.ParallelFor(fit.are_in.size(), numbers * args.depth / 16,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          fit.are_in[i] =
                              FitTiles(args, d_output, d_log_sum_exp,
                                       ExampleOf(args, i / args.key_heads),
                                       i % args.key_heads);
                        }
                      });
      KeyHeads others = fit;
      for (char& is_in : others.are_in) is_in = is_in == 0;
      const auto any = [](const KeyHeads& heads) {
        return std::find(heads.are_in.begin(), heads.are_in.end(), 1) !=
               heads.are_in.end();
      };
      if (!any(others)) return run(AmxPackOf<T>(), KeyHeads());
      if (any(fit)) run(AmxPackOf<T>(), fit);
      return run(Accumulator<T>(), others);
    }
  }
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (HasBFloat16Products()) return run(BFloat16Pack(), KeyHeads());
  }
  run(Accumulator<T>(), KeyHeads());
}

}  // namespace attention
}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_AMX_SIMD_H_
