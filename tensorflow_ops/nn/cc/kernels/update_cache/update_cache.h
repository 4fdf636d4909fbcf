// Writes new positions into caches of keys and values.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_UPDATE_CACHE_UPDATE_CACHE_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_UPDATE_CACHE_UPDATE_CACHE_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// output[b, positions[b] + t] = rows[b, t]; all other positions are the
// cache's. Writes nothing for a b whose rows would be outside.
struct UpdateCacheArgs {
  int64_t batch, length, count;  // positions in the cache, and new ones
  int64_t bytes;                 // of a position
  const char* cache;             // [batch, length, bytes]
  const char* rows;              // [batch, count, bytes]
  const int32_t* positions;      // [batch]
  char* output;                  // may be the cache: then it copies rows only

  TFO_HOST_DEVICE bool IsInside(int64_t b) const {
    return positions[b] >= 0 && positions[b] <= length - count;
  }
};

// Sets *bad to the first b whose rows would be outside, or to -1; writes
// nothing if there is one.
Error UpdateCache(const Cpu& cpu, const UpdateCacheArgs& args, int64_t* bad);
Error UpdateCache(const Gpu& gpu, const UpdateCacheArgs& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_UPDATE_CACHE_UPDATE_CACHE_H_
