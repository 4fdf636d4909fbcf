#include "tensorflow_ops/core/cc/bilinear.h"
#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;

unsigned BlocksFor(int64_t count) {
  return GridSize(DivideUp(count, kThreads));
}

// The level of a point.
__device__ inline const AttentionLevel& LevelOf(const AttentionShape& args,
                                                int64_t point) {
  int l = 0;
  while (point >= args.levels[l].points) point -= args.levels[l++].points;
  return args.levels[l];
}

// The first value of a pixel of an image and head.
__device__ inline int64_t ValueOffset(const AttentionShape& args, int64_t image,
                                      int64_t pixel, int64_t head) {
  return ((image * args.pixels + pixel) * args.heads + head) * args.channels;
}

// A point's cell; false if no pixel of its level counts.
template <typename C>
__device__ bool FindPoint(const AttentionLevel& level, const C* location,
                          BilinearCell<C>* cell) {
  return FindCell(Product(location[1], static_cast<C>(level.height)) - C(0.5),
                  Product(location[0], static_cast<C>(level.width)) - C(0.5),
                  level.height, level.width, cell);
}

// A corner of weight 0 may be NaN.
template <typename C>
__device__ C ScaledCorner(C weight, C corner) {
  return weight == 0 ? C(0) : weight * corner;
}

// A thread has N channels of a query and head.
template <typename T, int N, typename C = Accumulator<T>>
__global__ void Attend(const __grid_constant__ DeformableAttentionArgs<T> args,
                       int64_t count) {
  const int64_t packs = args.channels / N;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += step) {
    const int64_t row = i / packs, c = i % packs * N;
    const int64_t image = row / args.heads / args.queries;
    const C* location = args.locations + 2 * row * args.points;
    const C* weight = args.weights + row * args.points;
    C sums[N] = {};
    for (int l = 0; l < args.num_levels; ++l) {
      const AttentionLevel& level = args.levels[l];
      const T* const from =
          args.values + c +
          ValueOffset(args, image, level.first_pixel, row % args.heads);
      for (int64_t p = 0; p < level.points; ++p, location += 2, ++weight) {
        BilinearCell<C> cell;
        if (!FindPoint(level, location, &cell)) {
          // NaN for a place that is NaN; infinity is far outside.
          const bool is_nan =
              location[0] != location[0] || location[1] != location[1];
          const C nothing =
              (is_nan ? location[0] + location[1] : C(0)) * *weight;
          for (int j = 0; j < N; ++j) sums[j] += nothing;
          continue;
        }
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          const C scale = CornerWeight(cell, corner);
          if (scale == 0 || !HasCorner(cell, corner, level.height, level.width))
            continue;
          const Pack<T, N> pack =
              LoadPack<N>(from + CornerPixel(cell, corner, level.width) *
                                     args.heads * args.channels);
#pragma unroll
          for (int j = 0; j < N; ++j) {
            sums[j] += *weight * scale * Widen(pack.values[j]);
          }
        }
      }
    }
    Pack<T, N> result;
#pragma unroll
    for (int j = 0; j < N; ++j) result.values[j] = Narrow<T>(sums[j]);
    StorePack(result, args.output + row * args.channels + c);
  }
}

