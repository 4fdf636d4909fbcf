// The classes of attention_cpu.h for products by AMX's tiles.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_AMX_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_AMX_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/amx_gemm_simd.h"
#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_cpu.h"

namespace tfo {
namespace attention {

template <>
inline constexpr bool kRoundsWeights<AmxPack<1>> = true;

template <typename T, int kTerms>
class PackedRows<T, AmxPack<kTerms>> {
 public:
  PackedRows(int64_t rows, int64_t depth)
      : depth_(depth),
        row_packs_(PackCount<AmxPack<kTerms>>(depth)),
        packs_(RoundUp(rows, kAmxRows) * row_packs_) {}

  void Pack(const T* from, int64_t stride, int64_t count) const {
    cpu_avx512::PackAmxRows(from, stride, 1, count, depth_, row_packs_,
                            packs_.data());
  }
  // `first` is a multiple of kAmxRows.
  void Multiply(int64_t first, int64_t count, const AmxPack<kTerms>* panel,
                float* to) const {
    cpu_avx512::MultiplyAmx(packs_.data() + first * row_packs_, row_packs_,
                            count, row_packs_, panel, kAmxColumns, false, to,
                            kGemmStride);
  }

 private:
  const int64_t depth_, row_packs_;
  const Buffer<AmxPack<kTerms>> packs_;
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

  void Pack(const T* from, int64_t stride, int64_t count) const {
    cpu_avx512::PackAmxRows(from, 1, stride, width_, count, row_packs_,
                            packs_.data());
  }

  // Weights are those of `span` and of a panel only, packed by PackAmxPanels.
  void AddTransposed(const AmxPack<kTerms>* weights, const Span& span, int64_t,
                     float* sums) const {
    cpu_avx512::MultiplyAmx(Tiles(span.begin), row_packs_, width_,
                            PackCount<AmxPack<kTerms>>(span.end - span.begin),
                            weights, kAmxColumns, true, sums, kAmxColumns);
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

// Whether to multiply the numbers of an example's key head by tiles. All must
// be finite. Three terms also require products that do not overflow, and terms
// that are normal numbers unless they are too small to matter. Of a single
// panel, products take as long as this look at its keys.
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
    return double{TFO_DISPATCH(GreatestMagnitude<T>)(
        rows + first * stride + from, stride, count, columns)};
  };
  const auto of_queries = [&](const T* rows, int64_t depth) {
    return greatest(rows, example.first_query, example.queries,
                    args.heads * depth, key_head * group * depth,
                    group * depth);
  };
  const auto of_keys = [&](const T* rows, int64_t depth) {
    return greatest(rows, example.first_key + keys.begin, keys.end - keys.begin,
                    args.key_heads * depth, key_head * depth, depth);
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
    const double of_sums = TFO_DISPATCH(GreatestMagnitude<Accumulator<T>>)(
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
  if constexpr (!std::is_same_v<T, double>) {
    TFO_IF_CPU_AVX512(if (HasTileProducts()) {
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
    })
  }
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (HasBFloat16Products()) return run(BFloat16Pack(), KeyHeads());
  }
  run(Accumulator<T>(), KeyHeads());
}

}  // namespace attention
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_AMX_H_
