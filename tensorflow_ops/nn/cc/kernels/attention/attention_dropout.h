// The weights that attention drops: the place decides, so that all tiles,
// passes and devices agree.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_DROPOUT_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_DROPOUT_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Key j of query t in row r = b * heads + n is kept if the 16-bit word j % 8 of
// Philox4x32-10 with the key `seed` and the counter (j / 8, t, r, 0) is at
// least `threshold`; the lower half of each 32-bit word comes first.
struct AttentionDropout {
  uint32_t seed[2];
  uint32_t threshold;  // 65536 * dropout, rounded
};

inline constexpr int64_t kDropoutKeys = 8;  // of one counter

// The multipliers of Philox4x32, and what each round adds to its key.
static constexpr uint32_t kPhiloxMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
static constexpr uint32_t kPhiloxKeys[2] = {0x9E3779B9, 0xBB67AE85};

// 65536 / (65536 - threshold), or 0 if all are dropped.
TFO_HOST_DEVICE static inline double KeptFactor(
    const AttentionDropout& dropout) {
  return dropout.threshold < 65536 ? 65536.0 / (65536 - dropout.threshold) : 0;
}

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
TFO_HOST_DEVICE static inline void Philox(const uint32_t key[2],
                                          uint32_t counter[4]) {
  // Constants, since device code cannot read arrays of the host.
  constexpr uint64_t kFactor0 = kPhiloxMultipliers[0],
                     kFactor2 = kPhiloxMultipliers[1];
  constexpr uint32_t kAdded0 = kPhiloxKeys[0], kAdded1 = kPhiloxKeys[1];
  uint32_t k[2] = {key[0], key[1]};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = kFactor0 * counter[0];
    const uint64_t b = kFactor2 * counter[2];
    counter[0] = static_cast<uint32_t>(b >> 32) ^ counter[1] ^ k[0];
    counter[1] = static_cast<uint32_t>(b);
    counter[2] = static_cast<uint32_t>(a >> 32) ^ counter[3] ^ k[1];
    counter[3] = static_cast<uint32_t>(a);
    k[0] += kAdded0;
    k[1] += kAdded1;
  }
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_DROPOUT_H_
