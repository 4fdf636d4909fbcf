#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_box_sums_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi_gpu.h"

namespace tfo {
namespace {

// Channels of one thread where they are not side by side in memory. Position-
// sensitive bins have few.
constexpr int kApart = 4;

// Where a pack of a bin's channels lies.
struct PackPlace {
  int64_t valid;  // channels that there are
  int64_t map;    // offset of the first one in an image
  int64_t map_step;
  int64_t output;  // offset of the first one
  int64_t output_step;
};
__device__ inline PackPlace PlaceOf(const RoiAverageArgs& args,
                                    const ChannelsOfBins& channels,
                                    const Strides& strides, int64_t k,
                                    int64_t p, int64_t q, int64_t c) {
  const int64_t ph = args.roi.pooled_height, pw = args.roi.pooled_width;
  const Strides out =
      StridesOf(args.roi.channels_first, ph, pw, channels.count);
  return {
      channels.count - c,
      ((p * pw + q) * channels.per_bin + c * channels.step) * strides.channel,
      channels.step * strides.channel,
      k * ph * pw * channels.count + p * out.row + q * out.place +
          c * out.channel,
      out.channel};
}

// Calls use(tap on y, tap on x, channels) for each pixel of the bin. Loads of
// kAtOnce pixels are under way together.
template <int N, bool kPacked, typename Kind, typename T, typename Use>
__device__ void VisitPixels(const BinOfRow<Kind>& bin, const T* map,
                            const Strides& strides, int64_t step, int64_t valid,
                            const Use& use) {
  using Tap = typename Kind::Tap;
  constexpr int kAtOnce = kPacked ? 4 : 2;
  for (int32_t j0 = 0; j0 < bin.count_x; j0 += kAtOnce) {
    Tap columns[kAtOnce] = {};
    int64_t offsets[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (j0 + j < bin.count_x) columns[j] = bin.x[j0 + j];
      offsets[j] = columns[j].pixel * strides.place;
    }
#pragma unroll 1
    for (int32_t i = 0; i < bin.count_y; ++i) {
      const Tap row = bin.y[i];
      const T* const line = map + row.pixel * strides.row;
      Pack<T, N> packs[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (j0 + j < bin.count_x) {
          packs[j] = LoadChannels<N, kPacked>(line + offsets[j], step, valid);
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (j0 + j < bin.count_x) use(row, columns[j], packs[j]);
      }
    }
  }
}

// A block takes a row of a box's bins, a thread some channels of a bin.
template <typename T, int N, bool kPacked>
__global__ void __launch_bounds__(kRowThreads, sizeof(T) == 8 ? 4 : 6)
    Average(const __grid_constant__ RoiAverageArgs args,
            const __grid_constant__ LevelMaps<const T> features,
            const Coordinate<T>* boxes, const int32_t* box_indices, T* output) {
  using Sum = Accumulator<T>;
  using Kind = PlainTaps<Sum>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  const ChannelsOfBins channels(args);
  const int64_t packs = (channels.count + N - 1) / N;
  const int64_t units = args.roi.num_boxes * args.roi.pooled_height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.roi.pooled_height;
    const int64_t p = unit % args.roi.pooled_height;
    VisitBinRow(
        args, boxes, box_indices, k, p, packs, row,
        [&](const BinOfRow<Kind>& bin, int64_t q, int64_t pack) {
          const Strides strides = StridesOfLevel(args, row.level);
          const PackPlace place =
              PlaceOf(args, channels, strides, k, p, q, pack * N);
          Sum sums[N] = {};
          VisitPixels<N, kPacked>(
              bin, ImageOf(args, features, row.level, row.image) + place.map,
              strides, place.map_step, place.valid,
              [&](const Tap& y, const Tap& x, const Pack<T, N>& values) {
                const Sum weight = y.weight * x.weight;
#pragma unroll
                for (int i = 0; i < N; ++i) {
                  sums[i] += weight * Widen(values.values[i]);
                }
              });
          Pack<T, N> averages;
#pragma unroll
          for (int i = 0; i < N; ++i) averages.values[i] = Narrow<T>(sums[i]);
          StoreChannels<N, kPacked>(averages, output + place.output,
                                    place.output_step, place.valid);
        });
  }
}

// The bins that Average leaves out: a block takes a box's, a thread a channel.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    AverageOthers(const __grid_constant__ RoiAverageArgs args,
                  const __grid_constant__ LevelMaps<const T> features,
                  const Coordinate<T>* boxes, const int32_t* box_indices,
                  T* output) {
  using Sum = Accumulator<T>;
  using Kind = PlainTaps<Sum>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  const ChannelsOfBins channels(args);
  for (int64_t k = blockIdx.x; k < args.roi.num_boxes; k += gridDim.x) {
    VisitOthers(
        args, boxes, box_indices, k, channels.count, row,
        [&](const RoiOnLevel<Sum>& roi, int64_t p, int64_t q, int64_t c) {
          const Strides strides = StridesOfLevel(args, roi.level);
          const PackPlace place = PlaceOf(args, channels, strides, k, p, q, c);
          const T* const map =
              ImageOf(args, features, roi.level, roi.image) + place.map;
          Sum sum = 0;
          VisitTapPairs<Kind>(roi, p, q, [&](const Tap& y, const Tap& x) {
            sum += y.weight * x.weight *
                   Widen(map[y.pixel * strides.row + x.pixel * strides.place]);
          });
          output[place.output] = Narrow<T>(sum);
        });
  }
}

// Adds N channels, in any order with other threads' additions. GPUs from sm_90
// on add 16 bytes at once.
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

// The gradient by atomic additions to zeros, of the same blocks and threads as
// Average: one per channel, bin and pixel.
template <typename T, int N, bool kPacked>
__global__ void __launch_bounds__(kRowThreads)
    AtomicGrad(const __grid_constant__ RoiAverageArgs args, const T* d_output,
               const Coordinate<T>* boxes, const int32_t* box_indices,
               const __grid_constant__ LevelMaps<T> d_features) {
  using Kind = PlainTaps<T>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  const ChannelsOfBins channels(args);
  const int64_t packs = (channels.count + N - 1) / N;
  const int64_t units = args.roi.num_boxes * args.roi.pooled_height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.roi.pooled_height;
    const int64_t p = unit % args.roi.pooled_height;
    VisitBinRow(
        args, boxes, box_indices, k, p, packs, row,
        [&](const BinOfRow<Kind>& bin, int64_t q, int64_t pack) {
          const Strides strides = StridesOfLevel(args, row.level);
          const PackPlace place =
              PlaceOf(args, channels, strides, k, p, q, pack * N);
          T* const map =
              ImageOf(args, d_features, row.level, row.image) + place.map;
          const auto gradients = LoadChannels<N, kPacked>(
              d_output + place.output, place.output_step, place.valid);
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
              AddChannels<N, kPacked>(products, line + x.pixel * strides.place,
                                      place.map_step, place.valid);
            }
          }
        });
  }
}

