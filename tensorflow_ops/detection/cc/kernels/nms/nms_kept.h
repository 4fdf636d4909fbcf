// The kept boxes of a sweep on the CPU, in cells: a box is compared with those
// of some cells.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_KEPT_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_KEPT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/nms/nms_boxes.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_sweep_simd.h"

namespace tfo {

template <typename T>
struct Candidate {
  bool can_overlap;
  bool has_ordinary_unions;  // box.h; true for rotated boxes
  // The box, or for a rotated box a square around it; set if can_overlap.
  BoxRow<T> row;
  scalar::RotatedBox<T> rotated;
};

template <typename T>
Candidate<T> ReadCandidate(const T* boxes, int64_t i, BoxFormat format);

template <typename T>
class KeptBoxes {
 public:
  // capacities[c]: the most boxes that are added to cell c.
  KeptBoxes(BoxFormat format, T iou_threshold,
            const std::vector<int32_t>& capacities);

  // Reads box i. After the first box without ordinary unions, Suppress handles
  // boxes of any size.
  Candidate<T> Read(const T* boxes, int64_t i, BoxFormat format);

  int32_t count(int64_t cell) const { return counts_[cell]; }
  const std::vector<int32_t>& counts() const { return counts_; }

  // Returns whether a box of the cell, from its `from`th on, has an IoU above
  // the threshold with a candidate from Read that can overlap.
  bool Suppress(const Candidate<T>& candidate, int64_t cell,
                int32_t from) const;

  void Add(const Candidate<T>& candidate, int64_t cell);

 private:
  const T iou_threshold_;
  std::vector<int32_t> starts_, counts_;  // of the cells
  std::unique_ptr<T[]> memory_;
  BoxRows<T> rows_;
  std::unique_ptr<scalar::RotatedBox<T>[]> rotated_;  // null for others
  // Threads that share groups may all replace it; both functions have the same
  // results for ordinary unions.
  using AnyOverlapsFunction = bool (*)(const BoxRows<T>&, int64_t, int64_t,
                                       const BoxRow<T>&, T);
  std::atomic<AnyOverlapsFunction> any_overlaps_;
  int64_t (*const first_touching_)(const BoxRows<T>&, int64_t, int64_t,
                                   const BoxRow<T>&);
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_KEPT_H_
