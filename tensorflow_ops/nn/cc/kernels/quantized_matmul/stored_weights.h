// What the products of quantized_matmul_cpu.cc share.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_STORED_WEIGHTS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_STORED_WEIGHTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/stored_bytes.h"

namespace tfo {

// Columns of a unit of parallel work.
inline constexpr int64_t kUnit = 128;
// The most columns of rows [depth, columns] that are read at a time: rows may
// be pages apart.
inline constexpr int64_t kStrip = 4096;
// Rows of inputs for which panels are unpacked once, and of a tile.
inline constexpr int64_t kChunkRows = 256, kTileRows = 64;

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

// zero and scale [group, column] are at this place.
template <typename C>
int64_t PlaceOf(const QuantizedWeights<C>& w, int64_t group, int64_t column) {
  return w.transposed ? column * w.groups + group : group * w.columns + column;
}
// The zeros that are bytes.
template <typename C>
int IntegerZeroOf(const QuantizedWeights<C>& w, int64_t group, int64_t column) {
  if (w.zero == nullptr) return 0;
  const uint8_t z = w.zero[PlaceOf(w, group, column)];
  return w.is_signed ? static_cast<int8_t>(z) : z;
}

// Columns of a strip: many, as far as all threads have work.
template <typename C>
int64_t StripColumns(const QuantizedWeights<C>& w, const Cpu& cpu) {
  return std::clamp(RoundUp(w.columns / (2 * cpu.num_threads), kUnit), kUnit,
                    kStrip);
}

// What raw numbers exceed q by (quantized_matmul_simd.h), and their zeros.
template <typename C>
int OffsetOf(const QuantizedWeights<C>& w) {
  return w.is_signed && w.pairs != NibblePairs::kNone ? 8 : 0;
}
template <typename C>
C RawZeroOf(const QuantizedWeights<C>& w, int64_t group, int64_t column) {
  const auto offset = static_cast<C>(OffsetOf(w));
  return w.float_zero != nullptr
             ? w.float_zero[PlaceOf(w, group, column)] + offset
             : static_cast<C>(IntegerZeroOf(w, group, column)) + offset;
}
template <typename C>
bool HasRawZero(const QuantizedWeights<C>& w) {
  return w.zero != nullptr || w.float_zero != nullptr || OffsetOf(w) != 0;
}

// Blocks of the depth of at most `most`, or nothing if groups are scattered:
// blocks would be short, or cut a byte.
template <typename C>
std::vector<DepthBlock> DepthBlocks(const QuantizedWeights<C>& w,
                                    int64_t most) {
  std::vector<DepthBlock> blocks;
  for (int64_t k = 0; k < w.depth;) {
    const int64_t group = GroupOf(w, k);
    int64_t end = k + 1;
    while (end < w.depth && end - k < most && GroupOf(w, end) == group) ++end;
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

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_STORED_WEIGHTS_H_
