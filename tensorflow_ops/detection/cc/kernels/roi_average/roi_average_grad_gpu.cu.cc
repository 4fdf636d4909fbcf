// The gradient to features on a GPU: by atomic additions, or in a fixed order.
#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_tiles_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_gpu.h"

namespace tfo {
namespace {

// The gradient by atomic additions to zeros, one per channel, bin and pixel. A
// block takes a row of a box's bins, a thread some channels of a bin.
template <typename T, int N>
__global__ void __launch_bounds__(kRowThreads)
    AtomicGrad(const __grid_constant__ RoiAverageGradArgs<T> args) {
  using Kind = Weights<T>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  const BinChannels of = args.ChannelsOfBins();
  const int64_t packs = of.count / N;
  const int64_t units = args.boxes.count * args.grid.height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.grid.height;
    const int64_t p = unit % args.grid.height;
    VisitBinRow(
        args, k, p, packs, row,
        [&](const BinOfRow<Kind>& bin, int64_t q, int64_t pack) {
          const FeatureStrides strides = args.Features(row.level).Strides();
          const BinOffsets offsets = OffsetsOf(args, of, k, p, q, pack * N);
          T* const map = ImageOf(args, args.d_features, row.level, row.image) +
                         offsets.map;
          const auto gradients = LoadPack<N>(args.d_output + offsets.output);
          for (int32_t i = 0; i < bin.count_y; ++i) {
            const Tap y = bin.y[i];
            T* const line = map + y.pixel * strides.row;
            for (int32_t j = 0; j < bin.count_x; ++j) {
              const Tap x = bin.x[j];
              const T weight = y.weight * x.weight;
              T products[N];
#pragma unroll
              for (int n = 0; n < N; ++n) {
                products[n] = weight * gradients.values[n];
              }
              AddAtomically(products, line + x.pixel * strides.column);
            }
          }
        });
  }
}

// The bins that AtomicGrad leaves out.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    AtomicGradFallback(const __grid_constant__ RoiAverageGradArgs<T> args) {
  using Kind = Weights<T>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  const BinChannels of = args.ChannelsOfBins();
  for (int64_t k = blockIdx.x; k < args.boxes.count; k += gridDim.x) {
    VisitFallbackBins(
        args, k, of.count, row,
        [&](const Roi<T>& roi, int64_t p, int64_t q, int64_t c) {
          const FeatureStrides strides = args.Features(roi.level).Strides();
          const BinOffsets offsets = OffsetsOf(args, of, k, p, q, c);
          T* const map = ImageOf(args, args.d_features, roi.level, roi.image) +
                         offsets.map;
          const T gradient = args.d_output[offsets.output];
          VisitTapPairs<Kind>(roi, p, q, [&](const Tap& y, const Tap& x) {
            atomicAdd(map + y.pixel * strides.row + x.pixel * strides.column,
                      y.weight * x.weight * gradient);
          });
        });
  }
}

// The deterministic gradient: a thread owns one channel of the block's tile,
// sums it in registers in the order of boxes and bins, and writes it once.
template <typename Sum>
using TileSums = Sum[kTileHeight<Sum>][kTileWidth];

// The weights of some bins of some boxes in a tile's rows and columns, in
// shared memory. Box b's begin at y[b * ps] and x[b * qs].
template <typename Sum>
struct TileWeights {
  static constexpr int kBins = 128;  // on each axis, of all boxes
  struct Bins {
    PixelRange p, q;
  };
  Sum y[kBins][kTileHeight<Sum>];
  Sum x[kBins][kTileWidth];
  Bins bins[kBins];  // of each box: the range of those with weights here
};

