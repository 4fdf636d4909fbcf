#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/core/cc/gemm_simd.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul_simd.h"

namespace tfo {
namespace {

// Rows of inputs up to which the kernel's bytes are multiplied directly, in
// passes of kDirectRows. More rows pay for panels of unpacked weights; of pairs
// [depth, columns], fewer.
constexpr int64_t kMaxDirectRows = 8, kMaxPairRows = 4;
// Columns of a unit of parallel work.
constexpr int64_t kUnit = 128;
// Columns whose sums stay in the L1 cache.
constexpr int64_t kStrip = 1024;
// Rows of inputs for which panels are unpacked once, and of a tile.
constexpr int64_t kChunkRows = 256, kTileRows = 64;

template <typename C>
StoredBytes BytesOf(const QuantizedWeights<C>& w) {
  const bool along =
      w.pairs == (w.transposed ? NibblePairs::kDepth : NibblePairs::kColumns);
  const StoredPairs pairs = w.pairs == NibblePairs::kNone ? StoredPairs::kNone
                            : along ? StoredPairs::kAlong
                                    : StoredPairs::kAcross;
  const int64_t rows = w.transposed ? w.columns : w.depth;
  const int64_t length = w.transposed ? w.depth : w.columns;
  const int64_t stride = along ? (length + 1) / 2 : length;
  const int64_t stored = pairs == StoredPairs::kAcross ? (rows + 1) / 2 : rows;
  return {w.kernel, w.kernel + stored * stride, stride, pairs, w.is_signed};
}

// What raw numbers exceed q by.
template <typename C>
int OffsetOf(const QuantizedWeights<C>& w) {
  return w.is_signed && w.pairs != NibblePairs::kNone ? 8 : 0;
}

// Weights with group_of, unless there is one group.
template <typename C>
class Grouped {
 public:
  explicit Grouped(const QuantizedWeights<C>& weights) : weights_(weights) {
    if (weights.groups <= 1 || weights.group_of != nullptr) return;
    for (int64_t k = 0, group = 0; k < weights.depth; ++group) {
      k += weights.block_size;
      group_of_.resize(std::min(k, weights.depth), static_cast<int>(group));
    }
    weights_.group_of = group_of_.data();
  }
  Grouped(const Grouped&) = delete;
  const QuantizedWeights<C>& weights() const { return weights_; }

