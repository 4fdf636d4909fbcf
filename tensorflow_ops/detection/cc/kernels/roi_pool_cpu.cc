#include <algorithm>
#include <cstring>
#include <vector>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_bins.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_simd.h"

namespace tfo {
namespace {

// A box in whole pixels, and the part of it that lies in the image.
struct Box {
  bool valid;
  int64_t image;
  PooledSpan y, x;
  PixelRange rows, columns;
};

template <typename C>
std::vector<Box> ReadBoxes(const RoiArgs& args, const C* boxes,
                           const int32_t* box_indices) {
  std::vector<Box> result(args.num_boxes);
  for (int64_t k = 0; k < args.num_boxes; ++k) {
    const ScaledBox<C> scaled = ReadBox(args, boxes, box_indices, k);
    Box& box = result[k];
    box = {};
    box.valid = scaled.valid;
    if (!box.valid) continue;
    box.image = scaled.image;
    box.y = SpanOf(scaled.y1, scaled.y2);
    box.x = SpanOf(scaled.x1, scaled.x2);
    box.rows = Clip(box.y, args.height);
    box.columns = Clip(box.x, args.width);
  }
  return result;
}

// The order in which boxes are pooled: neighbours one after the other, so that the
// second finds its pixels in the cache.
std::vector<int64_t> NeighbourOrder(const std::vector<Box>& boxes) {
  std::vector<int64_t> order(boxes.size());
  for (size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const Box &p = boxes[a], &q = boxes[b];
    return p.image != q.image ? p.image < q.image : p.y.start < q.y.start;
  });
  return order;
}

// What a pixel and channel cost: a load, two comparisons, two selections, a
// quarter cycle at the full width.
constexpr double kCyclesPerValue = 0.25;

double CyclesPerBox(const RoiArgs& args, const std::vector<Box>& boxes) {
  double pixels = 0;
  for (const Box& box : boxes) {
    pixels += double(box.rows.end - box.rows.begin) *
              double(box.columns.end - box.columns.begin);
  }
  return kCyclesPerValue * args.channels *
         (pixels / boxes.size() + args.pooled_height * args.pooled_width);
}

void Bins(PooledSpan span, int64_t limit, std::vector<PixelRange>* bins) {
  const int64_t count = bins->size();
  for (int64_t p = 0; p < count; ++p) (*bins)[p] = BinOf(span, p, count, limit);
}

template <typename T>
void PoolChannelsLast(const Cpu& cpu, const RoiArgs& args, const T* features,
                      const std::vector<Box>& boxes, T* output,
                      int32_t* argmax) {
  const auto pool_bin_row = TFO_DISPATCH(PoolBinRow<T>);
  const std::vector<int64_t> order = NeighbourOrder(boxes);
  const int64_t row_size = args.pooled_width * args.channels;
  // A unit is a row of a box's bins, so that a single box is shared out, too.
  cpu.ParallelFor(
      args.num_boxes * args.pooled_height,
      CyclesPerBox(args, boxes) / args.pooled_height,
      [&](int64_t begin, int64_t end) {
        std::vector<PixelRange> columns(args.pooled_width);
        int64_t columns_of = -1;
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t k = order[unit / args.pooled_height];
          const int64_t p = unit % args.pooled_height;
          const Box& box = boxes[k];
          const int64_t at = (k * args.pooled_height + p) * row_size;
          if (columns_of != k) {
            columns_of = k;
            // An invalid box has size 0 and thus empty bins.
            Bins(box.x, args.width, &columns);
          }
          pool_bin_row(
              features + box.image * args.height * args.width * args.channels,
              args.width, args.channels,
              BinOf(box.y, p, args.pooled_height, args.height), columns.data(),
              args.pooled_width, output + at,
              argmax == nullptr ? nullptr : argmax + at);
        }
      });
}

