// roi_pool and its gradient's gradient on the CPU.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool_boxes.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool_simd.h"

namespace tfo {
namespace {

// Of a pixel and channel: a load, two comparisons, two selections take a
// quarter cycle at the full width.
constexpr double kCyclesPerValue = 0.25;

double CyclesPerBox(const RoiSpec& args, const std::vector<PooledBox>& boxes) {
  double pixels = 0;
  for (const PooledBox& box : boxes) {
    const PixelRange rows = Clip(box.y, args.map.height);
    const PixelRange columns = Clip(box.x, args.map.width);
    pixels +=
        double(rows.end - rows.begin) * double(columns.end - columns.begin);
  }
  return kCyclesPerValue * args.map.channels *
         (pixels / boxes.size() + args.grid.height * args.grid.width);
}

void FillBins(PooledSpan span, int64_t limit, int64_t count, PixelRange* bins) {
  for (int64_t p = 0; p < count; ++p) bins[p] = BinOf(span, p, count, limit);
}

template <typename T>
PooledView<T> At(const PooledView<T>& pooled, int64_t offset) {
  return {pooled.output + offset,
          pooled.argmax == nullptr ? nullptr : pooled.argmax + offset};
}

}  // namespace

template <typename T>
Error RoiPool(const Cpu& cpu, const RoiPoolArgs<T>& args) {
  if (args.Pooled(args.boxes.count).Size() == 0) return nullptr;
  const std::vector<PooledBox> pooled_boxes = ReadPooledBoxes(args, args.boxes);
  const PooledView<T> to = {args.output, args.argmax};
  const auto pool_bin_row = TFO_DISPATCH(PoolBinRow<T>);
  const FeatureShape& shape = args.map;
  const FeatureShape pooled = args.Pooled(pooled_boxes.size());
  const std::vector<BinRow> bin_rows = PooledBinRows(args, pooled_boxes);
  std::vector<PixelRange> columns(pooled_boxes.size() * pooled.width);
  for (size_t k = 0; k < pooled_boxes.size(); ++k) {
    FillBins(pooled_boxes[k].x, shape.width, pooled.width,
             &columns[k * pooled.width]);
  }
  // Blocks of channels: the pixel rows in use, of a block, fit the caches.
  constexpr int64_t kBlock = 1024 / sizeof(T);
  const int64_t blocks = (shape.channels + kBlock - 1) / kBlock;
  const int64_t units = bin_rows.size();
  cpu.ParallelFor(blocks * units,
                  CyclesPerBox(args, pooled_boxes) / (blocks * pooled.height),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t unit = begin; unit < end; ++unit) {
                      const int64_t c = unit / units * kBlock;
                      const auto& [k, p, image, rows] = bin_rows[unit % units];
                      pool_bin_row(
                          {args.features + shape.Offset(image, 0, 0, c),
                           shape.width, shape.channels},
                          std::min(kBlock, shape.channels - c), rows,
                          {&columns[k * pooled.width], pooled.width},
                          At(to, pooled.Offset(k, p, 0, c)));
                    }
                  });
  return nullptr;
}

template <typename T>
Error RoiPoolGradGrad(const Cpu& cpu, const RoiPoolGradGradArgs<T>& args) {
  const std::vector<PooledBox> pooled_boxes = ReadPooledBoxes(args, args.boxes);
  const FeatureShape& features = args.map;
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  cpu.ParallelFor(
      pooled.batch * pooled.height, 4.0 * pooled.width * pooled.channels,
      [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t k = unit / pooled.height, p = unit % pooled.height;
          const PooledBox& box = pooled_boxes[k];
          const PixelRange rows = BinRows(args, box, p);
          const int64_t first = rows.begin * features.width;
          const uint64_t count =
              rows.empty() ? 0 : rows.end * features.width - first;
          const T* const image =
              args.dd_features + box.image * features.ImageSize();
          for (int64_t q = 0; q < pooled.width; ++q) {
            const int64_t to = pooled.Offset(k, p, q, 0);
            for (int64_t c = 0; c < pooled.channels; ++c) {
              const int64_t pixel = args.argmax[to + c];
              const bool in_rows = static_cast<uint64_t>(pixel - first) < count;
              // Rows follow each other: a pixel's index counts columns.
              args.dd_output[to + c] =
                  in_rows ? image[pixel * pooled.channels + c] : T{};
            }
          }
        }
      });
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(RoiPool, Cpu, RoiPoolArgs);
TFO_INSTANTIATE_ALGORITHM(RoiPoolGradGrad, Cpu, RoiPoolGradGradArgs);

}  // namespace tfo
