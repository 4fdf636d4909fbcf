// Shared by the CUDA kernels of quantized_matmul.h: how threads read weights,
// and how sums become results.
//
// Weights are read where they lie: [outer, inner] in memory. A product sums
// over one of these axes and has its results along the other, the lines. So the
// gradient of a kernel [K, N] is the product of a kernel [N, K], but for the
// groups, which follow the depth.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_WEIGHTS_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_WEIGHTS_GPU_H_

#include <limits>

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul.h"

namespace tfo::quantized_matmul {

constexpr int kThreads = 256;
// The most weights that a thread reads at once, along memory.
constexpr int kEach = 8;
// In place of a group: that of weights which count as 0, and of several groups.
constexpr int kNoGroup = -1, kMixed = -2;

template <typename C>
struct Stored : QuantizedWeights<C> {
  int64_t outer, inner, pitch;  // bytes of a stored row
  bool pairs_outer;             // which share a byte
  bool has_packs;               // of kEach bytes
  bool has_scale_packs;         // of scales and zeros along the inner axis
  // Bytes differ by these bits from the numbers plus `bias`, which are not
  // negative, or for exact sums fit int8.
  uint32_t flips;
  int bias;

  Stored(const QuantizedWeights<C>& w, bool exact) : QuantizedWeights<C>(w) {
    const bool nibbles = w.pairs != NibblePairs::kNone;
    outer = w.transposed ? w.columns : w.depth;
    inner = w.transposed ? w.depth : w.columns;
    pairs_outer = nibbles && w.transposed == (w.pairs == NibblePairs::kColumns);
    pitch = nibbles && !pairs_outer ? DivideUp(inner, 2) : inner;
    // An empty row has no place to read at.
    has_packs = pitch > 0 && FitsPacks<kEach>(pitch, w.kernel);
    has_scale_packs =
        !w.transposed && FitsPacks<kEach>(inner, w.scale, w.zero, w.float_zero);
    const bool flip = nibbles ? w.is_signed : w.is_signed != exact;
    flips = !flip         ? 0
            : pairs_outer ? 0x08080808
            : nibbles     ? 0x88888888
                          : 0x80808080;
    bias = !flip ? 0 : nibbles ? 8 : exact ? -128 : 128;
  }
  // Whether a byte has two numbers of the inner axis.
  bool HasPairs() const {
    return this->pairs != NibblePairs::kNone && !pairs_outer;
  }
};

// outputs [rows, lines] = inputs [rows, sum] * W, or its transpose. Blocks have
// parts of the sum, each but the last `part_size`.
template <typename T>
struct Task {
  using C = Accumulator<T>;
  int64_t rows, sum, lines;
  const T* inputs;
  bool has_packs;  // of 16 bytes of inputs
  T* outputs;
  // Of quantized inputs: [rows, pitch] with zeros at the ends, the rows' sums,
  // and factors of the results.
  const int8_t* integers;
  int64_t pitch;
  const int32_t* row_sums;
  const C* factors;
  int64_t parts, part_size;
};

template <typename C>
__device__ int IntegerAt(const QuantizedWeights<C>& w, const uint8_t* values,
                         int64_t at) {
  return w.is_signed ? static_cast<int8_t>(values[at]) : values[at];
}

// The group of row k of W, or kNoGroup.
template <typename C>
__device__ int GroupAt(const QuantizedWeights<C>& w, int64_t k) {
  int64_t group;
  if (w.group_of != nullptr) {
    group = w.group_of[k];
  } else if ((k | w.block_size) >> 32 == 0) {  // a third of the instructions
    group = static_cast<uint32_t>(k) / static_cast<uint32_t>(w.block_size);
  } else {
    group = k / w.block_size;
  }
  return group >= 0 && group < w.groups ? static_cast<int>(group) : kNoGroup;
}

// The group of N rows, or kMixed: also where some are behind the depth, whose
// weights must be 0. `until`: runs that begin before it, after k, have the
// same.
template <int N, typename C>
__device__ int GroupOfRun(const QuantizedWeights<C>& w, int64_t k,
                          int64_t* until) {
  const int group = GroupAt(w, k);
  *until = k + 1;
  if (k + N > w.depth) return kMixed;
  if (w.group_of != nullptr) {
    for (int i = 1; i < N; ++i) {
      if (GroupAt(w, k + i) != group) return kMixed;
    }
  } else if (group >= 0) {
    int64_t end = (group + 1) * w.block_size;
    if (end > w.depth) end = w.depth;
    if (k + N > end) return kMixed;
    *until = end - N + 1;
  }
  return group;
}

// N numbers along memory: bytes, or nibbles of the first word.
struct Numbers {
  uint32_t words[2];
};

// Those at any address, before the end of a row; seldom needed, so in few
// instructions.
template <int kBytes>
__device__ __noinline__ Numbers ReadBytes(const uint8_t* from, int64_t left) {
  Numbers numbers = {};
#pragma unroll
  for (int i = 0; i < kBytes; ++i) {
    if (i < left) numbers.words[i / 4] |= uint32_t{from[i]} << (i % 4 * 8);
  }
  return numbers;
}

template <bool kNibbles, typename C>
__device__ const uint8_t* PlaceOf(const Stored<C>& w, int64_t outer,
                                  int64_t inner) {
  return w.kernel + (w.pairs_outer ? outer / 2 : outer) * w.pitch +
         (kNibbles ? inner / 2 : inner);
}

// Reads at a place inside, of weights with packs.
template <int N, bool kNibbles>
__device__ Numbers ReadPack(const uint8_t* from) {
  constexpr int kBytes = kNibbles ? N / 2 : N;
  Numbers numbers = {};
  const Pack<uint8_t, kBytes> pack = LoadPack<kBytes>(from);
  memcpy(&numbers, &pack, sizeof(pack));
  return numbers;
}

// Reads anywhere.
template <int N, bool kNibbles, typename C>
__device__ Numbers Read(const Stored<C>& w, int64_t outer, int64_t inner) {
  if (outer >= w.outer || inner >= w.inner) return {};
  const uint8_t* const from = PlaceOf<kNibbles>(w, outer, inner);
  return w.has_packs ? ReadPack<N, kNibbles>(from)
                     : ReadBytes<kNibbles ? N / 2 : N>(
                           from, w.pitch - (kNibbles ? inner / 2 : inner));
}

// Numbers plus the bias, from what is read.
template <bool kNibbles, typename C>
__device__ Numbers Biased(const Stored<C>& w, int64_t outer, Numbers numbers) {
  const int shift = w.pairs_outer ? outer % 2 * 4 : 0;
  const uint32_t mask = w.pairs_outer ? 0x0F0F0F0F : 0xFFFFFFFF;
#pragma unroll
  for (uint32_t& word : numbers.words) {
    if constexpr (!kNibbles) word = word >> shift & mask;
    word ^= w.flips;
  }
  return numbers;
}

// 1 in place i of a half word, the lowest number of which has no zeros behind.
template <bool kNibbles>
__device__ constexpr float Unit(int i) {
  constexpr float kUnits[4] = {1, 16, 256, 4096};
  return kNibbles ? kUnits[i % 4] : kUnits[i % 2 * 2];
}

// The number i, times Unit(i): of biased ones, as the fraction of a float
// 2^23 + number, so that no instruction converts.
template <bool kNibbles>
__device__ float NumberTimesUnit(const Numbers& numbers, int i, float bias) {
  constexpr int kBits = kNibbles ? 4 : 8, kOfHalf = 16 / kBits;
  const uint32_t half =
      numbers.words[i / kOfHalf / 2] >> (i / kOfHalf % 2 * 16);
  const uint32_t mask = ((1u << kBits) - 1) << (i % kOfHalf * kBits);
  uint32_t bits = 0x4B000000;
#ifdef __CUDA_ARCH__
  // In one instruction; nvcc takes two for two constants.
  asm("lop3.b32 %0, %1, %2, %0, 0xEA;" : "+r"(bits) : "r"(half), "r"(mask));
#else
  bits |= half & mask;
#endif
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value - (8388608.0f + bias * Unit<kNibbles>(i));
}

// The biased number i of exact sums.
template <bool kNibbles>
__device__ uint32_t IntegerOf(const Numbers& numbers, int i) {
  if constexpr (kNibbles) return numbers.words[0] >> (4 * i) & 15;
  return static_cast<uint32_t>(
      static_cast<int8_t>(numbers.words[i / 4] >> (i % 4 * 8)));
}

// Sets a scale and what it makes of the zero, (q - zero) * scale = q * scale +
// shift.
template <typename C>
__device__ void LoadScale(const Stored<C>& w, int64_t at, C* scale, C* shift) {
  *scale = w.scale[at];
  const C zero = w.zero != nullptr ? static_cast<C>(IntegerAt(w, w.zero, at))
                 : w.float_zero != nullptr ? w.float_zero[at]
                                           : C{0};
  *shift = -*scale * zero;
}

// Of N weights along memory: numbers times Unit, times scale, plus shift.
template <bool kNibbles, typename C, int N>
struct Scales {
  C scale[N], shift[N];

