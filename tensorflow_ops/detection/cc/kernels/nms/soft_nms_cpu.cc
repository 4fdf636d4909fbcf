// soft_nms on the CPU.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/nms/nms_kept.h"
#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms_simd.h"

namespace tfo {
namespace {

// The boxes that are not taken yet, in the order of their indices, and some
// taken ones, whose scores are NaN.
template <typename T>
class Remaining {
 public:
  explicit Remaining(const SoftNmsArgs<T>& args)
      : args_(args),
        decay_(TFO_DISPATCH(DecayOrdinaryScores<T>)),
        decay_by_iou_(TFO_DISPATCH(DecayByIou<T>)),
        memory_(new T[6 * args.num_boxes]),
        indices_(new int32_t[args.num_boxes]) {
    const int64_t n = args.num_boxes;
    T* const m = memory_.get();
    rows_ = {m, m + n, m + 2 * n, m + 3 * n, m + 4 * n};
    scores_ = m + 5 * n;
    const bool rotated = args.format == BoxFormat::kRotated;
    if (rotated) {
      rotated_.reset(new Candidate<T>[n]);
      ious_.reset(new T[n]);
    }
    for (int64_t i = 0; i < n; ++i) {
      if (!CanBeTaken(args.scores[i])) continue;
      Candidate<T> box = ReadCandidate(args.boxes, i, args.format);
      if (!box.can_overlap) {
        box.row = {};  // without area
      } else if (!box.has_ordinary_unions) {
        decay_ = TFO_DISPATCH(DecayScores<T>);
      }
      Put(size_, box.row, args.scores[i], static_cast<int32_t>(i));
      if (rotated) rotated_[size_] = box;
      ++size_;
    }
    best_ = TFO_DISPATCH(PlaceOfBest<T>)(scores_, size_);
  }

  // Takes the best box, if its score is above the threshold.
  bool Take(int32_t* index, T* score) {
    const int64_t at = best_;
    if (at < 0 || at >= size_ || !(scores_[at] > args_.score_threshold)) {
      return false;
    }
    *index = indices_[at];
    *score = scores_[at];
    const BoxRow<T> row = Row(at);
    scores_[at] = std::numeric_limits<T>::quiet_NaN();
    const Candidate<T> taken =
        rotated_ == nullptr ? Candidate<T>() : rotated_[at];
    if (++taken_ > size_ / 8) RemoveTaken();
    best_ = rotated_ == nullptr ? decay_(args_, rows_, size_, row, scores_)
                                : DecayRotated(taken);
    return true;
  }

 private:
  // Scores above 0 fall, others rise to 0 at most.
  bool CanBeTaken(T score) const {
    return args_.score_threshold >= 0 ? score > args_.score_threshold
                                      : score == score;
  }

  void Put(int64_t at, const BoxRow<T>& row, T score, int32_t index) {
    rows_.x1[at] = row.x1;
    rows_.y1[at] = row.y1;
    rows_.x2[at] = row.x2;
    rows_.y2[at] = row.y2;
    rows_.area[at] = row.area;
    scores_[at] = score;
    indices_[at] = index;
  }

  BoxRow<T> Row(int64_t at) const {
    return {rows_.x1[at], rows_.y1[at], rows_.x2[at], rows_.y2[at],
            rows_.area[at]};
  }

  int64_t DecayRotated(const Candidate<T>& taken) {
    for (int64_t i = 0; i < size_; ++i) {
      const Candidate<T>& box = rotated_[i];
      ious_[i] = taken.can_overlap && box.can_overlap
                     ? scalar::IouOf<T>(taken.rotated, box.rotated)
                     : T(0);
    }
    return decay_by_iou_(args_, ious_.get(), size_, scores_);
  }

  void RemoveTaken() {
    int64_t to = 0;
    for (int64_t i = 0; i < size_; ++i) {
      if (!CanBeTaken(scores_[i])) continue;
      Put(to, Row(i), scores_[i], indices_[i]);
      if (rotated_ != nullptr) rotated_[to] = rotated_[i];
      ++to;
    }
    size_ = to;
    taken_ = 0;
  }

  const SoftNmsArgs<T>& args_;
  int64_t (*decay_)(const SoftNmsArgs<T>&, const BoxRows<T>&, int64_t,
                    const BoxRow<T>&, T*);
  int64_t (*const decay_by_iou_)(const SoftNmsArgs<T>&, const T*, int64_t, T*);
  std::unique_ptr<T[]> memory_;
  std::unique_ptr<int32_t[]> indices_;
  std::unique_ptr<Candidate<T>[]> rotated_;  // null for other formats
  std::unique_ptr<T[]> ious_;  // of rotated boxes and the taken one
  BoxRows<T> rows_;
  T* scores_;
  int64_t size_ = 0, taken_ = 0, best_ = -1;
};

}  // namespace

template <typename T>
Error SoftNms(const Cpu&, const SoftNmsArgs<T>& args) {
  const int64_t most = args.max_outputs < 0
                           ? args.num_boxes
                           : std::min(args.num_boxes, args.max_outputs);
  Remaining<T> remaining(args);
  int64_t m = 0;
  while (m < most && remaining.Take(&args.indices[m], &args.taken_scores[m])) {
    ++m;
  }
  *args.count = static_cast<int32_t>(m);
  return nullptr;
}

TFO_INSTANTIATE_WIDE_ALGORITHM(SoftNms, Cpu, SoftNmsArgs);

}  // namespace tfo
