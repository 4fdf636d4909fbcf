// Shared by the loops of deformable attention and of its gradients. For
// *_simd.cc files.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_CORNERS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_CORNERS_H_

#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename C>
using Vector = typename Lanes<C>::Vector;
template <typename C>
using Index = typename Lanes<C>::Index;

// The first n values, at most a vector; zeros elsewhere.
template <typename C>
static TFO_INLINE Vector<C> LoadSome(const C* from, int64_t n) {
  if (n >= Lanes<C>::kCount) return Load(from);
  return n > 0 ? LoadFirst(from, n) : Vector<C>{};
}
template <typename C>
static TFO_INLINE void StoreSome(Vector<C> v, C* to, int64_t n) {
  if (n >= Lanes<C>::kCount) return Store(v, to);
  if (n > 0) StoreFirst(v, to, n);
}

// A vector of points: places in pixels of the level.
template <typename C>
struct Places {
  Vector<C> y, x;
};
template <typename C>
static TFO_INLINE Places<C> LoadPlaces(const AttentionPoints<C>& points,
                                       int64_t at, const C* locations) {
  constexpr int kCount = Lanes<C>::kCount;
  const int64_t n = 2 * (points.count - at);
  const Vector<C> low = LoadSome(locations + 2 * at, n);
  const Vector<C> high = LoadSome(locations + 2 * at + kCount, n - kCount);
  const Vector<C> x = EvenLanes(low, high);
  const Vector<C> y = OddLanes(low, high);
  return {y * Load(points.height + at) - C(0.5),
          x * Load(points.width + at) - C(0.5)};
}

// Rows of AttentionScratch::numbers. The last four are the dot products of the
// corners, [padded, 4].
enum Number { kYFraction, kXFraction, kValid, kDots };

// Finds the corners of all points, and multiplies them by the attention
// weights. With kSlopes, keeps corners of weight 0 and the numbers that
// gradients need; without, the weight of a NaN location is NaN.
template <bool kSlopes, typename C>
static TFO_INLINE void FindCorners(const AttentionPoints<C>& points,
                                   const C* locations, const C* weights,
                                   const AttentionScratch<C>& scratch) {
  using V = Vector<C>;
  using I = Index<C>;
  constexpr int kCount = Lanes<C>::kCount;
  for (int64_t at = 0; at < points.count; at += kCount) {
    const auto [y, x] = LoadPlaces(points, at, locations);
    const V height = Load(points.height + at), width = Load(points.width + at);
    const I valid = (y >= C(-1)) & (y < height) & (x >= C(-1)) & (x < width);
    const V low_y = valid ? Floor(y) : V{}, low_x = valid ? Floor(x) : V{};
    const V fy = valid ? y - low_y : V{}, fx = valid ? x - low_x : V{};
    const V weight = LoadSome(weights + at, points.count - at);
    // Lanes as 32 bits: a level has fewer than 2^31 pixels.
    const I iy = __builtin_convertvector(low_y, I);
    const I ix = __builtin_convertvector(low_x, I);
    const I columns = __builtin_convertvector(width, I);
    for (int i = 0; i < 4; ++i) {
      const V corner_y = low_y + C(i / 2), corner_x = low_x + C(i % 2);
      V corner = (i / 2 ? fy : C(1) - fy) * (i % 2 ? fx : C(1) - fx);
      I reads = valid & (corner_y >= C(0)) & (corner_y < height) &
                (corner_x >= C(0)) & (corner_x < width);
      const I pixel = (iy + i / 2) * columns + ix + i % 2;
      const I counts = reads & (corner != C(0));
      const int64_t place = i * points.padded + at;
      if constexpr (kSlopes) {
        StoreIndex(counts ? pixel : I{} - 1, scratch.added_pixels + place);
        corner *= weight;
      } else {
        reads = counts;
        corner = (reads ? corner : V{}) * weight;
        if (i == 0) corner = (y == y) & (x == x) ? corner : y + x;
      }
      StoreIndex(reads ? pixel : I{} - 1, scratch.pixels + place);
      Store(corner, scratch.corners + place);
    }
    if constexpr (kSlopes) {
      Store(fy, scratch.numbers + kYFraction * points.padded + at);
      Store(fx, scratch.numbers + kXFraction * points.padded + at);
      Store(valid ? Broadcast<V>(C(1)) : V{},
            scratch.numbers + kValid * points.padded + at);
    }
  }
}