// All of the block must call it.
template <typename Sum>
__device__ void FillTileWeights(const RoiAverageSpec& args,
                                const Boxes<Sum>& boxes, const PixelTile& tile,
                                const TilePart& part,
                                TileWeights<Sum>& weights) {
  __syncthreads();  // the weights before are no longer read
  for (int b = threadIdx.x; b < part.boxes; b += blockDim.x) {
    weights.bins[b] = {{part.ps, 0}, {part.qs, 0}};
  }
  __syncthreads();
  const int of_box = part.ps + part.qs;
  for (int i = threadIdx.x; i < part.boxes * of_box; i += blockDim.x) {
    const int b = i / of_box, bin = i - b * of_box;
    const auto roi = ReadRoi(args, boxes, part.k0 + part.list[b]);
    const auto fill = [&](const RoiAxis<Sum>& axis, int64_t p0, int p,
                          PixelRange pixels, int size, Sum* to,
                          PixelRange* bins) {
      for (int j = 0; j < size; ++j) to[j] = 0;
      bool any = false;
      VisitTaps<false>(axis, p0 + p,
                       [&](int32_t pixel, Sum weight, BoxSlopes<Sum>) {
                         if (pixel < pixels.begin || pixel >= pixels.end)
                           return;
                         to[pixel - pixels.begin] = weight;
                         any = true;
                       });
      if (!any) return;
      atomicMin(&bins->begin, p);
      atomicMax(&bins->end, p + 1);
    };
    auto& bins = weights.bins[b];
    if (bin < part.ps) {
      fill(roi.y, part.p0, bin, tile.rows, kTileHeight<Sum>,
           weights.y[b * part.ps + bin], &bins.p);
    } else {
      const int q = bin - part.ps;
      fill(roi.x, part.q0, q, tile.columns, kTileWidth,
           weights.x[b * part.qs + q], &bins.q);
    }
  }
  __syncthreads();
}

