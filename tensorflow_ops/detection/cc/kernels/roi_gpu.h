// What the CUDA kernels of the weighted region pooling ops share: the taps of a
// row of bins in shared memory; a tile of pixels and the boxes that meet it.
// For .cu.cc files.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_GPU_H_

#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"

namespace tfo {

// At most, of a block that has a row of bins, and of one that has a tile.
constexpr int kRowThreads = 128;
constexpr int kTileThreads = 128;

// The levels' feature maps, as a kernel's parameter.
template <typename T>
struct LevelMaps {
  T* data[kMostLevels];
};
template <typename T>
LevelMaps<T> MakeLevelMaps(const RoiAverageArgs& args, T* const* maps) {
  LevelMaps<T> result = {};
  for (int32_t l = 0; l < args.num_levels; ++l) result.data[l] = maps[l];
  return result;
}

// Where elements lie: from a row, a place and a channel to the next.
struct Strides {
  int64_t row, place, channel;
};
__device__ inline Strides StridesOf(bool channels_first, int64_t height,
                                    int64_t width, int64_t channels) {
  if (channels_first) return {width, 1, height * width};
  return {width * channels, channels, 1};
}
__device__ inline Strides StridesOfLevel(const RoiAverageArgs& args,
                                         int32_t level) {
  return StridesOf(args.roi.channels_first, args.levels[level].height,
                   args.levels[level].width, args.roi.channels);
}
// The first element of an image.
template <typename T>
__device__ T* ImageOf(const RoiAverageArgs& args, const LevelMaps<T>& maps,
                      int32_t level, int64_t image) {
  return maps.data[level] + image * args.levels[level].height *
                                args.levels[level].width * args.roi.channels;
}

// RoiAverageArgs' channels without its divisions: channel c of bin b, counted
// in rows, is b * per_bin + c * step.
struct ChannelsOfBins {
  int64_t count, per_bin, step;
  __device__ explicit ChannelsOfBins(const RoiAverageArgs& args)
      : count(args.PooledChannels()),
        per_bin(args.order == RoiChannels::kAll            ? 0
                : args.order == RoiChannels::kChannelMajor ? 1
                                                           : count),
        step(args.ChannelStep()) {}
};

// N channels from `at`: side by side and aligned if kPacked, else `step` apart,
// and `valid` of them.
template <int N, bool kPacked, typename T>
__device__ Pack<T, N> LoadChannels(const T* at, int64_t step, int64_t valid) {
  if constexpr (kPacked) return LoadPack<N>(at);
  Pack<T, N> pack = {};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < valid) pack.values[i] = at[i * step];
  }
  return pack;
}
template <int N, bool kPacked, typename T>
__device__ void StoreChannels(const Pack<T, N>& pack, T* at, int64_t step,
                              int64_t valid) {
  if constexpr (kPacked) {
    StorePack(pack, at);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < valid) at[i * step] = pack.values[i];
    }
  }
}

// What a block's thread goes through of [.., inner_size]: (outer, inner) from
// its own number on, in steps of the block. Divides once.
class Units {
 public:
  int outer, inner;

  __device__ explicit Units(int inner_size)
      : outer(threadIdx.x / inner_size),
        inner(threadIdx.x % inner_size),
        inner_size_(inner_size),
        outer_step_(blockDim.x / inner_size),
        inner_step_(blockDim.x % inner_size) {}
  __device__ void Next() {
    outer += outer_step_;
    inner += inner_step_;
    if (inner >= inner_size_) {
      inner -= inner_size_;
      ++outer;
    }
  }

 private:
  int inner_size_, outer_step_, inner_step_;
};

