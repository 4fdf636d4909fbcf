// soft_nms on the CPU.
#include <algorithm>
#include <limits>
#include <memory>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_kept_simd.h"
#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
struct Decay {
  bool gaussian;
  T rate, iou_threshold;

  explicit Decay(const SoftNmsArgs<T>& args)
      : gaussian(args.method == SoftNmsMethod::kGaussian),
        rate(-1 / args.sigma),  // one division for all boxes
        iou_threshold(args.iou_threshold) {
    // Finite, so that an IoU of 0 has the decay 1.
    constexpr T kLeast = std::numeric_limits<T>::lowest();
    if (!(rate >= kLeast)) rate = kLeast;
  }

  template <typename V>
  TFO_INLINE V Of(V iou) const {
    if (gaussian) return Exp(iou * iou * rate);
    const V one = Broadcast<V>(T(1));
    return iou >= iou_threshold ? one - iou : one;
  }
};

template <typename T>
inline constexpr T kLowest = -std::numeric_limits<T>::infinity();

// The place of the greatest score so far.
template <typename T>
class Best {
 public:
  using V = typename Lanes<T>::Vector;
  using Index = typename Lanes<T>::Index;

  TFO_INLINE Best() {
    for (int i = 0; i < Lanes<T>::kCount; ++i) here_[i] = i;
  }

  // Adds the next vector of scores, with kLowest after the last.
  TFO_INLINE void Add(V score) {
    const Index greater = score > best_;  // false for NaN
    best_ = greater ? score : best_;
    places_ = greater ? here_ : places_;
    here_ += Lanes<T>::kCount;
  }

  TFO_INLINE int64_t Place(int64_t n) const {
    // Without branches, which would often be predicted wrongly.
    T value = kLowest<T>;
    for (int i = 0; i < Lanes<T>::kCount; ++i) {
      value = best_[i] > value ? best_[i] : value;
    }
    int64_t place = n;
    for (int i = 0; i < Lanes<T>::kCount; ++i) {
      const int64_t here = best_[i] == value ? places_[i] : n;
      place = here < place ? here : place;
    }
    return place;
  }

 private:
  V best_ = Broadcast<V>(kLowest<T>);
  Index places_ = Index{} - 1, here_;
};

// The functions below return the place of the greatest of the n scores, the
// first of equal ones; a place outside of [0, n) if all are NaN or -infinity.

// Multiplies the scores by the decay that the taken box causes.
template <bool kAnySize, typename T>
int64_t DecayScores(const SoftNmsArgs<T>& args, const BoxRows<T>& boxes,
                    int64_t n, const UprightBox<T>& taken, T* scores) {
  using V = typename Lanes<T>::Vector;
  const Box<V> corners = Repeat<V>(taken.corners);
  const V area = Broadcast<V>(taken.area);
  const Decay<T> decay(args);
  Best<T> best;
  ForVectors<T>(n, [&](auto part, int64_t at) {
    const Box<V> box = {
        part.Load(boxes.x1 + at, T(0)), part.Load(boxes.y1 + at, T(0)),
        part.Load(boxes.x2 + at, T(0)), part.Load(boxes.y2 + at, T(0))};
    const Overlap<V> overlap = OverlapOf<kAnySize>(
        box, part.Load(boxes.area + at, T(0)), corners, area);
    V score = part.Load(scores + at, kLowest<T>);
    if (AnyLane(overlap.intersection > V{})) {  // else the decay is 1
      score *= decay.Of(Ratio(overlap.intersection, overlap.uni));
      part.Store(score, scores + at);
    }
    best.Add(score);
  });
  return best.Place(n);
}

// The same with the IoU of each box and the taken one.
template <typename T>
int64_t DecayByIou(const SoftNmsArgs<T>& args, const T* iou, int64_t n,
                   T* scores) {
  const Decay<T> decay(args);
  Best<T> best;
  ForVectors<T>(n, [&](auto part, int64_t at) {
    const auto score = part.Load(scores + at, kLowest<T>) *
                       decay.Of(part.Load(iou + at, T(0)));
    part.Store(score, scores + at);
    best.Add(score);
  });
  return best.Place(n);
}

