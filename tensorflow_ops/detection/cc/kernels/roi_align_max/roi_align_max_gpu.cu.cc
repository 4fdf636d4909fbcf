// RoIAlign's maximum, its gradient to features and that one's gradient, on a
// GPU.
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max_gpu.h"

#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_tiles_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max.h"

namespace tfo {
namespace {

// A block takes a row of a box's bins, a thread some channels of a bin.
template <typename T, int N>
__global__ void __launch_bounds__(kRowThreads)
    Max(const __grid_constant__ RoiAlignMaxArgs<T> args) {
  using Value = Accumulator<T>;
  using Kind = Samples<Value>;
  __shared__ SharedBinRow<Kind> row;
  const FeatureStrides strides = args.map.Strides();
  const int64_t packs = args.map.channels / N;
  const int64_t units = args.boxes.count * args.grid.height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.grid.height;
    const int64_t p = unit % args.grid.height;
    VisitBinRow(
        args, k, p, packs, row,
        [&](const BinOfRow<Kind>& bin, int64_t q, int64_t pack) {
          const BinOffsets offsets =
              OffsetsOf(args, row.image, k, p, q, pack * N);
          Pack<Value, N> best = {};
          for (int32_t i = 0; i < bin.count_y; ++i) {
            for (int32_t j = 0; j < bin.count_x; ++j) {
              const Sample<Kind> at = {bin.y[i], bin.x[j]};
              const auto values =
                  Interpolate<N>(args.features + offsets.map, strides, at);
              const bool first = i == 0 && j == 0;
#pragma unroll
              for (int n = 0; n < N; ++n) {
                if (first || Replaces(values.values[n], best.values[n])) {
                  best.values[n] = values.values[n];
                }
              }
            }
          }
          const bool some_outside =
              static_cast<Value>(bin.count_y) < row.grid_y ||
              static_cast<Value>(bin.count_x) < row.grid_x;
          Pack<T, N> largest;
#pragma unroll
          for (int n = 0; n < N; ++n) {
            const bool zero =
                some_outside && Replaces(Value(0), best.values[n]);
            largest.values[n] = Narrow<T>(zero ? Value(0) : best.values[n]);
          }
          StorePack(largest, args.output + offsets.output);
        });
  }
}

// The values at the largest samples of `features`: a thread takes one channel.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    ValuesAtMax(const __grid_constant__ RoiAlignMaxGradGradArgs<T> args) {
  using Value = Accumulator<T>;
  using Kind = Samples<Value>;
  __shared__ SharedBinRow<Kind> row;
  const FeatureStrides strides = args.map.Strides();
  const int64_t units = args.boxes.count * args.grid.height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.grid.height;
    const int64_t p = unit % args.grid.height;
    VisitBinRow(
        args, k, p, args.map.channels, row,
        [&](const BinOfRow<Kind>& bin, int64_t q, int64_t c) {
          const BinOffsets offsets = OffsetsOf(args, row.image, k, p, q, c);
          const auto largest =
              LargestOf(args.features + offsets.map, strides, bin);
          args.dd_output[offsets.output] =
              Narrow<T>(largest.IsOutside(row.grid_y, row.grid_x)
                            ? Value(0)
                            : InterpolateOne(args.dd_features + offsets.map,
                                             strides, largest.sample));
        });
  }
}

// The bins that those two leave out: a block takes a box's, a thread a channel.
// The maxima are the values of the features themselves.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    MaxFallback(const __grid_constant__ RoiAlignMaxGradGradArgs<T> args) {
  using Value = Accumulator<T>;
  using Kind = Samples<Value>;
  __shared__ SharedBinRow<Kind> row;
  const FeatureStrides strides = args.map.Strides();
  for (int64_t k = blockIdx.x; k < args.boxes.count; k += gridDim.x) {
    VisitFallbackBins(
        args, k, args.map.channels, row,
        [&](const Roi<Value>& roi, int64_t p, int64_t q, int64_t c) {
          const BinOffsets offsets = OffsetsOf(args, roi.image, k, p, q, c);
          const auto largest = LargestOfFallback<Kind>(
              args.features + offsets.map, strides, roi, p, q);
          args.dd_output[offsets.output] =
              Narrow<T>(largest.IsOutside(roi.y.grid, roi.x.grid)
                            ? Value(0)
                            : InterpolateOne(args.dd_features + offsets.map,
                                             strides, largest.sample));
        });
  }
}

