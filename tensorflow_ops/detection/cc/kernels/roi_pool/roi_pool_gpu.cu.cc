// roi_pool and its gradients on a GPU.
#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_channels_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_pool_bins.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_tiles_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool.h"

namespace tfo {
namespace {

// The maxima of N channels of a bin so far, and their pixels.
template <typename T, int N>
struct Maxima {
  Pack<T, N> best = {};  // of an empty bin
  Pack<int32_t, N> pixels;

  __device__ Maxima() {
#pragma unroll
    for (int n = 0; n < N; ++n) pixels.values[n] = -1;
  }
  __device__ void Add(const Pack<T, N>& values, int32_t pixel) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const T value = values.values[n];
      if (pixels.values[n] < 0 ||
          Replaces(Widen(value), Widen(best.values[n]))) {
        best.values[n] = value;
        pixels.values[n] = pixel;
      }
    }
  }
};

// `map` is the bin's image and first channel.
template <int N, typename T>
__device__ Maxima<T, N> MaximaOf(const T* map, const FeatureStrides& strides,
                                 int64_t width, PixelRange rows,
                                 PixelRange columns) {
  constexpr int kAtOnce = 4;  // pixels whose loads are in flight together
  Maxima<T, N> maxima;
  for (int32_t y = rows.begin; y < rows.end; ++y) {
    for (int32_t x0 = columns.begin; x0 < columns.end; x0 += kAtOnce) {
      Pack<T, N> pixels[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (x0 + j < columns.end) {
          pixels[j] =
              LoadPack<N>(map + y * strides.row + (x0 + j) * strides.column);
        }
      }
      const int32_t pixel = static_cast<int32_t>(y * width) + x0;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (x0 + j < columns.end) maxima.Add(pixels[j], pixel + j);
      }
    }
  }
  return maxima;
}

// A block takes a row of a box's bins, a thread some channels of a bin.
template <typename T, int N>
__global__ void __launch_bounds__(kRowThreads)
    Pool(const __grid_constant__ RoiArgs args,
         const __grid_constant__ Boxes<Coordinate<T>> boxes, const T* features,
         T* output, int32_t* argmax) {
  constexpr int kBins = 64;  // columns of bins at a time
  __shared__ PixelRange columns[kBins];
  const FeatureShape& shape = args.features;
  const FeatureStrides strides = shape.Strides();
  const FeatureShape pooled = args.Pooled(boxes.count);
  const int64_t packs = shape.channels / N;
  const int64_t units = boxes.count * pooled.height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / pooled.height, p = unit % pooled.height;
    const PooledBox box = ReadPooledBox(args, boxes, k);
    const PixelRange rows = BinRows(args, box, p);
    for (int64_t q0 = 0; q0 < pooled.width; q0 += kBins) {
      const int64_t rest = pooled.width - q0;
      const int bins = rest < kBins ? static_cast<int>(rest) : kBins;
      __syncthreads();  // the columns before are no longer read
      for (int i = threadIdx.x; i < bins; i += blockDim.x) {
        columns[i] = BinColumns(args, box, q0 + i);
      }
      __syncthreads();
      VisitPacks(bins, packs, [&](int i, int64_t pack) {
        const int64_t c = pack * N;
        const Maxima<T, N> maxima =
            MaximaOf<N>(features + box.image * strides.image + c, strides,
                        shape.width, rows, columns[i]);
        const int64_t to = pooled.Offset(k, p, q0 + i, c);
        StorePack(maxima.best, output + to);
        if (argmax != nullptr) StorePack(maxima.pixels, argmax + to);
      });
    }
  }
}

// The pixels of some boxes' bins, and the bins that overlap the tile: box b's
// begin at [b * ps] and [b * qs].
struct TileBins {
  static constexpr int kBins = 128;  // on each axis, of all boxes
  PixelRange rows[kBins], columns[kBins];
  PixelRange in_tile_y[kBins], in_tile_x[kBins];  // ranges of each box's bins
};