 private:
  QuantizedWeights<C> weights_;
  std::vector<int32_t> group_of_;
};
template <typename C>
int64_t GroupOf(const QuantizedWeights<C>& w, int64_t k) {
  return w.groups > 1 ? w.group_of[k] : 0;
}

// zero [group, column], of raw numbers.
template <typename C>
int ZeroOf(const QuantizedWeights<C>& w, int64_t group, int64_t column) {
  const int offset = OffsetOf(w);
  if (w.zero == nullptr) return offset;
  const uint8_t z = w.zero[w.transposed ? column * w.groups + group
                                        : group * w.columns + column];
  return offset + (w.is_signed ? static_cast<int8_t>(z) : z);
}

// Writes W, or W without scales, as rows or panels.
template <typename C>
class Unpacker {
 public:
  Unpacker(const QuantizedWeights<C>& weights, bool scaled)
      : w_(weights), bytes_(BytesOf(weights)), scaled_(scaled) {
    run_ends_.resize(w_.depth);
    for (int64_t k = w_.depth - 1; k >= 0; --k) {
      run_ends_[k] = k + 1 < w_.depth && GroupOf(w_, k) == GroupOf(w_, k + 1)
                         ? run_ends_[k + 1]
                         : k + 1;
    }
  }

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
          const int64_t end = std::min(run_ends_[k], first + count);
          const int64_t group = GroupOf(w_, k);
          std::fill(zeros + (k - first), zeros + (end - first),
                    static_cast<C>(ZeroOf(w_, group, i)));
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
            zeros[n] = static_cast<C>(ZeroOf(w_, group, first + n));
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
  std::vector<int64_t> run_ends_;
};

// A product of a [rows, depth] with W or its transpose [depth, columns].
struct PanelProduct {
  int64_t rows, depth, columns;
  bool rows_are_depth;  // stored rows of W
};

// Calls finish(m, n, count, sums) for parts of rows of the product, which are
// Sum: C, or int32_t, exact for integers up to 127 times W.
template <typename Sum, typename T, typename C, typename Finish>
void MultiplyPanels(const Cpu& cpu, const PanelProduct& p,
                    const Unpacker<C>& unpacker, const T* a,
                    const Finish& finish) {
  const int64_t panel = TFO_DISPATCH(PanelColumns<C>)();
  const auto body = [&](int64_t begin, int64_t end) {
    const Buffer<C> panels(kGemmDepth * kUnit), unpacked(kGemmDepth * kUnit),
        tile(kTileRows * kGemmStride), products(kTileRows * kUnit);
    const Buffer<Sum> sums(p.rows * kUnit);
    std::fill_n(panels.data(), kGemmDepth * kUnit, C{0});
    for (int64_t n = begin * kUnit; n < std::min(end * kUnit, p.columns);
         n += kUnit) {
      const int64_t count = std::min(kUnit, p.columns - n);
      const int64_t padded = RoundUp(count, panel);
      std::fill_n(sums.data(), p.rows * kUnit, Sum{0});
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
          const auto multiply = [&](bool add, C* to) {
            TFO_DISPATCH(MultiplyTile<C>)
            (tile.data(), rows, depth, panels.data(), padded, add, to, kUnit);
          };
          if constexpr (std::is_same_v<Sum, int32_t>) {
            multiply(false, products.data());
            TFO_DISPATCH(AddIntegers)
            (products.data(), nullptr, 0, rows * kUnit,
             sums.data() + m * kUnit);
          } else {
            multiply(true, sums.data() + m * kUnit);
          }
        }
      }
      for (int64_t m = 0; m < p.rows; ++m) {
        finish(m, n, count, sums.data() + m * kUnit);
      }
    }
  };
  // Multiply-adds of two vectors a cycle, and unpacking.
  const double cycles = static_cast<double>(p.depth) * kUnit *
                        (static_cast<double>(p.rows) / 16 + 2);
  cpu.ParallelFor((p.columns + kUnit - 1) / kUnit, cycles, body);
}

// Rounds a row to integers between -127 and 127, and returns the factor that
// results are multiplied with.
template <typename T, typename C = Accumulator<T>>
C QuantizeRow(const T* row, int64_t n, C* to) {
  C greatest = 0;
  bool is_finite = true;
  for (int64_t k = 0; k < n; ++k) {
    const C x = std::abs(Widen(row[k]));
    is_finite = is_finite && x <= std::numeric_limits<C>::max();
    greatest = std::max(greatest, x);
  }
  if (!is_finite) {
    std::fill_n(to, n, C{0});
    return std::numeric_limits<C>::quiet_NaN();
  }
  const auto round = [](C x) { return Widen(Narrow<T>(x)); };
  const C scale = round(127 / round(greatest + round(static_cast<C>(1e-7))));
  for (int64_t k = 0; k < n; ++k) {
    const C q = std::nearbyint(round(Widen(row[k]) * scale));
    // An infinite scale makes zeros NaN.
    to[k] = q >= -127 ? std::min<C>(q, 127) : q < -127 ? C{-127} : C{0};
  }
  return 1 / scale;
}

// Blocks of the depth, or nothing if groups are scattered: blocks would be
// short, or cut a byte.
template <typename C>
std::vector<DepthBlock> DepthBlocks(const QuantizedWeights<C>& w) {
  std::vector<DepthBlock> blocks;
  for (int64_t k = 0; k < w.depth;) {
    const int64_t group = GroupOf(w, k);
    int64_t end = k + 1;
    while (end < w.depth && end - k < kBlockDepth && GroupOf(w, end) == group) {
      ++end;
    }
    blocks.push_back({k, end - k, group});
    if (w.pairs == NibblePairs::kDepth && end % 2 == 1 && end < w.depth) {
      return {};
    }
    k = end;
  }
  constexpr int64_t kShort = 16;
  if (static_cast<int64_t>(blocks.size()) > w.depth / kShort + 1) return {};
  return blocks;
}

// Floats, which are integers if sums are exact.
struct DirectProduct {
  const QuantizedWeights<float>& weights;
  const std::vector<DepthBlock>& blocks;
  int64_t rows;
  const float* x;  // [rows, depth]
};