template <typename T>
int64_t PlaceOfBest(const T* scores, int64_t n) {
  Best<T> best;
  ForVectors<T>(n, [&](auto part, int64_t at) {
    best.Add(part.Load(scores + at, kLowest<T>));
  });
  return best.Place(n);
}

// The boxes that are not taken yet, in the order of their indices, and some
// taken ones, whose scores are NaN.
template <typename T>
class Remaining {
 public:
  explicit Remaining(const SoftNmsArgs<T>& args)
      : args_(args),
        memory_(new T[6 * args.num_boxes]),
        indices_(new int32_t[args.num_boxes]),
        rows_(memory_.get(), args.num_boxes),
        scores_(memory_.get() + 5 * args.num_boxes) {
    if (is_rotated()) {
      rotated_.reset(new RotatedBox<T>[args.num_boxes]);
      ious_.reset(new T[args.num_boxes]);
    }
    for (int64_t i = 0; i < args.num_boxes; ++i) {
      if (!CanBeTaken(args.scores[i])) continue;
      UprightBox<T> box = {};  // without area
      if (is_rotated()) {
        rotated_[size_] = ReadRotated(args.boxes + 5 * i);
      } else {
        const auto read = ReadCompared<T, false>(args.boxes, i, args.format);
        if (CanOverlap(read)) {
          box = read;
          any_size_ |= !HasOrdinaryUnions(box.area);
        }
      }
      Put(size_++, box, args.scores[i], static_cast<int32_t>(i));
    }
    best_ = PlaceOfBest(scores_, size_);
  }

  // Takes the best box, if its score is above the threshold.
  bool Take(int32_t* index, T* score) {
    const int64_t at = best_;
    if (at < 0 || at >= size_ || !(scores_[at] > args_.score_threshold)) {
      return false;
    }
    *index = indices_[at];
    *score = scores_[at];
    scores_[at] = std::numeric_limits<T>::quiet_NaN();
    if (is_rotated()) {
      const RotatedBox<T> taken = rotated_[at];
      RemoveTaken();
      best_ = DecayRotated(taken);
    } else {
      const UprightBox<T> taken = rows_[at];
      RemoveTaken();
      best_ = any_size_
                  ? DecayScores<true>(args_, rows_, size_, taken, scores_)
                  : DecayScores<false>(args_, rows_, size_, taken, scores_);
    }
    return true;
  }

 private:
  bool is_rotated() const { return args_.format == BoxFormat::kRotated; }

  // Scores above 0 fall, others rise to 0 at most.
  bool CanBeTaken(T score) const {
    return args_.score_threshold >= 0 ? score > args_.score_threshold
                                      : score == score;
  }

  void Put(int64_t at, const UprightBox<T>& box, T score, int32_t index) {
    rows_.Set(at, box);
    scores_[at] = score;
    indices_[at] = index;
  }

  int64_t DecayRotated(const RotatedBox<T>& taken) {
    for (int64_t i = 0; i < size_; ++i) {
      const RotatedBox<T>& box = rotated_[i];
      ious_[i] =
          CanOverlap(taken) && CanOverlap(box) ? IouOf<T>(taken, box) : T(0);
    }
    return DecayByIou(args_, ious_.get(), size_, scores_);
  }

  // Once they are many.
  void RemoveTaken() {
    if (++taken_ <= size_ / 8) return;
    int64_t to = 0;
    for (int64_t i = 0; i < size_; ++i) {
      if (!CanBeTaken(scores_[i])) continue;
      Put(to, rows_[i], scores_[i], indices_[i]);
      if (is_rotated()) rotated_[to] = rotated_[i];
      ++to;
    }
    size_ = to;
    taken_ = 0;
  }

  const SoftNmsArgs<T>& args_;
  std::unique_ptr<T[]> memory_;
  std::unique_ptr<int32_t[]> indices_;
  const BoxRows<T> rows_;
  T* const scores_;
  // Null for other formats.
  std::unique_ptr<RotatedBox<T>[]> rotated_;
  std::unique_ptr<T[]> ious_;  // with the taken box
  // Whether there are boxes without ordinary unions (box.h).
  bool any_size_ = false;
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

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(SoftNms, SoftNmsArgs);

}  // namespace tfo
