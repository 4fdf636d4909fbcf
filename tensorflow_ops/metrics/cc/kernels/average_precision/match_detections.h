// Matches detections with ground truth as COCO does: greedily, per image,
// class, range of areas and threshold.
#ifndef TENSORFLOW_OPS_METRICS_CC_KERNELS_AVERAGE_PRECISION_MATCH_DETECTIONS_H_
#define TENSORFLOW_OPS_METRICS_CC_KERNELS_AVERAGE_PRECISION_MATCH_DETECTIONS_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

// What a detection is for a range of areas and a threshold.
enum Outcome : uint8_t { kWrong = 0, kRight = 1, kIgnored = 2 };

// Boxes are x, y, width, height. A box of a negative class is padding.
struct MatchDetectionsArgs {
  int64_t images, detections, objects, areas, thresholds;
  int64_t max_detections;        // of an image and class
  const double* boxes;           // [images, detections, 4]
  const double* scores;          // [images, detections]
  const int64_t* classes;        // [images, detections]
  const double* true_boxes;      // [images, objects, 4]
  const int64_t* true_classes;   // [images, objects]
  const double* true_areas;      // [images, objects]
  const bool* is_crowd;          // [images, objects]
  const double* iou_thresholds;  // [thresholds]
  const double* area_ranges;     // [areas, 2]: least and greatest area
  uint8_t* outcomes;  // [images, detections, areas, thresholds] of Outcome
  // The position of a detection among those of its image and class by falling
  // score; -1 for padding and from max_detections on.
  int32_t* ranks;  // [images, detections]
  // Whether an object counts: it is no padding, no crowd, and in the range.
  bool* counts;  // [images, objects, areas]
};

// Writes all results; outcomes of detections without a rank are kIgnored. Equal
// scores rank in order, NaN after all others. Boxes that are not
// finite do not overlap.
Error MatchDetections(const Cpu& cpu, const MatchDetectionsArgs& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_METRICS_CC_KERNELS_AVERAGE_PRECISION_MATCH_DETECTIONS_H_
