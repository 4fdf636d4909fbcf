// Tensor cores for CUDA kernels: products of small matrices that a warp holds
// in registers, loads of such fragments from shared memory, and copies from
// global to shared memory that a thread does not wait for. Fragments have the
// layouts of the PTX manual, "Matrix Fragments for mma.m16n8k16" and
// "ldmatrix".
//
// With TFO_CUDA_EMULATION all of it runs on the CPU, where misaligned addresses
// and operations that lanes of a warp miss abort.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_MMA_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_MMA_GPU_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Whether the GPU that this code is compiled for multiplies fragments of T.
// Only for use within device code: other code has no such GPU.
#if TFO_GPU_ARCH >= 800
template <typename T>
inline constexpr bool kHasTensorCores = sizeof(T) == 2;
#elif TFO_GPU_ARCH >= 750
template <typename T>
inline constexpr bool kHasTensorCores = std::is_same_v<T, Half>;
#else
template <typename T>
inline constexpr bool kHasTensorCores = false;
#endif
// Whether it multiplies fragments of T in parts (MultiplyAddInParts).
template <typename T>
inline constexpr bool kHasParts =
    TFO_GPU_ARCH >= 800 && std::is_same_v<T, float>;
// Whether it multiplies fragments of int8 (MultiplyAdd16x8x32).
inline constexpr bool kHasIntegerTensorCores = TFO_GPU_ARCH >= 800;

#ifdef TFO_CUDA_EMULATION
namespace cuda_emulation {

// c plus products; with TFO_EMULATED_TRUNCATION as GPUs add, which cut all
// terms off where the greatest one's 24 bits end.
template <int N>
float SumOf(float c, const float (&products)[N]) {
#ifdef TFO_EMULATED_TRUNCATION
  float greatest = std::fabs(c), nearest = c;
  for (float product : products) {
    if (std::fabs(product) > greatest) greatest = std::fabs(product);
    nearest += product;
  }
  if (!std::isfinite(nearest) || greatest == 0) return nearest;
  double scale = std::ldexp(1.0, 23 - std::ilogb(greatest));
  int64_t sum = static_cast<int64_t>(c * scale);
  for (float product : products) sum += static_cast<int64_t>(product * scale);
  for (; sum / (1 << 24) != 0; sum /= 2) scale /= 2;
  return static_cast<float>(sum / scale);
#else
  for (float product : products) c += product;
  return c;
#endif
}

// mma.m16n8k8 and, with kDepth = 16, mma.m16n8k16.
template <typename T, int kDepth>
void MultiplyAdd(const uint32_t (&a)[kDepth / 4],
                 const uint32_t (&b)[kDepth / 8], float (&c)[4]) {
  struct Factors {
    uint32_t a[kDepth / 4], b[kDepth / 8];
  } mine;
  std::memcpy(mine.a, a, sizeof(a));
  std::memcpy(mine.b, b, sizeof(b));
  const OfWarp<Factors> of_warp(kAllLanes, mine);
  const auto part = [](uint32_t pair, int i) {
    return Widen(T{static_cast<uint16_t>(pair >> (16 * i))});
  };
  const int lane = thread_index.x % kWarpSize;
  float products[4][kDepth];
  for (int k = 0; k < kDepth; ++k) {
    // A lane has pairs of consecutive k.
    const int of_eight = k / 8, lane_of_pair = k % 8 / 2;
    const Factors left = of_warp[lane / 4 * 4 + lane_of_pair];
    for (int i = 0; i < 4; ++i) {
      const int column = lane % 4 * 2 + i % 2;
      const Factors right = of_warp[column * 4 + lane_of_pair];
      products[i][k] = part(left.a[of_eight * 2 + i / 2], k % 2) *
                       part(right.b[of_eight], k % 2);
    }
  }
  for (int i = 0; i < 4; ++i) c[i] = SumOf(c[i], products[i]);
}

// Three mma.m16n8k8 of TF32 numbers, floats without their last 13 bits, by one
// exchange: of these parts of a and b.
inline void MultiplyAddTf32(const uint32_t (&a)[2][4],
                            const uint32_t (&b)[2][2], const int (&parts)[3][2],
                            float (&c)[4]) {
  struct Factors {
    uint32_t a[2][4], b[2][2];
  } mine;
  std::memcpy(mine.a, a, sizeof(a));
  std::memcpy(mine.b, b, sizeof(b));
  const OfWarp<Factors> of_warp(kAllLanes, mine);
  const auto value = [](uint32_t bits) {
    bits &= ~0x1FFFu;
    float number;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
  };
  const int lane = thread_index.x % kWarpSize;
  Factors left[4], right[4][2];
  for (int k = 0; k < 4; ++k) {
    left[k] = of_warp[lane / 4 * 4 + k];
    for (int i = 0; i < 2; ++i) {
      right[k][i] = of_warp[(lane % 4 * 2 + i) * 4 + k];
    }
  }
  for (const auto& [of_a, of_b] : parts) {
    for (int i = 0; i < 4; ++i) {
      float products[8];
      for (int k = 0; k < 8; ++k) {
        products[k] = value(left[k % 4].a[of_a][k / 4 * 2 + i / 2]) *
                      value(right[k % 4][i % 2].b[of_b][k / 4]);
      }
      c[i] = SumOf(c[i], products);
    }
  }
}

// mma.m16n8k32 of int8.
inline void MultiplyAddIntegers(const uint32_t (&a)[4], const uint32_t (&b)[2],
                                int32_t (&c)[4]) {
  struct Factors {
    uint32_t a[4], b[2];
  } mine;
  std::memcpy(mine.a, a, sizeof(a));
  std::memcpy(mine.b, b, sizeof(b));
  const OfWarp<Factors> of_warp(kAllLanes, mine);
  const int lane = thread_index.x % kWarpSize;
  for (int quad = 0; quad < 8; ++quad) {  // of consecutive k
    const Factors left = of_warp[lane / 4 * 4 + quad % 4];
    for (int i = 0; i < 4; ++i) {
      const Factors right = of_warp[(lane % 4 * 2 + i % 2) * 4 + quad % 4];
      for (int k = 0; k < 4; ++k) {
        const auto part = [&](uint32_t four) {
          return static_cast<int8_t>(four >> (8 * k));
        };
        // As unsigned: sums wrap around.
        c[i] = static_cast<int32_t>(
            static_cast<uint32_t>(c[i]) +
            static_cast<uint32_t>(part(left.a[quad / 4 * 2 + i / 2]) *
                                  part(right.b[quad / 4])));
      }
    }
  }
}

}  // namespace cuda_emulation
#endif