// What shared memory holds of a bin on an axis. A sample has at most two taps.
template <typename C>
struct PlainTaps {
  using Coordinate = C;
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
struct SlopedTaps {
  using Coordinate = C;
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
template <typename C>
struct Samples {
  using Coordinate = C;
  struct Tap {
    int32_t low;
    C fraction;
  };
  template <typename Add>
  __device__ static void Visit(const RoiAxis<C>& axis, int64_t p,
                               const Add& add) {
    VisitSamples(axis, p, [&](const AxisSample<C>& sample) {
      add(Tap{sample.low, sample.fraction});
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
  typename Kind::Coordinate grid_y, grid_x;
  int32_t count_y, counts_x[kBins];  // of taps; what has no room is left out
  Tap taps_y[kRoomY];
  Tap taps_x[kTapsX];  // of the i-th bin, from i * RoomX() on

  // Taps of each of `bins` bins that there is room for. Odd: neighbouring bins
  // begin in other banks.
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

// Writes row p of box k and bins [q0, q0 + bins) to `row`. Returns whether some
// bins' taps have no room. All of the block must come here. Not inlined, so
// that its registers are not the whole kernel's.
template <typename Kind, typename C>
__device__ __noinline__ bool FillBinRow(const RoiAverageArgs& args,
                                        const C* boxes,
                                        const int32_t* box_indices, int64_t k,
                                        int64_t p, int64_t q0, int bins,
                                        SharedBinRow<Kind>& row) {
  using Row = SharedBinRow<Kind>;
  bool more = false;
  __syncthreads();  // what was there is no longer read
  // The columns, and last the row.
  for (int i = threadIdx.x; i <= bins; i += blockDim.x) {
    const bool is_row = i == bins;
    const RoiOnLevel<C> roi = ReadRoi(args, boxes, box_indices, k);
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
      row.grid_y = roi.y.grid;
      row.grid_x = roi.x.grid;
    }
  }
  return __syncthreads_or(more);
}

// Threads of a block that has a row of bins: few, where more would be idle in
// the last step.
inline unsigned RowThreads(const RoiArgs& args, int64_t packs) {
  const int64_t units =
      packs * (args.pooled_width < 64 ? args.pooled_width : 64);
  if (units >= 8 * kRowThreads) return kRowThreads;
  const int64_t threads = (units + 63) / 64 * 64;
  return 10 * units >= 7 * threads ? 64 : 32;
}

// Calls visit(i, pack) for each i of `bins` and each of `packs` packs of
// channels, on one thread of the block: neighbours have neighbouring packs, or
// bins if `bins_inside`.
template <typename Visit>
__device__ void VisitUnits(bool bins_inside, int bins, int64_t packs,
                           const Visit& visit) {
  constexpr int kMost = 1 << 20;  // 32 bits are enough for their number
  for (int64_t pack0 = 0; pack0 < packs; pack0 += kMost) {
    const int some =
        packs - pack0 < kMost ? static_cast<int>(packs - pack0) : kMost;
    const int outer = bins_inside ? some : bins;
    for (Units unit(bins_inside ? bins : some); unit.outer < outer;
         unit.Next()) {
      visit(bins_inside ? unit.inner : unit.outer,
            pack0 + (bins_inside ? unit.outer : unit.inner));
    }
  }
}

// Calls visit(bin, q, pack) for each bin of row p of box k and each of `packs`
// packs of channels, on one thread of the block; or for bins whose taps have
// room, only: VisitOthers has the others. All of the block must come here.
template <typename Kind, typename C, typename Visit>
__device__ void VisitBinRow(const RoiAverageArgs& args, const C* boxes,
                            const int32_t* box_indices, int64_t k, int64_t p,
                            int64_t packs, SharedBinRow<Kind>& row,
                            const Visit& visit) {
  constexpr int kMost = SharedBinRow<Kind>::kBins;
  for (int64_t q0 = 0; q0 < args.roi.pooled_width; q0 += kMost) {
    const int64_t rest = args.roi.pooled_width - q0;
    const int bins = rest < kMost ? static_cast<int>(rest) : kMost;
    FillBinRow(args, boxes, box_indices, k, p, q0, bins, row);
    VisitUnits(args.roi.channels_first, bins, packs, [&](int i, int64_t pack) {
      const BinOfRow<Kind> bin = BinAt(row, bins, i);
      if (bin.has_all) visit(bin, q0 + i, pack);
    });
  }
}

// May a box have bins whose taps have no room? Bins so large are rare, and have
// a kernel of their own, which needs more registers.
template <typename Kind>
bool MayHaveOthers(const RoiAverageArgs& args) {
  using Row = SharedBinRow<Kind>;
  int64_t most_y = 0, most_x = 0;
  if (args.bins == RoiBins::kSamples && args.sampling.ratio > 0) {
    most_y = most_x = 2 * int64_t{args.sampling.ratio};
  } else {
    // No more than pixels, and some at the edges.
    for (int32_t l = 0; l < args.num_levels; ++l) {
      const RoiLevel& level = args.levels[l];
      if (level.height + 3 > most_y) most_y = level.height + 3;
      if (level.width + 3 > most_x) most_x = level.width + 3;
    }
  }
  const int64_t bins = args.roi.pooled_width;
  const int most_bins = bins < Row::kBins ? static_cast<int>(bins) : Row::kBins;
  return most_y > Row::kRoomY || most_x > Row::RoomX(most_bins);
}

// Calls visit(roi, p, q, c) for each channel of each of box k's bins whose taps
// have no room. All of the block must come here.
template <typename Kind, typename C, typename Visit>
__device__ void VisitOthers(const RoiAverageArgs& args, const C* boxes,
                            const int32_t* box_indices, int64_t k,
                            int64_t channels, SharedBinRow<Kind>& row,
                            const Visit& visit) {
  constexpr int kMost = SharedBinRow<Kind>::kBins;
  const RoiOnLevel<C> roi = ReadRoi(args, boxes, box_indices, k);
  if (!roi.valid) return;
  // Most boxes are so small that there is nothing to do.
  const int64_t pw = args.roi.pooled_width;
  const auto small = [](const RoiAxis<C>& axis, int room) {
    return axis.sampled ? 2 * axis.grid <= room
                        : axis.span.size <= (room - 2) * axis.bins;
  };
  if (small(roi.y, row.kRoomY) &&
      small(roi.x, row.RoomX(pw < kMost ? static_cast<int>(pw) : kMost))) {
    return;
  }
  for (int64_t p = 0; p < args.roi.pooled_height; ++p) {
    for (int64_t q0 = 0; q0 < pw; q0 += kMost) {
      const int bins = pw - q0 < kMost ? static_cast<int>(pw - q0) : kMost;
      if (!FillBinRow(args, boxes, box_indices, k, p, q0, bins, row)) continue;
      VisitUnits(args.roi.channels_first, bins, channels,
                 [&](int i, int64_t c) {
                   if (!BinAt(row, bins, i).has_all) visit(roi, p, q0 + i, c);
                 });
    }
  }
}

// Calls use(tap on y, tap on x) for all taps of a bin, row by row.
template <typename Kind, typename C, typename Use>
__device__ void VisitTapPairs(const RoiOnLevel<C>& roi, int64_t p, int64_t q,
                              const Use& use) {
  using Tap = typename Kind::Tap;
  Kind::Visit(roi.y, p, [&](const Tap& y) {
    Kind::Visit(roi.x, q, [&](const Tap& x) { use(y, x); });
  });
}

// A rectangle of pixels of an image, and a block's first channel.
struct Tile {
  int32_t level;
  int64_t image, channel;
  PixelRange rows, columns;
};

// As many threads as there are channels, in whole warps.
inline unsigned TileThreads(int64_t channels) {
  const int64_t warps = (channels + 31) / 32;
  return warps * 32 < kTileThreads ? static_cast<unsigned>(warps * 32)
                                   : kTileThreads;
}

TFO_HOST_DEVICE inline int64_t TilesOfLevel(const RoiAverageArgs& args,
                                            int32_t level, int height,
                                            int width, int threads) {
  return args.roi.batch * ((args.levels[level].height + height - 1) / height) *
         ((args.levels[level].width + width - 1) / width) *
         ((args.roi.channels + threads - 1) / threads);
}
inline int64_t CountTiles(const RoiAverageArgs& args, int height, int width) {
  int64_t count = 0;
  for (int32_t l = 0; l < args.num_levels; ++l) {
    count +=
        TilesOfLevel(args, l, height, width, TileThreads(args.roi.channels));
  }
  return count;
}

// The tile of a number below CountTiles().
__device__ inline Tile ReadTile(const RoiAverageArgs& args, int64_t number,
                                int height, int width) {
  Tile tile = {};
  const int threads = blockDim.x;
  while (true) {
    const int64_t tiles =
        TilesOfLevel(args, tile.level, height, width, threads);
    if (number < tiles) break;
    number -= tiles;
    ++tile.level;
  }
  const RoiLevel& level = args.levels[tile.level];
  const auto end = [](int64_t begin, int size, int64_t limit) {
    return static_cast<int32_t>(begin + size < limit ? begin + size : limit);
  };
  const int64_t blocks = (args.roi.channels + threads - 1) / threads;
  const int64_t across = (level.width + width - 1) / width;
  const int64_t down = (level.height + height - 1) / height;
  tile.channel = number % blocks * threads;
  number /= blocks;
  const int64_t x = number % across * width;
  tile.columns = {static_cast<int32_t>(x), end(x, width, level.width)};
  number /= across;
  const int64_t y = number % down * height;
  tile.rows = {static_cast<int32_t>(y), end(y, height, level.height)};
  tile.image = number / down;
  return tile;
}

// Holds all pixels that the axis' bins look at, and some more.
template <typename C>
__device__ PixelRange PixelsOf(const RoiAxis<C>& axis) {
  if (!axis.sampled) return Clip(axis.span, axis.limit);
  const C size = axis.bin * static_cast<C>(axis.bins);
  // Samples are rounded in proportion to what they are computed from.
  const C margin = 2 + (fabs(axis.start) + size) * C(1e-6);
  const C low = axis.start - margin, high = axis.start + size + margin;
  const C limit = static_cast<C>(axis.limit);
  // Written so that NaN, of a box beyond the type's range, gives all pixels.
  PixelRange range = {0, static_cast<int32_t>(axis.limit)};
  if (low > 0)
    range.begin = low < limit ? static_cast<int32_t>(low) : range.end;
  if (high < limit) range.end = high > 0 ? static_cast<int32_t>(high) + 1 : 0;
  return range;
}

// Some boxes, as many as the block has threads.
struct BoxList {
  uint32_t votes[kTileThreads / 32];
  int32_t boxes[kTileThreads];
};

// Goes through the boxes for which meets(k) is true, in order and a list at a
// time: calls visit(k0, count), where boxes k0 + list.boxes[0 .. count) are
// they. All of the block must come here, and calls visit.
template <typename Meets, typename Visit>
__device__ void VisitBoxes(int64_t num_boxes, const Meets& meets, BoxList& list,
                           const Visit& visit) {
  const int thread = threadIdx.x;
  const int warp = thread / 32, warps = blockDim.x / 32;
  for (int64_t k0 = 0; k0 < num_boxes; k0 += blockDim.x) {
    const bool mine = k0 + thread < num_boxes && meets(k0 + thread);
    const uint32_t votes = __ballot_sync(0xFFFFFFFFu, mine);
    if (thread % 32 == 0) list.votes[warp] = votes;
    __syncthreads();
    int at = __popc(votes & ((1u << (thread % 32)) - 1)), count = 0;
    for (int w = 0; w < warps; ++w) {
      const int in_warp = __popc(list.votes[w]);
      if (w < warp) at += in_warp;
      count += in_warp;
    }
    if (mine) list.boxes[at] = thread;
    __syncthreads();
    if (count > 0) visit(k0, count);
  }
}

// Boxes k0 + list[0 .. boxes), and their bins [p0, p0 + ps) x [q0, q0 + qs).
struct TilePart {
  int64_t k0;
  const int32_t* list;
  int boxes;
  int64_t p0, q0;
  int ps, qs;
};

// Cuts the bins of the boxes for which meets(k) is true into parts, in order,
// of which none has more than `most` rows or `most` columns of bins. All of the
// block must come here, and calls visit(part).
template <typename Meets, typename Visit>
__device__ void VisitTileParts(const RoiArgs& args, int most,
                               const Meets& meets, BoxList& list,
                               const Visit& visit) {
  const auto some = [](int64_t rest, int most) {
    return rest < most ? static_cast<int>(rest) : most;
  };
  const int64_t ph = args.pooled_height, pw = args.pooled_width;
  const int most_p = some(ph, most), most_q = some(pw, most);
  const int most_boxes = most / (most_p > most_q ? most_p : most_q);
  VisitBoxes(args.num_boxes, meets, list, [&](int64_t k0, int count) {
    for (int b = 0; b < count; b += most_boxes) {
      for (int64_t p = 0; p < ph; p += most_p) {
        for (int64_t q = 0; q < pw; q += most_q) {
          visit(TilePart{k0, list.boxes + b, some(count - b, most_boxes), p, q,
                         some(ph - p, most_p), some(pw - q, most_q)});
        }
      }
    }
  });
}

// Does box k look at pixels of the tile? (Or nearly.)
template <typename C>
__device__ bool MeetsTile(const RoiAverageArgs& args, const C* boxes,
                          const int32_t* box_indices, int64_t k,
                          const Tile& tile) {
  const RoiOnLevel<C> roi = ReadRoi(args, boxes, box_indices, k);
  return roi.valid && roi.level == tile.level && roi.image == tile.image &&
         Meet(PixelsOf(roi.y), tile.rows) &&
         Meet(PixelsOf(roi.x), tile.columns);
}

// One map, as the only level.
inline RoiAverageArgs OneLevel(const RoiArgs& roi) {
  RoiAverageArgs args = {};
  args.roi = roi;
  args.order = RoiChannels::kAll;
  args.num_levels = 1;
  args.levels[0] = {roi.height, roi.width, roi.spatial_scale, 0};
  return args;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_GPU_H_
