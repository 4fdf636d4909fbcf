// Products of floats with quantized weights: float sums of raw numbers
// (quantized_matmul_simd.h), before zeros and scales.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_FLOAT_PRODUCT_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_FLOAT_PRODUCT_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/simd/gemm_simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/direct_product_simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul_simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/stored_weights.h"

namespace tfo {

// Rows of inputs up to which the kernel's bytes are multiplied directly, in
// passes of kDirectRows. More rows pay for panels of unpacked weights; of pairs
// [depth, columns], fewer.
inline constexpr int64_t kMaxDirectRows = 8, kMaxPairRows = 4;

struct FloatProduct {
  const QuantizedWeights<float>& weights;
  const std::vector<DepthBlock>& blocks;
  int64_t rows;
  const float* x;  // [rows, depth]
};

// Sums of rows of inputs in each block: [rows][blocks].
inline std::vector<float> SumsOfBlocks(const FloatProduct& p) {
  std::vector<float> sums;
  for (int64_t m = 0; m < p.rows; ++m) {
    for (const DepthBlock& block : p.blocks) {
      const float* const x = p.x + m * p.weights.depth + block.begin;
      sums.push_back(std::accumulate(x, x + block.depth, 0.0f));
    }
  }
  return sums;
}

// Unpacking, and multiply-adds of two vectors a cycle.
inline double CyclesPerTask(const FloatProduct& p) {
  return static_cast<double>(p.weights.depth) * kTaskColumns / 8 *
         (1 + static_cast<double>(p.rows) / 2);
}

template <typename Finish>
void MultiplyStrips(const Cpu& cpu, const FloatProduct& p, bool in_panels,
                    const Finish& finish) {
  const QuantizedWeights<float>& w = p.weights;
  const StoredBytes bytes = BytesOf(w);
  const int64_t num_blocks = p.blocks.size();
  const std::vector<float> x_sums = SumsOfBlocks(p);
  const bool has_zero = HasRawZero(w);
  const int64_t strip = in_panels ? kTaskColumns : StripColumns(w, cpu);
  const int64_t stride = strip + kTaskColumns;  // room for whole vectors
  const int64_t tile_rows = in_panels ? kTileRows : kDirectRows;
  const int64_t word_columns = TFO_DISPATCH(WordColumns)(bytes.pairs);
  const auto body = [&](int64_t begin, int64_t end) {
    const Buffer<float> products(tile_rows * stride), zeros(strip),
        panels(in_panels ? kBlockDepth * kTaskColumns : 0),
        tile(in_panels ? kTileRows * kGemmStride : 0);
    const Buffer<float> sums(p.rows * strip);
    for (int64_t n = begin * strip; n < std::min(end * strip, w.columns);
         n += strip) {
      const int64_t count = std::min(strip, w.columns - n);
      std::fill_n(sums.data(), p.rows * strip, 0.0f);
      int64_t group_of_zeros = -1;
      for (int64_t b = 0; b < num_blocks; ++b) {
        const DepthBlock& block = p.blocks[b];
        if (has_zero && block.group != group_of_zeros) {
          for (int64_t i = 0; i < count; ++i) {
            zeros.data()[i] = RawZeroOf(w, block.group, n + i);
          }
          group_of_zeros = block.group;
        }
        const float* const zero = has_zero ? zeros.data() : nullptr;
        const float* const scale =
            w.groups > 1 ? w.scale + block.group * w.columns + n : nullptr;
        // A byte's second row, beyond the block, meets a zero of x.
        const int64_t depth = bytes.pairs == StoredPairs::kAcross
                                  ? RoundUp(block.depth, 2)
                                  : block.depth;
        if (in_panels) {
          TFO_DISPATCH(UnpackPanels)
          (bytes, block.begin, n, depth, count, panels.data());
        }
        for (int64_t m = 0; m < p.rows; m += tile_rows) {
          const int64_t rows = std::min(tile_rows, p.rows - m);
          const float* const x = p.x + m * w.depth + block.begin;
          if (in_panels) {
            TFO_DISPATCH(PackTile<float, float>)
            (x, w.depth, rows, block.depth, tile.data());
            if (depth > block.depth) {
              for (int64_t i = 0; i < rows; ++i) {
                tile.data()[i * kGemmStride + block.depth] = 0;
              }
            }
            TFO_DISPATCH(MultiplyTile<float>)
            (tile.data(), rows, depth, panels.data(),
             RoundUp(count, word_columns), false, products.data(), stride);
          } else {
            TFO_DISPATCH(MultiplyStoredRows)
            (bytes, block.begin, n, x, w.depth, rows, block.depth, count,
             products.data(), stride);
          }
          for (int64_t i = 0; i < rows; ++i) {
            float* const of_row = products.data() + i * stride;
            if (in_panels) {
              TFO_DISPATCH(OrderProducts)(bytes.pairs, count, of_row);
            }
            TFO_DISPATCH(AddProducts)
            (of_row, zero, x_sums[(m + i) * num_blocks + b], scale, count,
             sums.data() + (m + i) * strip);
          }
        }
      }
      for (int64_t m = 0; m < p.rows; ++m) {
        ScaleByOneGroup(w, n, count, sums.data() + m * strip);
        finish(m, n, count, sums.data() + m * strip);
      }
    }
  };
  cpu.ParallelFor((w.columns + strip - 1) / strip,
                  CyclesPerTask(p) * static_cast<double>(strip) / kTaskColumns,
                  body);
}

// Arranged blocks of inputs, and their sums.
struct ArrangedInputs {
  ArrangedInputs(const FloatProduct& p, StoredPairs pairs)
      : stride(static_cast<int64_t>(p.blocks.size()) * kBlockDepth),
        x(p.rows * stride),
        sums(SumsOfBlocks(p)) {
    std::fill_n(x.data(), p.rows * stride, 0.0f);
    for (int64_t m = 0; m < p.rows; ++m) {
      float* to = x.data() + m * stride;
      for (const DepthBlock& block : p.blocks) {
        TFO_DISPATCH(ArrangeBlock)
        (pairs, p.x + m * p.weights.depth + block.begin, block.depth, to);
        to += kBlockDepth;
      }
    }
  }

