#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_gpu.h"
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

// Where the features of an image lie, and the outputs of a box.
struct Places {
  Strides map, out;
  int64_t image, box;  // elements of one

  __device__ explicit Places(const RoiArgs& args)
      : map(StridesOf(args.channels_first, args.height, args.width,
                      args.channels)),
        out(StridesOf(args.channels_first, args.pooled_height,
                      args.pooled_width, args.channels)),
        image(args.height * args.width * args.channels),
        box(args.pooled_height * args.pooled_width * args.channels) {}
};

// A block takes a row of a box's bins, a thread some channels of a bin.
template <typename T, int N, bool kPacked>
__global__ void __launch_bounds__(kRowThreads)
    Pool(const __grid_constant__ RoiArgs args, const T* features,
         const Coordinate<T>* boxes, const int32_t* box_indices, T* output,
         int32_t* argmax) {
  constexpr int kBins = 64;   // columns of bins at a time
  constexpr int kAtOnce = 4;  // pixels whose loads are under way together
  __shared__ PixelRange columns[kBins];
  const Places places(args);
  const int64_t packs = (args.channels + N - 1) / N;
  const int64_t units = args.num_boxes * args.pooled_height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.pooled_height;
    const int64_t p = unit % args.pooled_height;
    const Spans box = ReadSpans(args, boxes, box_indices, k);
    const PixelRange rows = BinOf(box.y, p, args.pooled_height, args.height);
    for (int64_t q0 = 0; q0 < args.pooled_width; q0 += kBins) {
      const int64_t rest = args.pooled_width - q0;
      const int bins = rest < kBins ? static_cast<int>(rest) : kBins;
      __syncthreads();  // the columns before are no longer read
      for (int i = threadIdx.x; i < bins; i += blockDim.x) {
        columns[i] = BinOf(box.x, q0 + i, args.pooled_width, args.width);
      }
      __syncthreads();
      VisitUnits(args.channels_first, bins, packs, [&](int i, int64_t pack) {
        const int64_t c = pack * N, valid = args.channels - c;
        const PixelRange bin = columns[i];
        const T* const map =
            features + box.image * places.image + c * places.map.channel;
        Pack<T, N> best = {};  // an empty bin's
        Pack<int32_t, N> at;
#pragma unroll
        for (int n = 0; n < N; ++n) at.values[n] = -1;
        for (int32_t y = rows.begin; y < rows.end; ++y) {
          for (int32_t x0 = bin.begin; x0 < bin.end; x0 += kAtOnce) {
            Pack<T, N> pixels[kAtOnce];
#pragma unroll
            for (int j = 0; j < kAtOnce; ++j) {
              if (x0 + j < bin.end) {
                pixels[j] = LoadChannels<N, kPacked>(
                    map + y * places.map.row + (x0 + j) * places.map.place,
                    places.map.channel, valid);
              }
            }
            const int32_t pixel = static_cast<int32_t>(y * args.width) + x0;
#pragma unroll
            for (int j = 0; j < kAtOnce; ++j) {
              if (x0 + j >= bin.end) continue;
#pragma unroll
              for (int n = 0; n < N; ++n) {
                const T value = pixels[j].values[n];
                if (at.values[n] < 0 ||
                    Replaces(Widen(value), Widen(best.values[n]))) {
                  best.values[n] = value;
                  at.values[n] = pixel + j;
                }
              }
            }
          }
        }
        const int64_t to = k * places.box + p * places.out.row +
                           (q0 + i) * places.out.place + c * places.out.channel;
        StoreChannels<N, kPacked>(best, output + to, places.out.channel, valid);
        if (argmax != nullptr) {
          StoreChannels<N, kPacked>(at, argmax + to, places.out.channel, valid);
        }
      });
    }
  }
}

// The gradient without atomics, so that its bits do not change: a block owns a
// tile of pixels and a thread one channel of it, which it sums in shared memory
// in the order of boxes and bins, and writes once.
constexpr int kTileWidth = 8;
template <typename Sum>
constexpr int kTileHeight = sizeof(Sum) == 8 ? 4 : 8;  // 32 kB of shared memory

// The pixels of some boxes' bins, and which bins meet the tile: box b's begin
// at [b * ps] and [b * qs].
struct TileBins {
  static constexpr int kBins = 128;  // on each axis, of all boxes
  PixelRange rows[kBins], columns[kBins];
  PixelRange meet_y[kBins], meet_x[kBins];  // of each box: the first, the end
};