// All of the block must call it.
template <typename C>
__device__ void FillTileBins(const RoiArgs& args, const Boxes<C>& boxes,
                             const PixelTile& tile, const TilePart& part,
                             TileBins& bins) {
  __syncthreads();  // the bins before are no longer read
  for (int b = threadIdx.x; b < part.boxes; b += blockDim.x) {
    bins.in_tile_y[b] = {part.ps, 0};
    bins.in_tile_x[b] = {part.qs, 0};
  }
  __syncthreads();
  const int of_box = part.ps + part.qs;
  for (int i = threadIdx.x; i < part.boxes * of_box; i += blockDim.x) {
    const int b = i / of_box, in_box = i - b * of_box;
    const bool is_row = in_box < part.ps;
    const int bin = is_row ? in_box : in_box - part.ps;
    const PooledBox box = ReadPooledBox(args, boxes, part.k0 + part.list[b]);
    const PixelRange pixels = is_row ? BinRows(args, box, part.p0 + bin)
                                     : BinColumns(args, box, part.q0 + bin);
    (is_row ? bins.rows[b * part.ps + bin] : bins.columns[b * part.qs + bin]) =
        pixels;
    if (!Overlap(pixels, is_row ? tile.rows : tile.columns)) continue;
    PixelRange& in_tile = is_row ? bins.in_tile_y[b] : bins.in_tile_x[b];
    atomicMin(&in_tile.begin, bin);
    atomicMax(&in_tile.end, bin + 1);
  }
  __syncthreads();
}

// Deterministic: a thread owns one channel of the block's tile, sums it in
// shared memory in the order of boxes and bins, and writes it once.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    PoolGrad(const __grid_constant__ RoiArgs args,
             const __grid_constant__ Boxes<Coordinate<T>> boxes,
             const T* d_output, const int32_t* argmax, T* d_features,
             int64_t tiles) {
  using Sum = Accumulator<T>;
  constexpr int kHeight = kTileHeight<Sum>;
  constexpr int kAtOnce = 4;
  __shared__ SharedTileSums<Sum> sums;
  __shared__ TileBins bins;
  __shared__ BoxList list;
  const FeatureShape& shape = args.features;
  const FeatureStrides strides = shape.Strides();
  const FeatureStrides out = args.Pooled(boxes.count).Strides();
  const int thread = threadIdx.x;
  const uint32_t width = static_cast<uint32_t>(shape.width);

  for (int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const PixelTile tile = TileAt(shape, kHeight, index);
    const int64_t c = tile.channel + thread;
    for (int i = 0; i < kHeight * kTileWidth; ++i) sums[i][thread] = 0;

    const auto overlaps = [&](int64_t k) {
      const PooledBox box = ReadPooledBox(args, boxes, k);
      return box.image == tile.image &&
             Overlap(Clip(box.y, shape.height), tile.rows) &&
             Overlap(Clip(box.x, shape.width), tile.columns);
    };
    // Adds the d_output at `from` if its argmax, `pixel`, is in the tile and in
    // these rows.
    const auto add = [&](int64_t from, int32_t pixel, PixelRange rows) {
      if (pixel < rows.begin * shape.width || pixel >= rows.end * shape.width) {
        return;
      }
      // Both fit 32 bits, where division is fast.
      const uint32_t in_band =
          static_cast<uint32_t>(pixel - tile.rows.begin * shape.width);
      const uint32_t y = in_band / width;
      const int64_t x = int64_t{in_band - y * width} - tile.columns.begin;
      if (x < 0 || x >= kTileWidth) return;
      sums[y * kTileWidth + x][thread] += Widen(d_output[from]);
    };
    const auto add_box = [&](const TilePart& part, int b) {
      const PixelRange some_p = bins.in_tile_y[b], some_q = bins.in_tile_x[b];
      const int64_t first = (part.k0 + part.list[b]) * out.image +
                            part.p0 * out.row + part.q0 * out.column + c;
      for (int p = some_p.begin; p < some_p.end; ++p) {
        PixelRange rows = bins.rows[b * part.ps + p];
        if (rows.begin < tile.rows.begin) rows.begin = tile.rows.begin;
        if (rows.end > tile.rows.end) rows.end = tile.rows.end;
        for (int q = some_q.begin; q < some_q.end; q += kAtOnce) {
          const int64_t from = first + p * out.row + q * out.column;
          int32_t pixels[kAtOnce];
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            pixels[j] = q + j < some_q.end ? argmax[from + j * out.column] : -1;
          }
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            add(from + j * out.column, pixels[j], rows);
          }
        }
      }
    };
    VisitTileParts(boxes.count, args.grid, TileBins::kBins, overlaps, list,
                   [&](const TilePart& part) {
                     FillTileBins(args, boxes, tile, part, bins);
                     if (c >= shape.channels) return;
                     for (int b = 0; b < part.boxes; ++b) add_box(part, b);
                   });

    if (c >= shape.channels) continue;
    WriteTile(tile, sums, strides, d_features + tile.image * strides.image + c);
  }
}