template <typename T>
void PoolChannelsFirst(const Cpu& cpu, const RoiArgs& args, const T* features,
                       const std::vector<Box>& boxes, T* output,
                       int32_t* argmax) {
  const auto pool_plane = TFO_DISPATCH(PoolPlane<T>);
  const std::vector<int64_t> order = NeighbourOrder(boxes);
  const int64_t bins = args.pooled_height * args.pooled_width;
  const int64_t plane = args.height * args.width;
  const int64_t size = args.batch * args.channels * plane;
  // A unit is a plane of a box. Boxes vary fastest: they meet in their plane.
  cpu.ParallelFor(
      args.channels * args.num_boxes,
      CyclesPerBox(args, boxes) / args.channels,
      [&](int64_t begin, int64_t end) {
        std::vector<PixelRange> rows(args.pooled_height);
        std::vector<PixelRange> columns(args.pooled_width);
        std::vector<Accumulator<T>> best(args.width + 16);
        std::vector<int32_t> best_row(args.width + 16);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t c = unit / args.num_boxes;
          const int64_t k = order[unit % args.num_boxes];
          const Box& box = boxes[k];
          Bins(box.y, args.height, &rows);
          Bins(box.x, args.width, &columns);
          const int64_t from = (box.image * args.channels + c) * plane;
          const int64_t to = (k * args.channels + c) * bins;
          pool_plane(features + from, size - from, args.width, rows.data(),
                     args.pooled_height, columns.data(), args.pooled_width,
                     best.data(), best_row.data(), output + to,
                     argmax == nullptr ? nullptr : argmax + to);
        }
      });
}

// The gradient's unit of work: some rows and channels of one image, owned by one
// thread, which sums into a tile that stays in its cache, box after box.
struct Tiles {
  int64_t rows, channels;              // of a tile
  int64_t bands, channel_blocks, all;  // bands of rows, blocks, in all images
};

template <typename T>
Tiles CutIntoTiles(const RoiArgs& args) {
  constexpr int64_t kTileBytes = 384 << 10;  // well inside a core's L2 cache
  constexpr int64_t kChannels = 32;
  Tiles tiles;
  tiles.channels = std::min(args.channels, kChannels);
  const int64_t row_bytes = args.width * tiles.channels * sizeof(Accumulator<T>);
  tiles.rows = std::clamp<int64_t>(kTileBytes / row_bytes, 1, args.height);
  tiles.bands = (args.height + tiles.rows - 1) / tiles.rows;
  // Bands of even height.
  tiles.rows = (args.height + tiles.bands - 1) / tiles.bands;
  tiles.channel_blocks = (args.channels + tiles.channels - 1) / tiles.channels;
  tiles.all = args.batch * tiles.channel_blocks * tiles.bands;
  return tiles;
}

}  // namespace

template <typename T>
Error RoiPool(const Cpu& cpu, const RoiArgs& args, const T* features,
              const Coordinate<T>* boxes, const int32_t* box_indices, T* output,
              int32_t* argmax) {
  if (args.num_boxes == 0 || args.channels == 0) return nullptr;
  const std::vector<Box> read = ReadBoxes(args, boxes, box_indices);
  if (args.channels_first) {
    PoolChannelsFirst(cpu, args, features, read, output, argmax);
  } else {
    PoolChannelsLast(cpu, args, features, read, output, argmax);
  }
  return nullptr;
}

