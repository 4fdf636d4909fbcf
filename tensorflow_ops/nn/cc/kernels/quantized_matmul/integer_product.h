// Products of integers with quantized weights: sums are exact, modulo 2^32, in
// each group, but for zeros that are floats.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_INTEGER_PRODUCT_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_INTEGER_PRODUCT_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/simd/amx_gemm_simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_product_simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/stored_weights.h"

namespace tfo {

// Up to so many rows of inputs are multiplied with the weights where they lie.
inline constexpr int64_t kFewRows = 8, kFewTransposedRows = 16;
// Parts of weights [depth, columns] are so many long pieces of rows, which may
// be pages apart.
inline constexpr int64_t kFewDepth = 32, kPanelDepth = 64;
// Parts of few columns of [columns, depth] are so long.
inline constexpr int64_t kTransposedDepth = 4096;

template <typename C>
struct IntegerProduct {
  const QuantizedWeights<C>& weights;
  const std::vector<DepthBlock>& runs;  // each is of one group
  int64_t rows;
  const int8_t* x;  // [rows, depth]
};

// Packs of a run of x, with zeros at its end.
template <int kNumbers>
int64_t PacksOf(const DepthBlock& run) {
  return RoundUp(DivideUp(run.depth, kNumbers), kIntegerPad);
}

// The packs of x and its sums in each run.
template <int kNumbers>
struct PackedIntegers {
  template <typename C>
  PackedIntegers(const Cpu& cpu, const IntegerProduct<C>& p, bool halves)
      : stride(std::accumulate(p.runs.begin(), p.runs.end(), int64_t{0},
                               [](int64_t sum, const DepthBlock& run) {
                                 return sum + PacksOf<kNumbers>(run);
                               })),
        packs(p.rows * stride),
        sums(p.rows * p.runs.size()) {
    const int64_t depth = p.weights.depth;
    cpu.ParallelFor(p.rows, 2.0 * depth, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        IntegerPack<kNumbers>* to = packs.data() + m * stride;
        int32_t* sum = sums.data() + m * p.runs.size();
        for (const DepthBlock& run : p.runs) {
          const int8_t* const from = p.x + m * depth + run.begin;
          TFO_DISPATCH(PackIntegers<kNumbers>)
          (from, run.depth, PacksOf<kNumbers>(run), halves, to);
          to += PacksOf<kNumbers>(run);
          // Unsigned, so that overflow is defined.
          *sum++ = static_cast<int32_t>(
              std::accumulate(from, from + run.depth, uint32_t{0}));
        }
      }
    });
  }

  const int64_t stride;  // from row to row
  const Buffer<IntegerPack<kNumbers>> packs;
  const Buffer<int32_t> sums;  // [rows][runs]
};

// Weights as the loops of integer_product_simd.h read them: bytes, or packed
// pairs.
template <typename C>
class IntegerWeights {
 public:
  // Parts have at most `columns` columns and `depth` rows.
  IntegerWeights(const QuantizedWeights<C>& w, bool packed, int64_t columns,
                 int64_t depth)
      : bytes_(BytesOf(w)),
        transposed_(w.transposed),
        packed_(packed),
        in_place_(packed || (w.pairs == NibblePairs::kNone && w.is_signed)),
        stride_((transposed_ ? depth : columns) + kIntegerRoom),
        copy_(((transposed_ ? columns : depth) + 4) * stride_) {}

  struct Part {
    const int8_t* data;
    int64_t stride;
  };
  // Rows [k, k + depth), read in packs of kNumbers, of columns [n, n + count).
  // Where bytes hold pairs, k or n is even.
  template <int kNumbers>
  Part Read(int64_t k, int64_t depth, int64_t n, int64_t count) const {
    int64_t row = transposed_ ? n : k, first = transposed_ ? k : n;
    int64_t rows = transposed_ ? count : depth,
            length = transposed_ ? depth : count;
    if (packed_ && bytes_.pairs == StoredPairs::kAcross) {
      row /= 2;
      rows = DivideUp(rows, 2);
    } else if (packed_) {
      first /= 2;
      length = DivideUp(length, 2);
    }
    const int64_t last = row + (transposed_ ? rows : RoundUp(rows, 4)) - 1;
    if (in_place_ && last * bytes_.stride + first + length + kIntegerRoom <=
                         bytes_.end - bytes_.data) {
      return {reinterpret_cast<const int8_t*>(bytes_.data) +
                  row * bytes_.stride + first,
              bytes_.stride};
    }
    for (int64_t i = 0; i < rows; ++i) {
      int8_t* const to = copy_.data() + i * stride_;
      if (packed_) {
        std::copy_n(bytes_.data + (row + i) * bytes_.stride + first, length,
                    to);
      } else {
        TFO_DISPATCH(UnpackIntegers)(bytes_, row + i, first, length, to);
      }
    }
    return {copy_.data(), stride_};
  }

