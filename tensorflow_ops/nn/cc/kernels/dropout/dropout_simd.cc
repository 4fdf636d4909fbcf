#include <algorithm>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/philox_simd.h"
#include "tensorflow_ops/nn/cc/kernels/dropout/dropout.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// ParallelFor's unit: numbers whose mask is one word.
constexpr int kUnit = 64;
// Bytes to prefetch ahead. Loads are so far apart, with Philox between them,
// that without it 2^22 floats take 2.4 ms instead of 1.3.
constexpr int kAhead = 4096;
constexpr int kLanes64 = kVectorBytes / 8, kQuads = kVectorBytes / 16;

// Philox4x32-10 of counters in the lower halves of lanes, which takes fewer
// steps than one in all of them (philox_simd.h).
class Philox64 {
 public:
  explicit Philox64(uint64_t key) {
    uint32_t k[2] = {static_cast<uint32_t>(key),
                     static_cast<uint32_t>(key >> 32)};
    for (auto& keys : keys_) {
      for (int i = 0; i < 2; ++i) {
        keys[i] = Broadcast<Bits64>(uint64_t{k[i]});
        k[i] += kPhiloxKeys[i];
      }
    }
  }

  // Sets words to those of the counters low, low + 1, ..., in order: four a
  // counter.
  TFO_INLINE void Draw(uint64_t low, uint64_t high, Bits32 (&words)[4]) const {
    Bits64 c[2][4];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      // The order that makes the last steps shuffles of neighbors.
      Bits64 lane;
      for (int j = 0; j < kLanes64; ++j) {
        lane[j] = j / 2 + (j % 2 + 2 * i) * kQuads;
      }
      const Bits64 of_lane = lane + low;
      c[i][0] = of_lane;
      c[i][1] = of_lane >> 32;
      c[i][2] = Broadcast<Bits64>(high);
      c[i][3] = Broadcast<Bits64>(high >> 32);
      if (low > ~uint64_t{2 * kLanes64}) {  // some lanes may carry
        const Bits64 next = Broadcast<Bits64>(high + 1);
        const auto carries = of_lane < low;
        c[i][2] = carries ? next : c[i][2];
        c[i][3] = carries ? next >> 32 : c[i][3];
      }
    }
    const Bits64 factors[] = {Broadcast<Bits64>(kPhiloxMultipliers[0]),
                              Broadcast<Bits64>(kPhiloxMultipliers[1])};
#pragma GCC unroll 10
    for (const auto& keys : keys_) {
#pragma GCC unroll 2
      for (auto& of : c) {
        const Bits64 a = MultiplyLow(of[0], factors[0]);
        const Bits64 b = MultiplyLow(of[2], factors[1]);
        // The upper halves become anything.
        of[0] = (b >> 32) ^ of[1] ^ keys[0];
        of[1] = b;
        of[2] = (a >> 32) ^ of[3] ^ keys[1];
        of[3] = a;
      }
    }
    constexpr uint64_t kLow = 0xFFFFFFFF;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const Bits64 first = (c[i][0] & kLow) | (c[i][1] << 32);
      const Bits64 second = (c[i][2] & kLow) | (c[i][3] << 32);
      const auto even = [](int j) { return j / 2 * 2 + j % 2 * kLanes64; };
      const auto odd = [](int j) { return j / 2 * 2 + 1 + j % 2 * kLanes64; };
      words[2 * i] = reinterpret_cast<Bits32>(Shuffle(first, second, even));
      words[2 * i + 1] = reinterpret_cast<Bits32>(Shuffle(first, second, odd));
    }
  }

 private:
  Bits64 keys_[10][2];
};

// Compares the random bits of Lanes<T>::kCount numbers.
template <typename T>
TFO_INLINE typename Lanes<T>::Index IsKept(Bits32 words, int64_t least) {
  using Index = typename Lanes<T>::Index;
  using Integer = typename Lanes<T>::Integer;
  constexpr auto kFraction =
      static_cast<Integer>((int64_t{1} << kDropoutBits<T>)-1);
  if constexpr (std::is_same_v<T, double>) {
    const Bits64 pairs = reinterpret_cast<Bits64>(words);
    words = reinterpret_cast<Bits32>((pairs << 32) | (pairs >> 32));
  }
  return (reinterpret_cast<Index>(words) & kFraction) >=
         static_cast<Integer>(least);
}

// A bit of each lane of a mask.
template <typename T>
TFO_INLINE uint64_t BitsOf(typename Lanes<T>::Index mask) {
#if defined(__AVX512F__)
  const __m512i m = reinterpret_cast<__m512i>(mask);
  if constexpr (sizeof(mask[0]) == 8) return _mm512_movepi64_mask(m);
  return _mm512_movepi32_mask(m);
#elif defined(__AVX__)
  if constexpr (sizeof(mask[0]) == 8) {
    return _mm256_movemask_pd(reinterpret_cast<__m256d>(mask));
  }
  return _mm256_movemask_ps(reinterpret_cast<__m256>(mask));
#else
  uint64_t bits = 0;
  for (int i = 0; i < Lanes<T>::kCount; ++i) bits |= (mask[i] & 1) << i;
  return bits;
#endif
}

