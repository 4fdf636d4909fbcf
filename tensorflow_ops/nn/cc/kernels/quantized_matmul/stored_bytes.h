// The bytes of a kernel, as the loops of CPUs read them. A stored row is a row
// of [depth, columns] or [columns, depth], unpacked.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_STORED_BYTES_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_STORED_BYTES_H_

#include <cstdint>

namespace tfo {

// How bytes hold numbers. kAlong: a byte has neighbors of a stored row,
// kAcross: neighbors of a stored column.
enum class StoredPairs { kNone, kAlong, kAcross };
struct StoredBytes {
  const uint8_t* data;
  const uint8_t* end;
  int64_t stride;  // bytes of a row
  StoredPairs pairs;
  bool is_signed;
};

// Signed numbers of 4 bits are stored as two's complements: flipping bit 3 adds
// 8. Bits to flip in a byte of pairs.
inline uint8_t FlipOf(const StoredBytes& bytes) {
  return bytes.is_signed ? 0x88 : 0;
}

// A part of the depth that lies in one group.
struct DepthBlock {
  int64_t begin, depth, group;
};
// The most of it where products are of floats.
inline constexpr int64_t kBlockDepth = 256;

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_STORED_BYTES_H_
