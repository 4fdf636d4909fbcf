#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max_simd.h"

namespace tfo {
namespace {

// All samples of a box, an axis at a time.
template <typename C>
class BoxSamples {
 public:
  // Returns false for a box that pools zeros.
  bool Read(const RoiArgs& args, const RoiSampling& sampling, const C* boxes,
            const int32_t* box_indices, int64_t k) {
    const ScaledBox<C> box = ReadBox(args, boxes, box_indices, k);
    image_ = box.image;
    if (!box.valid) return false;
    const C scale = args.spatial_scale;
    rows_.Fill(SampledAxis(box.y1, box.y2, scale, args.height,
                           args.pooled_height, sampling));
    columns_.Fill(SampledAxis(box.x1, box.x2, scale, args.width,
                              args.pooled_width, sampling));
    return true;
  }

  int64_t image() const { return image_; }
  LineSamples<C> Rows(int64_t p) const { return rows_.Bin(p); }
  LineSamples<C> Columns(int64_t q) const { return columns_.Bin(q); }
  // Are some of the bin's samples outside of the map?
  bool Outside(int64_t p, int64_t q) const {
    return rows_.outside[p] || columns_.outside[q];
  }

 private:
  struct Axis {
    std::vector<LineSample<C>> samples;
    std::vector<int64_t> begin;
    std::vector<bool> outside;

    void Fill(const RoiAxis<C>& axis) {
      samples.clear();
      outside.clear();
      begin.assign(1, 0);
      for (int64_t p = 0; p < axis.bins; ++p) {
        VisitSamples(axis, p, [&](const AxisSample<C>& sample) {
          samples.push_back({sample.low, sample.fraction});
        });
        outside.push_back(static_cast<C>(samples.size() - begin.back()) <
                          axis.grid);
        begin.push_back(samples.size());
      }
    }
    LineSamples<C> Bin(int64_t p) const {
      return {samples.data() + begin[p], samples.data() + begin[p + 1]};
    }
  };
  int64_t image_;
  Axis rows_, columns_;
};

struct Layout {
  explicit Layout(const RoiArgs& args)
      : map(args.channels_first
                ? MapStrides{args.width, 1, args.height * args.width}
                : MapStrides{args.width * args.channels, args.channels, 1}),
        image(args.channels * args.height * args.width),
        bins(args.channels_first
                 ? MapStrides{args.pooled_width, 1,
                              args.pooled_height * args.pooled_width}
                 : MapStrides{args.pooled_width * args.channels, args.channels,
                              1}),
        box(args.channels * args.pooled_height * args.pooled_width) {}
  MapStrides map;
  int64_t image;  // elements of one
  MapStrides bins;
  int64_t box;
};

// Cycles of a bin and channel: some samples of four pixels each.
constexpr double kCyclesPerBin = 20;

}  // namespace

template <typename T>
Error RoiAlignMax(const Cpu& cpu, const RoiArgs& args,
                  const RoiSampling& sampling, const T* features,
                  const T* values, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* output) {
  using Value = Accumulator<T>;
  if (args.num_boxes == 0 || args.channels == 0) return nullptr;
  const auto largest = TFO_DISPATCH(LargestSamples<T>);
  const Layout layout(args);
  // A unit is some channels of a box, in planes as many as the cache holds.
  const int64_t block = args.channels_first
                            ? std::min<int64_t>(16, args.channels)
                            : args.channels;
  const int64_t blocks = (args.channels + block - 1) / block;
  const int64_t bins = args.pooled_height * args.pooled_width;
  cpu.ParallelFor(
      blocks * args.num_boxes, kCyclesPerBin * bins * block,
      [&](int64_t begin, int64_t end) {
        BoxSamples<Value> samples;
        std::vector<Value> best(block);
        std::vector<int32_t> which(block);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t k = unit % args.num_boxes;
          const int64_t c0 = unit / args.num_boxes * block;
          const int64_t count = std::min(block, args.channels - c0);
          const bool valid =
              samples.Read(args, sampling, boxes, box_indices, k);
          const int64_t from =
              valid ? samples.image() * layout.image + c0 * layout.map.channel
                    : 0;
          for (int64_t p = 0; p < args.pooled_height; ++p) {
            for (int64_t q = 0; q < args.pooled_width; ++q) {
              T* const to = output + k * layout.box + p * layout.bins.row +
                            q * layout.bins.column + c0 * layout.bins.channel;
              if (!valid) {
                for (int64_t c = 0; c < count; ++c) {
                  to[c * layout.bins.channel] = T{};
                }
                continue;
              }
              const auto rows = samples.Rows(p), columns = samples.Columns(q);
              largest(features + from, layout.map, count, rows, columns,
                      samples.Outside(p, q), best.data(), which.data());
              const int64_t on_x = columns.end - columns.begin;
              for (int64_t c = 0; c < count; ++c) {
                Value value = best[c];
                if (values != features) {
                  value = 0;
                  if (which[c] >= 0) {
                    const T* const map = values + from + c * layout.map.channel;
                    VisitCorners(rows.begin[which[c] / on_x],
                                 columns.begin[which[c] % on_x], layout.map,
                                 [&](int64_t offset, Value weight) {
                                   value += weight * Widen(map[offset]);
                                 });
                  }
                }
                to[c * layout.bins.channel] = Narrow<T>(value);
              }
            }
          }
        }
      });
  return nullptr;
}

