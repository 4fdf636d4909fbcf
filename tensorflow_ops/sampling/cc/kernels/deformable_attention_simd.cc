#include "tensorflow_ops/sampling/cc/kernels/deformable_attention_simd.h"

#include "tensorflow_ops/core/cc/math_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename C>
using Vector = typename Lanes<C>::Vector;
template <typename C>
using Index = typename Lanes<C>::Index;

// The first n values, at most a vector; zeros elsewhere.
template <typename C>
TFO_INLINE Vector<C> LoadSome(const C* from, int64_t n) {
  if (n >= Lanes<C>::kCount) return Load(from);
  return n > 0 ? LoadFirst(from, n) : Vector<C>{};
}

// A vector of points: places in pixels of the level.
template <typename C>
struct Places {
  Vector<C> y, x;
};
template <typename C>
TFO_INLINE Places<C> LoadPlaces(const AttentionPoints<C>& points, int64_t at,
                                const C* locations) {
  constexpr int kCount = Lanes<C>::kCount;
  const int64_t n = 2 * (points.count - at);
  const Vector<C> low = LoadSome(locations + 2 * at, n);
  const Vector<C> high = LoadSome(locations + 2 * at + kCount, n - kCount);
  Index<C> even;
  for (int i = 0; i < kCount; ++i) even[i] = 2 * i;
  const Vector<C> x = __builtin_shuffle(low, high, even);
  const Vector<C> y = __builtin_shuffle(low, high, even + 1);
  return {y * Load(points.height + at) - C(0.5),
          x * Load(points.width + at) - C(0.5)};
}

// Rows of AttentionScratch::numbers.
enum Number { kYFraction, kXFraction, kValid, kDots };

// Finds the corners of all points. With kSlopes, keeps what the gradients need,
// and corners of weight 0; without, multiplies corners by the attention weights
// and makes a NaN location's weight NaN.
template <bool kSlopes, typename C>
TFO_INLINE void FindCorners(const AttentionPoints<C>& points,
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
      if constexpr (!kSlopes) {
        reads &= corner != C(0);
        corner = (reads ? corner : V{}) * weight;
        if (i == 0) corner = (y == y) & (x == x) ? corner : y + x;
      }
      const I pixel = (iy + i / 2) * columns + ix + i % 2;
      StoreIndex(reads ? pixel : I{} - 1,
                 scratch.pixels + i * points.padded + at);
      Store(corner, scratch.corners + i * points.padded + at);
    }
    if constexpr (kSlopes) {
      Store(fy, scratch.numbers + kYFraction * points.padded + at);
      Store(fx, scratch.numbers + kXFraction * points.padded + at);
      Store(valid ? V{} + C(1) : V{},
            scratch.numbers + kValid * points.padded + at);
    }
  }
}

// Prefetches numbers; of many, the first, since the processor foresees reads in
// order.
template <int kWrite, typename T>
TFO_INLINE void Prefetch(const T* from, int64_t count) {
  constexpr int64_t kMostBytes = 256, kLineBytes = 64;
  const char* const bytes = reinterpret_cast<const char*>(from);
  const int64_t size = count * static_cast<int64_t>(sizeof(T));
  const int64_t end = size < kMostBytes ? size : kMostBytes;
  for (int64_t i = 0; i < end; i += kLineBytes) {
    __builtin_prefetch(bytes + i, kWrite);
  }
}

// A vector of one number. A sum with 0 would cost an addition.
template <typename C>
TFO_INLINE Vector<C> Splat(C x) {
  return x - Vector<C>{};
}

