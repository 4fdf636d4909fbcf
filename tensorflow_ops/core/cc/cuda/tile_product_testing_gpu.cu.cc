#include "tensorflow_ops/core/cc/cuda/tile_product_testing_gpu.h"

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/cuda/tile_product_gpu.h"

namespace tfo {
namespace {

// Fills an operand with depths from `first` on; a pack per thread.
template <typename T, Along kAlong, bool kTensorCores>
__device__ void Fill(Filling filling, int first, int depth, const T* from,
                     AsyncCopies* copies,
                     Operand<T, kAlong, kTensorCores>* to) {
  constexpr int kPack = kPackSize<T>, kLines = TileSize<T>::kLines;
  const int at = threadIdx.x * kPack;
  int line, k;
  if constexpr (kAlong == Along::kDepth) {
    line = at / TileSize<T>::kDepth;
    k = at % TileSize<T>::kDepth;
    from += line * depth + first + k;
  } else {
    line = at % kLines;
    k = at / kLines;
    from += (first + k) * kLines + line;
  }
  if (filling == Filling::kStore) {
    to->Store(line, k, LoadPack<kPack>(from));
  } else if (filling == Filling::kCopyAsync) {
    to->CopyAsync(copies, line, k, from);
  } else {
    for (int i = 0; i < kPack; ++i) {
      const bool down = kAlong == Along::kDepth;
      to->Set(line + (down ? 0 : i), k + (down ? i : 0), from[i]);
    }
  }
}

template <typename T, Along kA, Along kB, bool kTensorCores>
__global__ void MultiplyKernel(Filling filling, int depth, const T* a,
                               const T* b, Accumulator<T>* c) {
  // A GPU without tensor cores compiles the other path twice.
  constexpr bool kByFragments = kTensorCores && kHasTensorCores<T>;
  struct Factors {
    Operand<T, kA, kByFragments> a;
    Operand<T, kB, kByFragments> b;
  };
  Factors* const factors = static_cast<Factors*>(DynamicShared());
  TileProduct<T, kByFragments> product;
  product.Clear();
  AsyncCopies copies;
  const auto fill = [&](int first) {
    Factors& to = factors[first / TileSize<T>::kDepth % 2];
    Fill(filling, first, depth, a, &copies, &to.a);
    Fill(filling, first, depth, b, &copies, &to.b);
    copies.Commit();
  };
  fill(0);
  for (int k = 0; k < depth; k += TileSize<T>::kDepth) {
    copies.Wait<0>();
    __syncthreads();
    if (k + TileSize<T>::kDepth < depth) fill(k + TileSize<T>::kDepth);
    const Factors& from = factors[k / TileSize<T>::kDepth % 2];
    product.Add(from.a, from.b);
  }
  product.ForEachPack([&](int row, int column, const auto& values) {
    constexpr int kColumns = sizeof(values) / sizeof(values[0]);
    for (int i = 0; i < kColumns; ++i) {
      c[row * TileSize<T>::kLines + column + i] = values[i];
    }
  });
}

template <typename T, Along kA, Along kB>
Error Multiply(const Gpu& gpu, bool tensor_cores, Filling filling, int depth,
               const T* a, const T* b, Accumulator<T>* c) {
  const int bytes = 2 * (sizeof(Operand<T, kA>) + sizeof(Operand<T, kB>));
  const auto run = [&](auto* kernel) {
    return LaunchWithShared(gpu, 1, TileSize<T>::kThreads, bytes, kernel,
                            filling, depth, a, b, c);
  };
  if constexpr (sizeof(T) == 2) {
    if (tensor_cores) return run(MultiplyKernel<T, kA, kB, true>);
  }
  return run(MultiplyKernel<T, kA, kB, false>);
}

}  // namespace

template <typename T>
Error MultiplyTiles(const Gpu& gpu, bool a_along_depth, bool b_along_depth,
                    bool tensor_cores, Filling filling, int depth, const T* a,
                    const T* b, Accumulator<T>* c) {
  constexpr Along kDepth = Along::kDepth, kLines = Along::kLines;
  const auto run = [&](auto* multiply) {
    return multiply(gpu, tensor_cores, filling, depth, a, b, c);
  };
  if (a_along_depth) {
    return b_along_depth ? run(Multiply<T, kDepth, kDepth>)
                         : run(Multiply<T, kDepth, kLines>);
  }
  return b_along_depth ? run(Multiply<T, kLines, kDepth>)
                       : run(Multiply<T, kLines, kLines>);
}
#define TFO_INSTANTIATE(T) template decltype(MultiplyTiles<T>) MultiplyTiles<T>
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace tfo