// The bins that AtomicGrad leaves out.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    AtomicGradOthers(const __grid_constant__ RoiAverageArgs args,
                     const T* d_output, const Coordinate<T>* boxes,
                     const int32_t* box_indices,
                     const __grid_constant__ LevelMaps<T> d_features) {
  using Kind = PlainTaps<T>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  const ChannelsOfBins channels(args);
  for (int64_t k = blockIdx.x; k < args.roi.num_boxes; k += gridDim.x) {
    VisitOthers(
        args, boxes, box_indices, k, channels.count, row,
        [&](const RoiOnLevel<T>& roi, int64_t p, int64_t q, int64_t c) {
          const Strides strides = StridesOfLevel(args, roi.level);
          const PackPlace place = PlaceOf(args, channels, strides, k, p, q, c);
          T* const map =
              ImageOf(args, d_features, roi.level, roi.image) + place.map;
          const T gradient = d_output[place.output];
          VisitTapPairs<Kind>(roi, p, q, [&](const Tap& y, const Tap& x) {
            atomicAdd(map + y.pixel * strides.row + x.pixel * strides.place,
                      y.weight * x.weight * gradient);
          });
        });
  }
}

// The gradient without atomics, so that its bits do not change: a block owns a
// tile of pixels and a thread one channel of it, which it sums in registers in
// the order of boxes and bins, and writes once.
constexpr int kTileWidth = 8;
template <typename Sum>
constexpr int kTileHeight = sizeof(Sum) == 8 ? 4 : 8;
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
  Bins bins[kBins];  // of each box: those that have weights here, and between
};

