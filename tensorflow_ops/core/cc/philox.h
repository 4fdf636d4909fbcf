// Philox4x32-10, the random numbers of TensorFlow's stateless ops, for host and
// device.
#ifndef TENSORFLOW_OPS_CORE_CC_PHILOX_H_
#define TENSORFLOW_OPS_CORE_CC_PHILOX_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// The multipliers of Philox4x32, and what each round adds to its key.
static constexpr uint32_t kPhiloxMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
static constexpr uint32_t kPhiloxKeys[2] = {0x9E3779B9, 0xBB67AE85};

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

#endif  // TENSORFLOW_OPS_CORE_CC_PHILOX_H_