// Adds to c [16, 8] the product of a [16, 8] and b [8, 8], which a warp holds
// together. T is Half.
template <typename T>
__device__ void MultiplyAdd16x8x8(const uint32_t (&a)[2],
                                  const uint32_t (&b)[1], float (&c)[4]) {
  static_assert(std::is_same_v<T, Half>, "BFloat16 needs a depth of 16");
#ifdef TFO_CUDA_EMULATION
  cuda_emulation::MultiplyAdd<T, 8>(a, b, c);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#endif
}

// Adds to c [16, 8] the product of a [16, 16] and b [16, 8]. T is Half or
// BFloat16, and kHasTensorCores<T> true.
template <typename T>
__device__ void MultiplyAdd16x8x16(const uint32_t (&a)[4],
                                   const uint32_t (&b)[2], float (&c)[4]) {
#if TFO_GPU_ARCH < 800
  const uint32_t a_halves[2][2] = {{a[0], a[1]}, {a[2], a[3]}};
  const uint32_t b_halves[2][1] = {{b[0]}, {b[1]}};
  MultiplyAdd16x8x8<T>(a_halves[0], b_halves[0], c);
  MultiplyAdd16x8x8<T>(a_halves[1], b_halves[1], c);
#elif defined(TFO_CUDA_EMULATION)
  cuda_emulation::MultiplyAdd<T, 16>(a, b, c);
#else
  if constexpr (std::is_same_v<T, Half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

// Adds to c [16, 8] the product of a [16, 32] and b [32, 8], of int8: a
// register has four of a row of a, or of a column of b. Sums wrap around in 32
// bits. From sm_80 on.
__device__ inline void MultiplyAdd16x8x32(const uint32_t (&a)[4],
                                          const uint32_t (&b)[2],
                                          int32_t (&c)[4]) {
#ifdef TFO_CUDA_EMULATION
  cuda_emulation::MultiplyAddIntegers(a, b, c);
#elif TFO_GPU_ARCH >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// Adds to c [16, 8] the product of a [16, 8] and b [8, 8], bits of floats in
// the layout of TF32's m16n8k8. A factor is a TF32 number and a rest; all their
// products are added but that of the rests. So errors are about 2^-22 of each
// product and, since GPUs truncate sums, three times 2^-24 of c. NaN if a
// factor is infinite, or rounds to that.
//
// kSwapped: a is what else would be b, for sums with the same bits.
template <bool kSwapped>
__device__ void MultiplyAddInParts(const uint32_t (&a)[4],
                                   const uint32_t (&b)[2], float (&c)[4]) {
  uint32_t a_parts[2][4], b_parts[2][2];
  const auto split = [](uint32_t bits, uint32_t* rounded, uint32_t* rest) {
    // As cvt.rna.tf32.f32, which takes more instructions, but not of NaN, of
    // which the rest is NaN.
    *rounded = (bits + 0x1000) & ~0x1FFFu;
    float x, part;
    memcpy(&x, &bits, sizeof(x));
    memcpy(&part, rounded, sizeof(part));
    x -= part;
    memcpy(rest, &x, sizeof(x));
  };
#pragma unroll
  for (int i = 0; i < 4; ++i) split(a[i], &a_parts[0][i], &a_parts[1][i]);
#pragma unroll
  for (int i = 0; i < 2; ++i) split(b[i], &b_parts[0][i], &b_parts[1][i]);
  constexpr int kParts[3][2] = {{kSwapped ? 0 : 1, kSwapped ? 1 : 0},
                                {kSwapped ? 1 : 0, kSwapped ? 0 : 1},
                                {0, 0}};
#ifdef TFO_CUDA_EMULATION
  cuda_emulation::MultiplyAddTf32(a_parts, b_parts, kParts, c);
#elif TFO_GPU_ARCH >= 800
#pragma unroll
  for (int product = 0; product < 3; ++product) {
    const uint32_t (&left)[4] = a_parts[kParts[product][0]];
    const uint32_t (&right)[2] = b_parts[kParts[product][1]];
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
          "r"(right[1]));
  }
#endif
}

// Loads N (1, 2 or 4) matrices [8, 8] of 16-bit values from shared memory, one
// into each of `to`. `row` of lane 8 * m + r is row r of matrix m, 16 bytes;
// that of lanes from 8 * N on is not read but valid. A lane gets two values of
// a row or, if kTransposed, of a column. From sm_75 on.
template <int N, bool kTransposed>
__device__ void LoadMatrices(const void* row, uint32_t (&to)[N]) {
  static_assert(N == 1 || N == 2 || N == 4);
#ifdef TFO_CUDA_EMULATION
  struct Row {
    uint16_t values[8];
  } mine = {};
  cuda_emulation::CheckAligned(row, 16);
  const int lane = threadIdx.x % 32;
  if (lane < 8 * N) {
    std::memcpy(&mine, row, sizeof(mine));
    cuda_emulation::ReportAccess(row, sizeof(mine), cuda_emulation::kRead);
  }
  const cuda_emulation::OfWarp<Row> rows(cuda_emulation::kAllLanes, mine);
  for (int m = 0; m < N; ++m) {
    uint32_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int r = lane / 4, c = lane % 4 * 2 + i;
      pair[i] = rows[8 * m + (kTransposed ? c : r)].values[kTransposed ? r : c];
    }
    to[m] = pair[0] | pair[1] << 16;
  }
#else
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
#define TFO_LDMATRIX(NUM, TRANSPOSED, REGISTERS, ...)         \
  asm volatile("ldmatrix.sync.aligned.m8n8.x" #NUM TRANSPOSED \
               ".shared.b16 {" REGISTERS "}, [%" #NUM "];"    \
               : __VA_ARGS__                                  \
               : "r"(address)                                 \
               : "memory")
#define TFO_LDMATRIX_OF_N(TRANSPOSED)                                       \
  if constexpr (N == 1) {                                                   \
    TFO_LDMATRIX(1, TRANSPOSED, "%0", "=r"(to[0]));                         \
  } else if constexpr (N == 2) {                                            \
    TFO_LDMATRIX(2, TRANSPOSED, "%0, %1", "=r"(to[0]), "=r"(to[1]));        \
  } else {                                                                  \
    TFO_LDMATRIX(4, TRANSPOSED, "%0, %1, %2, %3", "=r"(to[0]), "=r"(to[1]), \
                 "=r"(to[2]), "=r"(to[3]));                                 \
  }
  if constexpr (kTransposed) {
    TFO_LDMATRIX_OF_N(".trans");
  } else {
    TFO_LDMATRIX_OF_N("");
  }
#undef TFO_LDMATRIX_OF_N
#undef TFO_LDMATRIX
#endif
}

// A thread's copies from global to shared memory, in groups; a local variable
// of the kernel. They are complete for the thread after Wait, and for its block
// after the next barrier. Before sm_80 they are complete at once.
class AsyncCopies {
 public:
  // Starts copying `bytes` bytes, at most kBytes (4, 8 or 16). Both addresses
  // are aligned to kBytes, of which the rest becomes zero.
  template <int kBytes>
  __device__ void Copy(void* to, const void* from, int bytes = kBytes) {
    static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
    cuda_launch_internal::CheckAligned(to, kBytes);
    cuda_launch_internal::CheckAligned(from, kBytes);
#if defined(TFO_CUDA_EMULATION) && TFO_GPU_ARCH >= 800
    std::memset(to, 0xFF, kBytes);  // NaN, as long as it is not to be read
    cuda_emulation::ReportAccess(to, kBytes, cuda_emulation::kWrite);
    copies_.push_back({to, from, kBytes, bytes, num_groups_});
#elif TFO_GPU_ARCH >= 800
    const unsigned address =
        static_cast<unsigned>(__cvta_generic_to_shared(to));
    if constexpr (kBytes == 16) {
      asm volatile(
          "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
          "l"(__cvta_generic_to_global(from)), "r"(bytes)
          : "memory");
    } else {
      asm volatile(
          "cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address),
          "l"(__cvta_generic_to_global(from)), "n"(kBytes), "r"(bytes)
          : "memory");
    }
#else
    using Word = typename cuda_launch_internal::Word<kBytes>::Type;
    Word word = {};
    if (bytes == kBytes) {
      word = *static_cast<const Word*>(from);
    } else {
      for (int i = 0; i < bytes; ++i) {
        reinterpret_cast<char*>(&word)[i] = static_cast<const char*>(from)[i];
      }
    }
    *static_cast<Word*>(to) = word;
#endif
  }

  // Ends a group, which may be empty.
  __device__ void Commit() {
#ifdef TFO_CUDA_EMULATION
    ++num_groups_;
#elif TFO_GPU_ARCH >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }

  // Waits for all groups but the last kExcept.
  template <int kExcept>
  __device__ void Wait() {
#ifdef TFO_CUDA_EMULATION
    size_t done = 0;
    for (; done < copies_.size(); ++done) {
      const Started& copy = copies_[done];
      if (copy.group >= num_groups_ - kExcept) break;
      std::memset(copy.to, 0, copy.size);
      std::memcpy(copy.to, copy.from, copy.bytes);
      cuda_emulation::ReportAccess(copy.to, copy.size, cuda_emulation::kWrite);
      cuda_emulation::ReportAccess(copy.from, copy.bytes,
                                   cuda_emulation::kRead);
    }
    copies_.erase(copies_.begin(), copies_.begin() + done);
#elif TFO_GPU_ARCH >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(kExcept) : "memory");
#endif
  }

#ifdef TFO_CUDA_EMULATION
  AsyncCopies() = default;
  AsyncCopies(const AsyncCopies&) = delete;
  ~AsyncCopies() {
    if (copies_.empty()) return;
    std::fprintf(stderr, "a thread ends before its asynchronous copies\n");
    std::abort();
  }

 private:
  struct Started {
    void* to;
    const void* from;
    int size, bytes, group;
  };
  std::vector<Started> copies_;
  int num_groups_ = 0;
#endif
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_MMA_GPU_H_