template <typename T>
Error RoiPoolGrad(const Cpu& cpu, const RoiArgs& args, const T* d_output,
                  const int32_t* argmax, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* d_features) {
  if (args.batch * args.height * args.width * args.channels == 0) return nullptr;
  using Sum = Accumulator<T>;
  const auto scatter_add = TFO_DISPATCH(ScatterAdd<T>);
  const auto narrow = TFO_DISPATCH(NarrowArray<T>);
  const std::vector<Box> read = ReadBoxes(args, boxes, box_indices);
  std::vector<std::vector<int64_t>> boxes_of(args.batch);
  for (int64_t k = 0; k < args.num_boxes; ++k) {
    if (read[k].valid) boxes_of[read[k].image].push_back(k);
  }
  const Tiles tiles = CutIntoTiles<T>(args);
  const int64_t bins = args.pooled_height * args.pooled_width;
  const double cycles =
      2.0 * args.num_boxes * bins * args.channels / tiles.all +
      0.5 * tiles.rows * args.width * tiles.channels;

  cpu.ParallelFor(tiles.all, cycles, [&](int64_t begin, int64_t end) {
    std::vector<Sum> sums(tiles.rows * args.width * tiles.channels);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t image = tile / (tiles.channel_blocks * tiles.bands);
      const int64_t block = tile / tiles.bands % tiles.channel_blocks;
      const int64_t y0 = tile % tiles.bands * tiles.rows;
      const int64_t y1 = std::min(y0 + tiles.rows, args.height);
      const int64_t c0 = block * tiles.channels;
      const int64_t c1 = std::min(c0 + tiles.channels, args.channels);
      if (y0 >= y1) continue;
      const PixelRange band = {static_cast<int32_t>(y0), static_cast<int32_t>(y1)};
      const int64_t first = y0 * args.width, count = (y1 - y0) * args.width;
      const int64_t block_channels = c1 - c0;
      std::memset(sums.data(), 0, count * block_channels * sizeof(Sum));
      for (int64_t k : boxes_of[image]) {
        if (!Meet(read[k].rows, band)) continue;
        for (int64_t p = 0; p < args.pooled_height; ++p) {
          const PixelRange rows = BinOf(read[k].y, p, args.pooled_height, args.height);
          if (!Meet(rows, band)) continue;
          // This bin row's part of the band.
          const int64_t from = std::max<int64_t>(rows.begin, y0) * args.width;
          const int64_t size = std::min<int64_t>(rows.end, y1) * args.width - from;
          if (args.channels_first) {
            for (int64_t c = c0; c < c1; ++c) {
              const int64_t at = (k * args.channels + c) * bins + p * args.pooled_width;
              scatter_add(d_output + at, argmax + at, args.pooled_width, from, size, 1, 0,
                          sums.data() + (c - c0) * count + from - first);
            }
          } else {
            for (int64_t q = 0; q < args.pooled_width; ++q) {
              const int64_t at = ((k * args.pooled_height + p) * args.pooled_width + q) * args.channels + c0;
              scatter_add(d_output + at, argmax + at, block_channels, from, size, block_channels, 1,
                          sums.data() + (from - first) * block_channels);
            }
          }
        }
      }
      if (args.channels_first) {
        for (int64_t c = c0; c < c1; ++c) {
          narrow(sums.data() + (c - c0) * count,
                 d_features + (image * args.channels + c) * args.height * args.width + first, count);
        }
      } else {
        for (int64_t i = 0; i < count; ++i) {
          narrow(sums.data() + i * block_channels,
                 d_features + (image * args.height * args.width + first + i) * args.channels + c0,
                 block_channels);
        }
      }
    }
  });
  return nullptr;
}

template <typename T>
Error RoiPoolGradGrad(const Cpu& cpu, const RoiArgs& args, const T* dd_features,
                      const int32_t* argmax, const Coordinate<T>* boxes,
                      const int32_t* box_indices, T* dd_output) {
  const std::vector<Box> read = ReadBoxes(args, boxes, box_indices);
  const int64_t plane = args.height * args.width;
  const int64_t row = args.pooled_width * args.channels;
  cpu.ParallelFor(
      args.num_boxes * args.pooled_height, 4.0 * row,
      [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t k = unit / args.pooled_height, p = unit % args.pooled_height;
          const Box& box = read[k];
          const PixelRange rows = BinOf(box.y, p, args.pooled_height, args.height);
          const int64_t from = rows.begin * args.width;
          const uint64_t size = rows.empty() ? 0 : rows.end * args.width - from;
          const T* image = dd_features + box.image * plane * args.channels;
          for (int64_t c = 0; c < args.channels; ++c) {
            for (int64_t q = 0; q < args.pooled_width; ++q) {
              const int64_t at =
                  args.channels_first
                      ? ((k * args.channels + c) * args.pooled_height + p) * args.pooled_width + q
                      : unit * row + q * args.channels + c;
              const int64_t pixel = argmax[at];
              const bool counts = static_cast<uint64_t>(pixel - from) < size;
              dd_output[at] = !counts                ? T{}
                              : args.channels_first ? image[c * plane + pixel]
                                                    : image[pixel * args.channels + c];
            }
          }
        }
      });
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                                     \
  template Error RoiPool<T>(const Cpu&, const RoiArgs&, const T*,              \
                            const Coordinate<T>*, const int32_t*, T*,          \
                            int32_t*);                                         \
  template Error RoiPoolGrad<T>(const Cpu&, const RoiArgs&, const T*,          \
                                const int32_t*, const Coordinate<T>*,          \
                                const int32_t*, T*);                           \
  template Error RoiPoolGradGrad<T>(const Cpu&, const RoiArgs&, const T*,      \
                                    const int32_t*, const Coordinate<T>*,      \
                                    const int32_t*, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
