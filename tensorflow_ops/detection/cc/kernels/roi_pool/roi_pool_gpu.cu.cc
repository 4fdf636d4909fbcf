// roi_pool and its gradients on a GPU.
#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
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
    Pool(const __grid_constant__ RoiPoolArgs<T> args) {
  constexpr int kBins = 64;  // columns of bins at a time
  __shared__ PixelRange columns[kBins];
  const FeatureShape& shape = args.map;
  const FeatureStrides strides = shape.Strides();
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  const int64_t packs = shape.channels / N;
  const int64_t units = pooled.batch * pooled.height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / pooled.height, p = unit % pooled.height;
    const PooledBox box = ReadPooledBox(args, args.boxes, k);
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
            MaximaOf<N>(args.features + box.image * strides.image + c, strides,
                        shape.width, rows, columns[i]);
        const int64_t to = pooled.Offset(k, p, q0 + i, c);
        StorePack(maxima.best, args.output + to);
        if (args.argmax != nullptr) StorePack(maxima.pixels, args.argmax + to);
      });
    }
  }
}

// Some bins' values that a thread reads at once, and their argmax among the
// features. Negative where there is none.
constexpr int kValues = 4;
struct ArgmaxValues {
  int64_t at[kValues], from[kValues];
};

// Calls visit(values) until each channel of each bin was visited, those of a
// row of a box's bins on one block. An argmax outside of the row counts as
// none.
template <typename Args, typename Visit>
__device__ void VisitArgmax(const Args& args, const Visit& visit) {
  const FeatureShape& shape = args.map;
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  const int64_t units = pooled.batch * pooled.height;
  const int64_t channels = shape.channels;
  const int64_t of_row = pooled.width * channels;
  const int64_t first_channel = threadIdx.x % channels;
  const int64_t step = blockDim.x % channels;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const PooledBox box = ReadPooledBox(args, args.boxes, unit / pooled.height);
    const PixelRange rows = BinRows(args, box, unit % pooled.height);
    const int64_t begin = rows.begin * shape.width;
    const int64_t end = rows.end * shape.width;
    const int64_t image = box.image * shape.ImageSize();
    int64_t c = first_channel;
    for (int64_t i = threadIdx.x; i < of_row;) {
      ArgmaxValues values;
      int32_t pixels[kValues];
#pragma unroll
      for (int j = 0; j < kValues; ++j, i += blockDim.x) {
        values.at[j] = i < of_row ? unit * of_row + i : -1;
        pixels[j] = i < of_row ? args.argmax[values.at[j]] : -1;
      }
#pragma unroll
      for (int j = 0; j < kValues; ++j) {
        const bool in_row = pixels[j] >= begin && pixels[j] < end;
        values.from[j] = in_row ? image + pixels[j] * channels + c : -1;
        c += step;
        if (c >= channels) c -= channels;
      }
      visit(values);
    }
  }
}

// The gradient by atomic additions to zeros.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    AtomicGrad(const __grid_constant__ RoiPoolGradArgs<T> args) {
  VisitArgmax(args, [&](const ArgmaxValues& values) {
    T gradients[kValues];
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      if (values.from[j] >= 0) gradients[j] = args.d_output[values.at[j]];
    }
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      if (values.from[j] < 0) continue;
      atomicAdd(args.d_features + values.from[j], gradients[j]);
    }
  });
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    PoolGradGrad(const __grid_constant__ RoiPoolGradGradArgs<T> args) {
  VisitArgmax(args, [&](const ArgmaxValues& values) {
    T gradients[kValues] = {};
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      if (values.from[j] >= 0) gradients[j] = args.dd_features[values.from[j]];
    }
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      if (values.at[j] >= 0) args.dd_output[values.at[j]] = gradients[j];
    }
  });
}

// The pixels of some boxes' bins, and the bins that overlap the tile: box b's
// begin at [b * ps] and [b * qs].
struct TileBins {
  static constexpr int kBins = 128;  // on each axis, of all boxes
  PixelRange rows[kBins], columns[kBins];
  PixelRange in_tile_y[kBins], in_tile_x[kBins];  // ranges of each box's bins
};

