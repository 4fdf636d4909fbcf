#include <algorithm>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_bin_rows.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_simd.h"

namespace tfo {
namespace {

// What a pixel and channel cost: a load, two comparisons, two selections, a
// quarter cycle at the full width.
constexpr double kCyclesPerValue = 0.25;

double CyclesPerBox(const RoiArgs& args, const std::vector<PooledBox>& boxes) {
  double pixels = 0;
  for (const PooledBox& box : boxes) {
    pixels += double(box.rows.end - box.rows.begin) *
              double(box.columns.end - box.columns.begin);
  }
  return kCyclesPerValue * args.channels *
         (pixels / boxes.size() + args.pooled_height * args.pooled_width);
}

void Bins(PooledSpan span, int64_t limit, int64_t count, PixelRange* bins) {
  for (int64_t p = 0; p < count; ++p) bins[p] = BinOf(span, p, count, limit);
}

template <typename T>
void PoolChannelsLast(const Cpu& cpu, const RoiArgs& args, const T* features,
                      const std::vector<PooledBox>& boxes, T* output,
                      int32_t* argmax) {
  const auto pool_bin_row = TFO_DISPATCH(PoolBinRow<T>);
  const std::vector<BinRow> bin_rows = BinRowsDownward(args, boxes);
  std::vector<PixelRange> columns(args.num_boxes * args.pooled_width);
  for (int64_t k = 0; k < args.num_boxes; ++k) {
    Bins(boxes[k].x, args.width, args.pooled_width,
         &columns[k * args.pooled_width]);
  }
  // Some channels at a time: the rows in use, of those, fit the caches.
  constexpr int64_t kBlock = 1024 / sizeof(T);
  const int64_t blocks = (args.channels + kBlock - 1) / kBlock;
  const int64_t units = bin_rows.size();
  cpu.ParallelFor(
      blocks * units, CyclesPerBox(args, boxes) / (blocks * args.pooled_height),
      [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t c = unit / units * kBlock;
          const auto& [k, p, image, rows] = bin_rows[unit % units];
          const int64_t at =
              (k * args.pooled_height + p) * args.pooled_width * args.channels +
              c;
          pool_bin_row(
              features + image * args.height * args.width * args.channels + c,
              args.width, args.channels, std::min(kBlock, args.channels - c),
              rows, &columns[k * args.pooled_width], args.pooled_width,
              output + at, argmax == nullptr ? nullptr : argmax + at);
        }
      });
}

template <typename T>
void PoolChannelsFirst(const Cpu& cpu, const RoiArgs& args, const T* features,
                       const std::vector<PooledBox>& boxes, T* output,
                       int32_t* argmax) {
  const auto pool_plane = TFO_DISPATCH(PoolPlane<T>);
  const int64_t bins = args.pooled_height * args.pooled_width;
  const int64_t plane = args.height * args.width;
  const int64_t size = args.batch * args.channels * plane;
  // A unit is a plane of a box. Boxes vary fastest: they meet in their plane.
  cpu.ParallelFor(
      args.channels * args.num_boxes, CyclesPerBox(args, boxes) / args.channels,
      [&](int64_t begin, int64_t end) {
        std::vector<PixelRange> rows(args.pooled_height);
        std::vector<PixelRange> columns(args.pooled_width);
        std::vector<Accumulator<T>> best(args.width + 16);
        std::vector<int32_t> best_row(args.width + 16);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t c = unit / args.num_boxes;
          const int64_t k = unit % args.num_boxes;
          const PooledBox& box = boxes[k];
          Bins(box.y, args.height, args.pooled_height, rows.data());
          Bins(box.x, args.width, args.pooled_width, columns.data());
          const int64_t from = (box.image * args.channels + c) * plane;
          const int64_t to = (k * args.channels + c) * bins;
          pool_plane(features + from, size - from, args.width, rows.data(),
                     args.pooled_height, columns.data(), args.pooled_width,
                     best.data(), best_row.data(), output + to,
                     argmax == nullptr ? nullptr : argmax + to);
        }
      });
}

}  // namespace

template <typename T>
Error RoiPool(const Cpu& cpu, const RoiArgs& args, const T* features,
              const Coordinate<T>* boxes, const int32_t* box_indices, T* output,
              int32_t* argmax) {
  if (args.num_boxes == 0 || args.channels == 0) return nullptr;
  const std::vector<PooledBox> read = ReadBoxes(args, boxes, box_indices);
  if (args.channels_first) {
    PoolChannelsFirst(cpu, args, features, read, output, argmax);
  } else {
    PoolChannelsLast(cpu, args, features, read, output, argmax);
  }
  return nullptr;
}

template <typename T>
Error RoiPoolGradGrad(const Cpu& cpu, const RoiArgs& args, const T* dd_features,
                      const int32_t* argmax, const Coordinate<T>* boxes,
                      const int32_t* box_indices, T* dd_output) {
  const std::vector<PooledBox> read = ReadBoxes(args, boxes, box_indices);
  const int64_t plane = args.height * args.width;
  const int64_t row = args.pooled_width * args.channels;
  cpu.ParallelFor(
      args.num_boxes * args.pooled_height, 4.0 * row,
      [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t k = unit / args.pooled_height,
                        p = unit % args.pooled_height;
          const PooledBox& box = read[k];
          const PixelRange rows =
              BinOf(box.y, p, args.pooled_height, args.height);
          const int64_t from = rows.begin * args.width;
          const uint64_t size = rows.empty() ? 0 : rows.end * args.width - from;
          const T* image = dd_features + box.image * plane * args.channels;
          for (int64_t c = 0; c < args.channels; ++c) {
            for (int64_t q = 0; q < args.pooled_width; ++q) {
              const int64_t at =
                  args.channels_first
                      ? ((k * args.channels + c) * args.pooled_height + p) *
                                args.pooled_width +
                            q
                      : unit * row + q * args.channels + c;
              const int64_t pixel = argmax[at];
              const bool counts = static_cast<uint64_t>(pixel - from) < size;
              dd_output[at] = !counts ? T{}
                              : args.channels_first
                                  ? image[c * plane + pixel]
                                  : image[pixel * args.channels + c];
            }
          }
        }
      });
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                                \
  template Error RoiPool<T>(const Cpu&, const RoiArgs&, const T*,         \
                            const Coordinate<T>*, const int32_t*, T*,     \
                            int32_t*);                                    \
  template Error RoiPoolGradGrad<T>(const Cpu&, const RoiArgs&, const T*, \
                                    const int32_t*, const Coordinate<T>*, \
                                    const int32_t*, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
