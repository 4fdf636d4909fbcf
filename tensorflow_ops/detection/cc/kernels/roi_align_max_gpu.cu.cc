#include "tensorflow_ops/detection/cc/kernels/roi_align_max_gpu.h"

#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"

namespace tfo {
namespace {

// A block takes a row of a box's bins, a thread some channels of a bin.
template <typename T, int N, bool kPacked>
__global__ void __launch_bounds__(kRowThreads)
    Max(const __grid_constant__ RoiAverageArgs args, const T* features,
        const Coordinate<T>* boxes, const int32_t* box_indices, T* output) {
  using Value = Accumulator<T>;
  using Kind = Samples<Value>;
  __shared__ SharedBinRow<Kind> row;
  const Strides strides = StridesOfLevel(args, 0);
  const Strides out = StridesOf(args.roi.channels_first, args.roi.pooled_height,
                                args.roi.pooled_width, args.roi.channels);
  const int64_t packs = (args.roi.channels + N - 1) / N;
  const int64_t units = args.roi.num_boxes * args.roi.pooled_height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.roi.pooled_height;
    const int64_t p = unit % args.roi.pooled_height;
    VisitBinRow(
        args, boxes, box_indices, k, p, packs, row,
        [&](const BinOfRow<Kind>& bin, int64_t q, int64_t pack) {
          const int64_t c = pack * N, valid = args.roi.channels - c;
          const BinPlace place =
              PlaceOf(args.roi, strides, row.image, k, p, q, c);
          Pack<Value, N> best = {};
          for (int32_t i = 0; i < bin.count_y; ++i) {
            for (int32_t j = 0; j < bin.count_x; ++j) {
              const Sample<Kind> at = {bin.y[i], bin.x[j]};
              const auto values = Interpolate<N, kPacked>(
                  features + place.map, strides, at, strides.channel, valid);
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
          StoreChannels<N, kPacked>(largest, output + place.output, out.channel,
                                    valid);
        });
  }
}

// The same of other values than those whose maximum is looked for: a thread
// takes one channel.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    ValuesAtMax(const __grid_constant__ RoiAverageArgs args, const T* features,
                const T* values, const Coordinate<T>* boxes,
                const int32_t* box_indices, T* output) {
  using Value = Accumulator<T>;
  using Kind = Samples<Value>;
  __shared__ SharedBinRow<Kind> row;
  const Strides strides = StridesOfLevel(args, 0);
  const int64_t units = args.roi.num_boxes * args.roi.pooled_height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.roi.pooled_height;
    const int64_t p = unit % args.roi.pooled_height;
    VisitBinRow(args, boxes, box_indices, k, p, args.roi.channels, row,
                [&](const BinOfRow<Kind>& bin, int64_t q, int64_t c) {
                  const BinPlace place =
                      PlaceOf(args.roi, strides, row.image, k, p, q, c);
                  const auto largest =
                      LargestOf(features + place.map, strides, bin);
                  output[place.output] =
                      Narrow<T>(largest.IsOutside(row.grid_y, row.grid_x)
                                    ? Value(0)
                                    : InterpolateOne(values + place.map,
                                                     strides, largest.sample));
                });
  }
}

// The bins that those two leave out: a block takes a box's.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    MaxOthers(const __grid_constant__ RoiAverageArgs args, const T* features,
              const T* values, const Coordinate<T>* boxes,
              const int32_t* box_indices, T* output) {
  using Value = Accumulator<T>;
  using Kind = Samples<Value>;
  __shared__ SharedBinRow<Kind> row;
  const Strides strides = StridesOfLevel(args, 0);
  for (int64_t k = blockIdx.x; k < args.roi.num_boxes; k += gridDim.x) {
    VisitOthers(
        args, boxes, box_indices, k, args.roi.channels, row,
        [&](const RoiOnLevel<Value>& roi, int64_t p, int64_t q, int64_t c) {
          const BinPlace place =
              PlaceOf(args.roi, strides, roi.image, k, p, q, c);
          const auto largest =
              LargestOfOther<Kind>(features + place.map, strides, roi, p, q);
          output[place.output] =
              Narrow<T>(largest.IsOutside(roi.y.grid, roi.x.grid)
                            ? Value(0)
                            : InterpolateOne(values + place.map, strides,
                                             largest.sample));
        });
  }
}