// Prefetches numbers; of many, the first, since the processor foresees reads in
// order. GCC removes calls of functions that only prefetch, unless they are
// inlined at once.
template <int kWrite, typename T>
static TFO_INLINE void Prefetch(const T* from, int64_t count) {
  constexpr uintptr_t kMostBytes = 256, kLineBytes = 64;
  const uintptr_t size = static_cast<uintptr_t>(count) * sizeof(T);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(from);
  const uintptr_t end = begin + (size < kMostBytes ? size : kMostBytes);
  for (uintptr_t at = begin / kLineBytes * kLineBytes; at < end;
       at += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const void*>(at), kWrite);
  }
}

// A vector of one number. A sum with 0 would cost an addition.
template <typename C>
static TFO_INLINE Vector<C> Splat(C x) {
  return x - Vector<C>{};
}

// Finds the rows of corners in a view; `none` for negative pixels.
template <typename T, typename C>
static TFO_INLINE void FindRows(const AttentionPoints<C>& points,
                                const int32_t* pixels, HeadView<T> view,
                                T* none, uintptr_t* rows) {
  using Addresses = Lanes<double>::Index;
  constexpr int kCount = Lanes<double>::kCount;
  const int64_t bytes = view.stride * static_cast<int64_t>(sizeof(T));
  const auto first_row = reinterpret_cast<int64_t>(view.data);
  const Addresses no_row =
      Broadcast<Addresses>(reinterpret_cast<int64_t>(none));
  for (int64_t p = 0; p < points.count; p += kCount) {
    Addresses first_pixel;
    memcpy(&first_pixel, points.first_pixel + p, sizeof(first_pixel));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int64_t corner = i * points.padded + p;
      const Addresses pixel = LoadIndex<double>(pixels + corner);
      const Addresses row = first_row + (first_pixel + pixel) * bytes;
      const Addresses out = pixel < 0 ? no_row : row;
      memcpy(rows + corner, &out, sizeof(out));
    }
  }
}

// A row of AttentionRows.
struct RowPlace {
  int64_t row, head;  // in [batch * queries, heads]; of my_heads
};

class RowIterator {
 public:
  explicit RowIterator(const AttentionRows& rows) : rows_(rows) {}
  // Of the row; after the last, of the first.
  RowPlace Next() {
    const RowPlace place = {
        (rows_.first + query_) * rows_.heads + rows_.first_head + head_, head_};
    if (++head_ == rows_.my_heads) {
      head_ = 0;
      if (++query_ == rows_.count) query_ = 0;
    }
    return place;
  }

 private:
  const AttentionRows rows_;
  int64_t query_ = 0, head_ = 0;
};

// Calls compute(place) for each row, and prefetch(place), which must be
// always_inline, some rows before.
template <typename Prefetch, typename Compute>
static TFO_INLINE void ForRows(const AttentionRows& rows,
                               const Prefetch& prefetch,
                               const Compute& compute) {
  const int64_t count = rows.count * rows.my_heads;
  if (count <= 0) return;
  constexpr int kAhead = 4;
  RowIterator to_prefetch(rows), to_compute(rows);
  for (int i = 0; i < kAhead; ++i) prefetch(to_prefetch.Next());
  for (int64_t i = 0; i < count; ++i) {
    prefetch(to_prefetch.Next());
    compute(to_compute.Next());
  }
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_CORNERS_H_