  const int64_t stride;  // from row to row
  const Buffer<float> x;
  const std::vector<float> sums;  // [rows][blocks]
};

// Products with panels, where stored rows are columns.
template <typename Finish>
void MultiplyColumnPanels(const Cpu& cpu, const FloatProduct& p,
                          const Finish& finish) {
  const QuantizedWeights<float>& w = p.weights;
  const StoredBytes bytes = BytesOf(w);
  const int64_t num_blocks = p.blocks.size();
  const ArrangedInputs inputs(p, bytes.pairs);
  const int64_t panel = TFO_DISPATCH(PanelColumns<float>)();
  const auto body = [&](int64_t begin, int64_t end) {
    const Buffer<float> unpacked(kBlockDepth * kTaskColumns),
        panels(kBlockDepth * kTaskColumns), tile(kTileRows * kGemmStride),
        products(kTileRows * kTaskColumns);
    const Buffer<float> sums(p.rows * kTaskColumns);
    float zeros[kTaskColumns], scales[kTaskColumns];
    for (int64_t n = begin * kTaskColumns;
         n < std::min(end * kTaskColumns, w.columns); n += kTaskColumns) {
      const int64_t count = std::min(kTaskColumns, w.columns - n);
      std::fill_n(sums.data(), p.rows * kTaskColumns, 0.0f);
      for (int64_t b = 0; b < num_blocks; ++b) {
        const DepthBlock& block = p.blocks[b];
        int64_t depth = 0;
        for (int64_t i = 0; i < count; ++i) {
          depth = TFO_DISPATCH(UnpackArranged)(
              bytes, n + i, block.begin, block.depth,
              unpacked.data() + i * kBlockDepth);
          zeros[i] = RawZeroOf(w, block.group, n + i);
          if (w.groups > 1)
            scales[i] = w.scale[(n + i) * w.groups + block.group];
        }
        TFO_DISPATCH(PackPanels<float, float>)
        (unpacked.data(), 1, kBlockDepth, depth, count, panels.data());
        for (int64_t m = 0; m < p.rows; m += kTileRows) {
          const int64_t rows = std::min(kTileRows, p.rows - m);
          TFO_DISPATCH(PackTile<float, float>)
          (inputs.x.data() + m * inputs.stride + b * kBlockDepth, inputs.stride,
           rows, depth, tile.data());
          TFO_DISPATCH(MultiplyTile<float>)
          (tile.data(), rows, depth, panels.data(), RoundUp(count, panel),
           false, products.data(), kTaskColumns);
          for (int64_t i = 0; i < rows; ++i) {
            TFO_DISPATCH(AddProducts)
            (products.data() + i * kTaskColumns, zeros,
             inputs.sums[(m + i) * num_blocks + b],
             w.groups > 1 ? scales : nullptr, count,
             sums.data() + (m + i) * kTaskColumns);
          }
        }
      }
      for (int64_t m = 0; m < p.rows; ++m) {
        ScaleByOneGroup(w, n, count, sums.data() + m * kTaskColumns);
        finish(m, n, count, sums.data() + m * kTaskColumns);
      }
    }
  };
  cpu.ParallelFor((w.columns + kTaskColumns - 1) / kTaskColumns,
                  CyclesPerTask(p), body);
}

template <typename Finish>
void DotColumns(const Cpu& cpu, const FloatProduct& p, const Finish& finish) {
  const QuantizedWeights<float>& w = p.weights;
  const StoredBytes bytes = BytesOf(w);
  const int64_t num_blocks = p.blocks.size();
  const ArrangedInputs inputs(p, bytes.pairs);
  const int64_t stride = inputs.stride;
  const Buffer<float>& x = inputs.x;
  std::vector<float> x_sums(p.rows * w.groups);
  for (int64_t m = 0; m < p.rows; ++m) {
    for (int64_t b = 0; b < num_blocks; ++b) {
      x_sums[m * w.groups + p.blocks[b].group] +=
          inputs.sums[m * num_blocks + b];
    }
  }
  const bool has_zero = HasRawZero(w);
  const auto body = [&](int64_t begin, int64_t end) {
    float sums[kDirectRows][kTaskColumns];
    for (int64_t n = begin * kTaskColumns;
         n < std::min(end * kTaskColumns, w.columns); n += kTaskColumns) {
      const int64_t count = std::min(kTaskColumns, w.columns - n);
      for (int64_t m = 0; m < p.rows; m += kDirectRows) {
        const int64_t rows = std::min(kDirectRows, p.rows - m);
        TFO_DISPATCH(DotStoredRows)
        (bytes, n, x.data() + m * stride, stride, rows, count, p.blocks.data(),
         num_blocks, w.groups > 1 ? w.scale : nullptr, w.groups, *sums,
         kTaskColumns);
        for (int64_t i = 0; i < rows; ++i) {
          const float* const of_row = &x_sums[(m + i) * w.groups];
          if (has_zero && w.groups > 1) {
            TFO_DISPATCH(SubtractZeros)
            (w.zero != nullptr ? w.zero + n * w.groups : nullptr, w.is_signed,
             w.float_zero != nullptr ? w.float_zero + n * w.groups : nullptr,
             static_cast<float>(OffsetOf(w)), w.scale + n * w.groups, of_row,
             w.groups, count, sums[i]);
          } else if (has_zero) {
            for (int64_t j = 0; j < count; ++j) {
              sums[i][j] -= RawZeroOf(w, 0, n + j) * of_row[0];
            }
          }
          ScaleByOneGroup(w, n, count, sums[i]);
          finish(m + i, n, count, sums[i]);
        }
      }
    }
  };
  cpu.ParallelFor((w.columns + kTaskColumns - 1) / kTaskColumns,
                  CyclesPerTask(p), body);
}

// Calls finish(m, n, count, sums) for parts of rows of x * W.
template <typename Finish>
void MultiplyFloats(const Cpu& cpu, const FloatProduct& p,
                    const Finish& finish) {
  const QuantizedWeights<float>& w = p.weights;
  const bool in_panels =
      p.rows > (w.pairs == NibblePairs::kNone || w.transposed ? kMaxDirectRows
                                                              : kMaxPairRows);
  if (!w.transposed) return MultiplyStrips(cpu, p, in_panels, finish);
  if (in_panels) return MultiplyColumnPanels(cpu, p, finish);
  DotColumns(cpu, p, finish);
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_FLOAT_PRODUCT_H_