// `lanes` threads of a warp, a power of two, have a point, and each of them
// some packs of N channels. Also adds to `sums`, of values' shape, by atomics,
// unless it is null.
template <typename T, int N, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads)
    GradToPoints(const __grid_constant__ DeformableAttentionGradArgs<T> args,
                 int lanes, int64_t count, C* sums) {
  const int lane = threadIdx.x % lanes, of_block = kThreads / lanes;
  const int64_t step = int64_t{gridDim.x} * of_block;
  const int64_t pixel_step = args.heads * args.channels;
  for (int64_t first = int64_t{blockIdx.x} * of_block; first < count;
       first += step) {
    const int64_t i = first + threadIdx.x / lanes;
    const bool is_point = i < count;
    const int64_t row = is_point ? i / args.points : 0;
    const AttentionLevel& level =
        LevelOf(args, is_point ? i - row * args.points : 0);
    BilinearCell<C> cell;
    C d_x = 0, d_y = 0, d_weight = 0;
    if (is_point && FindPoint(level, args.locations + 2 * i, &cell)) {
      const int64_t query = row / args.heads, head = row - query * args.heads;
      const int64_t base =
          ValueOffset(args, query / args.queries, level.first_pixel, head);
      const T* const upstream = args.d_output + row * args.channels;
      const C weight = args.weights[i];
      bool has[4];
      int64_t offsets[4];
      C scales[4], dots[4] = {};
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        has[corner] = HasCorner(cell, corner, level.height, level.width);
        offsets[corner] =
            base + CornerPixel(cell, corner, level.width) * pixel_step;
        scales[corner] = CornerWeight(cell, corner);
      }
      for (int64_t c = lane * N; c < args.channels; c += lanes * N) {
        const Pack<T, N> d = LoadPack<N>(upstream + c);
        Pack<T, N> pixels[4];
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          if (!has[corner]) continue;
          pixels[corner] = LoadPack<N>(args.values + offsets[corner] + c);
        }
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          if (!has[corner]) continue;
#pragma unroll
          for (int j = 0; j < N; ++j) {
            dots[corner] +=
                Widen(pixels[corner].values[j]) * Widen(d.values[j]);
          }
          if (sums == nullptr || scales[corner] == 0) continue;
          C products[N];
#pragma unroll
          for (int j = 0; j < N; ++j) {
            products[j] = weight * scales[corner] * Widen(d.values[j]);
          }
          AddAtomically(products, sums + offsets[corner] + c);
        }
      }
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        if (!has[corner]) continue;
        d_weight += ScaledCorner(scales[corner], dots[corner]);
        d_y += ScaledCorner(CornerSlopeY(cell, corner), dots[corner]);
        d_x += ScaledCorner(CornerSlopeX(cell, corner), dots[corner]);
      }
    }
    for (int other = lanes / 2; other > 0; other /= 2) {
      d_weight += __shfl_xor_sync(kAllLanes, d_weight, other);
      d_y += __shfl_xor_sync(kAllLanes, d_y, other);
      d_x += __shfl_xor_sync(kAllLanes, d_x, other);
    }
    if (lane != 0 || !is_point) continue;
    args.d_weights[i] = d_weight;
    args.d_locations[2 * i] =
        static_cast<C>(level.width) * args.weights[i] * d_x;
    args.d_locations[2 * i + 1] =
        static_cast<C>(level.height) * args.weights[i] * d_y;
  }
}

template <typename T>
__global__ void NarrowAll(int64_t count, const Accumulator<T>* from, T* to) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += step) {
    to[i] = Narrow<T>(from[i]);
  }
}

// Deterministic sums: a block owns some pixels and channels of an image and
// head, reads all points, kThreads at a time, and adds in their order.
constexpr int kTilePixels = 128, kTileChannels = 32;
constexpr int kOwners = kThreads / kTileChannels;

struct Tiles {
  int64_t pixels, channels, count;  // tiles along each; all

  explicit Tiles(const AttentionShape& args)
      : pixels(DivideUp(args.pixels, kTilePixels)),
        channels(DivideUp(args.channels, kTileChannels)),
        count(args.batch * args.heads * pixels * channels) {}
};

