// One step of the search of an assignment.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_SINK_SCAN_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_SINK_SCAN_H_

#include <cstdint>

namespace tfo {

// Arrays of sinks are padded to a multiple of this, the doubles of the widest
// vector.
inline constexpr int64_t kSinkMultiple = 8;

// What a search knows when it reaches `source`; see AssignmentMemory. Padding
// has infinite costs and distances.
struct SinkScan {
  const double *costs, *potentials;
  double* nearest;
  int64_t* from;
  const int32_t* owners;
  int64_t sinks;  // padded
  int64_t source;
  double base;    // its distance less its potential
  bool is_first;  // of the search: all distances before are infinite
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_SINK_SCAN_H_