  // One for all.
  __device__ void Set(C one_scale, C one_shift) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      scale[i] = one_scale * C{1 / Unit<kNibbles>(i)};
      shift[i] = one_shift;
    }
  }

  // Those of a group of all N, or kMixed.
  __device__ void Load(const Stored<C>& w, int64_t outer, int64_t inner,
                       int group) {
    if (group == kNoGroup || outer >= w.outer || inner >= w.inner) {
      Set(0, 0);
    } else if (w.transposed && group != kMixed) {
      C one_scale, one_shift;
      LoadScale(w, outer * w.groups + group, &one_scale, &one_shift);
      Set(one_scale, one_shift);
    } else if (w.has_scale_packs && group != kMixed) {
      const int64_t at = group * w.inner + inner;
      const Pack<C, N> scales = LoadPack<N>(w.scale + at);
      Pack<uint8_t, N> zeros = {};
      Pack<C, N> float_zeros = {};
      if (w.zero != nullptr) zeros = LoadPack<N>(w.zero + at);
      if (w.float_zero != nullptr) float_zeros = LoadPack<N>(w.float_zero + at);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const int zero = w.is_signed ? static_cast<int8_t>(zeros.values[i])
                                     : zeros.values[i];
        scale[i] = scales.values[i] * C{1 / Unit<kNibbles>(i)};
        shift[i] =
            -scales.values[i] * (static_cast<C>(zero) + float_zeros.values[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        scale[i] = shift[i] = 0;
        if (inner + i >= w.inner) continue;
        const int own = group == kMixed ? GroupAt(w, inner + i) : group;
        if (own == kNoGroup) continue;
        LoadScale(
            w,
            w.transposed ? outer * w.groups + own : own * w.inner + inner + i,
            &scale[i], &shift[i]);
        scale[i] *= C{1 / Unit<kNibbles>(i)};
      }
    }
  }
};

