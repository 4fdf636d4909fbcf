#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_bins.h"

namespace tfo {
namespace {

// A box in whole pixels; an invalid one has no pixels.
struct Spans {
  int64_t image;
  PooledSpan y, x;
};

template <typename C>
__device__ Spans ReadSpans(const RoiArgs& args, const C* boxes,
                           const int32_t* box_indices, int64_t k) {
  const ScaledBox<C> box = ReadBox(args, boxes, box_indices, k);
  if (!box.valid) return {-1, {0, 0}, {0, 0}};
  return {box.image, SpanOf(box.y1, box.y2), SpanOf(box.x1, box.x2)};
}

constexpr int kPoolThreads = 256;

// NHWC: a block takes a row of a box's bins, a thread some channels of a bin.
template <typename T, int kChannels>
__global__ void __launch_bounds__(kPoolThreads)
    PoolChannelsLast(RoiArgs args, const T* features,
                     const Coordinate<T>* boxes, const int32_t* box_indices,
                     T* output, int32_t* argmax) {
  using Value = Accumulator<T>;
  __shared__ PixelRange columns[kPoolThreads];
  const int64_t packs = args.channels / kChannels;
  const int64_t units = args.num_boxes * args.pooled_height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const Spans box =
        ReadSpans(args, boxes, box_indices, unit / args.pooled_height);
    const PixelRange rows = BinOf(box.y, unit % args.pooled_height,
                                  args.pooled_height, args.height);
    const T* const image =
        features + box.image * args.height * args.width * args.channels;
    for (int64_t q0 = 0; q0 < args.pooled_width; q0 += kPoolThreads) {
      const int64_t left = args.pooled_width - q0;
      const int64_t bins = left < kPoolThreads ? left : kPoolThreads;
      __syncthreads();  // the columns before are no longer read
      if (threadIdx.x < bins) {
        columns[threadIdx.x] =
            BinOf(box.x, q0 + threadIdx.x, args.pooled_width, args.width);
      }
      __syncthreads();
      for (int64_t i = threadIdx.x; i < bins * packs; i += kPoolThreads) {
        const int64_t q = i / packs, c = (i - q * packs) * kChannels;
        const PixelRange bin = columns[q];
        Value best[kChannels] = {};
        Pack<T, kChannels> best_pack = {};  // an empty bin's
        Pack<int32_t, kChannels> at;
#pragma unroll
        for (int j = 0; j < kChannels; ++j) at.values[j] = -1;
        for (int32_t y = rows.begin; y < rows.end; ++y) {
          for (int32_t x = bin.begin; x < bin.end; ++x) {
            const int64_t pixel = y * args.width + x;
            const auto pack = *reinterpret_cast<const Pack<T, kChannels>*>(
                image + pixel * args.channels + c);
#pragma unroll
            for (int j = 0; j < kChannels; ++j) {
              const Value value = Widen(pack.values[j]);
              if (at.values[j] < 0 || Replaces(value, best[j])) {
                best[j] = value;
                best_pack.values[j] = pack.values[j];
                at.values[j] = static_cast<int32_t>(pixel);
              }
            }
          }
        }
        const int64_t to =
            (unit * args.pooled_width + q0 + q) * args.channels + c;
        *reinterpret_cast<Pack<T, kChannels>*>(output + to) = best_pack;
        if (argmax != nullptr) {
          *reinterpret_cast<Pack<int32_t, kChannels>*>(argmax + to) = at;
        }
      }
    }
  }
}

// NCHW: a thread takes a bin of a channel; neighbours take neighbouring bins.
template <typename T>
__global__ void __launch_bounds__(kPoolThreads)
    PoolChannelsFirst(RoiArgs args, const T* features,
                      const Coordinate<T>* boxes, const int32_t* box_indices,
                      T* output, int32_t* argmax) {
  const int64_t bins = args.pooled_height * args.pooled_width;
  const int64_t all = args.num_boxes * args.channels * bins;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all;
       i += step) {
    const int64_t k = i / (args.channels * bins), c = i / bins % args.channels;
    const Spans box = ReadSpans(args, boxes, box_indices, k);
    const PixelRange rows = BinOf(box.y, i % bins / args.pooled_width,
                                  args.pooled_height, args.height);
    const PixelRange columns =
        BinOf(box.x, i % args.pooled_width, args.pooled_width, args.width);
    T best = {};
    int32_t at = -1;
    if (!rows.empty() && !columns.empty()) {
      const T* const plane =
          features + (box.image * args.channels + c) * args.height * args.width;
      for (int64_t y = rows.begin; y < rows.end; ++y) {
        for (int64_t x = columns.begin; x < columns.end; ++x) {
          const T value = plane[y * args.width + x];
          if (at < 0 || Replaces(Widen(value), Widen(best))) {
            best = value;
            at = static_cast<int32_t>(y * args.width + x);
          }
        }
      }
    }
    output[i] = best;
    if (argmax != nullptr) argmax[i] = at;
  }
}