// The gradient without atomics, so that its bits do not change: a block owns a
// tile of pixels and a thread one channel of it. It looks again for the largest
// sample of each bin that meets the tile, and sums in shared memory in the
// order of boxes and bins.
constexpr int kTileWidth = 8;
template <typename Sum>
constexpr int kTileHeight = sizeof(Sum) == 8 ? 4 : 8;  // 32 kB of shared memory

// The samples of some bins of a box.
template <typename Kind>
struct BoxSamples {
  using Tap = typename Kind::Tap;
  static constexpr int kBins = 64;  // on each axis
  static constexpr int kTaps = 256;
  struct Axis {
    int32_t counts[kBins];  // of all samples; what has no room is left out
    PixelRange pixels[kBins];
    Tap taps[kTaps];
    __device__ static int Room(int bins) { return kTaps / bins; }
  };
  Axis y, x;
};

// Writes bins [p0, p0 + ps) and [q0, q0 + qs). All of the block must come here.
template <typename Kind, typename C>
__device__ void FillBoxSamples(const RoiOnLevel<C>& roi, int64_t p0, int ps,
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

template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    MaxGrad(const __grid_constant__ RoiAverageArgs args, const T* d_output,
            const T* features, const Coordinate<T>* boxes,
            const int32_t* box_indices, T* d_features, int64_t tiles) {
  using Sum = Accumulator<T>;
  using Kind = Samples<Sum>;
  constexpr int kHeight = kTileHeight<Sum>;
  __shared__ Sum sums[kHeight * kTileWidth][kTileThreads];
  __shared__ BoxSamples<Kind> samples;
  __shared__ BoxList list;
  constexpr int kBins = BoxSamples<Kind>::kBins;
  const int64_t ph = args.roi.pooled_height, pw = args.roi.pooled_width;
  const Strides strides = StridesOfLevel(args, 0);
  const int thread = threadIdx.x;

  for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile = ReadTile(args, number, kHeight, kTileWidth);
    const int64_t c = tile.channel + thread;
    for (int i = 0; i < kHeight * kTileWidth; ++i) sums[i][thread] = 0;

    const auto add_bins = [&](int64_t k, const RoiOnLevel<Sum>& roi, int64_t p0,
                              int64_t q0) {
      const int ps = ph - p0 < kBins ? static_cast<int>(ph - p0) : kBins;
      const int qs = pw - q0 < kBins ? static_cast<int>(pw - q0) : kBins;
      FillBoxSamples(roi, p0, ps, q0, qs, samples);
      if (c >= args.roi.channels) return;
      const int room_y = samples.y.Room(ps), room_x = samples.x.Room(qs);
      for (int p = 0; p < ps; ++p) {
        if (!Meet(samples.y.pixels[p], tile.rows)) continue;
        for (int q = 0; q < qs; ++q) {
          if (!Meet(samples.x.pixels[q], tile.columns)) continue;
          const BinPlace place =
              PlaceOf(args.roi, strides, tile.image, k, p0 + p, q0 + q, c);
          const BinOfRow<Kind> bin = {
              samples.y.taps + p * room_y, samples.x.taps + q * room_x,
              samples.y.counts[p], samples.x.counts[q], true};
          const auto largest =
              bin.count_y <= room_y && bin.count_x <= room_x
                  ? LargestOf(features + place.map, strides, bin)
                  : LargestOfOther<Kind>(features + place.map, strides, roi,
                                         p0 + p, q0 + q);
          if (largest.IsOutside(roi.y.grid, roi.x.grid)) continue;
          const Sum gradient = Widen(d_output[place.output]);
          for (int i = 0; i < 4; ++i) {
            const PixelAround<Sum> pixel(largest.sample, i);
            const int y = pixel.y - tile.rows.begin;
            const int x = pixel.x - tile.columns.begin;
            if (pixel.counts && 0 <= y && y < kHeight && 0 <= x &&
                x < kTileWidth) {
              sums[y * kTileWidth + x][thread] += pixel.weight * gradient;
            }
          }
        }
      }
    };
    const auto meets = [&](int64_t k) {
      return MeetsTile(args, boxes, box_indices, k, tile);
    };
    VisitBoxes(args.roi.num_boxes, meets, list, [&](int64_t k0, int count) {
      for (int b = 0; b < count; ++b) {
        const int64_t k = k0 + list.boxes[b];
        const RoiOnLevel<Sum> roi = ReadRoi(args, boxes, box_indices, k);
        for (int64_t p = 0; p < ph; p += kBins) {
          for (int64_t q = 0; q < pw; q += kBins) add_bins(k, roi, p, q);
        }
      }
    });

    if (c >= args.roi.channels) continue;
    T* const map =
        d_features +
        tile.image * args.roi.height * args.roi.width * args.roi.channels +
        c * strides.channel;
    for (int32_t y = tile.rows.begin; y < tile.rows.end; ++y) {
      for (int32_t x = tile.columns.begin; x < tile.columns.end; ++x) {
        const int pixel =
            (y - tile.rows.begin) * kTileWidth + x - tile.columns.begin;
        map[y * strides.row + x * strides.place] =
            Narrow<T>(sums[pixel][thread]);
      }
    }
  }
}

}  // namespace

