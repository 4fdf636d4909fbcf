// Bins that are weighted averages of pixels: RoIAlign (He et al., Mask R-CNN,
// 2017), its multi-scale form on a feature pyramid (Lin et al., FPN, 2017),
// PS-RoI-Align and PS-RoI-Pool (Dai et al., R-FCN, 2016); their gradients. The
// weights are defined in roi_axis.h.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_axis.h"

namespace tfo {

inline constexpr int kMaxLevels = 16;

// One feature map of a pyramid.
struct RoiLevel {
  int64_t height, width;
  float spatial_scale;  // feature pixels per image pixel
  float smallest_box;   // sqrt(area), in image pixels, of the boxes that belong
                        // here or to a later level; 0 on the first
};

// The features' channels that a bin averages.
enum class RoiChannels {
  kAll,           // all of them
  kChannelMajor,  // channel c of bin (p, q) is (c * ph + p) * pw + q
  kBinMajor,      // channel c of bin (p, q) is (p * pw + q) * channels + c
};

// The features' channels of bins: channel c of bin (p, q), with c in
// [0, count), is (p * pw + q) * next_bin + c * step.
struct BinChannels {
  int64_t count, step, next_bin;
};

struct RoiAverageSpec {
  int64_t batch, channels;  // of all levels' features
  PoolGrid grid;
  RoiBins bins;
  RoiSampling sampling;  // of kSamples
  RoiChannels order;
  int32_t num_levels;  // at least 1
  RoiLevel levels[kMaxLevels];

  TFO_HOST_DEVICE FeatureShape Features(int32_t level) const {
    return {batch, levels[level].height, levels[level].width, channels};
  }
  TFO_HOST_DEVICE BinChannels ChannelsOfBins() const {
    const bool all = order == RoiChannels::kAll;
    const bool channel_major = order == RoiChannels::kChannelMajor;
    const int64_t count =
        all ? channels : channels / (grid.height * grid.width);
    return {count, channel_major ? grid.height * grid.width : 1,
            all             ? 0
            : channel_major ? 1
                            : count};
  }
  // For callers that have ChannelsOfBins(): it divides.
  TFO_HOST_DEVICE FeatureShape Pooled(int64_t num_boxes,
                                      const BinChannels& of) const {
    return {num_boxes, grid.height, grid.width, of.count};
  }
  TFO_HOST_DEVICE FeatureShape Pooled(int64_t num_boxes) const {
    return Pooled(num_boxes, ChannelsOfBins());
  }
};

// Box k's axes, on the level that it belongs to.
template <typename C>
TFO_HOST_DEVICE static inline Roi<C> ReadRoi(const RoiAverageSpec& args,
                                             const Boxes<C>& boxes, int64_t k) {
  const C* b = boxes.data + 4 * k;
  // Levels by comparing areas, with torchvision's tolerance: corners are
  // rounded.
  const double area = (static_cast<double>(b[2]) - static_cast<double>(b[0])) *
                      (static_cast<double>(b[3]) - static_cast<double>(b[1])) *
                      1.000002;
  int32_t l = 0;
  for (int32_t i = 1; i < args.num_levels; ++i) {
    const double smallest = args.levels[i].smallest_box;
    if (area >= smallest * smallest) l = i;
  }
  const RoiLevel& level = args.levels[l];
  const ScaledBox<C> box = ReadBox(boxes, k, args.batch, level.spatial_scale);
  Roi<C> roi = {};
  if (args.bins == RoiBins::kSamples) {
    roi = SampledRoi(box, C(level.spatial_scale), level.height, level.width,
                     args.grid, args.sampling);
  } else {
    roi = PixelRoi(box, level.height, level.width, args.grid);
  }
  roi.level = l;
  return roi;
}

// T is float, double, Half or BFloat16; each feature map is smaller than 2^31
// pixels. The same bits for any number of threads on the CPU. Each function
// returns null or the launch's error; the Gpu overloads only enqueue.

// Maps are those of the levels; bins have the shape Pooled().
template <typename T>
struct RoiAverageArgs : RoiAverageSpec {
  Boxes<Coordinate<T>> boxes;
  const T* features[kMaxLevels];
  T* output;
};
template <typename T>
struct RoiAverageGradArgs : RoiAverageSpec {
  Boxes<Coordinate<T>> boxes;
  const T* d_output;
  T* d_features[kMaxLevels];
};
template <typename T>
struct RoiAverageBoxesGradArgs : RoiAverageSpec {
  Boxes<Coordinate<T>> boxes;
  const T* d_output;
  const T* features[kMaxLevels];
  Coordinate<T>* d_boxes;  // [boxes.count, 4], in the order of boxes
};

// Writes all of `output`: each bin's average.
template <typename T>
Error RoiAverage(const Cpu& cpu, const RoiAverageArgs<T>& args);
template <typename T>
Error RoiAverage(const Gpu& gpu, const RoiAverageArgs<T>& args);

// Writes all of `d_features`, the transpose of RoiAverage. 16-bit types are
// summed in float. On a GPU, sums have a fixed order only if gpu.deterministic.
template <typename T>
Error RoiAverageGrad(const Cpu& cpu, const RoiAverageGradArgs<T>& args);
template <typename T>
Error RoiAverageGrad(const Gpu& gpu, const RoiAverageGradArgs<T>& args);

// Writes all of `d_boxes`: the derivative to each coordinate, zeros for an
// invalid box. Samples held at an edge of the map or outside do not move, and
// the number of samples does not change. Of kSamples only. Deterministic on a
// GPU, too.
template <typename T>
Error RoiAverageBoxesGrad(const Cpu& cpu,
                          const RoiAverageBoxesGradArgs<T>& args);
template <typename T>
Error RoiAverageBoxesGrad(const Gpu& gpu,
                          const RoiAverageBoxesGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_H_
