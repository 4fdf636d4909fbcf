// The taps of a row of a box's bins in shared memory, for the CUDA kernels of
// roi_average; and those bins that need more of them than it holds. For .cu.cc
// files.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BIN_ROW_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BIN_ROW_GPU_H_

#include "tensorflow_ops/detection/cc/kernels/roi/roi_axis.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_channels_gpu.h"

namespace tfo {

// Contents of shared memory for a bin on an axis: weights of pixels, or weights
// with slopes.
template <typename C>
struct Weights {
  struct Tap {
    int32_t pixel;
    C weight;
  };
  template <typename Add>
  __device__ static void Visit(const RoiAxis<C>& axis, int64_t p,
                               const Add& add) {
    VisitTaps<false>(axis, p, [&](int32_t pixel, C weight, BoxSlopes<C>) {
      add(Tap{pixel, weight});
    });
  }
};
template <typename C>
struct SlopedWeights {
  struct Tap {
    int32_t pixel;
    C weight;
    BoxSlopes<C> slopes;
  };
  template <typename Add>
  __device__ static void Visit(const RoiAxis<C>& axis, int64_t p,
                               const Add& add) {
    VisitTaps<true>(axis, p, [&](int32_t pixel, C weight, BoxSlopes<C> slopes) {
      add(Tap{pixel, weight, slopes});
    });
  }
};

// One of two, by value: a choice between references would go through memory.
template <typename C>
__device__ RoiAxis<C> Select(bool first, const RoiAxis<C>& a,
                             const RoiAxis<C>& b) {
  RoiAxis<C> axis;
  axis.limit = first ? a.limit : b.limit;
  axis.bins = first ? a.bins : b.bins;
  axis.sampled = first ? a.sampled : b.sampled;
  axis.start = first ? a.start : b.start;
  axis.bin = first ? a.bin : b.bin;
  axis.grid = first ? a.grid : b.grid;
  axis.scale = first ? a.scale : b.scale;
  axis.grown = first ? a.grown : b.grown;
  axis.span.start = first ? a.span.start : b.span.start;
  axis.span.size = first ? a.span.size : b.span.size;
  return axis;
}

// A row of a box's bins, in shared memory: its map, its taps.
template <typename Kind>
struct SharedBinRow {
  using Tap = typename Kind::Tap;
  static constexpr int kBins = 64;  // at a time
  static constexpr int kRoomY = 128;
  static constexpr int kTapsX = 512;

  int32_t level;
  int64_t image;
  int32_t count_y, counts_x[kBins];  // of all taps, including those that do not
                                     // fit and are left out
  Tap taps_y[kRoomY];
  Tap taps_x[kTapsX];  // of the i-th bin, from i * RoomX() on