template <typename T, typename C = Accumulator<T>>
__global__ void SumValues(
    const __grid_constant__ DeformableAttentionGradArgs<T> args, Tiles tiles) {
  __shared__ C sums[kTilePixels][kTileChannels];
  __shared__ int16_t tile_pixel[kThreads][4];  // -1: not in this tile
  __shared__ C scale[kThreads][4];
  // Threads of one channel own the pixels that are equal modulo kOwners.
  const int channel = threadIdx.x % kTileChannels;
  const int owner = threadIdx.x / kTileChannels;
  const int64_t points = args.queries * args.points;
  for (int64_t tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    const int64_t c = tile % tiles.channels * kTileChannels + channel;
    const int64_t first = tile / tiles.channels % tiles.pixels * kTilePixels;
    const int64_t head = tile / tiles.channels / tiles.pixels % args.heads;
    const int64_t image = tile / tiles.channels / tiles.pixels / args.heads;
    for (int i = owner; i < kTilePixels; i += kOwners) sums[i][channel] = 0;
    for (int64_t at = 0; at < points; at += kThreads) {
      const int64_t mine = at + threadIdx.x;
      bool hits = false;
      for (int corner = 0; corner < 4; ++corner) {
        tile_pixel[threadIdx.x][corner] = -1;
      }
      if (mine < points) {
        const int64_t query = image * args.queries + mine / args.points;
        const int64_t point =
            (query * args.heads + head) * args.points + mine % args.points;
        const AttentionLevel& level = LevelOf(args, mine % args.points);
        BilinearCell<C> cell;
        const bool found = FindPoint(level, args.locations + 2 * point, &cell);
        for (int corner = 0; found && corner < 4; ++corner) {
          const C corner_weight = CornerWeight(cell, corner);
          if (corner_weight == 0 ||
              !HasCorner(cell, corner, level.height, level.width))
            continue;
          const int64_t pixel = level.first_pixel +
                                CornerPixel(cell, corner, level.width) - first;
          if (pixel < 0 || pixel >= kTilePixels) continue;
          tile_pixel[threadIdx.x][corner] = static_cast<int16_t>(pixel);
          scale[threadIdx.x][corner] = args.weights[point] * corner_weight;
          hits = true;
        }
      }
      if (__syncthreads_or(hits) && c < args.channels) {
        const int64_t n = points - at < kThreads ? points - at : kThreads;
        for (int64_t i = 0; i < n; ++i) {
          for (int corner = 0; corner < 4; ++corner) {
            const int pixel = tile_pixel[i][corner];
            if (pixel < 0 || pixel % kOwners != owner) continue;
            const int64_t query = image * args.queries + (at + i) / args.points;
            sums[pixel][channel] +=
                scale[i][corner] *
                Widen(
                    args.d_output[(query * args.heads + head) * args.channels +
                                  c]);
          }
        }
      }
      __syncthreads();
    }
    if (c >= args.channels) continue;
    for (int i = owner; i < kTilePixels; i += kOwners) {
      if (first + i >= args.pixels) break;
      args.d_values[ValueOffset(args, image, first + i, head) + c] =
          Narrow<T>(sums[i][channel]);
    }
  }
}

}  // namespace

template <typename T>
Error DeformableAttention(const Gpu& gpu,
                          const DeformableAttentionArgs<T>& args) {
  if (args.channels == 0) return nullptr;
  return WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<decltype(n)::value>(args.channels, args.values,
                                             args.output);
      },
      [&](auto n) {
        const int64_t count = args.batch * args.queries * args.heads *
                              (args.channels / decltype(n)::value);
        return Launch(gpu, BlocksFor(count), kThreads,
                      Attend<T, decltype(n)::value>, args, count);
      });
}

template <typename T>
Error DeformableAttentionGrad(const Gpu& gpu,
                              const DeformableAttentionGradArgs<T>& args) {
  using C = Accumulator<T>;
  constexpr bool kInPlace = sizeof(T) == sizeof(C);
  C* sums = nullptr;
  const int64_t size = args.batch * args.pixels * args.heads * args.channels;
  Error error = nullptr;
  if (!gpu.deterministic) {
    sums = reinterpret_cast<C*>(kInPlace ? static_cast<void*>(args.d_values)
                                         : gpu.scratch);
    error = EnqueueZeros(gpu, sums, size * sizeof(C));
    if (error != nullptr) return error;
  }
  const int64_t count = args.batch * args.queries * args.heads * args.points;
  error = WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<decltype(n)::value>(args.channels, args.values,
                                             args.d_output, sums);
      },
      [&](auto n) {
        int lanes = 1;
        while (lanes < 32 && lanes * n < args.channels) lanes *= 2;
        return Launch(gpu, BlocksFor(count * lanes), kThreads,
                      GradToPoints<T, decltype(n)::value>, args, lanes, count,
                      sums);
      });
  if (error != nullptr) return error;
  if (gpu.deterministic) {
    const Tiles tiles(args);
    return Launch(gpu, GridSize(tiles.count), kThreads, SumValues<T>, args,
                  tiles);
  }
  if (kInPlace) return nullptr;
  return Launch(gpu, BlocksFor(size), kThreads, NarrowAll<T>, size,
                static_cast<const C*>(sums), args.d_values);
}

TFO_INSTANTIATE_ALGORITHM(DeformableAttention, Gpu, DeformableAttentionArgs);
TFO_INSTANTIATE_ALGORITHM(DeformableAttentionGrad, Gpu,
                          DeformableAttentionGradArgs);

}  // namespace tfo
