// The runs of a row of connected components. A row is a bit mask: bit i of word
// w belongs to pixel 64 w + i.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_CONNECTED_COMPONENTS_ROW_RUNS_SIMD_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_CONNECTED_COMPONENTS_ROW_RUNS_SIMD_H_

#include <cstdint>
#include <cstring>

#include "tensorflow_ops/core/cc/simd/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

constexpr int kWord = 64;

// The runs of a row: maximal ranges of pixels of one non-zero value.
struct RunMasks {
  uint64_t* nonzero;  // [words]
  uint64_t* starts;   // [words], the first pixel of each run
};

// The pixels at which a run meets one of the row above, through the pixel
// above, above left, above right. Every two runs that meet are linked; most of
// them once.
struct LinkMasks {
  uint64_t *above, *above_left, *above_right;  // [words]
};

#ifdef __AVX512F__
// Bit i is set where a[i] equals b[i], of 64 values.
template <typename Bits>
TFO_INLINE uint64_t EqualMask(const Bits* a, const Bits* b) {
  constexpr int kCount = 64 / sizeof(Bits);
  const auto load = [](const Bits* from) { return _mm512_loadu_si512(from); };
  if constexpr (sizeof(Bits) == 1) {
    return _mm512_cmpeq_epi8_mask(load(a), load(b));
  } else if constexpr (sizeof(Bits) == 2) {
    // Not by a shift: where GCC 12 spills a mask of 32 bits that is extended to
    // 64, it stores 32 bits and loads 64.
    return _mm512_kunpackd(
        _mm512_cmpeq_epi16_mask(load(a + kCount), load(b + kCount)),
        _mm512_cmpeq_epi16_mask(load(a), load(b)));
  } else {
    uint64_t mask = 0;
    for (int i = 0; i < kWord; i += kCount) {
      uint64_t part;
      if constexpr (sizeof(Bits) == 4) {
        part = _mm512_cmpeq_epi32_mask(load(a + i), load(b + i));
      } else {
        part = _mm512_cmpeq_epi64_mask(load(a + i), load(b + i));
      }
      mask |= part << i;
    }
    return mask;
  }
}
#elif defined(__aarch64__)
template <typename Bits>
TFO_INLINE uint64_t EqualMask(const Bits* a, const Bits* b) {
  // A bit per byte of 16 that are 0 or -1: each half's bits add up to a byte.
  const uint8x16_t bits = {1, 2, 4, 8, 16, 32, 64, 128,
                           1, 2, 4, 8, 16, 32, 64, 128};
  uint64_t mask = 0;
  for (int i = 0; i < kWord; i += 16) {
    alignas(16) uint8_t equal[16];
    for (int j = 0; j < 16; ++j) equal[j] = a[i + j] == b[i + j] ? 255 : 0;
    const uint8x16_t set = vandq_u8(vld1q_u8(equal), bits);
    const uint64_t part =
        vaddv_u8(vget_low_u8(set)) | uint64_t{vaddv_u8(vget_high_u8(set))} << 8;
    mask |= part << i;
  }
  return mask;
}
#else
// All bits of byte i are set where a[i] equals b[i], of 16 values.
template <typename Bits>
TFO_INLINE __m128i EqualBytes(const Bits* a, const Bits* b) {
  constexpr int kCount = 16 / sizeof(Bits);
  __m128i parts[sizeof(Bits)];
  for (size_t i = 0; i < sizeof(Bits); ++i) {
    const __m128i x =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i * kCount));
    const __m128i y =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i * kCount));
    if constexpr (sizeof(Bits) == 1) {
      parts[i] = _mm_cmpeq_epi8(x, y);
    } else if constexpr (sizeof(Bits) == 2) {
      parts[i] = _mm_cmpeq_epi16(x, y);
    } else if constexpr (sizeof(Bits) == 4) {
      parts[i] = _mm_cmpeq_epi32(x, y);
    } else {
      parts[i] = _mm_cmpeq_epi64(x, y);
    }
  }
  // Halves lanes until they are bytes; -1 stays -1.
  for (size_t bytes = sizeof(Bits); bytes > 1; bytes /= 2) {
    for (size_t i = 0; i < bytes / 2; ++i) {
      parts[i] = bytes == 2 ? _mm_packs_epi16(parts[2 * i], parts[2 * i + 1])
                            : _mm_packs_epi32(parts[2 * i], parts[2 * i + 1]);
    }
  }
  return parts[0];
}

template <typename Bits>
TFO_INLINE uint64_t EqualMask(const Bits* a, const Bits* b) {
  uint64_t mask = 0;
  for (int i = 0; i < kWord; i += 16) {
    const auto part =
        static_cast<uint32_t>(_mm_movemask_epi8(EqualBytes(a + i, b + i)));
    mask |= uint64_t{part} << i;
  }
  return mask;
}
#endif