  // The number of taps that fit for each of `bins` bins. Odd, so that
  // neighboring bins begin in different memory banks.
  TFO_HOST_DEVICE static int RoomX(int bins) { return (kTapsX / bins - 1) | 1; }
};

// A bin of the row, and its taps.
template <typename Kind>
struct BinOfRow {
  const typename Kind::Tap *y, *x;
  int32_t count_y, count_x;
  bool has_all;
};
template <typename Kind>
__device__ BinOfRow<Kind> BinAt(const SharedBinRow<Kind>& row, int bins,
                                int i) {
  const int room_x = row.RoomX(bins);
  const int32_t count_y = row.count_y, count_x = row.counts_x[i];
  return {row.taps_y, row.taps_x + i * room_x, count_y, count_x,
          count_y <= row.kRoomY && count_x <= room_x};
}

// Args, here and below, are those of roi_average.
// Writes the taps of row p of box k and of bins [q0, q0 + bins) to `row`.
// Returns whether some bins' taps do not fit. All of the block must call it.
// Not inlined, so that its registers do not add to the whole kernel's.
template <typename Kind, typename Args>
__device__ __noinline__ bool FillBinRow(const Args& args, int64_t k, int64_t p,
                                        int64_t q0, int bins,
                                        SharedBinRow<Kind>& row) {
  using Row = SharedBinRow<Kind>;
  bool more = false;
  __syncthreads();  // the row before is no longer read
  // The columns, and last the row.
  for (int i = threadIdx.x; i <= bins; i += blockDim.x) {
    const bool is_row = i == bins;
    const auto roi = ReadRoi(args, args.boxes, k);
    const int room = is_row ? Row::kRoomY : row.RoomX(bins);
    auto* const to = is_row ? row.taps_y : row.taps_x + i * room;
    int32_t count = 0;
    if (roi.valid) {
      Kind::Visit(Select(is_row, roi.y, roi.x), is_row ? p : q0 + i,
                  [&](const typename Kind::Tap& tap) {
                    if (count < room) to[count] = tap;
                    ++count;
                  });
    }
    more |= count > room;
    (is_row ? row.count_y : row.counts_x[i]) = count;
    if (is_row) {
      row.level = roi.level;
      row.image = roi.image;
    }
  }
  return __syncthreads_or(more);
}

// Calls visit(bin, q, pack) for each bin of row p of box k whose taps fit, and
// each of `packs` packs of channels, on one thread of the block. All of the
// block must call it. VisitFallbackBins visits the other bins.
template <typename Kind, typename Args, typename Visit>
__device__ void VisitBinRow(const Args& args, int64_t k, int64_t p,
                            int64_t packs, SharedBinRow<Kind>& row,
                            const Visit& visit) {
  for (int64_t q0 = 0; q0 < args.grid.width; q0 += row.kBins) {
    const int64_t rest = args.grid.width - q0;
    const int bins = rest < row.kBins ? static_cast<int>(rest) : row.kBins;
    FillBinRow(args, k, p, q0, bins, row);
    VisitPacks(bins, packs, [&](int i, int64_t pack) {
      const BinOfRow<Kind> bin = BinAt(row, bins, i);
      if (bin.has_all) visit(bin, q0 + i, pack);
    });
  }
}

// Calls visit(roi, p, q, c) for each channel of each of box k's bins whose taps
// do not fit. All of the block must call it.
template <typename Kind, typename Args, typename Visit>
__device__ void VisitFallbackBins(const Args& args, int64_t k, int64_t channels,
                                  SharedBinRow<Kind>& row, const Visit& visit) {
  const auto roi = ReadRoi(args, args.boxes, k);
  if (!roi.valid) return;
  // Most boxes are so small that there is nothing to do.
  const int64_t pw = args.grid.width;
  const auto fits = [](const auto& axis, int room) {
    return axis.sampled ? 2 * axis.grid <= room
                        : axis.span.size <= (room - 2) * axis.bins;
  };
  const int max_bins = pw < row.kBins ? static_cast<int>(pw) : row.kBins;
  if (fits(roi.y, row.kRoomY) && fits(roi.x, row.RoomX(max_bins))) return;
  for (int64_t p = 0; p < args.grid.height; ++p) {
    for (int64_t q0 = 0; q0 < pw; q0 += row.kBins) {
      const int64_t rest = pw - q0;
      const int bins = rest < row.kBins ? static_cast<int>(rest) : row.kBins;
      if (!FillBinRow(args, k, p, q0, bins, row)) continue;
      VisitPacks(bins, channels, [&](int i, int64_t c) {
        if (!BinAt(row, bins, i).has_all) visit(roi, p, q0 + i, c);
      });
    }
  }
}

// Calls use(tap on y, tap on x) for all taps of a bin, row by row.
template <typename Kind, typename C, typename Use>
__device__ void VisitTapPairs(const Roi<C>& roi, int64_t p, int64_t q,
                              const Use& use) {
  using Tap = typename Kind::Tap;
  Kind::Visit(roi.y, p, [&](const Tap& y) {
    Kind::Visit(roi.x, q, [&](const Tap& x) { use(y, x); });
  });
}

// Upper bounds for a bin's taps on each axis.
struct MaxTaps {
  int64_t y, x;
};
inline MaxTaps MaxTapsOn(const FeatureShape& features, RoiBins bins,
                         const RoiSampling& sampling) {
  if (bins == RoiBins::kSamples && sampling.ratio > 0) {
    // Two for each sample.
    return {2 * int64_t{sampling.ratio}, 2 * int64_t{sampling.ratio}};
  }
  // A tap for each pixel, and some at the edges.
  return {features.height + 3, features.width + 3};
}

// Whether a box may have bins whose taps do not fit. Such large bins are rare;
// separate kernels, which need more registers, visit them.
template <typename Kind>
bool NeedsFallback(const PoolGrid& grid, const MaxTaps& taps) {
  using Row = SharedBinRow<Kind>;
  const int bins =
      grid.width < Row::kBins ? static_cast<int>(grid.width) : Row::kBins;
  return taps.y > Row::kRoomY || taps.x > Row::RoomX(bins);
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BIN_ROW_GPU_H_