// The gradient without atomics, so that its bits do not change: a block owns a
// tile of pixels and a thread one channel of it, which it sums in shared memory
// in the order of boxes and bins, and writes once.
constexpr int kTileChannels = 128;
constexpr int kTileWidth = 8;
template <typename T>
constexpr int kTileHeight = sizeof(T) == 8 ? 4 : 8;  // 32 kB of shared memory

template <typename T>
__global__ void __launch_bounds__(kTileChannels)
    PoolGrad(RoiArgs args, const T* d_output, const int32_t* argmax,
             const Coordinate<T>* boxes, const int32_t* box_indices,
             T* d_features) {
  using Sum = Accumulator<T>;
  constexpr int kHeight = kTileHeight<T>;
  __shared__ Sum sums[kHeight * kTileWidth][kTileChannels];
  __shared__ bool meets[kTileChannels];
  const int64_t tiles_x = (args.width + kTileWidth - 1) / kTileWidth;
  const int64_t tiles_y = (args.height + kHeight - 1) / kHeight;
  const int64_t blocks = (args.channels + kTileChannels - 1) / kTileChannels;
  const int64_t all = args.batch * tiles_y * tiles_x * blocks;
  const int64_t bins = args.pooled_height * args.pooled_width;
  const int thread = threadIdx.x;

  for (int64_t tile = blockIdx.x; tile < all; tile += gridDim.x) {
    const int64_t c = tile % blocks * kTileChannels + thread;
    const int64_t x0 = tile / blocks % tiles_x * kTileWidth;
    const int64_t y0 = tile / (blocks * tiles_x) % tiles_y * kHeight;
    const int64_t image = tile / (blocks * tiles_x * tiles_y);
    const int64_t y1 = y0 + kHeight < args.height ? y0 + kHeight : args.height;
    const int64_t x1 =
        x0 + kTileWidth < args.width ? x0 + kTileWidth : args.width;
    const PixelRange tile_rows = {static_cast<int32_t>(y0),
                                  static_cast<int32_t>(y1)};
    const PixelRange tile_columns = {static_cast<int32_t>(x0),
                                     static_cast<int32_t>(x1)};
    for (int i = 0; i < kHeight * kTileWidth; ++i) sums[i][thread] = 0;

    for (int64_t k0 = 0; k0 < args.num_boxes; k0 += kTileChannels) {
      // Each thread looks at one box, then all go through those that meet the
      // tile.
      bool meets_tile = false;
      if (k0 + thread < args.num_boxes) {
        const Spans box = ReadSpans(args, boxes, box_indices, k0 + thread);
        meets_tile = box.image == image &&
                     Meet(Clip(box.y, args.height), tile_rows) &&
                     Meet(Clip(box.x, args.width), tile_columns);
      }
      __syncthreads();  // the flags before are no longer read
      meets[thread] = meets_tile;
      __syncthreads();
      if (c >= args.channels) continue;
      for (int j = 0; j < kTileChannels; ++j) {
        if (!meets[j]) continue;
        const int64_t k = k0 + j;
        const Spans box = ReadSpans(args, boxes, box_indices, k);
        for (int64_t p = 0; p < args.pooled_height; ++p) {
          const PixelRange rows =
              BinOf(box.y, p, args.pooled_height, args.height);
          if (!Meet(rows, tile_rows)) continue;
          const int64_t from = rows.begin > y0 ? rows.begin : y0;
          const int64_t to = rows.end < y1 ? rows.end : y1;
          for (int64_t q = 0; q < args.pooled_width; ++q) {
            if (!Meet(BinOf(box.x, q, args.pooled_width, args.width),
                      tile_columns)) {
              continue;
            }
            const int64_t at =
                args.channels_first
                    ? (k * args.channels + c) * bins + p * args.pooled_width + q
                    : (k * bins + p * args.pooled_width + q) * args.channels +
                          c;
            const int64_t pixel = argmax[at];
            if (pixel < from * args.width || pixel >= to * args.width) continue;
            // Both fit 32 bits, where division is fast.
            const uint32_t in_band =
                static_cast<uint32_t>(pixel - y0 * args.width);
            const uint32_t y = in_band / static_cast<uint32_t>(args.width);
            const int64_t x =
                in_band - y * static_cast<uint32_t>(args.width) - x0;
            if (x < 0 || x >= kTileWidth) continue;
            sums[y * kTileWidth + x][thread] += Widen(d_output[at]);
          }
        }
      }
    }
    if (c >= args.channels) continue;
    for (int64_t y = y0; y < y1; ++y) {
      for (int64_t x = x0; x < x1; ++x) {
        const int64_t at =
            args.channels_first
                ? ((image * args.channels + c) * args.height + y) * args.width +
                      x
                : ((image * args.height + y) * args.width + x) * args.channels +
                      c;
        d_features[at] =
            Narrow<T>(sums[(y - y0) * kTileWidth + x - x0][thread]);
      }
    }
  }
}