template <typename T>
Error RoiAlignMax(const Gpu& gpu, const RoiArgs& roi,
                  const RoiSampling& sampling, const T* features,
                  const T* values, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* output) {
  if (IsEmpty(roi)) return nullptr;
  const RoiAverageArgs args = AsAverageArgs(roi, sampling);
  const unsigned grid = GridSize(roi.num_boxes * roi.pooled_height);
  Error error;
  if (values != features) {
    error = Launch(gpu, grid, RowThreads(roi, roi.channels), ValuesAtMax<T>,
                   args, features, values, boxes, box_indices, output);
  } else if (!roi.channels_first &&
             FitsPacks<kPackSize<T>>(roi.channels, features, output)) {
    constexpr int kWidth = kPackSize<T>;
    error = Launch(gpu, grid, RowThreads(roi, roi.channels / kWidth),
                   Max<T, kWidth, true>, args, features, boxes, box_indices,
                   output);
  } else {
    error =
        Launch(gpu, grid, RowThreads(roi, (roi.channels + 1) / 2),
               Max<T, 2, false>, args, features, boxes, box_indices, output);
  }
  if (error != nullptr || !MayHaveOthers<Samples<Coordinate<T>>>(args)) {
    return error;
  }
  return Launch(gpu, GridSize(roi.num_boxes), kRowThreads, MaxOthers<T>, args,
                features, values, boxes, box_indices, output);
}

template <typename T>
Error RoiAlignMaxGrad(const Gpu& gpu, const RoiArgs& roi,
                      const RoiSampling& sampling, const T* d_output,
                      const T* features, const Coordinate<T>* boxes,
                      const int32_t* box_indices, T* d_features) {
  if (roi.channels == 0) return nullptr;
  RoiAverageArgs args = AsAverageArgs(roi, sampling);
  if (IsEmpty(roi)) args.roi.num_boxes = 0;
  const int64_t tiles =
      CountTiles(args, kTileHeight<Accumulator<T>>, kTileWidth);
  return Launch(gpu, GridSize(tiles), TileThreads(roi.channels), MaxGrad<T>,
                args, d_output, features, boxes, box_indices, d_features,
                tiles);
}

#define TFO_INSTANTIATE(T)                                                  \
  template Error RoiAlignMax<T>(const Gpu&, const RoiArgs&,                 \
                                const RoiSampling&, const T*, const T*,     \
                                const Coordinate<T>*, const int32_t*, T*);  \
  template Error RoiAlignMaxGrad<T>(const Gpu&, const RoiArgs&,             \
                                    const RoiSampling&, const T*, const T*, \
                                    const Coordinate<T>*, const int32_t*, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