 private:
  const StoredBytes bytes_;
  const bool transposed_, packed_, in_place_;
  const int64_t stride_;
  const Buffer<int8_t> copy_;
};

// Products of panels with tiles of rows of x.
template <IntegerLoop kLoop, bool kTiles>
class IntegerPanels {
 public:
  IntegerPanels(int64_t rows, int64_t columns, int64_t packs)
      : rows_(rows),
        tile_(RoundUp(std::min(rows, kTileRows), kIntegerTile) * kGemmStride),
        panels_((packs + kIntegerTile) * columns) {}

  // Adds the products of `depth` rows of `count` columns to rows of sums.
  void Multiply(const PackOf<kLoop>* x, int64_t x_stride, const int8_t* weights,
                int64_t stride, bool transposed, int64_t depth, int64_t count,
                int32_t* sums, int64_t sums_stride) const {
    const int64_t packs = DivideUp(depth, kNumbersOf<kLoop>);
    TFO_DISPATCH(PackIntegerPanels<kLoop>)
    (weights, stride, transposed, depth, count, panels_.data());
    for (int64_t m = 0; m < rows_; m += kTileRows) {
      const int64_t rows = std::min(kTileRows, rows_ - m);
      for (int64_t i = 0; i < rows; ++i) {
        std::copy_n(x + (m + i) * x_stride, RoundUp(packs, kIntegerTile),
                    tile_.data() + i * kGemmStride);
      }
      const auto multiply = [&](const auto& loop) {
        loop(tile_.data(), rows, packs, panels_.data(),
             RoundUp(count, TFO_DISPATCH(PanelColumns<float>)()),
             sums + m * sums_stride, sums_stride);
      };
      if constexpr (kTiles) {
        TFO_IF_CPU_AVX512(multiply(cpu_avx512::MultiplyIntegerTiles);)
      } else {
        multiply(TFO_DISPATCH(MultiplyIntegers<kLoop>));
      }
    }
  }

 private:
  const int64_t rows_;
  const Buffer<PackOf<kLoop>> tile_, panels_;
};

// Whether weights are multiplied where they lie.
template <typename C>
bool AreFew(const IntegerProduct<C>& p) {
  return p.rows <= (p.weights.transposed ? kFewTransposedRows : kFewRows);
}

