// Instructions of AMX's tiles, in assembly: files need the flags of avx512
// only. With TFO_EMULATE_AMX, functions with the same bits.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_AMX_TILES_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_AMX_TILES_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/simd/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// A tile has 16 rows of 64 bytes, which are `stride` bytes apart in memory.
#ifdef TFO_EMULATE_AMX
static thread_local Bits32 emulated_tiles[8][16];

template <int kTile>
TFO_INLINE void ZeroTile() {
  memset(emulated_tiles[kTile], 0, sizeof(emulated_tiles[kTile]));
}
template <int kTile>
TFO_INLINE void LoadTile(const void* from, int64_t stride) {
  for (int i = 0; i < 16; ++i) {
    memcpy(&emulated_tiles[kTile][i],
           static_cast<const char*>(from) + i * stride, 64);
  }
}
template <int kTile>
TFO_INLINE void StoreTile(void* to, int64_t stride) {
  for (int i = 0; i < 16; ++i) {
    memcpy(static_cast<char*>(to) + i * stride, &emulated_tiles[kTile][i], 64);
  }
}

// Subnormal numbers and results are 0.
TFO_INLINE FloatVector Flushed(FloatVector v) {
  const Bits32 sign = reinterpret_cast<Bits32>(v) & 0x80000000u;
  return (v < 0x1p-126f) & (v > -0x1p-126f)
             ? reinterpret_cast<FloatVector>(sign)
             : v;
}

static inline void MultiplyEmulatedTiles(const Bits32* a, const Bits32* b,
                                         Bits32* c) {
  const auto first = [](Bits32 pair) {
    return Flushed(reinterpret_cast<FloatVector>(pair << 16));
  };
  const auto second = [](Bits32 pair) {
    return Flushed(reinterpret_cast<FloatVector>(pair & 0xFFFF0000u));
  };
  for (int i = 0; i < 16; ++i) {
    // A chain for the first numbers of pairs, and one for the second.
    FloatVector sums[2] = {};
    for (int k = 0; k < 16; ++k) {
      const Bits32 pair = Broadcast<Bits32>(a[i][k]);
      sums[0] = Flushed(MulAdd(first(pair), first(b[k]), sums[0]));
      sums[1] = Flushed(MulAdd(second(pair), second(b[k]), sums[1]));
    }
    const FloatVector before = Flushed(reinterpret_cast<FloatVector>(c[i]));
    c[i] =
        reinterpret_cast<Bits32>(Flushed(before + Flushed(sums[0] + sums[1])));
  }
}

// c += a * b, where rows of a, and pairs of rows of b, hold pairs of bfloat16.
template <int kC, int kA, int kB>
TFO_INLINE void MultiplyTiles() {
  MultiplyEmulatedTiles(emulated_tiles[kA], emulated_tiles[kB],
                        emulated_tiles[kC]);
}

// c += a * b, where rows of a hold fours of signed bytes, and those of b, a
// four for each column, unsigned ones.
template <int kC, int kA, int kB>
TFO_INLINE void MultiplyByteTiles() {
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      const auto four = static_cast<int32_t>(emulated_tiles[kA][i][k]);
      for (int shift = 0; shift < 32; shift += 8) {
        const int32_t number = static_cast<int8_t>(four >> shift);
        emulated_tiles[kC][i] += ((emulated_tiles[kB][k] >> shift) & 255u) *
                                 static_cast<uint32_t>(number);
      }
    }
  }
}
#else
template <int kTile>
TFO_INLINE void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kTile>
TFO_INLINE void LoadTile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride),
               "i"(kTile)
               : "memory");
}
template <int kTile>
TFO_INLINE void StoreTile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride),
               "i"(kTile)
               : "memory");
}

// c += a * b, where rows of a, and pairs of rows of b, hold pairs of bfloat16.
template <int kC, int kA, int kB>
TFO_INLINE void MultiplyTiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA),
               "i"(kB));
}

// c += a * b, where rows of a hold fours of signed bytes, and those of b, a
// four for each column, unsigned ones.
template <int kC, int kA, int kB>
TFO_INLINE void MultiplyByteTiles() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA),
               "i"(kB));
}
#endif

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_AMX_TILES_SIMD_H_
