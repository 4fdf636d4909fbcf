// The gradient to features on a GPU: by atomic additions, or in a fixed order.
#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_tiles_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_gpu.h"

namespace tfo {
namespace {

// Adds N channels, in no order among threads. GPUs from sm_90 on add 16 bytes
// at once.
template <int N, bool kPacked, typename Sum>
__device__ void AddChannels(const Sum (&values)[N], Sum* at, int64_t step,
                            int64_t valid) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  constexpr int kTogether = 1;
#else
  constexpr int kTogether = kPacked && sizeof(Sum) == 4 ? N : 1;
#endif
  if constexpr (kTogether == 4) {
    atomicAdd(reinterpret_cast<float4*>(at),
              make_float4(values[0], values[1], values[2], values[3]));
  } else if constexpr (kTogether == 2) {
    atomicAdd(reinterpret_cast<float2*>(at), make_float2(values[0], values[1]));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (kPacked || i < valid) {
        atomicAdd(at + (kPacked ? i : i * step), values[i]);
      }
    }
  }
}

// The gradient by atomic additions to zeros, one per channel, bin and pixel. A
// block takes a row of a box's bins, a thread some channels of a bin.
template <typename T, int N, bool kPacked>
__global__ void __launch_bounds__(kRowThreads)
    AtomicGrad(const __grid_constant__ RoiAverageArgs args,
               const __grid_constant__ Boxes<Coordinate<T>> boxes,
               const T* d_output,
               const __grid_constant__ LevelMaps<T> d_features) {
  using Kind = Weights<T>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  const BinChannels of = args.ChannelsOfBins();
  const int64_t packs = (of.count + N - 1) / N;
  const int64_t units = boxes.count * args.grid.height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.grid.height;
    const int64_t p = unit % args.grid.height;
    VisitBinRow(
        args, boxes, k, p, packs, row,
        [&](const BinOfRow<Kind>& bin, int64_t q, int64_t pack) {
          const FeatureStrides strides = args.Features(row.level).Strides();
          const PackOffsets offsets =
              OffsetsOf(args, of, strides, k, p, q, pack * N);
          T* const map =
              ImageOf(args, d_features, row.level, row.image) + offsets.map;
          const auto gradients = LoadChannels<N, kPacked>(
              d_output + offsets.output, offsets.output_step, offsets.valid);
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
              AddChannels<N, kPacked>(products, line + x.pixel * strides.column,
                                      offsets.map_step, offsets.valid);
            }
          }
        });
  }
}

