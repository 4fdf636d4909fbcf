#include "tensorflow_ops/core/cc/cuda/mma_testing_gpu.h"

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/cuda/mma_gpu.h"

namespace tfo {
namespace {

template <typename T, int kDepth>
__global__ void MultiplyKernel(const uint32_t* a, const uint32_t* b, float* c,
                               bool* ran) {
  if constexpr (kHasTensorCores<T> || kHasParts<T>) {
    constexpr int kA = kDepth * sizeof(T) / 8, kB = kA / 2;
    const int lane = threadIdx.x;
    uint32_t left[kA], right[kB];
    float sums[4];
    for (int i = 0; i < kA; ++i) left[i] = a[lane * kA + i];
    for (int i = 0; i < kB; ++i) right[i] = b[lane * kB + i];
    for (int i = 0; i < 4; ++i) sums[i] = c[lane * 4 + i];
    if constexpr (kHasParts<T>) {
      MultiplyAddInParts<false>(left, right, sums);
    } else if constexpr (kDepth == 16) {
      MultiplyAdd16x8x16<T>(left, right, sums);
    } else {
      MultiplyAdd16x8x8<T>(left, right, sums);
    }
    for (int i = 0; i < 4; ++i) c[lane * 4 + i] = sums[i];
    if (lane == 0) *ran = true;
  }
}

__global__ void MultiplyIntegersKernel(const uint32_t* a, const uint32_t* b,
                                       int32_t* c, bool* ran) {
  if constexpr (kHasIntegerTensorCores) {
    const int lane = threadIdx.x;
    uint32_t left[4], right[2];
    int32_t sums[4];
    for (int i = 0; i < 4; ++i) left[i] = a[lane * 4 + i];
    for (int i = 0; i < 2; ++i) right[i] = b[lane * 2 + i];
    for (int i = 0; i < 4; ++i) sums[i] = c[lane * 4 + i];
    MultiplyAdd16x8x32(left, right, sums);
    for (int i = 0; i < 4; ++i) c[lane * 4 + i] = sums[i];
    if (lane == 0) *ran = true;
  }
}

template <int N, bool kTransposed>
__global__ void LoadKernel(const uint16_t* rows, uint32_t* to, bool* ran) {
  if constexpr (kHasTensorCores<Half>) {
    __shared__ Pack<uint16_t, 8> shared[32];
    const int lane = threadIdx.x;
    shared[lane] = LoadPack<8>(rows + lane * 8);
    __syncwarp();
    uint32_t matrices[N];
    LoadMatrices<N, kTransposed>(&shared[lane], matrices);
    for (int m = 0; m < N; ++m) to[lane * N + m] = matrices[m];
    if (lane == 0) *ran = true;
  }
}

template <int kBytes>
__global__ void CopyKernel(int bytes, const char* from, char* to) {
  char* const shared = static_cast<char*>(DynamicShared());
  AsyncCopies copies;
  const int mine = threadIdx.x * kBytes, next = (32 + threadIdx.x) * kBytes;
  copies.Copy<kBytes>(shared + mine, from + mine, bytes);
  copies.Commit();
  copies.Copy<kBytes>(shared + next, from + next, bytes);
  copies.Commit();
  copies.Wait<1>();
  __syncthreads();
  // Of other threads' copies.
  for (int i = 0; i < kBytes; ++i)
    to[i * 32 + threadIdx.x] = shared[i * 32 + threadIdx.x];
  copies.Wait<0>();
  __syncthreads();
  for (int i = kBytes; i < 2 * kBytes; ++i)
    to[i * 32 + threadIdx.x] = shared[i * 32 + threadIdx.x];
}

}  // namespace

#ifdef TFO_CUDA_EMULATION
const bool kIsEmulated = true;
#else
const bool kIsEmulated = false;
#endif

template <typename T>
Error MultiplyFragments(const Gpu& gpu, int depth, const uint32_t* a,
                        const uint32_t* b, float* c, bool* ran) {
  if constexpr (!std::is_same_v<T, BFloat16>) {
    if (depth == 8)
      return Launch(gpu, 1, 32, MultiplyKernel<T, 8>, a, b, c, ran);
  }
  if constexpr (sizeof(T) == 2) {
    return Launch(gpu, 1, 32, MultiplyKernel<T, 16>, a, b, c, ran);
  }
  return "no such fragments";
}
template decltype(MultiplyFragments<float>) MultiplyFragments<float>;
template decltype(MultiplyFragments<Half>) MultiplyFragments<Half>;
template decltype(MultiplyFragments<BFloat16>) MultiplyFragments<BFloat16>;

Error MultiplyIntegerFragments(const Gpu& gpu, const uint32_t* a,
                               const uint32_t* b, int32_t* c, bool* ran) {
  return Launch(gpu, 1, 32, MultiplyIntegersKernel, a, b, c, ran);
}

Error LoadFragments(const Gpu& gpu, int n, bool transposed,
                    const uint16_t* rows, uint32_t* to, bool* ran) {
  const auto run = [&](auto* kernel) {
    return Launch(gpu, 1, 32, kernel, rows, to, ran);
  };
  if (transposed) {
    return n == 1   ? run(LoadKernel<1, true>)
           : n == 2 ? run(LoadKernel<2, true>)
                    : run(LoadKernel<4, true>);
  }
  return n == 1   ? run(LoadKernel<1, false>)
         : n == 2 ? run(LoadKernel<2, false>)
                  : run(LoadKernel<4, false>);
}

Error CopyThroughShared(const Gpu& gpu, int size, int bytes, const char* from,
                        char* to) {
  const auto run = [&](auto* kernel) {
    return LaunchWithShared(gpu, 1, 32, 64 * size, kernel, bytes, from, to);
  };
  return size == 4   ? run(CopyKernel<4>)
         : size == 8 ? run(CopyKernel<8>)
                     : run(CopyKernel<16>);
}

}  // namespace tfo