// Sums of rows of inputs in each block: [rows][blocks].
std::vector<float> SumsOfBlocks(const DirectProduct& p) {
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
double CyclesPerUnit(const DirectProduct& p) {
  return static_cast<double>(p.weights.depth) * kUnit / 8 *
         (1 + static_cast<double>(p.rows) / 2);
}

void AddBlock(const float* products, const float* zero, float x_sum,
              const float* scale, int64_t n, float* sums) {
  TFO_DISPATCH(AddProducts)(products, zero, x_sum, scale, n, sums);
}
// Of integers, in one group.
void AddBlock(const float* products, const float* zero, float x_sum,
              const float* /*scale*/, int64_t n, int32_t* sums) {
  TFO_DISPATCH(AddIntegers)(products, zero, x_sum, n, sums);
}

template <typename Sum, typename Finish>
void MultiplyStrips(const Cpu& cpu, const DirectProduct& p, bool in_panels,
                    const Finish& finish) {
  const QuantizedWeights<float>& w = p.weights;
  const StoredBytes bytes = BytesOf(w);
  const int64_t num_blocks = p.blocks.size();
  const std::vector<float> x_sums = SumsOfBlocks(p);
  const bool has_zero = w.zero != nullptr || OffsetOf(w) != 0;
  // The sums of a strip of columns stay in the cache. Directly, long parts of
  // rows are read, as far as all threads have work.
  const int64_t strip =
      in_panels ? kUnit
                : std::clamp(RoundUp(w.columns / (4 * cpu.num_threads), kUnit),
                             kUnit, kStrip);
  const int64_t stride = strip + kUnit;  // room for whole vectors
  const int64_t tile_rows = in_panels ? kTileRows : kDirectRows;
  const int64_t word_columns = TFO_DISPATCH(WordColumns)(bytes.pairs);
  const auto body = [&](int64_t begin, int64_t end) {
    const Buffer<float> products(tile_rows * stride), zeros(strip),
        panels(in_panels ? kBlockDepth * kUnit : 0),
        tile(in_panels ? kTileRows * kGemmStride : 0);
    const Buffer<Sum> sums(p.rows * strip);
    for (int64_t n = begin * strip; n < std::min(end * strip, w.columns);
         n += strip) {
      const int64_t count = std::min(strip, w.columns - n);
      std::fill_n(sums.data(), p.rows * strip, Sum{0});
      int64_t group_of_zeros = -1;
      for (int64_t b = 0; b < num_blocks; ++b) {
        const DepthBlock& block = p.blocks[b];
        if (has_zero && block.group != group_of_zeros) {
          for (int64_t i = 0; i < count; ++i) {
            zeros.data()[i] = static_cast<float>(ZeroOf(w, block.group, n + i));
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
            AddBlock(of_row, zero, x_sums[(m + i) * num_blocks + b], scale,
                     count, sums.data() + (m + i) * strip);
          }
        }
      }
      for (int64_t m = 0; m < p.rows; ++m) {
        finish(m, n, count, sums.data() + m * strip);
      }
    }
  };
  cpu.ParallelFor((w.columns + strip - 1) / strip,
                  CyclesPerUnit(p) * static_cast<double>(strip) / kUnit, body);
}

// Arranged blocks of inputs, and their sums.
struct ArrangedInputs {
  ArrangedInputs(const DirectProduct& p, StoredPairs pairs)
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
template <typename Sum, typename Finish>
void MultiplyColumnPanels(const Cpu& cpu, const DirectProduct& p,
                          const Finish& finish) {
  const QuantizedWeights<float>& w = p.weights;
  const StoredBytes bytes = BytesOf(w);
  const int64_t num_blocks = p.blocks.size();
  const ArrangedInputs inputs(p, bytes.pairs);
  const int64_t panel = TFO_DISPATCH(PanelColumns<float>)();
  const auto body = [&](int64_t begin, int64_t end) {
    const Buffer<float> unpacked(kBlockDepth * kUnit),
        panels(kBlockDepth * kUnit), tile(kTileRows * kGemmStride),
        products(kTileRows * kUnit);
    const Buffer<Sum> sums(p.rows * kUnit);
    float zeros[kUnit], scales[kUnit];
    for (int64_t n = begin * kUnit; n < std::min(end * kUnit, w.columns);
         n += kUnit) {
      const int64_t count = std::min(kUnit, w.columns - n);
      std::fill_n(sums.data(), p.rows * kUnit, Sum{0});
      for (int64_t b = 0; b < num_blocks; ++b) {
        const DepthBlock& block = p.blocks[b];
        int64_t depth = 0;
        for (int64_t i = 0; i < count; ++i) {
          depth = TFO_DISPATCH(UnpackArranged)(
              bytes, n + i, block.begin, block.depth,
              unpacked.data() + i * kBlockDepth);
          zeros[i] = static_cast<float>(ZeroOf(w, block.group, n + i));
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
           false, products.data(), kUnit);
          for (int64_t i = 0; i < rows; ++i) {
            AddBlock(products.data() + i * kUnit, zeros,
                     inputs.sums[(m + i) * num_blocks + b],
                     w.groups > 1 ? scales : nullptr, count,
                     sums.data() + (m + i) * kUnit);
          }
        }
      }
      for (int64_t m = 0; m < p.rows; ++m) {
        finish(m, n, count, sums.data() + m * kUnit);
      }
    }
  };
  cpu.ParallelFor((w.columns + kUnit - 1) / kUnit, CyclesPerUnit(p), body);
}

template <typename Sum, typename Finish>
void DotColumns(const Cpu& cpu, const DirectProduct& p, const Finish& finish) {
  constexpr bool kExact = std::is_same_v<Sum, int32_t>;
  const QuantizedWeights<float>& w = p.weights;
  const StoredBytes bytes = BytesOf(w);
  const int64_t num_blocks = p.blocks.size();
  const ArrangedInputs inputs(p, bytes.pairs);
  const int64_t stride = inputs.stride;
  const Buffer<float>& x = inputs.x;
  std::vector<float> x_sums(p.rows * w.groups);
  std::vector<uint32_t> integer_x_sums(p.rows);  // if exact, modulo 2^32
  for (int64_t m = 0; m < p.rows; ++m) {
    for (int64_t b = 0; b < num_blocks; ++b) {
      const float sum = inputs.sums[m * num_blocks + b];
      x_sums[m * w.groups + p.blocks[b].group] += sum;
      if (kExact) {
        integer_x_sums[m] += static_cast<uint32_t>(static_cast<int32_t>(sum));
      }
    }
  }
  const bool has_zero = w.zero != nullptr || OffsetOf(w) != 0;
  const auto body = [&](int64_t begin, int64_t end) {
    Sum sums[kDirectRows][kUnit];
    for (int64_t n = begin * kUnit; n < std::min(end * kUnit, w.columns);
         n += kUnit) {
      const int64_t count = std::min(kUnit, w.columns - n);
      for (int64_t m = 0; m < p.rows; m += kDirectRows) {
        const int64_t rows = std::min(kDirectRows, p.rows - m);
        TFO_DISPATCH(DotStoredRows)
        (bytes, n, x.data() + m * stride, stride, rows, count, p.blocks.data(),
         num_blocks, w.groups > 1 ? w.scale : nullptr, w.groups, kExact, sums,
         kUnit);
        for (int64_t i = 0; i < rows; ++i) {
          const float* const of_row = &x_sums[(m + i) * w.groups];
          if (!kExact && has_zero && w.groups > 1) {
            if constexpr (!kExact) {
              TFO_DISPATCH(SubtractZeros)
              (w.zero != nullptr ? w.zero + n * w.groups : nullptr, w.is_signed,
               static_cast<float>(OffsetOf(w)), w.scale + n * w.groups, of_row,
               w.groups, count, sums[i]);
            }
          } else if (has_zero) {
            for (int64_t j = 0; j < count; ++j) {
              const int zero = ZeroOf(w, 0, n + j);
              if constexpr (kExact) {
                sums[i][j] = static_cast<int32_t>(
                    static_cast<uint32_t>(sums[i][j]) -
                    static_cast<uint32_t>(zero) * integer_x_sums[m + i]);
              } else {
                sums[i][j] -= static_cast<float>(zero) * of_row[0];
              }
            }
          }
          finish(m + i, n, count, sums[i]);
        }
      }
    }
  };
  cpu.ParallelFor((w.columns + kUnit - 1) / kUnit, CyclesPerUnit(p), body);
}

// Writes parts of rows of the product: of sums with all scales if there are
// several groups.
template <typename T>
struct Outputs {
  using C = Accumulator<T>;
  const QuantizedWeights<C>& weights;
  bool exact;
  const C* factors;  // of the rows
  T* data;

  template <typename Sum>
  void operator()(int64_t m, int64_t n, int64_t count, const Sum* sums) const {
    T* const to = data + m * weights.columns + n;
    for (int64_t i = 0; i < count; ++i) {
      C value = static_cast<C>(sums[i]);
      if constexpr (std::is_same_v<Sum, double>) {
        if (exact) {
          value = static_cast<int32_t>(
              static_cast<uint32_t>(static_cast<int64_t>(value)));
        }
      }
      if (weights.groups == 1) value *= weights.scale[n + i];
      to[i] = Narrow<T>(value * factors[m]);
    }
  }
};

}  // namespace

