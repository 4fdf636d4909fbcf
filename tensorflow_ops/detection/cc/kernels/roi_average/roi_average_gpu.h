// Shared by the CUDA kernels of roi_average. For .cu.cc files.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_GPU_H_

#include "tensorflow_ops/detection/cc/kernels/roi/roi_bin_row_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"

namespace tfo {

inline MaxTaps MaxTapsOf(const RoiAverageSpec& args) {
  MaxTaps most = {0, 0};
  for (int32_t l = 0; l < args.num_levels; ++l) {
    const MaxTaps taps = MaxTapsOn(args.Features(l), args.bins, args.sampling);
    if (taps.y > most.y) most.y = taps.y;
    if (taps.x > most.x) most.x = taps.x;
  }
  return most;
}

// The first element of an image.
template <typename T>
__device__ T* ImageOf(const RoiAverageSpec& args, T* const (&maps)[kMaxLevels],
                      int32_t level, int64_t image) {
  const FeatureShape shape = args.Features(level);
  return maps[level] + image * shape.height * shape.width * shape.channels;
}

// The offsets of channel c of bin (p, q) of box k in an image and in the
// output.
struct BinOffsets {
  int64_t map, output;
};
__device__ inline BinOffsets OffsetsOf(const RoiAverageSpec& args,
                                       const BinChannels& of, int64_t k,
                                       int64_t p, int64_t q, int64_t c) {
  return {(p * args.grid.width + q) * of.next_bin + c * of.step,
          args.Pooled(/*num_boxes=*/0, of).Offset(k, p, q, c)};
}

// Calls run(N, threads) with the widest packs of channels that their order and
// the alignment of these pointers allow, and the threads of a block that has a
// row of bins. N is an integral_constant.
template <typename T, typename Map, typename Run>
Error WithPacks(const RoiAverageSpec& args, Map* const (&maps)[kMaxLevels],
                const T* output, const Run& run) {
  const int64_t channels = args.ChannelsOfBins().count;
  return WithWidestPack<T>(
      [&](auto n) {
        constexpr int kWidth = decltype(n)::value;
        bool fits = args.order != RoiChannels::kChannelMajor &&
                    FitsPacks<kWidth>(channels, output);
        for (int32_t l = 0; l < args.num_levels; ++l) {
          fits = fits && FitsPacks<kWidth>(0, maps[l]);
        }
        return fits;
      },
      [&](auto n) {
        return run(n, RowThreads(args.grid.width, channels / n));
      });
}

// Calls use(tap on y, tap on x, channels) for each pixel of the bin. Loads of
// kAtOnce pixels are in flight together.
template <int N, typename Kind, typename T, typename Use>
__device__ void VisitPixels(const BinOfRow<Kind>& bin, const T* map,
                            const FeatureStrides& strides, const Use& use) {
  using Tap = typename Kind::Tap;
  constexpr int kAtOnce = 4;
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
          packs[j] = LoadPack<N>(line + column_offsets[j]);
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
