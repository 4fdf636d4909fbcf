// COCO's average precision and recall of matched detections.
#ifndef TENSORFLOW_OPS_METRICS_CC_KERNELS_AVERAGE_PRECISION_AVERAGE_PRECISION_H_
#define TENSORFLOW_OPS_METRICS_CC_KERNELS_AVERAGE_PRECISION_AVERAGE_PRECISION_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

struct AveragePrecisionArgs {
  int64_t detections, classes, areas, thresholds, limits, recalls;
  const double* scores;          // [detections]
  const int32_t* class_indices;  // [detections]; outside [0, classes): left out
  const int32_t* ranks;          // [detections], of match_detections.h
  const uint8_t* outcomes;       // [detections, areas, thresholds] of Outcome
  const int64_t* object_counts;  // [classes, areas]
  const int32_t* max_detections;    // [limits]: only lower ranks take part
  const double* recall_thresholds;  // [recalls]
  double* precision;                // [classes, areas, thresholds]
  double* recall;                   // [classes, areas, limits, thresholds]
};

// precision: sorts all detections by falling score, equal ones in order. The
// mean, over the recall thresholds, of the best precision at that recall or a
// higher one; 0 where no recall reaches it. recall: right detections
// per object. Both are -1 without objects.
Error AveragePrecision(const Cpu& cpu, const AveragePrecisionArgs& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_METRICS_CC_KERNELS_AVERAGE_PRECISION_AVERAGE_PRECISION_H_