// x * scale where the mask is set, else 0.
template <typename V, typename M>
TFO_INLINE V Kept(V x, V scale, M mask) {
  return mask ? x * scale : V{};
}
// The same where the lowest bits are.
template <typename T>
TFO_INLINE typename Lanes<T>::Vector Kept(typename Lanes<T>::Vector x,
                                          typename Lanes<T>::Vector scale,
                                          uint64_t bits) {
#ifdef __AVX512F__
  if constexpr (sizeof(x[0]) == 8) {
    return reinterpret_cast<DoubleVector>(_mm512_maskz_mul_pd(
        bits, reinterpret_cast<__m512d>(x), reinterpret_cast<__m512d>(scale)));
  } else {
    return reinterpret_cast<FloatVector>(_mm512_maskz_mul_ps(
        bits, reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(scale)));
  }
#else
  using Index = typename Lanes<T>::Index;
  Index bit;
  for (int i = 0; i < Lanes<T>::kCount; ++i) bit[i] = 1 << i;
  const auto low = static_cast<typename Lanes<T>::Integer>(bits);
  return Kept(x, scale, (Broadcast<Index>(low) & bit) != 0);
#endif
}

// Calls body(part, at) for all vectors of a unit of n <= kUnit numbers.
template <typename T, typename Body>
TFO_INLINE void ForUnit(int64_t n, const Body& body) {
  constexpr int kCount = Lanes<T>::kCount;
  if (n == kUnit) {
#pragma GCC unroll 16
    for (int at = 0; at < kUnit; at += kCount) body(Whole<T>(), at);
  } else {
    ForVectors<T>(n, body);
  }
}

// Whether to store past the caches: the memory that x does not share.
template <typename T>
bool Streams(int64_t size, const T* x, const T* y) {
  return size * int64_t{sizeof(T)} >= kStreamBytes && x != y &&
         reinterpret_cast<uintptr_t>(y) % kVectorBytes == 0;
}

// Scales the numbers of a range of units, and drops those without a bit.
// bits(unit, n) returns the bits of the unit's n numbers.
template <typename T, typename Bits>
void DropUnits(int64_t begin, int64_t end, int64_t size, Accumulator<T> factor,
               const T* x, T* y, const Bits& bits) {
  using V = typename Lanes<T>::Vector;
  const bool streams = Streams(size, x, y);
  const V scale = Broadcast<V>(factor);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = unit * kUnit;
    const int64_t n = std::min<int64_t>(kUnit, size - first);
    for (int i = 0; i < kUnit; i += 64 / int{sizeof(T)}) {
      __builtin_prefetch(reinterpret_cast<const char*>(x + first + i) + kAhead);
    }
    const uint64_t kept = bits(unit, n);
    ForUnit<T>(n, [&](auto part, int64_t at) {
      const T* const from = x + first + at;
      const V value = Kept<T>(part.Load(from, 0), scale, kept >> at);
      if (streams && n == kUnit) {
        Stream(value, y + first + at);
      } else {
        part.Store(value, y + first + at);
      }
    });
  }
  if (streams) FinishStreaming();
}

}  // namespace

template <typename T>
Error Dropout(const Cpu& cpu, const DropoutArgs<T>& a) {
  constexpr int kCount = Lanes<T>::kCount;
  const uint64_t low = a.counter[0], high = a.counter[1];
  const auto draw = [&](int64_t unit, int64_t n, const Philox64& philox) {
    uint64_t bits = 0;
#pragma GCC unroll 8
    for (int at = 0; at < kUnit; at += 4 * kCount) {
      const uint64_t place = low + (unit * kUnit + at) / kDropoutPerCounter<T>;
      Bits32 words[4];
      philox.Draw(place, high + (place < low), words);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        bits |= BitsOf<T>(IsKept<T>(words[i], a.least)) << (at + i * kCount);
      }
    }
    if (n < kUnit) bits &= (uint64_t{1} << n) - 1;
    memcpy(a.mask + unit * (kUnit / 8), &bits, DropoutMaskBytes(n));
    return bits;
  };
  cpu.ParallelFor(
      DivideUp(a.size, kUnit), 250, [&](int64_t begin, int64_t end) {
        const Philox64 philox(a.key[0]);
        DropUnits(
            begin, end, a.size, a.scale, a.inputs, a.output,
            [&](int64_t unit, int64_t n) { return draw(unit, n, philox); });
      });
  return nullptr;
}

template <typename T>
Error DropoutGrad(const Cpu& cpu, const DropoutGradArgs<T>& a) {
  const auto read = [&](int64_t unit, int64_t n) {
    uint64_t bits = 0;
    memcpy(&bits, a.mask + unit * (kUnit / 8), DropoutMaskBytes(n));
    return bits;
  };
  cpu.ParallelFor(DivideUp(a.size, kUnit), 80, [&](int64_t begin, int64_t end) {
    DropUnits(begin, end, a.size, a.scale, a.d_output, a.d_inputs, read);
  });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(Dropout, DropoutArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(DropoutGrad, DropoutGradArgs);

}  // namespace tfo
