#include "tensorflow_ops/detection/cc/kernels/soft_nms_simd.h"

#include "tensorflow_ops/core/cc/elementwise.h"
#include "tensorflow_ops/detection/cc/kernels/box.h"

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
    constexpr T kLowest = sizeof(T) == 4 ? -__FLT_MAX__ : -__DBL_MAX__;
    if (!(rate >= kLowest)) rate = kLowest;
  }

  template <typename V>
  TFO_INLINE V Of(V iou) const {
    if (gaussian) return Exp(iou * iou * rate);
    const V one = V{} + T(1);
    return iou >= iou_threshold ? one - iou : one;
  }
};

}  // namespace

template <typename T>
void DecayScores(const SoftNmsArgs<T>& args, const BoxRows<T>& boxes, int64_t n,
                 const BoxRow<T>& taken, T* scores) {
  using V = typename Lanes<T>::Vector;
  const Box<V> corners = {V{} + taken.x1, V{} + taken.y1, V{} + taken.x2,
                          V{} + taken.y2};
  const V area = V{} + taken.area;
  const Decay<T> decay(args);
  ForVectors<T>(n, [&](auto part, int64_t at) {
    const Box<V> box = {
        part.Load(boxes.x1 + at, T(0)), part.Load(boxes.y1 + at, T(0)),
        part.Load(boxes.x2 + at, T(0)), part.Load(boxes.y2 + at, T(0))};
    const V shared = Intersection(box, corners);
    if (!AnyLane(shared > V{})) return;  // the decay is 1
    const V both = Union(part.Load(boxes.area + at, T(0)), area, shared);
    // Areas that overflow count as no overlap.
    const V iou = both > V{} ? shared / both : V{};
    const V score = part.Load(scores + at, T(0));
    part.Store(score * decay.Of(iou), scores + at);
  });
}

template <typename T>
void DecayByIou(const SoftNmsArgs<T>& args, const T* iou, int64_t n,
                T* scores) {
  const Decay<T> decay(args);
  ForVectors<T>(n, [&](auto part, int64_t at) {
    part.Store(
        part.Load(scores + at, T(0)) * decay.Of(part.Load(iou + at, T(0))),
        scores + at);
  });
}

template <typename T>
int64_t PlaceOfBest(const T* scores, int64_t n) {
  using V = typename Lanes<T>::Vector;
  using Index = typename Lanes<T>::Index;
  const T kLowest = -static_cast<T>(__builtin_inf());
  V best = V{} + kLowest;
  Index places = Index{} - 1, here;
  for (int i = 0; i < Lanes<T>::kCount; ++i) here[i] = i;
  ForVectors<T>(n, [&](auto part, int64_t at) {
    const V score = part.Load(scores + at, kLowest);
    const Index greater = score > best;  // false for NaN
    best = greater ? score : best;
    places = greater ? here : places;
    here += Lanes<T>::kCount;
  });
  // Without branches, which would often be predicted wrongly.
  T value = kLowest;
  for (int i = 0; i < Lanes<T>::kCount; ++i) {
    value = best[i] > value ? best[i] : value;
  }
  int64_t place = n;
  for (int i = 0; i < Lanes<T>::kCount; ++i) {
    const int64_t here_best = best[i] == value ? places[i] : n;
    place = here_best < place ? here_best : place;
  }
  return place;
}

#define TFO_INSTANTIATE(T)                                                     \
  template void DecayScores(const SoftNmsArgs<T>&, const BoxRows<T>&, int64_t, \
                            const BoxRow<T>&, T*);                             \
  template void DecayByIou(const SoftNmsArgs<T>&, const T*, int64_t, T*);      \
  template int64_t PlaceOfBest(const T*, int64_t);
TFO_INSTANTIATE(float)
TFO_INSTANTIATE(double)
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
