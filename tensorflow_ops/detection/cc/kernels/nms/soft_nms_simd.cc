#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms_simd.h"

#include "tensorflow_ops/core/cc/elementwise.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

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
    constexpr T kLeast = sizeof(T) == 4 ? -__FLT_MAX__ : -__DBL_MAX__;
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
inline constexpr T kLowest = -static_cast<T>(__builtin_inf());

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

template <bool kAnySize, typename T>
TFO_INLINE int64_t DecayScoresOf(const SoftNmsArgs<T>& args,
                                 const BoxRows<T>& boxes, int64_t n,
                                 const BoxRow<T>& taken, T* scores) {
  using V = typename Lanes<T>::Vector;
  const Box<V> corners = {Broadcast<V>(taken.x1), Broadcast<V>(taken.y1),
                          Broadcast<V>(taken.x2), Broadcast<V>(taken.y2)};
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

}  // namespace

template <typename T>
int64_t DecayScores(const SoftNmsArgs<T>& args, const BoxRows<T>& boxes,
                    int64_t n, const BoxRow<T>& taken, T* scores) {
  return DecayScoresOf<true>(args, boxes, n, taken, scores);
}
template <typename T>
int64_t DecayOrdinaryScores(const SoftNmsArgs<T>& args, const BoxRows<T>& boxes,
                            int64_t n, const BoxRow<T>& taken, T* scores) {
  return DecayScoresOf<false>(args, boxes, n, taken, scores);
}

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

TFO_INSTANTIATE_WIDE_FUNCTION(DecayScores);
TFO_INSTANTIATE_WIDE_FUNCTION(DecayOrdinaryScores);
TFO_INSTANTIATE_WIDE_FUNCTION(DecayByIou);
TFO_INSTANTIATE_WIDE_FUNCTION(PlaceOfBest);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