// All of the block must come here.
template <typename Sum>
__device__ void FillTileWeights(const RoiAverageArgs& args, const Sum* boxes,
                                const int32_t* box_indices, const Tile& tile,
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
    const auto roi = ReadRoi(args, boxes, box_indices, part.k0 + part.list[b]);
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
// channel. A gradient of NaN goes only where it has a weight.
template <typename T, typename Sum>
__device__ void AddBinsToTile(const TileWeights<Sum>& weights,
                              const TilePart& part, int b, const T* gradients,
                              const Strides& strides, TileSums<Sum>& sums) {
  constexpr int kAtOnce = 4;
  const auto bins = weights.bins[b];
  for (int p = bins.p_begin; p < bins.p_end; ++p) {
    Sum line[kTileWidth] = {};
    for (int q = bins.q_begin; q < bins.q_end; q += kAtOnce) {
      T some[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (q + j < bins.q_end) {
          some[j] = gradients[p * strides.row + (q + j) * strides.place];
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
                             const T* gradients, const Strides& strides,
                             TileSums<Sum>& sums) {
  const auto bins = weights.bins[b];
  if (p < bins.p_begin || p >= bins.p_end || q < bins.q_begin ||
      q >= bins.q_end) {
    return;
  }
  const Sum gradient = Widen(gradients[p * strides.row + q * strides.place]);
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

template <typename T, bool kAllChannels>
__global__ void __launch_bounds__(kTileThreads, 4)
    TileGrad(const __grid_constant__ RoiAverageArgs args, const T* d_output,
             const Coordinate<T>* boxes, const int32_t* box_indices,
             const __grid_constant__ LevelMaps<T> d_features, int64_t tiles) {
  using Sum = Accumulator<T>;
  using Weights = TileWeights<Sum>;
  constexpr int kHeight = kTileHeight<Sum>;
  __shared__ Weights weights;
  __shared__ BoxList list;
  const int64_t ph = args.roi.pooled_height, pw = args.roi.pooled_width;
  const ChannelsOfBins channels(args);
  const Strides out =
      StridesOf(args.roi.channels_first, ph, pw, channels.count);
  const int64_t of_box = ph * pw * channels.count;

  for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile = ReadTile(args, number, kHeight, kTileWidth);
    const int64_t c = tile.channel + threadIdx.x;
    // The bin that has this channel, and which of its own it is.
    int64_t own_p = 0, own_q = 0, own_c = c;
    if constexpr (!kAllChannels) {
      const bool apart = args.order == RoiChannels::kChannelMajor;
      const int64_t bin = apart ? c % channels.step : c / channels.count;
      own_c = apart ? c / channels.step : c % channels.count;
      own_p = bin / pw;
      own_q = bin % pw;
    }
    Sum sums[kHeight][kTileWidth] = {};

    const auto meets = [&](int64_t k) {
      return MeetsTile(args, boxes, box_indices, k, tile);
    };
    VisitTileParts(
        args.roi, Weights::kBins, meets, list, [&](const TilePart& part) {
          FillTileWeights(args, boxes, box_indices, tile, part, weights);
          if (c >= args.roi.channels) return;
          for (int b = 0; b < part.boxes; ++b) {
            const T* const gradients =
                d_output + (part.k0 + part.list[b]) * of_box +
                part.p0 * out.row + part.q0 * out.place + own_c * out.channel;
            if constexpr (kAllChannels) {
              AddBinsToTile(weights, part, b, gradients, out, sums);
            } else {
              AddBinToTile(weights, part, b, own_p - part.p0, own_q - part.q0,
                           gradients, out, sums);
            }
          }
        });

    if (c >= args.roi.channels) continue;
    const Strides strides = StridesOfLevel(args, tile.level);
    T* const map = ImageOf(args, d_features, tile.level, tile.image) +
                   tile.rows.begin * strides.row +
                   tile.columns.begin * strides.place + c * strides.channel;
#pragma unroll
    for (int y = 0; y < kHeight; ++y) {
#pragma unroll
      for (int x = 0; x < kTileWidth; ++x) {
        if (tile.rows.begin + y < tile.rows.end &&
            tile.columns.begin + x < tile.columns.end) {
          map[y * strides.row + x * strides.place] = Narrow<T>(sums[y][x]);
        }
      }
    }
  }
}

// The gradient to boxes: a block per box.
template <typename T, int N, bool kPacked>
__global__ void __launch_bounds__(kRowThreads)
    BoxesGrad(const __grid_constant__ RoiAverageArgs args, const T* d_output,
              const __grid_constant__ LevelMaps<const T> features,
              const Coordinate<T>* boxes, const int32_t* box_indices,
              Coordinate<T>* d_boxes) {
  using Sum = Accumulator<T>;
  using Kind = SlopedTaps<Sum>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  __shared__ Sum parts[4][kRowThreads];
  const ChannelsOfBins channels(args);
  const int64_t packs = (channels.count + N - 1) / N;
  for (int64_t k = blockIdx.x; k < args.roi.num_boxes; k += gridDim.x) {
    BoxSums<Sum> sums;
    for (int64_t p = 0; p < args.roi.pooled_height; ++p) {
      VisitBinRow(
          args, boxes, box_indices, k, p, packs, row,
          [&](const BinOfRow<Kind>& bin, int64_t q, int64_t pack) {
            const Strides strides = StridesOfLevel(args, row.level);
            const PackPlace place =
                PlaceOf(args, channels, strides, k, p, q, pack * N);
            const auto gradients = LoadChannels<N, kPacked>(
                d_output + place.output, place.output_step, place.valid);
            VisitPixels<N, kPacked>(
                bin, ImageOf(args, features, row.level, row.image) + place.map,
                strides, place.map_step, place.valid,
                [&](const Tap& y, const Tap& x, const Pack<T, N>& values) {
                  Sum product = 0;
#pragma unroll
                  for (int i = 0; i < N; ++i) {
                    product +=
                        Widen(gradients.values[i]) * Widen(values.values[i]);
                  }
                  sums.Add(y.slopes, x.weight * product, x.slopes,
                           y.weight * product);
                });
          });
    }
    WriteBoxSums(args.roi.yxyx, sums, parts, false, d_boxes + 4 * k);
  }
}

// Adds what BoxesGrad leaves out.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    BoxesGradOthers(const __grid_constant__ RoiAverageArgs args,
                    const T* d_output,
                    const __grid_constant__ LevelMaps<const T> features,
                    const Coordinate<T>* boxes, const int32_t* box_indices,
                    Coordinate<T>* d_boxes) {
  using Sum = Accumulator<T>;
  using Kind = SlopedTaps<Sum>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  __shared__ Sum parts[4][kRowThreads];
  const ChannelsOfBins channels(args);
  for (int64_t k = blockIdx.x; k < args.roi.num_boxes; k += gridDim.x) {
    BoxSums<Sum> sums;
    VisitOthers(
        args, boxes, box_indices, k, channels.count, row,
        [&](const RoiOnLevel<Sum>& roi, int64_t p, int64_t q, int64_t c) {
          const Strides strides = StridesOfLevel(args, roi.level);
          const PackPlace place = PlaceOf(args, channels, strides, k, p, q, c);
          const T* const map =
              ImageOf(args, features, roi.level, roi.image) + place.map;
          const Sum gradient = Widen(d_output[place.output]);
          VisitTapPairs<Kind>(roi, p, q, [&](const Tap& y, const Tap& x) {
            const Sum product =
                gradient *
                Widen(map[y.pixel * strides.row + x.pixel * strides.place]);
            sums.Add(y.slopes, x.weight * product, x.slopes,
                     y.weight * product);
          });
        });
    WriteBoxSums(args.roi.yxyx, sums, parts, true, d_boxes + 4 * k);
  }
}

// Calls run(N, packed, threads) with the widest packs of channels that all of
// these places allow, and the threads of a block that has a row of bins. The
// first two are integral_constants.
template <typename T, typename Run>
Error WithPacks(const RoiAverageArgs& args, const LevelMaps<const T>& features,
                const T* output, const Run& run) {
  const auto run_with = [&](auto n, auto packed) {
    const int64_t packs = (args.PooledChannels() + n - 1) / n;
    return run(n, packed, RowThreads(args.roi, packs));
  };
  if (args.roi.channels_first || args.order == RoiChannels::kChannelMajor) {
    return args.order == RoiChannels::kAll
               ? run_with(std::integral_constant<int, kApart>(),
                          std::false_type())
               : run_with(std::integral_constant<int, 1>(), std::false_type());
  }
  return WithWidestPack<T>(
      [&](auto n) {
        constexpr int kWidth = decltype(n)::value;
        bool fits = FitsPacks<kWidth>(args.PooledChannels(), output);
        for (const T* map : features.data) {
          fits = fits && FitsPacks<kWidth>(0, map);
        }
        return fits;
      },
      [&](auto n) { return run_with(n, std::true_type()); });
}

bool IsEmpty(const RoiAverageArgs& args) {
  return args.roi.num_boxes == 0 || args.roi.channels == 0 ||
         args.roi.pooled_height == 0 || args.roi.pooled_width == 0;
}

template <typename T>
LevelMaps<const T> AsInputs(const LevelMaps<T>& maps) {
  LevelMaps<const T> result;
  for (int l = 0; l < kMostLevels; ++l) result.data[l] = maps.data[l];
  return result;
}

}  // namespace

template <typename T>
Error RoiAverage(const Gpu& gpu, const RoiAverageArgs& args,
                 const T* const* features, const Coordinate<T>* boxes,
                 const int32_t* box_indices, T* output) {
  if (IsEmpty(args)) return nullptr;
  const auto maps = MakeLevelMaps(args, features);
  const unsigned grid = GridSize(args.roi.num_boxes * args.roi.pooled_height);
  const Error error =
      WithPacks(args, maps, output, [&](auto n, auto packed, unsigned threads) {
        return Launch(gpu, grid, threads,
                      Average<T, decltype(n)::value, decltype(packed)::value>,
                      args, maps, boxes, box_indices, output);
      });
  if (error != nullptr || !MayHaveOthers<PlainTaps<Coordinate<T>>>(args)) {
    return error;
  }
  return Launch(gpu, GridSize(args.roi.num_boxes), kRowThreads,
                AverageOthers<T>, args, maps, boxes, box_indices, output);
}

template <typename T>
Error RoiAverageGrad(const Gpu& gpu, const RoiAverageArgs& args,
                     bool deterministic, const T* d_output,
                     const Coordinate<T>* boxes, const int32_t* box_indices,
                     T* const* d_features) {
  const auto maps = MakeLevelMaps(args, d_features);
  if constexpr (sizeof(T) == sizeof(Accumulator<T>)) {
    if (!deterministic) {
      for (int32_t l = 0; l < args.num_levels; ++l) {
        const Error error =
            EnqueueZeros(gpu, maps.data[l],
                         sizeof(T) * args.roi.batch * args.levels[l].height *
                             args.levels[l].width * args.roi.channels);
        if (error != nullptr) return error;
      }
      if (IsEmpty(args)) return nullptr;
      const unsigned grid =
          GridSize(args.roi.num_boxes * args.roi.pooled_height);
      const Error error = WithPacks(
          args, AsInputs(maps), d_output,
          [&](auto n, auto packed, unsigned threads) {
            return Launch(
                gpu, grid, threads,
                AtomicGrad<T, decltype(n)::value, decltype(packed)::value>,
                args, d_output, boxes, box_indices, maps);
          });
      if (error != nullptr || !MayHaveOthers<PlainTaps<T>>(args)) return error;
      return Launch(gpu, GridSize(args.roi.num_boxes), kRowThreads,
                    AtomicGradOthers<T>, args, d_output, boxes, box_indices,
                    maps);
    }
  }
  if (args.roi.channels == 0) return nullptr;
  RoiAverageArgs some = args;
  if (IsEmpty(args)) some.roi.num_boxes = 0;
  const int64_t tiles =
      CountTiles(some, kTileHeight<Accumulator<T>>, kTileWidth);
  const auto launch = [&](auto kernel) {
    return Launch(gpu, GridSize(tiles), TileThreads(some.roi.channels), kernel,
                  some, d_output, boxes, box_indices, maps, tiles);
  };
  return args.order == RoiChannels::kAll ? launch(TileGrad<T, true>)
                                         : launch(TileGrad<T, false>);
}

template <typename T>
Error RoiAverageBoxesGrad(const Gpu& gpu, const RoiAverageArgs& args,
                          const T* d_output, const T* const* features,
                          const Coordinate<T>* boxes,
                          const int32_t* box_indices, Coordinate<T>* d_boxes) {
  if (IsEmpty(args)) {
    return EnqueueZeros(gpu, d_boxes,
                        sizeof(*d_boxes) * 4 * args.roi.num_boxes);
  }
  const auto maps = MakeLevelMaps(args, features);
  const unsigned grid = GridSize(args.roi.num_boxes);
  const Error error =
      WithPacks(args, maps, d_output, [&](auto n, auto packed, unsigned) {
        return Launch(gpu, grid, kRowThreads,
                      BoxesGrad<T, decltype(n)::value, decltype(packed)::value>,
                      args, d_output, maps, boxes, box_indices, d_boxes);
      });
  if (error != nullptr || !MayHaveOthers<SlopedTaps<Coordinate<T>>>(args)) {
    return error;
  }
  return Launch(gpu, grid, kRowThreads, BoxesGradOthers<T>, args, d_output,
                maps, boxes, box_indices, d_boxes);
}

#define TFO_INSTANTIATE(T)                                                  \
  template Error RoiAverage<T>(const Gpu&, const RoiAverageArgs&,           \
                               const T* const*, const Coordinate<T>*,       \
                               const int32_t*, T*);                         \
  template Error RoiAverageGrad<T>(const Gpu&, const RoiAverageArgs&, bool, \
                                   const T*, const Coordinate<T>*,          \
                                   const int32_t*, T* const*);              \
  template Error RoiAverageBoxesGrad<T>(                                    \
      const Gpu&, const RoiAverageArgs&, const T*, const T* const*,         \
      const Coordinate<T>*, const int32_t*, Coordinate<T>*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
