// roi_pool and its gradient's gradient on the CPU.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_views.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool_boxes.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Index = typename Lanes<T>::Index;

// The pixels of neighboring bins on one axis.
struct BinRanges {
  const PixelRange* bins;
  int64_t count;
};

// The results: maxima and, unless null, their pixels' indices.
template <typename T>
struct PooledView {
  T* output;
  int32_t* argmax;
};

// One bin of kVectors vectors of channels, from pixel (rows.begin,
// columns.begin).
template <int kVectors, typename T>
TFO_INLINE void PoolBin(const ImageView<const T>& view, PixelRange rows,
                        PixelRange columns, T* output, int32_t* argmax) {
  constexpr int kCount = Lanes<T>::kCount;
  const T* const image = view.data;
  const int64_t width = view.width, channels = view.channels;
  Vector<T> best[kVectors];
  Index<T> at[kVectors];
  const int64_t first = rows.begin * width + columns.begin;
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    best[i] = Load(image + first * channels + i * kCount);
    at[i] = Broadcast<Index<T>>(static_cast<typename Lanes<T>::Integer>(first));
  }
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    const T* pixel = image + (y * width + columns.begin) * channels;
    for (int64_t x = columns.begin; x < columns.end; ++x, pixel += channels) {
      const auto where = static_cast<typename Lanes<T>::Integer>(y * width + x);
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        TakeGreater(Load(pixel + i * kCount), where, best[i], at[i]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    Store(best[i], output + i * kCount);
    if (argmax != nullptr) StoreIndex(at[i], argmax + i * kCount);
  }
}

// The same for the last n channels, fewer than a vector.
template <typename T>
void PoolBinTail(const ImageView<const T>& view, int64_t n, PixelRange rows,
                 PixelRange columns, T* output, int32_t* argmax) {
  const T* const image = view.data;
  const int64_t width = view.width, channels = view.channels;
  const int64_t first = rows.begin * width + columns.begin;
  Vector<T> best = LoadFirst(image + first * channels, n);
  Index<T> at =
      Broadcast<Index<T>>(static_cast<typename Lanes<T>::Integer>(first));
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    const T* pixel = image + (y * width + columns.begin) * channels;
    for (int64_t x = columns.begin; x < columns.end; ++x, pixel += channels) {
      TakeGreater(LoadFirst(pixel, n),
                  static_cast<typename Lanes<T>::Integer>(y * width + x), best,
                  at);
    }
  }
  StoreFirst(best, output, n);
  if (argmax != nullptr) {
    int32_t indices[Lanes<T>::kCount];
    StoreIndex(at, indices);
    for (int64_t i = 0; i < n; ++i) argmax[i] = indices[i];
  }
}

template <typename T>
void FillEmptyBin(int64_t channels, T* output, int32_t* argmax) {
  memset(output, 0, channels * sizeof(T));
  if (argmax != nullptr) memset(argmax, 0xFF, channels * sizeof(int32_t));
}

// One row of a box's bins: the first `count` channels of `rows` of `image`.
// Writes them of `pooled` [columns.count, image.channels].
template <typename T>
void PoolBinRow(const ImageView<const T>& image, int64_t count, PixelRange rows,
                BinRanges columns, PooledView<T> pooled) {
  constexpr int kCount = Lanes<T>::kCount;
  // The registers hold a maximum and an index for each.
  constexpr int kVectors = kVectorBytes == 64 ? 8 : 4;
  for (int64_t q = 0; q < columns.count; ++q) {
    T* const out = pooled.output + q * image.channels;
    int32_t* const at =
        pooled.argmax == nullptr ? nullptr : pooled.argmax + q * image.channels;
    const PixelRange bin = columns.bins[q];
    if (rows.empty() || bin.empty()) {
      FillEmptyBin(count, out, at);
      continue;
    }
    const auto from = [&](int64_t c) -> ImageView<const T> {
      return {image.data + c, image.width, image.channels};
    };
    int64_t c = 0;
    for (; c + kVectors * kCount <= count; c += kVectors * kCount) {
      PoolBin<kVectors>(from(c), rows, bin, out + c,
                        at == nullptr ? nullptr : at + c);
    }
    for (; c + kCount <= count; c += kCount) {
      PoolBin<1>(from(c), rows, bin, out + c, at == nullptr ? nullptr : at + c);
    }
    if (c < count) {
      PoolBinTail(from(c), count - c, rows, bin, out + c,
                  at == nullptr ? nullptr : at + c);
    }
  }
}

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
                      PoolBinRow<T>(
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

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(RoiPool, RoiPoolArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(RoiPoolGradGrad, RoiPoolGradGradArgs);

}  // namespace tfo