// The samples of some bins of a box.
template <typename Kind>
struct BoxSamples {
  using Tap = typename Kind::Tap;
  static constexpr int kBins = 64;  // on each axis
  static constexpr int kTaps = 256;
  struct Axis {
    int32_t
        counts[kBins];  // of all samples; those that do not fit are left out
    PixelRange pixels[kBins];
    Tap taps[kTaps];
    // The number of samples that fit for each bin.
    __device__ static int Room(int bins) { return kTaps / bins; }
  };
  Axis y, x;
};

// Writes bins [p0, p0 + ps) and [q0, q0 + qs). All of the block must call it.
template <typename Kind, typename C>
__device__ void FillBoxSamples(const Roi<C>& roi, int64_t p0, int ps,
                               int64_t q0, int qs, BoxSamples<Kind>& samples) {
  __syncthreads();  // the samples before are no longer read
  for (int i = threadIdx.x; i < ps + qs; i += blockDim.x) {
    const bool is_row = i < ps;
    auto& axis = is_row ? samples.y : samples.x;
    const int bin = is_row ? i : i - ps;
    const int room = axis.Room(is_row ? ps : qs);
    int32_t count = 0;
    PixelRange pixels = {0, 0};
    Kind::Visit(Select(is_row, roi.y, roi.x), is_row ? p0 + bin : q0 + bin,
                [&](const typename Kind::Tap& tap) {
                  if (count < room) axis.taps[bin * room + count] = tap;
                  if (count == 0) pixels.begin = tap.low;
                  pixels.end = tap.low + (tap.fraction != 0 ? 2 : 1);
                  ++count;
                });
    axis.counts[bin] = count;
    axis.pixels[bin] = pixels;
  }
  __syncthreads();
}

// Deterministic: a thread owns one channel of the block's tile. It searches the
// largest sample of each bin that overlaps the tile again, sums in shared
// memory in the order of boxes and bins, and writes once.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    MaxGrad(const __grid_constant__ RoiAlignMaxGradArgs<T> args,
            int64_t tiles) {
  using Sum = Accumulator<T>;
  using Kind = Samples<Sum>;
  constexpr int kHeight = kTileHeight<Sum>;
  constexpr int kBins = BoxSamples<Kind>::kBins;
  __shared__ SharedTileSums<Sum> sums;
  __shared__ BoxSamples<Kind> samples;
  __shared__ BoxList list;
  const int64_t ph = args.grid.height, pw = args.grid.width;
  const FeatureStrides strides = args.map.Strides();
  const int thread = threadIdx.x;

  for (int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const PixelTile tile = TileAt(args.map, kHeight, index);
    const int64_t c = tile.channel + thread;
    for (int i = 0; i < kHeight * kTileWidth; ++i) sums[i][thread] = 0;

    const auto add = [&](const Sample<Kind>& sample, Sum gradient) {
      for (int i = 0; i < 4; ++i) {
        const Corner<Sum> corner(sample, i);
        const int y = corner.y - tile.rows.begin;
        const int x = corner.x - tile.columns.begin;
        if (corner.has_weight && 0 <= y && y < kHeight && 0 <= x &&
            x < kTileWidth) {
          sums[y * kTileWidth + x][thread] += corner.weight * gradient;
        }
      }
    };
    const auto add_bins = [&](int64_t k, const Roi<Sum>& roi, int64_t p0,
                              int64_t q0) {
      const int ps = ph - p0 < kBins ? static_cast<int>(ph - p0) : kBins;
      const int qs = pw - q0 < kBins ? static_cast<int>(pw - q0) : kBins;
      FillBoxSamples(roi, p0, ps, q0, qs, samples);
      if (c >= args.map.channels) return;
      const int room_y = samples.y.Room(ps), room_x = samples.x.Room(qs);
      for (int p = 0; p < ps; ++p) {
        if (!Overlap(samples.y.pixels[p], tile.rows)) continue;
        for (int q = 0; q < qs; ++q) {
          if (!Overlap(samples.x.pixels[q], tile.columns)) continue;
          const BinOffsets offsets =
              OffsetsOf(args, tile.image, k, p0 + p, q0 + q, c);
          const BinOfRow<Kind> bin = {
              samples.y.taps + p * room_y, samples.x.taps + q * room_x,
              samples.y.counts[p], samples.x.counts[q], true};
          const auto largest =
              bin.count_y <= room_y && bin.count_x <= room_x
                  ? LargestOf(args.features + offsets.map, strides, bin)
                  : LargestOfFallback<Kind>(args.features + offsets.map,
                                            strides, roi, p0 + p, q0 + q);
          if (largest.IsOutside(roi.y.grid, roi.x.grid)) continue;
          add(largest.sample, Widen(args.d_output[offsets.output]));
        }
      }
    };
    const auto overlaps = [&](int64_t k) {
      return Overlaps(ReadRoi(args, args.boxes, k), tile);
    };
    VisitBoxes(args.boxes.count, overlaps, list, [&](int64_t k0, int count) {
      for (int b = 0; b < count; ++b) {
        const int64_t k = k0 + list.boxes[b];
        const Roi<Sum> roi = ReadRoi(args, args.boxes, k);
        for (int64_t p = 0; p < ph; p += kBins) {
          for (int64_t q = 0; q < pw; q += kBins) add_bins(k, roi, p, q);
        }
      }
    });

    if (c >= args.map.channels) continue;
    WriteTile(tile, sums, strides,
              args.d_features + tile.image * strides.image + c);
  }
}