// The same for places that are seldom reached, which should take few
// instructions.
template <bool kNibbles, int N, typename C>
__device__ __noinline__ Scales<kNibbles, C, N> LoadScales(const Stored<C>& w,
                                                          int64_t outer,
                                                          int64_t inner,
                                                          int group) {
  Scales<kNibbles, C, N> scales;
  scales.Load(w, outer, inner, group);
  return scales;
}

// The weights of biased numbers.
template <bool kNibbles, typename C, int N>
__device__ void Dequantize(const Stored<C>& w, const Numbers& numbers,
                           const Scales<kNibbles, C, N>& scales, C (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    to[i] = static_cast<C>(NumberTimesUnit<kNibbles>(
                numbers, i, static_cast<float>(w.bias))) *
                scales.scale[i] +
            scales.shift[i];
  }
}

// The result of a sum; exact ones are uint32_t.
template <typename T, typename Sum>
__device__ T Finish(const Stored<Accumulator<T>>& w, const Task<T>& p, Sum sum,
                    int64_t m, int64_t n) {
  using C = Accumulator<T>;
  C value;
  if constexpr (std::is_same_v<Sum, uint32_t>) {
    int zero = w.bias;
    if (w.zero != nullptr) zero += IntegerAt(w, w.zero, n);
    sum -= static_cast<uint32_t>(zero) * static_cast<uint32_t>(p.row_sums[m]);
    value = static_cast<C>(static_cast<int32_t>(sum)) * w.scale[n];
  } else {
    value = sum;
  }
  if (p.factors != nullptr) value *= p.factors[m];
  return Narrow<T>(value);
}

// Splits the sum into parts of multiples of `unit`, until `blocks` blocks of
// each part are `enough`.
template <typename T>
void Split(int64_t blocks, int64_t enough, int64_t unit, Task<T>* p) {
  int64_t parts = blocks > 0 ? enough / blocks : 1;
  if (parts > DivideUp(p->sum, unit)) parts = DivideUp(p->sum, unit);
  if (parts < 1) parts = 1;
  p->part_size = RoundUp(DivideUp(p->sum, parts), unit);
  p->parts = p->sum == 0 ? 1 : DivideUp(p->sum, p->part_size);
}

// Kernels. Those of few rows, for all dtypes, always write sums to `parts`,
// [parts, rows, lines]; others where there are several.
constexpr int64_t kFewRows = 8;
enum class InputKind { kIntegers, kHalf, kBFloat16, kWide };
struct FewRows {
  int64_t rows, sum, lines, parts, part_size;
  const void* inputs;  // [rows, pitch]
  int64_t pitch;
  InputKind kind;
};
template <typename T>
void SplitFewRows(bool sums_inner, Task<T>* task);
template <typename Sum, typename C>
Error EnqueueFewRows(const Gpu& gpu, const Stored<C>& w, const FewRows& p,
                     bool sums_inner, Sum* parts);
template <typename T>
void SplitTiles(bool exact, Task<T>* task);
template <typename Sum, typename T>
Error EnqueueTiles(const Gpu& gpu, const Stored<Accumulator<T>>& w,
                   const Task<T>& task, bool sums_inner, Sum* parts);

}  // namespace tfo::quantized_matmul

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_WEIGHTS_GPU_H_
