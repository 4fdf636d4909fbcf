#include "tensorflow_ops/core/cc/bilinear.h"
#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;

unsigned BlocksFor(int64_t count) {
  return GridSize((count + kThreads - 1) / kThreads);
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

// A thread has a point.
template <typename T, int N, typename C = Accumulator<T>>
__global__ void GradToPoints(
    const __grid_constant__ DeformableAttentionGradArgs<T> args,
    int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += step) {
    const int64_t row = i / args.points;
    const AttentionLevel& level = LevelOf(args, i % args.points);
    BilinearCell<C> cell;
    C d_x = 0, d_y = 0, d_weight = 0;
    if (FindPoint(level, args.locations + 2 * i, &cell)) {
      const int64_t image = row / args.heads / args.queries;
      const T* const from =
          args.values +
          ValueOffset(args, image, level.first_pixel, row % args.heads);
      const T* const upstream = args.d_output + row * args.channels;
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        if (!HasCorner(cell, corner, level.height, level.width)) continue;
        const T* const pixel = from + CornerPixel(cell, corner, level.width) *
                                          args.heads * args.channels;
        C dot = 0;
        for (int64_t c = 0; c < args.channels; c += N) {
          const Pack<T, N> a = LoadPack<N>(pixel + c);
          const Pack<T, N> b = LoadPack<N>(upstream + c);
#pragma unroll
          for (int j = 0; j < N; ++j) {
            dot += Widen(a.values[j]) * Widen(b.values[j]);
          }
        }
        d_weight += ScaledCorner(CornerWeight(cell, corner), dot);
        d_y += ScaledCorner(CornerSlopeY(cell, corner), dot);
        d_x += ScaledCorner(CornerSlopeX(cell, corner), dot);
      }
    }
    args.d_weights[i] = d_weight;
    args.d_locations[2 * i] =
        static_cast<C>(level.width) * args.weights[i] * d_x;
    args.d_locations[2 * i + 1] =
        static_cast<C>(level.height) * args.weights[i] * d_y;
  }
}

// Adds to `sums`, of values' shape, by atomics. A thread has a channel of a
// query and head.
template <typename T, typename C = Accumulator<T>>
__global__ void AddToValues(
    const __grid_constant__ DeformableAttentionGradArgs<T> args, int64_t count,
    C* sums) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += step) {
    const int64_t row = i / args.channels, c = i % args.channels;
    const int64_t image = row / args.heads / args.queries;
    const C upstream = Widen(args.d_output[i]);
    const C* location = args.locations + 2 * row * args.points;
    const C* weight = args.weights + row * args.points;
    for (int l = 0; l < args.num_levels; ++l) {
      const AttentionLevel& level = args.levels[l];
      C* const to =
          sums + c +
          ValueOffset(args, image, level.first_pixel, row % args.heads);
      for (int64_t p = 0; p < level.points; ++p, location += 2, ++weight) {
        BilinearCell<C> cell;
        if (!FindPoint(level, location, &cell)) continue;
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          const C scale = CornerWeight(cell, corner);
          if (scale == 0 || !HasCorner(cell, corner, level.height, level.width))
            continue;
          atomicAdd(to + CornerPixel(cell, corner, level.width) * args.heads *
                             args.channels,
                    *weight * scale * upstream);
        }
      }
    }
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
      : pixels((args.pixels + kTilePixels - 1) / kTilePixels),
        channels((args.channels + kTileChannels - 1) / kTileChannels),
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

template <typename T, typename C = Accumulator<T>>
Error GradToValues(const Gpu& gpu, const DeformableAttentionGradArgs<T>& args) {
  if (gpu.deterministic) {
    const Tiles tiles(args);
    return Launch(gpu, GridSize(tiles.count), kThreads, SumValues<T>, args,
                  tiles);
  }
  constexpr bool kInPlace = sizeof(T) == sizeof(C);
  C* const sums = reinterpret_cast<C*>(
      kInPlace ? static_cast<void*>(args.d_values) : gpu.scratch);
  const int64_t size = args.batch * args.pixels * args.heads * args.channels;
  Error error = EnqueueZeros(gpu, sums, size * sizeof(C));
  if (error != nullptr) return error;
  const int64_t count = args.batch * args.queries * args.heads * args.channels;
  error = Launch(gpu, BlocksFor(count), kThreads, AddToValues<T>, args, count,
                 sums);
  if (error != nullptr || kInPlace) return error;
  return Launch(gpu, BlocksFor(size), kThreads, NarrowAll<T>, size,
                static_cast<const C*>(sums), args.d_values);
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
  const int64_t count = args.batch * args.queries * args.heads * args.points;
  const Error error = WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<decltype(n)::value>(args.channels, args.values,
                                             args.d_output);
      },
      [&](auto n) {
        return Launch(gpu, BlocksFor(count), kThreads,
                      GradToPoints<T, decltype(n)::value>, args, count);
      });
  if (error != nullptr) return error;
  return GradToValues(gpu, args);
}

TFO_INSTANTIATE_ALGORITHM(DeformableAttention, Gpu, DeformableAttentionArgs);
TFO_INSTANTIATE_ALGORITHM(DeformableAttentionGrad, Gpu,
                          DeformableAttentionGradArgs);

}  // namespace tfo