template <typename T>
Error LaunchFallback(const Gpu& gpu, const RoiAlignMaxGradGradArgs<T>& args) {
  if (!NeedsFallback<Samples<Coordinate<T>>>(args.grid, MaxTapsOf(args))) {
    return nullptr;
  }
  return Launch(gpu, GridSize(args.boxes.count), kRowThreads, MaxFallback<T>,
                args);
}

}  // namespace

template <typename T>
Error RoiAlignMax(const Gpu& gpu, const RoiAlignMaxArgs<T>& args) {
  if (args.Pooled(args.boxes.count).Size() == 0) return nullptr;
  const int64_t channels = args.map.channels;
  const Error error = WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<decltype(n)::value>(channels, args.features,
                                             args.output);
      },
      [&](auto n) {
        return Launch(gpu, GridSize(args.boxes.count * args.grid.height),
                      RowThreads(args.grid.width, channels / n),
                      Max<T, decltype(n)::value>, args);
      });
  if (error != nullptr) return error;
  return LaunchFallback<T>(
      gpu, {args, args.boxes, args.features, args.features, args.output});
}

template <typename T>
Error RoiAlignMaxGradGrad(const Gpu& gpu,
                          const RoiAlignMaxGradGradArgs<T>& args) {
  if (args.Pooled(args.boxes.count).Size() == 0) return nullptr;
  const Error error = Launch(gpu, GridSize(args.boxes.count * args.grid.height),
                             RowThreads(args.grid.width, args.map.channels),
                             ValuesAtMax<T>, args);
  return error != nullptr ? error : LaunchFallback(gpu, args);
}

template <typename T>
Error RoiAlignMaxGrad(const Gpu& gpu, const RoiAlignMaxGradArgs<T>& args) {
  if (args.map.channels == 0) return nullptr;
  const unsigned threads = TileThreads(args.map.channels);
  const int64_t tiles =
      CountTiles(args.map, kTileHeight<Accumulator<T>>, threads);
  // Boxes without bins add nothing.
  RoiAlignMaxGradArgs<T> used = args;
  if (args.Pooled(args.boxes.count).Size() == 0) used.boxes.count = 0;
  return Launch(gpu, GridSize(tiles), threads, MaxGrad<T>, used, tiles);
}

TFO_INSTANTIATE_ALGORITHM(RoiAlignMax, Gpu, RoiAlignMaxArgs);
TFO_INSTANTIATE_ALGORITHM(RoiAlignMaxGrad, Gpu, RoiAlignMaxGradArgs);
TFO_INSTANTIATE_ALGORITHM(RoiAlignMaxGradGrad, Gpu, RoiAlignMaxGradGradArgs);

}  // namespace tfo