// The row of a corner's values, or of zeros.
template <typename T, typename C>
TFO_INLINE const T* CornerRow(const AttentionPoints<C>& points, int64_t p,
                              int i, HeadView<const T> values,
                              const AttentionScratch<C>& scratch) {
  const int64_t pixel = scratch.pixels[i * points.padded + p];
  return pixel < 0
             ? static_cast<const T*>(scratch.zeros)
             : values.data + (points.first_pixel[p] + pixel) * values.stride;
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

// Calls compute(place) for each row, and prefetch(place) some rows before.
template <typename Prefetch, typename Compute>
TFO_INLINE void ForRows(const AttentionRows& rows, const Prefetch& prefetch,
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

// `part` has `kVectors` vectors, each at a multiple of kCount.
template <int kVectors, typename T, typename C, typename Part>
TFO_INLINE void SumPoints(const AttentionPoints<C>& points, const Part& part,
                          int64_t at, HeadView<const T> values,
                          const AttentionScratch<C>& scratch, T* output) {
  constexpr int kCount = Lanes<C>::kCount;
  Vector<C> sums[kVectors] = {};
  for (int64_t p = 0; p < points.count; ++p) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const T* const row = CornerRow(points, p, i, values, scratch) + at;
      const Vector<C> weight = Splat(scratch.corners[i * points.padded + p]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[v] = MulAdd(weight, part.Load(row + v * kCount, 0), sums[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    part.Store(sums[v], output + at + v * kCount);
  }
}

}  // namespace

template <typename T, typename C>
void AttendQueries(const AttentionPoints<C>& points, AttentionRows rows,
                   int64_t channels, HeadView<const T> values,
                   const C* locations, const C* weights, T* output,
                   const AttentionScratch<C>& scratch) {
  constexpr int kCount = Lanes<T>::kCount;
  ForRows(
      rows,
      [&](RowPlace place) {
        const int64_t first = place.row * points.count;
        Prefetch<0>(locations + 2 * first, 2 * points.count);
        Prefetch<0>(weights + first, points.count);
      },
      [&](RowPlace place) {
        const int64_t first = place.row * points.count;
        FindCorners<false>(points, locations + 2 * first, weights + first,
                           scratch);
        const HeadView<const T> head = {values.data + place.head * channels,
                                        values.stride};
        T* const out = output + place.row * channels;
        ForVectorGroups<4, kCount>(
            channels, 0,
            [&](auto vectors, int64_t at) {
              SumPoints<decltype(vectors)::kValue>(points, Whole<T>(), at, head,
                                                   scratch, out);
            },
            [&](int64_t at, int64_t n) {
              SumPoints<1>(points, First<T>{n}, at, head, scratch, out);
            });
      });
}

namespace {

// The sums of the lanes of four vectors, as SumLanes adds them.
template <typename V>
TFO_INLINE auto SumLanesOfFour(const V (&v)[4]) {
  if constexpr (sizeof(v[0]) == 4 * sizeof(v[0][0])) {
    typedef __typeof__(v[0] < v[0]) Mask;
    const V ab = __builtin_shuffle(v[0], v[1], Mask{0, 1, 4, 5}) +
                 __builtin_shuffle(v[0], v[1], Mask{2, 3, 6, 7});
    const V cd = __builtin_shuffle(v[2], v[3], Mask{0, 1, 4, 5}) +
                 __builtin_shuffle(v[2], v[3], Mask{2, 3, 6, 7});
    return __builtin_shuffle(ab, cd, Mask{0, 2, 4, 6}) +
           __builtin_shuffle(ab, cd, Mask{1, 3, 5, 7});
  } else if constexpr (sizeof(v[0]) == 2 * sizeof(v[0][0])) {
    typedef __typeof__(v[0][0] + v[0][0]) Four
        __attribute__((vector_size(2 * sizeof(V))));
    return Four{v[0][0] + v[0][1], v[1][0] + v[1][1], v[2][0] + v[2][1],
                v[3][0] + v[3][1]};
  } else {
    typedef __typeof__(v[0][0] + v[0][0]) OfHalf
        __attribute__((vector_size(sizeof(V) / 2)));
    OfHalf sums[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      OfHalf halves[2];
      memcpy(halves, &v[i], sizeof(V));
      sums[i] = halves[0] + halves[1];
    }
    return SumLanesOfFour(sums);
  }
}

// The dot products of `upstream` with the four corners of point p.
template <typename T, typename C>
TFO_INLINE void DotCorners(const AttentionPoints<C>& points, int64_t p,
                           int64_t channels, HeadView<const T> values,
                           const AttentionScratch<C>& scratch) {
  const T* from[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    from[i] = CornerRow(points, p, i, values, scratch);
  Vector<C> dots[4] = {};
  ForVectors<T>(channels, [&](auto part, int64_t at) {
    const Vector<C> d = Load(scratch.upstream + at);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      dots[i] = MulAdd(d, part.Load(from[i] + at, 0), dots[i]);
    }
  });
  const auto sums = SumLanesOfFour(dots);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    scratch.numbers[(kDots + i) * points.padded + p] = sums[i];
  }
}

// Adds the upstream gradient to the corners of point p that are in [begin,
// end).
template <typename T, typename C>
TFO_INLINE void AddToCorners(const AttentionPoints<C>& points, int64_t p,
                             int64_t channels, C weight, HeadView<C> d_values,
                             int64_t begin, int64_t end,
                             const AttentionScratch<C>& scratch) {
  for (int i = 0; i < 4; ++i) {
    const int64_t pixel = scratch.pixels[i * points.padded + p];
    const int64_t at = points.first_pixel[p] + pixel;
    const C corner = scratch.corners[i * points.padded + p];
    if (pixel < 0 || corner == 0 || at < begin || at >= end) continue;
    C* const to = d_values.data + at * d_values.stride;
    const Vector<C> scale = Splat(weight * corner);
    ForVectors<C>(channels, [&](auto part, int64_t c) {
      part.Store(
          MulAdd(scale, Load(scratch.upstream + c), part.Load(to + c, 0)),
          to + c);
    });
  }
}

// a + fraction * (b - a), where a number of weight 0 may be NaN.
template <typename V>
TFO_INLINE V Mix(V a, V b, V fraction) {
  const V rest = 1 - fraction;
  return (rest != 0 ? rest * a : V{}) + (fraction != 0 ? fraction * b : V{});
}

// Writes the gradients to the locations and weights of all points.
template <typename C>
TFO_INLINE void WritePointGrads(const AttentionPoints<C>& points,
                                const C* weights,
                                const AttentionScratch<C>& scratch,
                                C* d_locations, C* d_weights) {
  using V = Vector<C>;
  constexpr int kCount = Lanes<C>::kCount;
  const auto number = [&](int i, int64_t at) {
    return Load(scratch.numbers + i * points.padded + at);
  };
  for (int64_t at = 0; at < points.count; at += kCount) {
    const int64_t n = points.count - at < kCount ? points.count - at : kCount;
    const V fy = number(kYFraction, at), fx = number(kXFraction, at);
    const V d0 = number(kDots, at), d1 = number(kDots + 1, at),
            d2 = number(kDots + 2, at), d3 = number(kDots + 3, at);
    const auto valid = number(kValid, at) != C(0);
    const V top = Mix(d0, d1, fx), bottom = Mix(d2, d3, fx);
    const V weight = LoadSome(weights + at, n);
    const V d_weight = valid ? Mix(top, bottom, fy) : V{};
    const V d_y =
        valid ? Load(points.height + at) * weight * (bottom - top) : V{};
    const V slope = Mix(d1 - d0, d3 - d2, fy);
    const V d_x = valid ? Load(points.width + at) * weight * slope : V{};
    if (n == kCount) {
      Store(d_weight, d_weights + at);
    } else {
      StoreFirst(d_weight, d_weights + at, n);
    }
    for (int64_t i = 0; i < n; ++i) {
      d_locations[2 * (at + i)] = d_x[i];
      d_locations[2 * (at + i) + 1] = d_y[i];
    }
  }
}

}  // namespace

template <typename T, typename C>
void AttendQueriesGrad(const AttentionPoints<C>& points, AttentionRows rows,
                       int64_t channels, const T* d_output,
                       HeadView<const T> values, const C* locations,
                       const C* weights, HeadView<C> d_values, int64_t begin,
                       int64_t end, C* d_locations, C* d_weights,
                       const AttentionScratch<C>& scratch) {
  RowIterator iterator(rows);
  for (int64_t i = rows.count * rows.my_heads; i > 0; --i) {
    const RowPlace place = iterator.Next();
    const int64_t first = place.row * points.count;
    const int64_t head = place.head * channels;
    FindCorners<true>(points, locations + 2 * first, weights + first, scratch);
    ForVectors<T>(channels, [&](auto part, int64_t at) {
      Store(part.Load(d_output + place.row * channels + at, 0),
            scratch.upstream + at);
    });
    for (int64_t p = 0; p < points.count; ++p) {
      if (d_locations != nullptr) {
        DotCorners(points, p, channels,
                   HeadView<const T>{values.data + head, values.stride},
                   scratch);
      }
      if (d_values.data != nullptr) {
        AddToCorners<T>(points, p, channels, weights[first + p],
                        {d_values.data + head, d_values.stride}, begin, end,
                        scratch);
      }
    }
    if (d_locations != nullptr) {
      WritePointGrads(points, weights + first, scratch, d_locations + 2 * first,
                      d_weights + first);
    }
  }
}

#define TFO_INSTANTIATE(T)                                                     \
  template void AttendQueries<T>(const AttentionPoints<Accumulator<T>>&,       \
                                 AttentionRows, int64_t, HeadView<const T>,    \
                                 const Accumulator<T>*, const Accumulator<T>*, \
                                 T*, const AttentionScratch<Accumulator<T>>&); \
  template void AttendQueriesGrad<T>(                                          \
      const AttentionPoints<Accumulator<T>>&, AttentionRows, int64_t,          \
      const T*, HeadView<const T>, const Accumulator<T>*,                      \
      const Accumulator<T>*, HeadView<Accumulator<T>>, int64_t, int64_t,       \
      Accumulator<T>*, Accumulator<T>*,                                        \
      const AttentionScratch<Accumulator<T>>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