// All of the block must come here.
template <typename C>
__device__ void FillTileBins(const RoiArgs& args, const C* boxes,
                             const int32_t* box_indices, const Tile& tile,
                             const TilePart& part, TileBins& bins) {
  __syncthreads();  // what was there is no longer read
  for (int b = threadIdx.x; b < part.boxes; b += blockDim.x) {
    bins.meet_y[b] = {part.ps, 0};
    bins.meet_x[b] = {part.qs, 0};
  }
  __syncthreads();
  const int of_box = part.ps + part.qs;
  for (int i = threadIdx.x; i < part.boxes * of_box; i += blockDim.x) {
    const int b = i / of_box, in_box = i - b * of_box;
    const bool is_row = in_box < part.ps;
    const int bin = is_row ? in_box : in_box - part.ps;
    const Spans box =
        ReadSpans(args, boxes, box_indices, part.k0 + part.list[b]);
    const PixelRange pixels =
        is_row ? BinOf(box.y, part.p0 + bin, args.pooled_height, args.height)
               : BinOf(box.x, part.q0 + bin, args.pooled_width, args.width);
    (is_row ? bins.rows[b * part.ps + bin] : bins.columns[b * part.qs + bin]) =
        pixels;
    if (!Meet(pixels, is_row ? tile.rows : tile.columns)) continue;
    PixelRange& meet = is_row ? bins.meet_y[b] : bins.meet_x[b];
    atomicMin(&meet.begin, bin);
    atomicMax(&meet.end, bin + 1);
  }
  __syncthreads();
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    PoolGrad(const __grid_constant__ RoiAverageArgs tiled, const T* d_output,
             const int32_t* argmax, const Coordinate<T>* boxes,
             const int32_t* box_indices, T* d_features, int64_t tiles) {
  using Sum = Accumulator<T>;
  constexpr int kHeight = kTileHeight<Sum>;
  constexpr int kAtOnce = 4;
  __shared__ Sum sums[kHeight * kTileWidth][kTileThreads];
  __shared__ TileBins bins;
  __shared__ BoxList list;
  const RoiArgs& args = tiled.roi;
  const Places places(args);
  const int thread = threadIdx.x;
  const uint32_t width = static_cast<uint32_t>(args.width);

  for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile = ReadTile(tiled, number, kHeight, kTileWidth);
    const int64_t c = tile.channel + thread;
    for (int i = 0; i < kHeight * kTileWidth; ++i) sums[i][thread] = 0;

    const auto meets = [&](int64_t k) {
      const Spans box = ReadSpans(args, boxes, box_indices, k);
      return box.image == tile.image &&
             Meet(Clip(box.y, args.height), tile.rows) &&
             Meet(Clip(box.x, args.width), tile.columns);
    };
    // Adds the d_output at `from` if its argmax, `pixel`, is in the tile and in
    // these rows.
    const auto add = [&](int64_t from, int32_t pixel, PixelRange rows) {
      if (pixel < rows.begin * args.width || pixel >= rows.end * args.width) {
        return;
      }
      // Both fit 32 bits, where division is fast.
      const uint32_t in_band =
          static_cast<uint32_t>(pixel - tile.rows.begin * args.width);
      const uint32_t y = in_band / width;
      const int64_t x = int64_t{in_band - y * width} - tile.columns.begin;
      if (x < 0 || x >= kTileWidth) return;
      sums[y * kTileWidth + x][thread] += Widen(d_output[from]);
    };
    VisitTileParts(
        args, TileBins::kBins, meets, list, [&](const TilePart& part) {
          FillTileBins(args, boxes, box_indices, tile, part, bins);
          if (c >= args.channels) return;
          for (int b = 0; b < part.boxes; ++b) {
            const PixelRange some_p = bins.meet_y[b], some_q = bins.meet_x[b];
            const int64_t first = (part.k0 + part.list[b]) * places.box +
                                  part.p0 * places.out.row +
                                  part.q0 * places.out.place +
                                  c * places.out.channel;
            for (int p = some_p.begin; p < some_p.end; ++p) {
              PixelRange rows = bins.rows[b * part.ps + p];
              if (rows.begin < tile.rows.begin) rows.begin = tile.rows.begin;
              if (rows.end > tile.rows.end) rows.end = tile.rows.end;
              for (int q = some_q.begin; q < some_q.end; q += kAtOnce) {
                const int64_t from =
                    first + p * places.out.row + q * places.out.place;
                int32_t pixels[kAtOnce];
#pragma unroll
                for (int j = 0; j < kAtOnce; ++j) {
                  pixels[j] = q + j < some_q.end
                                  ? argmax[from + j * places.out.place]
                                  : -1;
                }
#pragma unroll
                for (int j = 0; j < kAtOnce; ++j) {
                  add(from + j * places.out.place, pixels[j], rows);
                }
              }
            }
          }
        });

    if (c >= args.channels) continue;
    T* const map =
        d_features + tile.image * places.image + c * places.map.channel;
    for (int32_t y = tile.rows.begin; y < tile.rows.end; ++y) {
      for (int32_t x = tile.columns.begin; x < tile.columns.end; ++x) {
        const int pixel =
            (y - tile.rows.begin) * kTileWidth + x - tile.columns.begin;
        map[y * places.map.row + x * places.map.place] =
            Narrow<T>(sums[pixel][thread]);
      }
    }
  }
}