// The bins that AtomicGrad leaves out.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    AtomicGradFallback(const __grid_constant__ RoiAverageArgs args,
                       const __grid_constant__ Boxes<Coordinate<T>> boxes,
                       const T* d_output,
                       const __grid_constant__ LevelMaps<T> d_features) {
  using Kind = Weights<T>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  const BinChannels of = args.ChannelsOfBins();
  for (int64_t k = blockIdx.x; k < boxes.count; k += gridDim.x) {
    VisitFallbackBins(
        args, boxes, k, of.count, row,
        [&](const Roi<T>& roi, int64_t p, int64_t q, int64_t c) {
          const FeatureStrides strides = args.Features(roi.level).Strides();
          const PackOffsets offsets = OffsetsOf(args, of, strides, k, p, q, c);
          T* const map =
              ImageOf(args, d_features, roi.level, roi.image) + offsets.map;
          const T gradient = d_output[offsets.output];
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
    int32_t p_begin, p_end, q_begin, q_end;
  };
  Sum y[kBins][kTileHeight<Sum>];
  Sum x[kBins][kTileWidth];
  Bins bins[kBins];  // of each box: the range of those with weights here
};

// All of the block must call it.
template <typename Sum>
__device__ void FillTileWeights(const RoiAverageArgs& args,
                                const Boxes<Sum>& boxes, const PixelTile& tile,
                                const TilePart& part,
                                TileWeights<Sum>& weights) {
  __syncthreads();  // the weights before are no longer read
  for (int b = threadIdx.x; b < part.boxes; b += blockDim.x) {
    weights.bins[b] = {part.ps, 0, part.qs, 0};
  }
  __syncthreads();
  const int of_box = part.ps + part.qs;
  for (int i = threadIdx.x; i < part.boxes * of_box; i += blockDim.x) {
    const int b = i / of_box, bin = i - b * of_box;
    const auto roi = ReadRoi(args, boxes, part.k0 + part.list[b]);
    const auto fill = [&](const RoiAxis<Sum>& axis, int64_t p0, int p,
                          PixelRange pixels, int size, Sum* to, int32_t* begin,
                          int32_t* end) {
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
      atomicMin(begin, p);
      atomicMax(end, p + 1);
    };
    auto& bins = weights.bins[b];
    if (bin < part.ps) {
      fill(roi.y, part.p0, bin, tile.rows, kTileHeight<Sum>,
           weights.y[b * part.ps + bin], &bins.p_begin, &bins.p_end);
    } else {
      const int q = bin - part.ps;
      fill(roi.x, part.q0, q, tile.columns, kTileWidth,
           weights.x[b * part.qs + q], &bins.q_begin, &bins.q_end);
    }
  }
  __syncthreads();
}

// Adds all bins of the part's box b. `gradients` are the first bin's, of one
// channel. Only pixels with a weight get a gradient of NaN.
template <typename T, typename Sum>
__device__ void AddBinsToTile(const TileWeights<Sum>& weights,
                              const TilePart& part, int b, const T* gradients,
                              const FeatureStrides& strides,
                              TileSums<Sum>& sums) {
  constexpr int kAtOnce = 4;
  const auto bins = weights.bins[b];
  for (int p = bins.p_begin; p < bins.p_end; ++p) {
    Sum line[kTileWidth] = {};
    for (int q = bins.q_begin; q < bins.q_end; q += kAtOnce) {
      T some[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (q + j < bins.q_end) {
          some[j] = gradients[p * strides.row + (q + j) * strides.column];
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (q + j >= bins.q_end) continue;
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

// The same for one bin, (p, q) of the part.
template <typename T, typename Sum>
__device__ void AddBinToTile(const TileWeights<Sum>& weights,
                             const TilePart& part, int b, int64_t p, int64_t q,
                             const T* gradients, const FeatureStrides& strides,
                             TileSums<Sum>& sums) {
  const auto bins = weights.bins[b];
  if (p < bins.p_begin || p >= bins.p_end || q < bins.q_begin ||
      q >= bins.q_end) {
    return;
  }
  const Sum gradient = Widen(gradients[p * strides.row + q * strides.column]);
  const Sum* const on_y = weights.y[b * part.ps + p];
  const Sum* const on_x = weights.x[b * part.qs + q];
#pragma unroll
  for (int y = 0; y < kTileHeight<Sum>; ++y) {
#pragma unroll
    for (int x = 0; x < kTileWidth; ++x) {
      const Sum weight = on_y[y] * on_x[x];
      if (weight != 0) sums[y][x] += weight * gradient;
    }
  }
}

// The bin that a channel of the features belongs to, and its channel there.
struct OwnBin {
  int64_t p, q, channel;
};
__device__ inline OwnBin OwnBinOf(const RoiAverageArgs& args,
                                  const BinChannels& of, int64_t c) {
  const bool channel_major = args.order == RoiChannels::kChannelMajor;
  const int64_t bin = channel_major ? c % of.step : c / of.count;
  return {bin / args.grid.width, bin % args.grid.width,
          channel_major ? c / of.step : c % of.count};
}

template <typename T, bool kAllChannels>
__global__ void __launch_bounds__(kTileThreads, 4)
    TileGrad(const __grid_constant__ RoiAverageArgs args,
             const __grid_constant__ Boxes<Coordinate<T>> boxes,
             const T* d_output, const __grid_constant__ LevelMaps<T> d_features,
             int64_t tiles) {
  using Sum = Accumulator<T>;
  using Weights = TileWeights<Sum>;
  constexpr int kHeight = kTileHeight<Sum>;
  __shared__ Weights weights;
  __shared__ BoxList list;
  const BinChannels of = args.ChannelsOfBins();
  const FeatureStrides out = args.Pooled(boxes.count, of).Strides();

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
    OwnBin own = {0, 0, c};
    if constexpr (!kAllChannels) own = OwnBinOf(args, of, c);
    Sum sums[kHeight][kTileWidth] = {};

    const auto overlaps = [&](int64_t k) {
      const Roi<Sum> roi = ReadRoi(args, boxes, k);
      return roi.level == level && Overlaps(roi, tile);
    };
    VisitTileParts(boxes.count, args.grid, Weights::kBins, overlaps, list,
                   [&](const TilePart& part) {
                     FillTileWeights(args, boxes, tile, part, weights);
                     if (c >= args.channels) return;
                     for (int b = 0; b < part.boxes; ++b) {
                       const T* const gradients =
                           d_output + (part.k0 + part.list[b]) * out.image +
                           part.p0 * out.row + part.q0 * out.column +
                           own.channel * out.channel;
                       if constexpr (kAllChannels) {
                         AddBinsToTile(weights, part, b, gradients, out, sums);
                       } else {
                         AddBinToTile(weights, part, b, own.p - part.p0,
                                      own.q - part.q0, gradients, out, sums);
                       }
                     }
                   });

    if (c >= args.channels) continue;
    const FeatureStrides strides = args.Features(level).Strides();
    T* const map = ImageOf(args, d_features, level, tile.image) +
                   tile.rows.begin * strides.row +
                   tile.columns.begin * strides.column + c * strides.channel;
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
LevelMaps<const T> AsInputs(const LevelMaps<T>& maps) {
  LevelMaps<const T> result;
  for (int l = 0; l < kMaxLevels; ++l) result.data[l] = maps.data[l];
  return result;
}

template <typename T>
Error LaunchAtomicGrad(const Gpu& gpu, const RoiAverageArgs& args,
                       const Boxes<T>& boxes, const T* d_output,
                       const LevelMaps<T>& d_features) {
  for (int32_t l = 0; l < args.num_levels; ++l) {
    const Error error = EnqueueZeros(gpu, d_features.data[l],
                                     sizeof(T) * args.Features(l).Size());
    if (error != nullptr) return error;
  }
  if (args.Pooled(boxes.count).Size() == 0) return nullptr;
  const unsigned grid = GridSize(boxes.count * args.grid.height);
  const Error error = WithPacks(
      args, AsInputs(d_features), d_output,
      [&](auto n, auto packed, unsigned threads) {
        return Launch(
            gpu, grid, threads,
            AtomicGrad<T, decltype(n)::value, decltype(packed)::value>, args,
            boxes, d_output, d_features);
      });
  if (error != nullptr ||
      !NeedsFallback<Weights<T>>(args.grid, MaxTapsOf(args))) {
    return error;
  }
  return Launch(gpu, GridSize(boxes.count), kRowThreads, AtomicGradFallback<T>,
                args, boxes, d_output, d_features);
}

template <typename T>
Error LaunchTileGrad(const Gpu& gpu, const RoiAverageArgs& args,
                     const Boxes<Coordinate<T>>& boxes, const T* d_output,
                     const LevelMaps<T>& d_features) {
  if (args.channels == 0) return nullptr;
  const unsigned threads = TileThreads(args.channels);
  int64_t tiles = 0;
  for (int32_t l = 0; l < args.num_levels; ++l) {
    tiles += CountTiles(args.Features(l), kTileHeight<Accumulator<T>>, threads);
  }
  // Boxes without bins add nothing, and cannot be split into parts.
  const bool empty = args.Pooled(boxes.count).Size() == 0;
  const auto launch = [&](auto kernel) {
    return Launch(gpu, GridSize(tiles), threads, kernel, args,
                  empty ? Boxes<Coordinate<T>>() : boxes, d_output, d_features,
                  tiles);
  };
  return args.order == RoiChannels::kAll ? launch(TileGrad<T, true>)
                                         : launch(TileGrad<T, false>);
}

}  // namespace

template <typename T>
Error RoiAverageGrad(const Gpu& gpu, const RoiAverageArgs& args,
                     const Boxes<Coordinate<T>>& boxes, const T* d_output,
                     T* const* d_features) {
  const auto maps = MakeLevelMaps(args, d_features);
  // There are no atomic additions to 16 bits that round once.
  if constexpr (sizeof(T) == sizeof(Accumulator<T>)) {
    if (!gpu.deterministic) {
      return LaunchAtomicGrad(gpu, args, boxes, d_output, maps);
    }
  }
  return LaunchTileGrad(gpu, args, boxes, d_output, maps);
}

#define TFO_INSTANTIATE(T)                                                \
  template Error RoiAverageGrad<T>(const Gpu&, const RoiAverageArgs&,     \
                                   const Boxes<Coordinate<T>>&, const T*, \
                                   T* const*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace tfo