// A block takes a row of a box's bins, a thread a channel of a bin.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    PoolGradGrad(const __grid_constant__ RoiArgs args,
                 const __grid_constant__ Boxes<Coordinate<T>> boxes,
                 const T* dd_features, const int32_t* argmax, T* dd_output) {
  constexpr int kBins = 1 << 10;  // 32 bits then hold channels times bins
  const FeatureShape& shape = args.features;
  const FeatureStrides strides = shape.Strides();
  const FeatureShape pooled = args.Pooled(boxes.count);
  const int64_t units = boxes.count * pooled.height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / pooled.height, p = unit % pooled.height;
    const PooledBox box = ReadPooledBox(args, boxes, k);
    const PixelRange rows = BinRows(args, box, p);
    for (int64_t q0 = 0; q0 < pooled.width; q0 += kBins) {
      const int64_t rest = pooled.width - q0;
      const int bins = rest < kBins ? static_cast<int>(rest) : kBins;
      VisitPacks(bins, shape.channels, [&](int i, int64_t c) {
        const int64_t at = pooled.Offset(k, p, q0 + i, c);
        const int64_t pixel = argmax[at];
        T value = {};
        if (pixel >= rows.begin * shape.width &&
            pixel < rows.end * shape.width) {
          // Rows follow each other: a pixel's index counts columns.
          value = dd_features[box.image * strides.image +
                              pixel * strides.column + c];
        }
        dd_output[at] = value;
      });
    }
  }
}

}  // namespace

template <typename T>
Error RoiPool(const Gpu& gpu, const RoiArgs& args,
              const Boxes<Coordinate<T>>& boxes, const T* features, T* output,
              int32_t* argmax) {
  if (args.Pooled(boxes.count).Size() == 0) return nullptr;
  const int64_t channels = args.features.channels;
  const auto launch = [&](auto kernel, int64_t packs) {
    return Launch(gpu, GridSize(boxes.count * args.grid.height),
                  RowThreads(args.grid.width, packs), kernel, args, boxes,
                  features, output, argmax);
  };
  return WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<decltype(n)::value>(channels, features, output,
                                             argmax);
      },
      [&](auto n) {
        return launch(Pool<T, decltype(n)::value>, channels / n);
      });
}

template <typename T>
Error RoiPoolGrad(const Gpu& gpu, const RoiArgs& args,
                  const Boxes<Coordinate<T>>& boxes, const T* d_output,
                  const int32_t* argmax, T* d_features) {
  if (args.features.channels == 0) return nullptr;
  const unsigned threads = TileThreads(args.features.channels);
  const int64_t tiles =
      CountTiles(args.features, kTileHeight<Accumulator<T>>, threads);
  // Boxes without bins add nothing, and cannot be split into parts.
  const bool empty = args.Pooled(boxes.count).Size() == 0;
  return Launch(gpu, GridSize(tiles), threads, PoolGrad<T>, args,
                empty ? Boxes<Coordinate<T>>() : boxes, d_output, argmax,
                d_features, tiles);
}

template <typename T>
Error RoiPoolGradGrad(const Gpu& gpu, const RoiArgs& args,
                      const Boxes<Coordinate<T>>& boxes, const T* dd_features,
                      const int32_t* argmax, T* dd_output) {
  if (args.Pooled(boxes.count).Size() == 0) return nullptr;
  return Launch(gpu, GridSize(boxes.count * args.grid.height),
                RowThreads(args.grid.width, args.features.channels),
                PoolGradGrad<T>, args, boxes, dd_features, argmax, dd_output);
}

#define TFO_INSTANTIATE(T)                                                 \
  template Error RoiPool<T>(const Gpu&, const RoiArgs&,                    \
                            const Boxes<Coordinate<T>>&, const T*, T*,     \
                            int32_t*);                                     \
  template Error RoiPoolGrad<T>(const Gpu&, const RoiArgs&,                \
                                const Boxes<Coordinate<T>>&, const T*,     \
                                const int32_t*, T*);                       \
  template Error RoiPoolGradGrad<T>(const Gpu&, const RoiArgs&,            \
                                    const Boxes<Coordinate<T>>&, const T*, \
                                    const int32_t*, T*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace tfo
