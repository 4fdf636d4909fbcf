// Philox4x32-10 for a counter in each lane.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_PHILOX_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_PHILOX_SIMD_H_

#include "tensorflow_ops/core/cc/philox.h"
#include "tensorflow_ops/core/cc/simd/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

typedef uint64_t Bits64 __attribute__((vector_size(kVectorBytes)));

// The products of the low halves.
TFO_INLINE Bits64 MultiplyLow(Bits64 a, Bits64 b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Bits64>(_mm512_mul_epu32(
      reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Bits64>(_mm256_mul_epu32(
      reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__aarch64__)
  return reinterpret_cast<Bits64>(
      vmull_u32(vmovn_u64(reinterpret_cast<uint64x2_t>(a)),
                vmovn_u64(reinterpret_cast<uint64x2_t>(b))));
#else
  return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
}

// Splits a * b into the upper and the lower half.
TFO_INLINE void MultiplyWide(Bits32 a, uint32_t b, Bits32* high, Bits32* low) {
  const Bits64 factor = Broadcast<Bits64>(b);
  const Bits64 even = MultiplyLow(reinterpret_cast<Bits64>(a), factor);
  const Bits64 odd = MultiplyLow(reinterpret_cast<Bits64>(a) >> 32, factor);
  constexpr uint64_t kLow = 0xFFFFFFFF;
  *high = reinterpret_cast<Bits32>((even >> 32) | (odd & ~kLow));
  *low = reinterpret_cast<Bits32>((even & kLow) | (odd << 32));
}

// Philox of philox.h, a counter in each lane.
TFO_INLINE void PhiloxOfLanes(const uint32_t seed[2], Bits32 (&counter)[4]) {
  uint32_t key[2] = {seed[0], seed[1]};
  for (int round = 0; round < 10; ++round) {
    Bits32 high[2], low[2];
    MultiplyWide(counter[0], kPhiloxMultipliers[0], &high[0], &low[0]);
    MultiplyWide(counter[2], kPhiloxMultipliers[1], &high[1], &low[1]);
    counter[0] = high[1] ^ counter[1] ^ key[0];
    counter[1] = low[1];
    counter[2] = high[0] ^ counter[3] ^ key[1];
    counter[3] = low[0];
    key[0] += kPhiloxKeys[0];
    key[1] += kPhiloxKeys[1];
  }
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_PHILOX_SIMD_H_
