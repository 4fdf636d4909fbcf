// What the products of quantized_matmul_cpu.cc share.
//
// clang-format off
// Words:
//   stored row   a row of the kernel as it lies, unpacked: a row of W or, if `transposed`, a column
//   pairs        two numbers of 4 bits in a byte: neighbors kAlong a stored row, or kAcross two of them
//   run, block   neighbors along the depth, of one group
//   task         columns that a thread computes at a time; a strip, if many
//   few          rows of inputs that meet the bytes where they lie, without panels (gemm_simd.h)
// clang-format on
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

inline constexpr int64_t kTaskColumns = 128;
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

template <typename C>
int64_t GroupOf(const QuantizedWeights<C>& w, int64_t k) {
  return w.group_of != nullptr ? w.group_of[k] : k / w.block_size;
}
// The end of the run of k's group, or `limit` if that comes first.
template <typename C>
int64_t RunEnd(const QuantizedWeights<C>& w, int64_t k, int64_t limit) {
  if (w.group_of == nullptr) {
    return std::min((k / w.block_size + 1) * w.block_size, limit);
  }
  int64_t end = k + 1;
  while (end < limit && w.group_of[end] == w.group_of[k]) ++end;
  return end;
}

// zero and scale [group, column] are at this place.
template <typename C>
int64_t PlaceOf(const QuantizedWeights<C>& w, int64_t group, int64_t column) {
  return w.transposed ? column * w.groups + group : group * w.columns + column;
}
// Multiplies the sums of columns from n on by the scales of a single group.
template <typename C>
void ScaleByOneGroup(const QuantizedWeights<C>& w, int64_t n, int64_t count,
                     C* sums) {
  if (w.groups != 1) return;
  for (int64_t i = 0; i < count; ++i) sums[i] *= w.scale[n + i];
}
// The zeros that are bytes.
template <typename C>
int IntegerZeroOf(const QuantizedWeights<C>& w, int64_t group, int64_t column) {
  if (w.zero == nullptr) return 0;
  const uint8_t z = w.zero[PlaceOf(w, group, column)];
  return w.is_signed ? static_cast<int8_t>(z) : z;
}

// Columns of rows [depth, columns] that are read at a time: many, as far as all
// threads have work, since rows may be pages apart.
template <typename C>
int64_t StripColumns(const QuantizedWeights<C>& w, const Cpu& cpu) {
  constexpr int64_t kMost = 4096;
  return std::clamp(RoundUp(w.columns / (2 * cpu.num_threads), kTaskColumns),
                    kTaskColumns, kMost);
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
    const int64_t end = RunEnd(w, k, std::min(k + most, w.depth));
    blocks.push_back({k, end - k, GroupOf(w, k)});
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