template <typename T>
Error RoiAlignMaxGrad(const Cpu& cpu, const RoiArgs& args,
                      const RoiSampling& sampling, const T* d_output,
                      const T* features, const Coordinate<T>* boxes,
                      const int32_t* box_indices, T* d_features) {
  using Sum = Accumulator<T>;
  const int64_t pixels = args.height * args.width;
  if (args.batch * args.channels * pixels == 0) return nullptr;
  const auto largest = TFO_DISPATCH(LargestSamples<T>);
  const auto narrow = TFO_DISPATCH(NarrowArray<T>);
  const Layout layout(args);
  // A thread owns some channels of an image and goes through its boxes in
  // order. Sums of a wider type than T's need room beside the tensors: little.
  const int64_t block = std::min<int64_t>(16, args.channels);
  const int64_t blocks = (args.channels + block - 1) / block;
  const double bins = args.num_boxes * args.pooled_height * args.pooled_width;
  cpu.ParallelFor(
      args.batch * blocks, kCyclesPerBin * block * bins / args.batch,
      [&](int64_t begin, int64_t end) {
        BoxSamples<Sum> samples;
        std::vector<Sum> best(block), sums(pixels * block);
        std::vector<int32_t> which(block);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t image = unit / blocks, c0 = unit % blocks * block;
          const int64_t count = std::min(block, args.channels - c0);
          // [pixels, count], or [count, pixels].
          const MapStrides own = args.channels_first
                                     ? MapStrides{args.width, 1, pixels}
                                     : MapStrides{args.width * count, count, 1};
          std::fill(sums.begin(), sums.end(), Sum{0});
          const int64_t from = image * layout.image + c0 * layout.map.channel;
          for (int64_t k = 0; k < args.num_boxes; ++k) {
            if (box_indices[k] != image ||
                !samples.Read(args, sampling, boxes, box_indices, k)) {
              continue;
            }
            for (int64_t p = 0; p < args.pooled_height; ++p) {
              for (int64_t q = 0; q < args.pooled_width; ++q) {
                const auto rows = samples.Rows(p), columns = samples.Columns(q);
                const int64_t on_x = columns.end - columns.begin;
                if (rows.begin == rows.end || on_x == 0) continue;
                largest(features + from, layout.map, count, rows, columns,
                        samples.Outside(p, q), best.data(), which.data());
                const T* const gradient =
                    d_output + k * layout.box + p * layout.bins.row +
                    q * layout.bins.column + c0 * layout.bins.channel;
                for (int64_t c = 0; c < count; ++c) {
                  if (which[c] < 0) continue;
                  const Sum value = Widen(gradient[c * layout.bins.channel]);
                  Sum* const map = sums.data() + c * own.channel;
                  VisitCorners(rows.begin[which[c] / on_x],
                               columns.begin[which[c] % on_x], own,
                               [&](int64_t offset, Sum weight) {
                                 map[offset] += weight * value;
                               });
                }
              }
            }
          }
          T* const to = d_features + from;
          if (args.channels_first) {
            narrow(sums.data(), to, count * pixels);
          } else {
            for (int64_t i = 0; i < pixels; ++i) {
              narrow(&sums[i * count], to + i * args.channels, count);
            }
          }
        }
      });
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                                  \
  template Error RoiAlignMax<T>(const Cpu&, const RoiArgs&,                 \
                                const RoiSampling&, const T*, const T*,     \
                                const Coordinate<T>*, const int32_t*, T*);  \
  template Error RoiAlignMaxGrad<T>(const Cpu&, const RoiArgs&,             \
                                    const RoiSampling&, const T*, const T*, \
                                    const Coordinate<T>*, const int32_t*, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
