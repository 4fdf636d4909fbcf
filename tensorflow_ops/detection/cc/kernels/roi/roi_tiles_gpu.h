// Deterministic gradients to features by CUDA kernels: a block owns a tile of
// pixels, and visits the bins of the boxes that overlap it in order. For .cu.cc
// files.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_TILES_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_TILES_GPU_H_

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_axis.h"

namespace tfo {

// At most, of a block that has a tile: a thread per channel.
constexpr int kTileThreads = 128;
// Pixels of a tile. kTileThreads channels' sums take 32 kB.
constexpr int kTileWidth = 8;
template <typename Sum>
constexpr int kTileHeight = sizeof(Sum) == 8 ? 4 : 8;

// A rectangle of pixels of an image, and a block's first channel.
struct PixelTile {
  int64_t image, channel;
  PixelRange rows, columns;
};

// As many threads as there are channels, in whole warps.
inline unsigned TileThreads(int64_t channels) {
  const int64_t warps = DivideUp(channels, 32);
  return warps * 32 < kTileThreads ? static_cast<unsigned>(warps * 32)
                                   : kTileThreads;
}

// Tiles of `height` rows, for blocks of `threads`.
TFO_HOST_DEVICE inline int64_t CountTiles(const FeatureShape& shape, int height,
                                          int threads) {
  return shape.batch * DivideUp(shape.height, height) *
         DivideUp(shape.width, kTileWidth) * DivideUp(shape.channels, threads);
}

// The tile of an index below CountTiles().
__device__ inline PixelTile TileAt(const FeatureShape& shape, int height,
                                   int64_t index) {
  PixelTile tile = {};
  const int threads = blockDim.x;
  const auto end = [](int64_t begin, int size, int64_t limit) {
    return static_cast<int32_t>(begin + size < limit ? begin + size : limit);
  };
  const int64_t blocks = DivideUp(shape.channels, threads);
  const int64_t across = DivideUp(shape.width, kTileWidth);
  const int64_t down = DivideUp(shape.height, height);
  tile.channel = index % blocks * threads;
  index /= blocks;
  const int64_t x = index % across * kTileWidth;
  tile.columns = {static_cast<int32_t>(x), end(x, kTileWidth, shape.width)};
  index /= across;
  const int64_t y = index % down * height;
  tile.rows = {static_cast<int32_t>(y), end(y, height, shape.height)};
  tile.image = index / down;
  return tile;
}

// A tile's sums in shared memory, a thread's in its own column.
template <typename Sum>
using SharedTileSums = Sum[kTileHeight<Sum> * kTileWidth][kTileThreads];

// Writes a thread's sums to its channel of the tile. `map` is the channel's
// first pixel.
template <typename T, typename Sum>
__device__ void WriteTile(const PixelTile& tile,
                          const SharedTileSums<Sum>& sums,
                          const FeatureStrides& strides, T* map) {
  for (int32_t y = tile.rows.begin; y < tile.rows.end; ++y) {
    for (int32_t x = tile.columns.begin; x < tile.columns.end; ++x) {
      const int pixel =
          (y - tile.rows.begin) * kTileWidth + x - tile.columns.begin;
      map[y * strides.row + x * strides.column] =
          Narrow<T>(sums[pixel][threadIdx.x]);
    }
  }
}

// A range that holds all pixels in which the axis' bins have a weight.
template <typename C>
__device__ PixelRange PixelsOf(const RoiAxis<C>& axis) {
  if (!axis.sampled) return Clip(axis.span, axis.limit);
  const C size = axis.bin * static_cast<C>(axis.bins);
  // Samples' rounding errors are proportional to the values they are computed
  // from.
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

// Whether a box has weights in the tile. (True for some that nearly do.)
template <typename C>
__device__ bool Overlaps(const Roi<C>& roi, const PixelTile& tile) {
  return roi.valid && roi.image == tile.image &&
         Overlap(PixelsOf(roi.y), tile.rows) &&
         Overlap(PixelsOf(roi.x), tile.columns);
}

// Some boxes, as many as the block has threads.
struct BoxList {
  uint32_t votes[kTileThreads / 32];
  int32_t boxes[kTileThreads];
};

// Visits the boxes for which overlaps(k) is true, in order and a list at a
// time: calls visit(k0, count) for boxes k0 + list.boxes[0 .. count). All of
// the block must call it, and calls visit.
template <typename Predicate, typename Visit>
__device__ void VisitBoxes(int64_t num_boxes, const Predicate& overlaps,
                           BoxList& list, const Visit& visit) {
  const int thread = threadIdx.x;
  const int warp = thread / 32, warps = blockDim.x / 32;
  for (int64_t k0 = 0; k0 < num_boxes; k0 += blockDim.x) {
    const bool mine = k0 + thread < num_boxes && overlaps(k0 + thread);
    const uint32_t votes = __ballot_sync(kAllLanes, mine);
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

// Splits the bins of the boxes for which overlaps(k) is true into parts, in
// order, each of at most `max_bins` rows and `max_bins` columns of bins. All of
// the block must call it, and calls visit(part).
template <typename Predicate, typename Visit>
__device__ void VisitTileParts(int64_t num_boxes, const PoolGrid& grid,
                               int max_bins, const Predicate& overlaps,
                               BoxList& list, const Visit& visit) {
  const auto some = [](int64_t rest, int most) {
    return rest < most ? static_cast<int>(rest) : most;
  };
  const int64_t ph = grid.height, pw = grid.width;
  const int max_p = some(ph, max_bins), max_q = some(pw, max_bins);
  const int max_boxes = max_bins / (max_p > max_q ? max_p : max_q);
  VisitBoxes(num_boxes, overlaps, list, [&](int64_t k0, int count) {
    for (int b = 0; b < count; b += max_boxes) {
      for (int64_t p = 0; p < ph; p += max_p) {
        for (int64_t q = 0; q < pw; q += max_q) {
          visit(TilePart{k0, list.boxes + b, some(count - b, max_boxes), p, q,
                         some(ph - p, max_p), some(pw - q, max_q)});
        }
      }
    }
  });
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_TILES_GPU_H_
