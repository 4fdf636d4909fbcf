#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/simd/convert_simd.h"
#include "tensorflow_ops/core/cc/simd/gemm_simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/float_product.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_product.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul_simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/stored_weights.h"

namespace tfo {
namespace {

// Writes W, or W without scales, as rows or panels.
template <typename C>
class Unpacker {
 public:
  Unpacker(const QuantizedWeights<C>& weights, bool scaled)
      : w_(weights), bytes_(BytesOf(weights)), scaled_(scaled) {}

  // Stored rows [row, row + rows), values [first, first + count) of each, count
  // <= kGemmDepth. A row begins row_stride after the last, and its panels of
  // `panel` values are panel_stride apart.
  void Unpack(int64_t row, int64_t rows, int64_t first, int64_t count,
              int64_t row_stride, int64_t panel, int64_t panel_stride,
              C* to) const {
    alignas(64) float raw[kGemmDepth + 32];
    C zeros[kGemmDepth], scales[kGemmDepth];
    int64_t group_of_zeros = -1;
    for (int64_t i = row; i < row + rows; ++i, to += row_stride) {
      TFO_DISPATCH(UnpackRow)(bytes_, i, first, count, raw);
      const C* scale = scaled_ ? scales : nullptr;
      if (w_.transposed) {
        for (int64_t k = first; k < first + count;) {
          const int64_t end = RunEnd(w_, k, first + count);
          const int64_t group = GroupOf(w_, k);
          std::fill(zeros + (k - first), zeros + (end - first),
                    RawZeroOf(w_, group, i));
          if (scaled_) {
            std::fill(scales + (k - first), scales + (end - first),
                      w_.scale[i * w_.groups + group]);
          }
          k = end;
        }
      } else {
        const int64_t group = GroupOf(w_, i);
        if (group != group_of_zeros) {
          for (int64_t n = 0; n < count; ++n) {
            zeros[n] = RawZeroOf(w_, group, first + n);
          }
          group_of_zeros = group;
        }
        if (scaled_) scale = w_.scale + group * w_.columns + first;
      }
      TFO_DISPATCH(ScaleRow<C>)(raw, zeros, scale, count, panel, panel_stride,
                                to);
    }
  }

 private:
  const QuantizedWeights<C> w_;
  const StoredBytes bytes_;
  const bool scaled_;
};

// A product of a [rows, depth] with W or its transpose [depth, columns].
struct PanelProduct {
  int64_t rows, depth, columns;
  bool rows_are_depth;  // stored rows of W
};

// Calls finish(m, n, count, sums) for parts of rows of the product.
template <typename T, typename C, typename Finish>
void MultiplyPanels(const Cpu& cpu, const PanelProduct& p,
                    const Unpacker<C>& unpacker, const T* a,
                    const Finish& finish) {
  const int64_t panel = TFO_DISPATCH(PanelColumns<C>)();
  const auto body = [&](int64_t begin, int64_t end) {
    const Buffer<C> panels(kGemmDepth * kTaskColumns),
        unpacked(kGemmDepth * kTaskColumns), tile(kTileRows * kGemmStride),
        sums(p.rows * kTaskColumns);
    std::fill_n(panels.data(), kGemmDepth * kTaskColumns, C{0});
    for (int64_t n = begin * kTaskColumns;
         n < std::min(end * kTaskColumns, p.columns); n += kTaskColumns) {
      const int64_t count = std::min(kTaskColumns, p.columns - n);
      const int64_t padded = RoundUp(count, panel);
      std::fill_n(sums.data(), p.rows * kTaskColumns, C{0});
      for (int64_t k = 0; k < p.depth; k += kGemmDepth) {
        const int64_t depth = std::min(kGemmDepth, p.depth - k);
        if (p.rows_are_depth) {
          unpacker.Unpack(k, depth, n, count, panel, panel, depth * panel,
                          panels.data());
        } else {
          unpacker.Unpack(n, count, k, depth, kGemmDepth, kGemmDepth, 0,
                          unpacked.data());
          TFO_DISPATCH(PackPanels<C, C>)
          (unpacked.data(), 1, kGemmDepth, depth, count, panels.data());
        }
        for (int64_t m = 0; m < p.rows; m += kTileRows) {
          const int64_t rows = std::min(kTileRows, p.rows - m);
          TFO_DISPATCH(PackTile<T, C>)
          (a + m * p.depth + k, p.depth, rows, depth, tile.data());
          TFO_DISPATCH(MultiplyTile<C>)
          (tile.data(), rows, depth, panels.data(), padded, true,
           sums.data() + m * kTaskColumns, kTaskColumns);
        }
      }
      for (int64_t m = 0; m < p.rows; ++m) {
        finish(m, n, count, sums.data() + m * kTaskColumns);
      }
    }
  };
  // Multiply-adds of two vectors a cycle, and unpacking.
  const double cycles = static_cast<double>(p.depth) * kTaskColumns *
                        (static_cast<double>(p.rows) / 16 + 2);
  cpu.ParallelFor((p.columns + kTaskColumns - 1) / kTaskColumns, cycles, body);
}

// Rounds a row to integers between -127 and 127, and returns the factor that
// results are multiplied with.
template <typename T, typename Integer, typename C = Accumulator<T>>
C QuantizeRow(const T* row, int64_t n, Integer* to) {
  C greatest = 0;
  bool is_finite = true;
  for (int64_t k = 0; k < n; ++k) {
    const C x = std::abs(Widen(row[k]));
    is_finite = is_finite && x <= std::numeric_limits<C>::max();
    greatest = std::max(greatest, x);
  }
  if (!is_finite) {
    std::fill_n(to, n, Integer{0});
    return std::numeric_limits<C>::quiet_NaN();
  }
  const auto round = [](C x) { return Widen(Narrow<T>(x)); };
  const C scale = round(127 / round(greatest + round(static_cast<C>(1e-7))));
  for (int64_t k = 0; k < n; ++k) {
    const C q = std::nearbyint(round(Widen(row[k]) * scale));
    // An infinite scale makes zeros NaN.
    to[k] = static_cast<Integer>(q >= -127  ? std::min<C>(q, 127)
                                 : q < -127 ? C{-127}
                                            : C{0});
  }
  return 1 / scale;
}

// Writes rows of integers, and their factors.
template <typename T, typename Integer>
void QuantizeRows(const Cpu& cpu, const T* inputs, int64_t rows, int64_t depth,
                  Accumulator<T>* factors, Integer* to) {
  cpu.ParallelFor(rows, 8.0 * depth, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      factors[m] = QuantizeRow(inputs + m * depth, depth, to + m * depth);
    }
  });
}

}  // namespace

