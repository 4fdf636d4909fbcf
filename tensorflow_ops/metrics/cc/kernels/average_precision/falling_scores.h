// The order of scores that decides which detections come first.
#ifndef TENSORFLOW_OPS_METRICS_CC_KERNELS_AVERAGE_PRECISION_FALLING_SCORES_H_
#define TENSORFLOW_OPS_METRICS_CC_KERNELS_AVERAGE_PRECISION_FALLING_SCORES_H_

#include <cmath>

namespace tfo {

// For a stable sort by falling score, with NaN at the end as in NumPy.
inline bool IsBefore(double score, double other) {
  return score > other || (std::isnan(other) && !std::isnan(score));
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_METRICS_CC_KERNELS_AVERAGE_PRECISION_FALLING_SCORES_H_
