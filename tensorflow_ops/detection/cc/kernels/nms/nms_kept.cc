#include "tensorflow_ops/detection/cc/kernels/nms/nms_kept.h"

#include <cmath>
#include <limits>

namespace tfo {

using scalar::CanOverlap;
using scalar::ReadCompared;
using scalar::RotatedBox;
using scalar::UprightBox;

template <typename T>
Candidate<T> ReadCandidate(const T* boxes, int64_t i, BoxFormat format) {
  Candidate<T> candidate;
  if (format != BoxFormat::kRotated) {
    const UprightBox<T> box = ReadCompared<T, false>(boxes, i, format);
    candidate.can_overlap = CanOverlap(box);
    candidate.has_ordinary_unions = scalar::HasOrdinaryUnions(box.area);
    candidate.row = {box.corners.x1, box.corners.y1, box.corners.x2,
                     box.corners.y2, box.area};
    return candidate;
  }
  const RotatedBox<T> box = ReadCompared<T, true>(boxes, i, format);
  candidate.can_overlap = CanOverlap(box);
  candidate.has_ordinary_unions = true;
  candidate.rotated = box;
  // Around the circle of its corners, with room for roundings.
  constexpr T kRounding = 8 * std::numeric_limits<T>::epsilon();
  const T cx = static_cast<T>(box.cx), cy = static_cast<T>(box.cy);
  const T reach =
      box.radius * (1 + T(1e-4)) + kRounding * (std::abs(cx) + std::abs(cy));
  candidate.row = {cx - reach, cy - reach, cx + reach, cy + reach, T(0)};
  return candidate;
}

template <typename T>
KeptBoxes<T>::KeptBoxes(BoxFormat format, T iou_threshold,
                        const std::vector<int32_t>& capacities)
    : iou_threshold_(iou_threshold),
      starts_(capacities.size()),
      counts_(capacities.size()),
      any_overlaps_(TFO_DISPATCH(AnyOrdinaryOverlaps<T>)),
      first_touching_(TFO_DISPATCH(FirstTouching<T>)) {
  int64_t size = 0;
  for (size_t c = 0; c < capacities.size(); ++c) {
    starts_[c] = static_cast<int32_t>(size);
    size += capacities[c];
  }
  // Not cleared: boxes are written before they are compared.
  memory_.reset(new T[5 * size + kRowPadding]);
  T* const rows = memory_.get();
  rows_ = {rows, rows + size, rows + 2 * size, rows + 3 * size,
           rows + 4 * size};
  if (format == BoxFormat::kRotated) rotated_.reset(new RotatedBox<T>[size]);
}

template <typename T>
Candidate<T> KeptBoxes<T>::Read(const T* boxes, int64_t i, BoxFormat format) {
  const Candidate<T> candidate = ReadCandidate(boxes, i, format);
  if (candidate.can_overlap && !candidate.has_ordinary_unions) {
    any_overlaps_.store(TFO_DISPATCH(AnyOverlaps<T>),
                        std::memory_order_relaxed);
  }
  return candidate;
}

template <typename T>
bool KeptBoxes<T>::Suppress(const Candidate<T>& candidate, int64_t cell,
                            int32_t from) const {
  // No IoU is above 1.
  if (counts_[cell] <= from || iou_threshold_ >= 1) return false;
  const int64_t begin = int64_t{starts_[cell]} + from;
  const int64_t end = int64_t{starts_[cell]} + counts_[cell];
  if (rotated_ == nullptr) {
    return any_overlaps_.load(std::memory_order_relaxed)(
        rows_, begin, end, candidate.row, iou_threshold_);
  }
  for (int64_t i = begin; i < end; ++i) {
    i = first_touching_(rows_, i, end, candidate.row);
    if (i < end &&
        scalar::Suppresses(rotated_[i], candidate.rotated, iou_threshold_)) {
      return true;
    }
  }
  return false;
}

template <typename T>
void KeptBoxes<T>::Add(const Candidate<T>& candidate, int64_t cell) {
  const int64_t at = int64_t{starts_[cell]} + counts_[cell]++;
  rows_.x1[at] = candidate.row.x1;
  rows_.y1[at] = candidate.row.y1;
  rows_.x2[at] = candidate.row.x2;
  rows_.y2[at] = candidate.row.y2;
  rows_.area[at] = candidate.row.area;
  if (rotated_ != nullptr) rotated_[at] = candidate.rotated;
}

template Candidate<float> ReadCandidate(const float*, int64_t, BoxFormat);
template Candidate<double> ReadCandidate(const double*, int64_t, BoxFormat);
template class KeptBoxes<float>;
template class KeptBoxes<double>;

}  // namespace tfo
