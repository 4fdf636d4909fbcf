// Bins that are weighted averages of pixels: RoIAlign (He et al., Mask R-CNN,
// 2017), its multi-scale form on a feature pyramid (Lin et al., FPN, 2017),
// PS-RoI-Align and PS-RoI-Pool (Dai et al., R-FCN, 2016); their gradients. The
// weights are defined in roi_axis.h. For the average of RoIAlign only: its
// maximum is in roi_align_max.h.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/roi_axis.h"

namespace tfo {

inline constexpr int kMostLevels = 16;

// One feature map of a pyramid.
struct RoiLevel {
  int64_t height, width;
  float spatial_scale;  // feature pixels per image pixel
  float smallest_box;   // sqrt(area), in image pixels, of the boxes that belong
                        // here or to a later level; 0 on the first
};

// Which channels a bin averages.
enum class RoiChannels {
  kAll,           // each its own
  kChannelMajor,  // channel c of bin (p, q) is (c * ph + p) * pw + q
  kBinMajor,      // channel c of bin (p, q) is (p * pw + q) * channels + c
};

struct RoiAverageArgs {
  // Of the features; height, width and spatial_scale are the first level's.
  RoiArgs roi;
  RoiBins bins;
  RoiSampling sampling;  // of kSamples
  RoiChannels order;
  int32_t num_levels;  // at least 1
  RoiLevel levels[kMostLevels];

  TFO_HOST_DEVICE int64_t PooledChannels() const {
    return order == RoiChannels::kAll
               ? roi.channels
               : roi.channels / (roi.pooled_height * roi.pooled_width);
  }
  // The features' channel of bin (p, q)'s channel c is First(p, q) + c * Step.
  TFO_HOST_DEVICE int64_t FirstChannel(int64_t p, int64_t q) const {
    const int64_t bin = p * roi.pooled_width + q;
    return order == RoiChannels::kAll            ? 0
           : order == RoiChannels::kChannelMajor ? bin
                                                 : bin * PooledChannels();
  }
  TFO_HOST_DEVICE int64_t ChannelStep() const {
    return order == RoiChannels::kChannelMajor
               ? roi.pooled_height * roi.pooled_width
               : 1;
  }
};

// A box on its level.
template <typename C>
struct RoiOnLevel {
  bool valid;  // as ScaledBox
  int32_t level;
  int64_t image;
  RoiAxis<C> y, x;
};

template <typename C>
TFO_HOST_DEVICE static inline RoiOnLevel<C> ReadRoi(const RoiAverageArgs& args,
                                                    const C* boxes,
                                                    const int32_t* box_indices,
                                                    int64_t k) {
  RoiOnLevel<C> roi = {};
  const C* b = boxes + 4 * k;
  // The level by comparison of areas, with the tolerance that torchvision has:
  // corners are rounded numbers.
  const double area = (static_cast<double>(b[2]) - static_cast<double>(b[0])) *
                      (static_cast<double>(b[3]) - static_cast<double>(b[1])) *
                      1.000002;
  for (int32_t l = 1; l < args.num_levels; ++l) {
    const double smallest = args.levels[l].smallest_box;
    if (area >= smallest * smallest) roi.level = l;
  }
  const RoiLevel& level = args.levels[roi.level];
  RoiArgs at_level = args.roi;
  at_level.spatial_scale = level.spatial_scale;
  const ScaledBox<C> box = ReadBox(at_level, boxes, box_indices, k);
  roi.valid = box.valid;
  if (!box.valid) return roi;
  roi.image = box.image;
  const int64_t ph = args.roi.pooled_height, pw = args.roi.pooled_width;
  const C scale = level.spatial_scale;
  if (args.bins == RoiBins::kSamples) {
    roi.y = SampledAxis(box.y1, box.y2, scale, level.height, ph, args.sampling);
    roi.x = SampledAxis(box.x1, box.x2, scale, level.width, pw, args.sampling);
  } else {
    roi.y = PixelAxis(box.y1, box.y2, level.height, ph);
    roi.x = PixelAxis(box.x1, box.x2, level.width, pw);
  }
  return roi;
}

// T is float, double, Half or BFloat16; each feature map is smaller than 2^31
// pixels. `features` and `d_features` are arrays of num_levels pointers, on the
// host. The same bits for any number of threads on the CPU. Each returns null
// or the launch's error; the Gpu overloads only enqueue.

// Writes all of `output`: each bin's average, [num_boxes, ph, pw, channels] or
// [num_boxes, channels, ph, pw] with PooledChannels().
template <typename T>
Error RoiAverage(const Cpu& cpu, const RoiAverageArgs& args,
                 const T* const* features, const Coordinate<T>* boxes,
                 const int32_t* box_indices, T* output);
template <typename T>
Error RoiAverage(const Gpu& gpu, const RoiAverageArgs& args,
                 const T* const* features, const Coordinate<T>* boxes,
                 const int32_t* box_indices, T* output);

// Writes all of each `d_features`, the transpose of RoiAverage. 16-bit types
// are summed in float. On a GPU, sums have no fixed order unless
// `deterministic`.
template <typename T>
Error RoiAverageGrad(const Cpu& cpu, const RoiAverageArgs& args,
                     const T* d_output, const Coordinate<T>* boxes,
                     const int32_t* box_indices, T* const* d_features);
template <typename T>
Error RoiAverageGrad(const Gpu& gpu, const RoiAverageArgs& args,
                     bool deterministic, const T* d_output,
                     const Coordinate<T>* boxes, const int32_t* box_indices,
                     T* const* d_features);

// Writes all of `d_boxes` [num_boxes, 4], in the order of boxes: the derivative
// to each coordinate, zeros for an invalid box. Samples held at an edge of the
// map or outside do not move, and the number of samples does not change. Of
// kSamples only. Repeatable on a GPU, too.
template <typename T>
Error RoiAverageBoxesGrad(const Cpu& cpu, const RoiAverageArgs& args,
                          const T* d_output, const T* const* features,
                          const Coordinate<T>* boxes,
                          const int32_t* box_indices, Coordinate<T>* d_boxes);
template <typename T>
Error RoiAverageBoxesGrad(const Gpu& gpu, const RoiAverageArgs& args,
                          const T* d_output, const T* const* features,
                          const Coordinate<T>* boxes,
                          const int32_t* box_indices, Coordinate<T>* d_boxes);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_H_