// Adds those bins of the part's box b that are in rows `some_p` and columns
// `some_q`. `gradients` are the first bin's, of one channel. Only pixels with a
// weight get a gradient of NaN.
template <typename T, typename Sum>
__device__ void AddBinsToTile(const TileWeights<Sum>& weights,
                              const TilePart& part, int b, PixelRange some_p,
                              PixelRange some_q, const T* gradients,
                              const FeatureStrides& strides,
                              TileSums<Sum>& sums) {
  constexpr int kAtOnce = 4;
  for (int p = some_p.begin; p < some_p.end; ++p) {
    Sum line[kTileWidth] = {};
    for (int q = some_q.begin; q < some_q.end; q += kAtOnce) {
      T some[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (q + j < some_q.end) {
          some[j] = gradients[p * strides.row + (q + j) * strides.column];
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (q + j >= some_q.end) continue;
        const Sum* const on_x = weights.x[b * part.qs + q + j];
#pragma unroll
        for (int x = 0; x < kTileWidth; ++x) {
          if (on_x[x] != 0) line[x] += on_x[x] * Widen(some[j]);
        }
      }
    }
    const Sum* const on_y = weights.y[b * part.ps + p];
#pragma unroll
    for (int y = 0; y < kTileHeight<Sum>; ++y) {
      if (on_y[y] == 0) continue;
#pragma unroll
      for (int x = 0; x < kTileWidth; ++x) sums[y][x] += on_y[y] * line[x];
    }
  }
}

// The part of `bins` that a channel belongs to: all of them, or the one at
// `own`.
__device__ inline PixelRange BinsOf(bool all, int64_t own, PixelRange bins) {
  if (all) return bins;
  if (own < bins.begin || own >= bins.end) return {0, 0};
  return {static_cast<int32_t>(own), static_cast<int32_t>(own) + 1};
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads, 4)
    TileGrad(const __grid_constant__ RoiAverageGradArgs<T> args,
             int64_t tiles) {
  using Sum = Accumulator<T>;
  using Weights = TileWeights<Sum>;
  constexpr int kHeight = kTileHeight<Sum>;
  __shared__ Weights weights;
  __shared__ BoxList list;
  const BinChannels of = args.ChannelsOfBins();
  const bool all = args.order == RoiChannels::kAll;
  const bool channel_major = args.order == RoiChannels::kChannelMajor;
  const FeatureStrides out = args.Pooled(args.boxes.count, of).Strides();

  for (int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    // The tile's level, and its index there.
    int32_t level = 0;
    int64_t on_level = index;
    while (true) {
      const int64_t count =
          CountTiles(args.Features(level), kHeight, blockDim.x);
      if (on_level < count) break;
      on_level -= count;
      ++level;
    }
    const PixelTile tile = TileAt(args.Features(level), kHeight, on_level);
    const int64_t c = tile.channel + threadIdx.x;
    // The bin that the channel belongs to, if not to all, and its channel
    // there.
    int64_t own_p = 0, own_q = 0, own_c = c;
    if (!all) {
      const int64_t bin = channel_major ? c % of.step : c / of.count;
      own_p = bin / args.grid.width;
      own_q = bin % args.grid.width;
      own_c = channel_major ? c / of.step : c % of.count;
    }
    Sum sums[kHeight][kTileWidth] = {};

    const auto overlaps = [&](int64_t k) {
      const Roi<Sum> roi = ReadRoi(args, args.boxes, k);
      return roi.level == level && Overlaps(roi, tile);
    };
    VisitTileParts(
        args.boxes.count, args.grid, Weights::kBins, overlaps, list,
        [&](const TilePart& part) {
          FillTileWeights(args, args.boxes, tile, part, weights);
          if (c >= args.channels) return;
          for (int b = 0; b < part.boxes; ++b) {
            const auto& bins = weights.bins[b];
            AddBinsToTile(weights, part, b,
                          BinsOf(all, own_p - part.p0, bins.p),
                          BinsOf(all, own_q - part.q0, bins.q),
                          args.d_output + (part.k0 + part.list[b]) * out.image +
                              part.p0 * out.row + part.q0 * out.column + own_c,
                          out, sums);
          }
        });

    if (c >= args.channels) continue;
    const FeatureStrides strides = args.Features(level).Strides();
    T* const map = ImageOf(args, args.d_features, level, tile.image) +
                   tile.rows.begin * strides.row +
                   tile.columns.begin * strides.column + c;
#pragma unroll
    for (int y = 0; y < kHeight; ++y) {
#pragma unroll
      for (int x = 0; x < kTileWidth; ++x) {
        if (tile.rows.begin + y < tile.rows.end &&
            tile.columns.begin + x < tile.columns.end) {
          map[y * strides.row + x * strides.column] = Narrow<T>(sums[y][x]);
        }
      }
    }
  }
}

template <typename T>
Error LaunchAtomicGrad(const Gpu& gpu, const RoiAverageGradArgs<T>& args) {
  for (int32_t l = 0; l < args.num_levels; ++l) {
    const Error error = EnqueueZeros(gpu, args.d_features[l],
                                     sizeof(T) * args.Features(l).Size());
    if (error != nullptr) return error;
  }
  if (args.Pooled(args.boxes.count).Size() == 0) return nullptr;
  const unsigned grid = GridSize(args.boxes.count * args.grid.height);
  const Error error = WithPacks(
      args, args.d_features, args.d_output, [&](auto n, unsigned threads) {
        return Launch(gpu, grid, threads, AtomicGrad<T, decltype(n)::value>,
                      args);
      });
  if (error != nullptr ||
      !NeedsFallback<Weights<T>>(args.grid, MaxTapsOf(args))) {
    return error;
  }
  return Launch(gpu, GridSize(args.boxes.count), kRowThreads,
                AtomicGradFallback<T>, args);
}

template <typename T>
Error LaunchTileGrad(const Gpu& gpu, const RoiAverageGradArgs<T>& args) {
  if (args.channels == 0) return nullptr;
  const unsigned threads = TileThreads(args.channels);
  int64_t tiles = 0;
  for (int32_t l = 0; l < args.num_levels; ++l) {
    tiles += CountTiles(args.Features(l), kTileHeight<Accumulator<T>>, threads);
  }
  // Boxes without bins add nothing, and cannot be split into parts.
  RoiAverageGradArgs<T> used = args;
  if (args.Pooled(args.boxes.count).Size() == 0) used.boxes.count = 0;
  return Launch(gpu, GridSize(tiles), threads, TileGrad<T>, used, tiles);
}

}  // namespace

template <typename T>
Error RoiAverageGrad(const Gpu& gpu, const RoiAverageGradArgs<T>& args) {
  // There are no atomic additions to 16 bits that round once.
  if constexpr (sizeof(T) == sizeof(Accumulator<T>)) {
    if (!gpu.deterministic) return LaunchAtomicGrad(gpu, args);
  }
  return LaunchTileGrad(gpu, args);
}

TFO_INSTANTIATE_ALGORITHM(RoiAverageGrad, Gpu, RoiAverageGradArgs);

}  // namespace tfo