// A thread takes an element of dd_output.
template <typename T>
__global__ void __launch_bounds__(kPoolThreads)
    PoolGradGrad(RoiArgs args, const T* dd_features, const int32_t* argmax,
                 const Coordinate<T>* boxes, const int32_t* box_indices,
                 T* dd_output) {
  const int64_t bins = args.pooled_height * args.pooled_width;
  const int64_t all = args.num_boxes * args.channels * bins;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all;
       i += step) {
    const int64_t k = i / (args.channels * bins);
    const int64_t in_box = i - k * args.channels * bins;
    const int64_t c =
        args.channels_first ? in_box / bins : in_box % args.channels;
    const int64_t bin =
        args.channels_first ? in_box % bins : in_box / args.channels;
    const Spans box = ReadSpans(args, boxes, box_indices, k);
    const PixelRange rows =
        BinOf(box.y, bin / args.pooled_width, args.pooled_height, args.height);
    const int64_t pixel = argmax[i];
    T value = {};
    if (!rows.empty() && pixel >= rows.begin * args.width &&
        pixel < rows.end * args.width) {
      const int64_t plane = args.height * args.width;
      value =
          args.channels_first
              ? dd_features[(box.image * args.channels + c) * plane + pixel]
              : dd_features[(box.image * plane + pixel) * args.channels + c];
    }
    dd_output[i] = value;
  }
}

unsigned GridFor(int64_t threads) {
  return GridSize((threads + kPoolThreads - 1) / kPoolThreads);
}

}  // namespace

template <typename T>
Error RoiPool(const Gpu& gpu, const RoiArgs& args, const T* features,
              const Coordinate<T>* boxes, const int32_t* box_indices, T* output,
              int32_t* argmax) {
  const int64_t outputs =
      args.num_boxes * args.channels * args.pooled_height * args.pooled_width;
  if (outputs == 0) return nullptr;
  if (args.channels_first) {
    return Launch(gpu, GridFor(outputs), kPoolThreads, PoolChannelsFirst<T>,
                  args, features, boxes, box_indices, output, argmax);
  }
  const unsigned grid = GridSize(args.num_boxes * args.pooled_height);
  if (FitsPacks<T>(args.channels, features, output, argmax)) {
    return Launch(gpu, grid, kPoolThreads, PoolChannelsLast<T, kPackSize<T>>,
                  args, features, boxes, box_indices, output, argmax);
  }
  return Launch(gpu, grid, kPoolThreads, PoolChannelsLast<T, 1>, args, features,
                boxes, box_indices, output, argmax);
}

template <typename T>
Error RoiPoolGrad(const Gpu& gpu, const RoiArgs& args, const T* d_output,
                  const int32_t* argmax, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* d_features) {
  const int64_t tiles = args.batch *
                        ((args.height + kTileHeight<T> - 1) / kTileHeight<T>)*(
                            (args.width + kTileWidth - 1) / kTileWidth) *
                        ((args.channels + kTileChannels - 1) / kTileChannels);
  return Launch(gpu, GridSize(tiles), kTileChannels, PoolGrad<T>, args,
                d_output, argmax, boxes, box_indices, d_features);
}

template <typename T>
Error RoiPoolGradGrad(const Gpu& gpu, const RoiArgs& args, const T* dd_features,
                      const int32_t* argmax, const Coordinate<T>* boxes,
                      const int32_t* box_indices, T* dd_output) {
  const int64_t outputs =
      args.num_boxes * args.channels * args.pooled_height * args.pooled_width;
  return Launch(gpu, GridFor(outputs), kPoolThreads, PoolGradGrad<T>, args,
                dd_features, argmax, boxes, box_indices, dd_output);
}

#define TFO_INSTANTIATE(T)                                                \
  template Error RoiPool<T>(const Gpu&, const RoiArgs&, const T*,         \
                            const Coordinate<T>*, const int32_t*, T*,     \
                            int32_t*);                                    \
  template Error RoiPoolGrad<T>(const Gpu&, const RoiArgs&, const T*,     \
                                const int32_t*, const Coordinate<T>*,     \
                                const int32_t*, T*);                      \
  template Error RoiPoolGradGrad<T>(const Gpu&, const RoiArgs&, const T*, \
                                    const int32_t*, const Coordinate<T>*, \
                                    const int32_t*, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