// All of the block must call it.
template <typename T>
__device__ void FillTileBins(const RoiPoolGradArgs<T>& args,
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
    const PooledBox box =
        ReadPooledBox(args, args.boxes, part.k0 + part.list[b]);
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

// The deterministic gradient: a thread owns one channel of the block's tile,
// sums it in shared memory in the order of boxes and bins, and writes it once.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    PoolGrad(const __grid_constant__ RoiPoolGradArgs<T> args, int64_t tiles) {
  using Sum = Accumulator<T>;
  constexpr int kHeight = kTileHeight<Sum>;
  constexpr int kAtOnce = 4;
  __shared__ SharedTileSums<Sum> sums;
  __shared__ TileBins bins;
  __shared__ BoxList list;
  const FeatureShape& shape = args.map;
  const FeatureStrides strides = shape.Strides();
  const FeatureStrides out = args.Pooled(args.boxes.count).Strides();
  const int thread = threadIdx.x;
  const uint32_t width = static_cast<uint32_t>(shape.width);

  for (int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const PixelTile tile = TileAt(shape, kHeight, index);
    const int64_t c = tile.channel + thread;
    for (int i = 0; i < kHeight * kTileWidth; ++i) sums[i][thread] = 0;

    const auto overlaps = [&](int64_t k) {
      const PooledBox box = ReadPooledBox(args, args.boxes, k);
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
      sums[y * kTileWidth + x][thread] += Widen(args.d_output[from]);
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
            pixels[j] =
                q + j < some_q.end ? args.argmax[from + j * out.column] : -1;
          }
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            add(from + j * out.column, pixels[j], rows);
          }
        }
      }
    };
    VisitTileParts(args.boxes.count, args.grid, TileBins::kBins, overlaps, list,
                   [&](const TilePart& part) {
                     FillTileBins(args, tile, part, bins);
                     if (c >= shape.channels) return;
                     for (int b = 0; b < part.boxes; ++b) add_box(part, b);
                   });

    if (c >= shape.channels) continue;
    WriteTile(tile, sums, strides,
              args.d_features + tile.image * strides.image + c);
  }
}

// A kernel that calls VisitArgmax.
template <typename Args>
Error LaunchOfRows(const Gpu& gpu, const Args& args, void (*kernel)(Args)) {
  return Launch(gpu, GridSize(args.boxes.count * args.grid.height),
                RowThreads(args.grid.width, args.map.channels), kernel, args);
}

}  // namespace

template <typename T>
Error RoiPool(const Gpu& gpu, const RoiPoolArgs<T>& args) {
  if (args.Pooled(args.boxes.count).Size() == 0) return nullptr;
  const int64_t channels = args.map.channels;
  return WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<decltype(n)::value>(channels, args.features,
                                             args.output, args.argmax);
      },
      [&](auto n) {
        return Launch(gpu, GridSize(args.boxes.count * args.grid.height),
                      RowThreads(args.grid.width, channels / n),
                      Pool<T, decltype(n)::value>, args);
      });
}

template <typename T>
Error RoiPoolGrad(const Gpu& gpu, const RoiPoolGradArgs<T>& args) {
  const bool has_bins = args.Pooled(args.boxes.count).Size() > 0;
  // There are no atomic additions to 16 bits that round once.
  if constexpr (sizeof(T) == sizeof(Accumulator<T>)) {
    if (!gpu.deterministic) {
      const Error error =
          EnqueueZeros(gpu, args.d_features, sizeof(T) * args.map.Size());
      if (error != nullptr || !has_bins) return error;
      return LaunchOfRows(gpu, args, AtomicGrad<T>);
    }
  }
  if (args.map.channels == 0) return nullptr;
  const unsigned threads = TileThreads(args.map.channels);
  const int64_t tiles =
      CountTiles(args.map, kTileHeight<Accumulator<T>>, threads);
  // Boxes without bins add nothing, and cannot be split into parts.
  RoiPoolGradArgs<T> used = args;
  if (!has_bins) used.boxes.count = 0;
  return Launch(gpu, GridSize(tiles), threads, PoolGrad<T>, used, tiles);
}

template <typename T>
Error RoiPoolGradGrad(const Gpu& gpu, const RoiPoolGradGradArgs<T>& args) {
  if (args.Pooled(args.boxes.count).Size() == 0) return nullptr;
  return LaunchOfRows(gpu, args, PoolGradGrad<T>);
}

TFO_INSTANTIATE_ALGORITHM(RoiPool, Gpu, RoiPoolArgs);
TFO_INSTANTIATE_ALGORITHM(RoiPoolGrad, Gpu, RoiPoolGradArgs);
TFO_INSTANTIATE_ALGORITHM(RoiPoolGradGrad, Gpu, RoiPoolGradGradArgs);

}  // namespace tfo