// Calls finish(m, n, count, sums) for parts of rows of x * W. With few rows,
// kNibbles needs pairs of the depth if W is transposed.
template <IntegerLoop kLoop, typename Scope, typename C, typename Finish>
void MultiplyPacks(const Cpu& cpu, const IntegerProduct<C>& p,
                   const Finish& finish) {
  constexpr int kNumbers = kNumbersOf<kLoop>;
  constexpr bool kNibbles = kLoop == IntegerLoop::kNibbles;
  const QuantizedWeights<C>& w = p.weights;
  const StoredBytes bytes = BytesOf(w);
  const bool transposed = w.transposed, few = AreFew(p);
  const int64_t strip = transposed ? kTaskColumns : StripColumns(w, cpu);
  const int64_t step = transposed
                           ? (few ? kTransposedDepth : kGemmDepth * kNumbers)
                           : (few ? kFewDepth : kPanelDepth);
  const int64_t stride = strip + 16;  // not a power of two
  const bool packed = kNibbles && few, ordered = !packed || transposed;
  const PackedIntegers<kNumbers> inputs(
      cpu, p, !ordered && bytes.pairs == StoredPairs::kAcross);
  // Unsigned bytes are read less 128.
  const int offset = w.pairs != NibblePairs::kNone ? -OffsetOf(w)
                     : w.is_signed                 ? 0
                                                   : 128;
  const auto body = [&](int64_t begin, int64_t end) {
    [[maybe_unused]] const Scope scope;
    const IntegerWeights<C> weights(w, packed, strip, std::min(step, w.depth));
    const IntegerPanels<kLoop, std::is_same_v<Scope, AmxScope>> panels(
        p.rows, strip, few ? 0 : step / kNumbers);
    const Buffer<int32_t> integers(RoundUp(p.rows, kIntegerTile) * stride),
        in_order(ordered ? 0 : stride), zeros(stride);
    const Buffer<C> scales(stride), sums(p.rows * stride),
        float_zeros(w.float_zero != nullptr ? stride : 0);
    for (int64_t n = begin * strip; n < std::min(end * strip, w.columns);
         n += strip) {
      const int64_t count = std::min(strip, w.columns - n);
      std::fill_n(sums.data(), p.rows * stride, C{0});
      const PackOf<kLoop>* of_run = inputs.packs.data();
      for (size_t r = 0; r < p.runs.size(); ++r) {
        const DepthBlock& run = p.runs[r];
        std::fill_n(integers.data(), p.rows * stride, 0);
        for (int64_t k = 0; k < run.depth; k += step) {
          const int64_t depth = std::min(step, run.depth - k);
          const auto [data, data_stride] =
              weights.template Read<kNumbers>(run.begin + k, depth, n, count);
          const PackOf<kLoop>* const x = of_run + k / kNumbers;
          if (!few) {
            panels.Multiply(x, inputs.stride, data, data_stride, transposed,
                            depth, count, integers.data(), stride);
            continue;
          }
          const int64_t packs = DivideUp(depth, kNumbers);
          if constexpr (kNibbles) {
            if (transposed) {
              TFO_DISPATCH(DotNibbles)
              (x, inputs.stride, p.rows, packs, data, data_stride,
               FlipOf(bytes), count, integers.data(), stride);
            } else {
              TFO_DISPATCH(MultiplyFewNibbles)
              (x, inputs.stride, p.rows, packs, data, data_stride,
               FlipOf(bytes), bytes.pairs, count, integers.data(), stride);
            }
          } else {
            const auto multiply =
                transposed ? TFO_DISPATCH(DotIntegers<kNumbers>)
                           : TFO_DISPATCH(MultiplyFewIntegers<kNumbers>);
            multiply(x, inputs.stride, p.rows, packs, data, data_stride, count,
                     integers.data(), stride);
          }
        }
        of_run += PacksOf<kNumbers>(run);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at = PlaceOf(w, run.group, n + i);
          zeros.data()[i] = IntegerZeroOf(w, run.group, n + i) - offset;
          if (w.float_zero != nullptr) float_zeros.data()[i] = w.float_zero[at];
          scales.data()[i] = w.scale[at];
        }
        for (int64_t m = 0; m < p.rows; ++m) {
          const int32_t* of_row = integers.data() + m * stride;
          if (!ordered) {
            TFO_DISPATCH(OrderIntegers)
            (of_row, count, bytes.pairs, in_order.data());
            of_row = in_order.data();
          }
          TFO_DISPATCH(AddScaledIntegers<C>)
          (of_row, zeros.data(),
           w.float_zero != nullptr ? float_zeros.data() : nullptr,
           inputs.sums.data()[m * p.runs.size() + r], scales.data(), count,
           sums.data() + m * stride);
        }
      }
      for (int64_t m = 0; m < p.rows; ++m) {
        finish(m, n, count, sums.data() + m * stride);
      }
    }
  };
  // Packing, and a vector of products a cycle.
  const double cycles = static_cast<double>(w.depth * strip) / 16 *
                        (2 + static_cast<double>(p.rows));
  cpu.ParallelFor(DivideUp(w.columns, strip), cycles, body);
}

template <typename C, typename Finish>
void MultiplyIntegers(const Cpu& cpu, const IntegerProduct<C>& p,
                      const Finish& finish) {
  const QuantizedWeights<C>& w = p.weights;
  // Few rows multiply pairs where they lie; instructions for bytes need them
  // unpacked.
  const bool nibbles =
      w.pairs != NibblePairs::kNone &&
      (AreFew(p) ? !w.transposed || w.pairs == NibblePairs::kDepth
                 : !HasByteProducts());
  if (nibbles) {
    MultiplyPacks<IntegerLoop::kNibbles, NoScope>(cpu, p, finish);
  } else if (HasTileProducts()) {
    MultiplyPacks<IntegerLoop::kBytes, AmxScope>(cpu, p, finish);
  } else if (HasByteProducts()) {
    MultiplyPacks<IntegerLoop::kBytes, NoScope>(cpu, p, finish);
  } else {
    MultiplyPacks<IntegerLoop::kPairs, NoScope>(cpu, p, finish);
  }
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_INTEGER_PRODUCT_H_