// A block takes a row of a box's bins, a thread a channel of a bin.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    PoolGradGrad(const __grid_constant__ RoiArgs args, const T* dd_features,
                 const int32_t* argmax, const Coordinate<T>* boxes,
                 const int32_t* box_indices, T* dd_output) {
  constexpr int kBins = 1 << 10;  // 32 bits are enough for channels times these
  const Places places(args);
  const int64_t units = args.num_boxes * args.pooled_height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.pooled_height;
    const int64_t p = unit % args.pooled_height;
    const Spans box = ReadSpans(args, boxes, box_indices, k);
    const PixelRange rows = BinOf(box.y, p, args.pooled_height, args.height);
    for (int64_t q0 = 0; q0 < args.pooled_width; q0 += kBins) {
      const int64_t rest = args.pooled_width - q0;
      const int bins = rest < kBins ? static_cast<int>(rest) : kBins;
      VisitUnits(args.channels_first, bins, args.channels,
                 [&](int i, int64_t c) {
                   const int64_t at = k * places.box + p * places.out.row +
                                      (q0 + i) * places.out.place +
                                      c * places.out.channel;
                   const int64_t pixel = argmax[at];
                   T value = {};
                   if (pixel >= rows.begin * args.width &&
                       pixel < rows.end * args.width) {
                     // A pixel is as many places from the first as its number
                     // says.
                     value = dd_features[box.image * places.image +
                                         pixel * places.map.place +
                                         c * places.map.channel];
                   }
                   dd_output[at] = value;
                 });
    }
  }
}

bool IsEmpty(const RoiArgs& args) {
  return args.num_boxes == 0 || args.channels == 0 || args.pooled_height == 0 ||
         args.pooled_width == 0;
}

}  // namespace

template <typename T>
Error RoiPool(const Gpu& gpu, const RoiArgs& args, const T* features,
              const Coordinate<T>* boxes, const int32_t* box_indices, T* output,
              int32_t* argmax) {
  if (IsEmpty(args)) return nullptr;
  const auto launch = [&](auto kernel, int64_t packs) {
    return Launch(gpu, GridSize(args.num_boxes * args.pooled_height),
                  RowThreads(args, packs), kernel, args, features, boxes,
                  box_indices, output, argmax);
  };
  if (args.channels_first) {
    return launch(Pool<T, 2, false>, (args.channels + 1) / 2);
  }
  return WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<decltype(n)::value>(args.channels, features, output,
                                             argmax);
      },
      [&](auto n) {
        return launch(Pool<T, decltype(n)::value, true>, args.channels / n);
      });
}

template <typename T>
Error RoiPoolGrad(const Gpu& gpu, const RoiArgs& args, const T* d_output,
                  const int32_t* argmax, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* d_features) {
  if (args.channels == 0) return nullptr;
  RoiAverageArgs tiled = OneLevel(args);
  if (IsEmpty(args)) tiled.roi.num_boxes = 0;
  const int64_t tiles =
      CountTiles(tiled, kTileHeight<Accumulator<T>>, kTileWidth);
  return Launch(gpu, GridSize(tiles), TileThreads(args.channels), PoolGrad<T>,
                tiled, d_output, argmax, boxes, box_indices, d_features, tiles);
}

template <typename T>
Error RoiPoolGradGrad(const Gpu& gpu, const RoiArgs& args, const T* dd_features,
                      const int32_t* argmax, const Coordinate<T>* boxes,
                      const int32_t* box_indices, T* dd_output) {
  if (IsEmpty(args)) return nullptr;
  return Launch(gpu, GridSize(args.num_boxes * args.pooled_height),
                RowThreads(args, args.channels), PoolGradGrad<T>, args,
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