template <typename T>
Error QuantizedMatmul(const Cpu& cpu, const QuantizedMatmulArgs<T>& args) {
  using C = Accumulator<T>;
  const Grouped<C> grouped(args.weights);
  const QuantizedWeights<C>& w = grouped.weights();
  const bool exact = args.quantize_inputs && w.groups == 1;
  std::vector<DepthBlock> blocks;
  if (std::is_same_v<C, float>) blocks = DepthBlocks(w);
  const bool direct = !blocks.empty();
  const bool in_panels =
      args.rows > (w.pairs == NibblePairs::kNone || w.transposed
                       ? kMaxDirectRows
                       : kMaxPairRows);
  const bool widen = args.quantize_inputs || (direct && !std::is_same_v<T, C>);
  const int64_t chunk = std::min(kChunkRows, args.rows);
  const Buffer<C> widened(widen ? chunk * w.depth : 0);
  std::vector<C> factors(chunk, C{1});
  const Unpacker<C> unpacker(w, w.groups > 1);
  for (int64_t first = 0; first < args.rows; first += chunk) {
    const int64_t rows = std::min(chunk, args.rows - first);
    const T* const inputs = args.inputs + first * w.depth;
    const Outputs<T> finish{w, exact, factors.data(),
                            args.outputs + first * w.columns};
    if (widen) {
      cpu.ParallelFor(rows, 8.0 * w.depth, [&](int64_t begin, int64_t end) {
        for (int64_t m = begin; m < end; ++m) {
          const T* const from = inputs + m * w.depth;
          C* const to = widened.data() + m * w.depth;
          if (args.quantize_inputs) {
            factors[m] = QuantizeRow(from, w.depth, to);
          } else {
            for (int64_t k = 0; k < w.depth; ++k) to[k] = Widen(from[k]);
          }
        }
      });
    }
    const PanelProduct product{rows, w.depth, w.columns, !w.transposed};
    const auto multiply = [&](auto sum, const auto* x) {
      using Sum = decltype(sum);
      if constexpr (std::is_same_v<std::decay_t<decltype(*x)>, float>) {
        if (direct && w.transposed) {
          return in_panels ? MultiplyColumnPanels<Sum>(
                                 cpu, {w, blocks, rows, x}, finish)
                           : DotColumns<Sum>(cpu, {w, blocks, rows, x}, finish);
        }
        if (direct) {
          return MultiplyStrips<Sum>(cpu, {w, blocks, rows, x}, in_panels,
                                     finish);
        }
      }
      MultiplyPanels<Sum>(cpu, product, unpacker, x, finish);
    };
    const C* const x = widened.data();
    if constexpr (std::is_same_v<C, float>) {
      if (exact) {
        multiply(int32_t{}, x);
        continue;
      }
    }
    if (widen) {
      multiply(C{}, x);
    } else {
      multiply(C{}, inputs);
    }
  }
  return nullptr;
}

template <typename T>
Error QuantizedMatmulGrad(const Cpu& cpu,
                          const QuantizedMatmulGradArgs<T>& args) {
  using C = Accumulator<T>;
  const Grouped<C> grouped(args.weights);
  const QuantizedWeights<C>& w = grouped.weights();
  const Unpacker<C> unpacker(w, true);
  for (int64_t first = 0; first < args.rows; first += kChunkRows) {
    const PanelProduct product{std::min(kChunkRows, args.rows - first),
                               w.columns, w.depth, w.transposed};
    T* const to = args.d_inputs + first * w.depth;
    MultiplyPanels<C>(cpu, product, unpacker,
                      args.d_outputs + first * w.columns,
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
