// Shared by the CUDA kernels of roi_average. For .cu.cc files.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_GPU_H_

#include "tensorflow_ops/detection/cc/kernels/roi/roi_bin_row_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"

namespace tfo {

__device__ inline bool ChannelsFirst(const RoiAverageArgs& args) {
  return args.channels_first;
}

inline MaxTaps MaxTapsOf(const RoiAverageArgs& args) {
  MaxTaps most = {0, 0};
  for (int32_t l = 0; l < args.num_levels; ++l) {
    const MaxTaps taps = MaxTapsOn(args.Features(l), args.bins, args.sampling);
    if (taps.y > most.y) most.y = taps.y;
    if (taps.x > most.x) most.x = taps.x;
  }
  return most;
}

// The levels' feature maps, as a kernel's parameter.
template <typename T>
struct LevelMaps {
  T* data[kMaxLevels];
};
template <typename T>
LevelMaps<T> MakeLevelMaps(const RoiAverageArgs& args, T* const* maps) {
  LevelMaps<T> result = {};
  for (int32_t l = 0; l < args.num_levels; ++l) result.data[l] = maps[l];
  return result;
}

// The first element of an image.
template <typename T>
__device__ T* ImageOf(const RoiAverageArgs& args, const LevelMaps<T>& maps,
                      int32_t level, int64_t image) {
  const FeatureShape shape = args.Features(level);
  return maps.data[level] + image * shape.height * shape.width * shape.channels;
}

// A pack of a bin's channels in the features and in the output.
struct PackOffsets {
  int64_t valid;  // channels that exist
  int64_t map;    // of the first channel in an image
  int64_t map_step;
  int64_t output;  // of the first channel
  int64_t output_step;
};
// Of bin (p, q) of box k, from its channel c on.
__device__ inline PackOffsets OffsetsOf(const RoiAverageArgs& args,
                                        const BinChannels& of,
                                        const FeatureStrides& map, int64_t k,
                                        int64_t p, int64_t q, int64_t c) {
  const FeatureShape pooled = args.Pooled(/*num_boxes=*/0, of);
  return {of.count - c,
          ((p * pooled.width + q) * of.next_bin + c * of.step) * map.channel,
          of.step * map.channel, pooled.Offset(k, p, q, c),
          pooled.Strides().channel};
}

// Calls run(N, packed, threads) with the widest packs of channels that the
// alignment of these pointers allows, and the threads of a block that has a row
// of bins. The first two are integral_constants.
template <typename T, typename Run>
Error WithPacks(const RoiAverageArgs& args, const LevelMaps<const T>& features,
                const T* output, const Run& run) {
  // Channels of one thread where they are not contiguous. Position-sensitive
  // bins have few.
  constexpr int kScattered = 4;
  const int64_t channels = args.ChannelsOfBins().count;
  const auto run_with = [&](auto n, auto packed) {
    return run(n, packed, RowThreads(args.grid.width, (channels + n - 1) / n));
  };
  if (args.channels_first || args.order == RoiChannels::kChannelMajor) {
    return args.order == RoiChannels::kAll
               ? run_with(std::integral_constant<int, kScattered>(),
                          std::false_type())
               : run_with(std::integral_constant<int, 1>(), std::false_type());
  }
  return WithWidestPack<T>(
      [&](auto n) {
        constexpr int kWidth = decltype(n)::value;
        bool fits = FitsPacks<kWidth>(channels, output);
        for (const T* map : features.data) {
          fits = fits && FitsPacks<kWidth>(0, map);
        }
        return fits;
      },
      [&](auto n) { return run_with(n, std::true_type()); });
}

// Calls use(tap on y, tap on x, channels) for each pixel of the bin. Loads of
// kAtOnce pixels are in flight together.
template <int N, bool kPacked, typename Kind, typename T, typename Use>
__device__ void VisitPixels(const BinOfRow<Kind>& bin, const T* map,
                            const FeatureStrides& strides,
                            const PackOffsets& offsets, const Use& use) {
  using Tap = typename Kind::Tap;
  constexpr int kAtOnce = kPacked ? 4 : 2;
  for (int32_t j0 = 0; j0 < bin.count_x; j0 += kAtOnce) {
    Tap columns[kAtOnce] = {};
    int64_t column_offsets[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (j0 + j < bin.count_x) columns[j] = bin.x[j0 + j];
      column_offsets[j] = columns[j].pixel * strides.column;
    }
#pragma unroll 1
    for (int32_t i = 0; i < bin.count_y; ++i) {
      const Tap row = bin.y[i];
      const T* const line = map + row.pixel * strides.row;
      Pack<T, N> packs[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (j0 + j < bin.count_x) {
          packs[j] = LoadChannels<N, kPacked>(line + column_offsets[j],
                                              offsets.map_step, offsets.valid);
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (j0 + j < bin.count_x) use(row, columns[j], packs[j]);
      }
    }
  }
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_GPU_H_