// Reads 64 * words pixels of two rows, zero beyond the width, and one before
// and after them. Links of 4-connectivity are `above` only.
template <typename Bits, bool kDiagonal>
void FindRunsOf(const Bits* row, const Bits* row_above, int64_t words,
                RunMasks runs, LinkMasks links) {
  alignas(64) const Bits zeros[kWord] = {};
  uint64_t carry = 0;  // whether the previous pixel equals the one above it
  for (int64_t w = 0; w < words; ++w) {
    const Bits* const at = row + w * kWord;
    const Bits* const above = row_above + w * kWord;
    const uint64_t nonzero = ~EqualMask(at, zeros);
    const uint64_t starts = nonzero & ~EqualMask(at, at - 1);
    const uint64_t equal = nonzero & EqualMask(at, above);
    runs.nonzero[w] = nonzero;
    runs.starts[w] = starts;
    links.above[w] = equal & (starts | ~(equal << 1 | carry));
    carry = equal >> (kWord - 1);
    if constexpr (kDiagonal) {
      // A diagonal neighbor matters only at a run's end, and only if the pixel
      // above is not in the run's component already.
      const uint64_t ends = nonzero & ~EqualMask(at, at + 1);
      links.above_left[w] = starts & ~equal & EqualMask(at, above - 1);
      links.above_right[w] = ends & ~equal & EqualMask(at, above + 1);
    }
  }
}

#ifdef __AVX2__
// For each mask of starts among 8 pixels, how many runs after the first
// pixel's run each pixel is.
struct RunOffsets {
  uint8_t of[256][8];
};
constexpr RunOffsets MakeRunOffsets() {
  RunOffsets offsets = {};
  for (int mask = 0; mask < 256; ++mask) {
    for (int i = 1; i < 8; ++i) {
      offsets.of[mask][i] =
          static_cast<uint8_t>(offsets.of[mask][i - 1] + ((mask >> i) & 1));
    }
  }
  return offsets;
}
constexpr RunOffsets kRunOffsets = MakeRunOffsets();

// Writes the labels of 8 pixels; labels[0] is the first pixel's.
TFO_INLINE __m256i LabelsOf8(unsigned nonzero, unsigned starts,
                             const int32_t* labels) {
  const __m256i run = _mm256_cvtepu8_epi32(_mm_loadl_epi64(
      reinterpret_cast<const __m128i*>(kRunOffsets.of[starts])));
  const __m256i of_run = _mm256_permutevar8x32_epi32(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(labels)), run);
#ifdef __AVX512F__
  return _mm256_maskz_mov_epi32(static_cast<__mmask8>(nonzero), of_run);
#else
  const __m256i lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i bits = _mm256_set1_epi32(static_cast<int>(nonzero));
  return _mm256_and_si256(
      of_run, _mm256_cmpeq_epi32(_mm256_and_si256(bits, lanes), lanes));
#endif
}
#endif

// The labels of a word's pixels; labels[-1] is that of the run before.
TFO_INLINE void PaintWord(uint64_t nonzero, uint64_t starts,
                          const int32_t* labels, int32_t* to) {
#ifdef __AVX2__
  if (starts == 0 && (nonzero == 0 || nonzero == ~uint64_t{0})) {
    const __m256i all = _mm256_set1_epi32(nonzero == 0 ? 0 : labels[-1]);
    for (int i = 0; i < kWord; i += 8) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), all);
    }
    return;
  }
  for (int i = 0; i < kWord; i += 8) {
    const unsigned starts_of_8 = (starts >> i) & 255;
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(to + i),
        LabelsOf8((nonzero >> i) & 255, starts_of_8,
                  labels - 1 + static_cast<int>(starts_of_8 & 1)));
    labels += __builtin_popcount(starts_of_8);
  }
#else
  for (int i = 0; i < kWord; ++i) {
    labels += (starts >> i) & 1;
    to[i] = (nonzero >> i) & 1 ? labels[-1] : 0;
  }
#endif
}

// Writes `labels` [runs] to the pixels of a row's runs, and 0 to others. Reads
// one label before them, and 8 after, without using them.
inline void PaintRuns(RunMasks runs, const int32_t* labels, int64_t width,
                      int32_t* to) {
  int64_t x = 0;
  for (int64_t w = 0; x < width; ++w, x += kWord) {
    if (x + kWord <= width) {
      PaintWord(runs.nonzero[w], runs.starts[w], labels, to + x);
    } else {
      int32_t painted[kWord];
      PaintWord(runs.nonzero[w], runs.starts[w], labels, painted);
      memcpy(to + x, painted, (width - x) * sizeof(int32_t));
    }
    labels += __builtin_popcountll(runs.starts[w]);
  }
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_CONNECTED_COMPONENTS_ROW_RUNS_SIMD_H_