template <typename T>
Error QuantizedMatmul(const Cpu& cpu, const QuantizedMatmulArgs<T>& args) {
  using C = Accumulator<T>;
  const QuantizedWeights<C>& w = args.weights;
  const bool quantize = args.quantize_inputs;
  constexpr bool kFloatSums = std::is_same_v<C, float>;
  std::vector<DepthBlock> blocks;
  if (quantize) {
    // Zeros that are floats need sums that did not wrap around.
    constexpr int64_t kDepthOf32Bits = 1 << 16;
    blocks = DepthBlocks(w, w.float_zero ? kDepthOf32Bits : w.depth);
  } else if (kFloatSums) {
    blocks = DepthBlocks(w, kBlockDepth);
  }
  const bool integers = quantize && !blocks.empty();
  const bool floats = kFloatSums && !quantize && !blocks.empty();
  const bool widen = quantize ? !integers : floats && !std::is_same_v<T, C>;
  const int64_t chunk = std::min(kChunkRows, args.rows);
  const Buffer<int8_t> quantized(integers ? chunk * w.depth : 0);
  const Buffer<C> widened(widen ? chunk * w.depth : 0);
  std::vector<C> factors(chunk, C{1});
  const Unpacker<C> unpacker(w, w.groups > 1);
  for (int64_t first = 0; first < args.rows; first += chunk) {
    const int64_t rows = std::min(chunk, args.rows - first);
    const T* const inputs = args.inputs + first * w.depth;
    const auto finish = [&](int64_t m, int64_t n, int64_t count,
                            const C* sums) {
      T* const to = args.outputs + (first + m) * w.columns + n;
      for (int64_t i = 0; i < count; ++i) {
        to[i] = Narrow<T>(sums[i] * factors[m]);
      }
    };
    if (integers) {
      QuantizeRows(cpu, inputs, rows, w.depth, factors.data(),
                   quantized.data());
      MultiplyIntegers(
          cpu, IntegerProduct<C>{w, blocks, rows, quantized.data()}, finish);
      continue;
    }
    const auto multiply = [&](const auto* x) {
      if constexpr (std::is_same_v<std::decay_t<decltype(*x)>, float>) {
        if (floats) {
          return MultiplyFloats(cpu, {w, blocks, rows, x}, finish);
        }
      }
      MultiplyPanels(cpu, {rows, w.depth, w.columns, !w.transposed}, unpacker,
                     x, [&](int64_t m, int64_t n, int64_t count, C* sums) {
                       ScaleByOneGroup(w, n, count, sums);
                       finish(m, n, count, sums);
                     });
    };
    if (quantize) {
      QuantizeRows(cpu, inputs, rows, w.depth, factors.data(), widened.data());
    } else if (widen) {
      for (int64_t i = 0; i < rows * w.depth; ++i) {
        widened.data()[i] = Widen(inputs[i]);
      }
    }
    if (widen) {
      multiply(const_cast<const C*>(widened.data()));
    } else {
      multiply(inputs);
    }
  }
  return nullptr;
}

template <typename T>
Error QuantizedMatmulGrad(const Cpu& cpu,
                          const QuantizedMatmulGradArgs<T>& args) {
  using C = Accumulator<T>;
  const QuantizedWeights<C>& w = args.weights;
  const Unpacker<C> unpacker(w, true);
  for (int64_t first = 0; first < args.rows; first += kChunkRows) {
    const PanelProduct product{std::min(kChunkRows, args.rows - first),
                               w.columns, w.depth, w.transposed};
    T* const to = args.d_inputs + first * w.depth;
    MultiplyPanels(cpu, product, unpacker, args.d_outputs + first * w.columns,
                   [&](int64_t m, int64_t k, int64_t count, const C* sums) {
                     TFO_DISPATCH(NarrowArray<T>)
                     (sums, to + m * w.depth + k, count);
                   });
  }
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(QuantizedMatmul, Cpu, QuantizedMatmulArgs);
TFO_INSTANTIATE_ALGORITHM(QuantizedMatmulGrad, Cpu, QuantizedMatmulGradArgs);

}  // namespace tfo
