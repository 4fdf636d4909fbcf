// Gradients of the sums of deformable_attention_simd.cc.
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention_corners.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// The sums of the lanes of four vectors.
template <typename C, typename V = Vector<C>>
TFO_INLINE auto SumLanesOfFour(const V (&v)[4]) {
  typedef C Four __attribute__((vector_size(4 * sizeof(C))));
  constexpr int kCount = Lanes<C>::kCount;
  if constexpr (kCount == 2) {
    return Four{v[0][0] + v[0][1], v[1][0] + v[1][1], v[2][0] + v[2][1],
                v[3][0] + v[3][1]};
  } else {
    // Adds the second half of each part to its first, which are `size` lanes,
    // and gathers those of both vectors.
    const auto fold = [](V a, V b, auto size) {
      constexpr int kSize = size.kValue;
      return Shuffle(a, b, [](int i) { return i + i / kSize * kSize; }) +
             Shuffle(a, b, [](int i) { return i + (i / kSize + 1) * kSize; });
    };
    // Adds each lane's neighbor, `distance` away.
    const auto add_neighbors = [](V a, auto distance) {
      constexpr int kDistance = distance.kValue;
      return a + Shuffle(a, a, [](int i) { return i ^ kDistance; });
    };
    constexpr Constant<kCount / 2> kHalf;
    V sums = fold(fold(v[0], v[1], kHalf), fold(v[2], v[3], kHalf),
                  Constant<kCount / 4>());
    if constexpr (kCount >= 16) sums = add_neighbors(sums, Constant<2>());
    if constexpr (kCount >= 8) {
      sums = add_neighbors(sums, Constant<1>());
      sums =
          Shuffle(sums, sums, [](int i) { return i * (kCount / 4) % kCount; });
    }
    Four first;
    memcpy(&first, &sums, sizeof(first));
    return first;
  }
}

// Calls body(part, at, v) for the vectors of channels: kVectors whole ones, or
// if that is 0 as many as there are.
template <int kVectors, typename T, typename Body>
TFO_INLINE void ForChannels(int64_t channels, const Body& body) {
  if constexpr (kVectors == 0) {
    ForVectors<T>(channels, [&](auto part, int64_t at) { body(part, at, 0); });
  } else {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      body(Whole<T>(), int64_t{v} * Lanes<T>::kCount, v);
    }
  }
}

// The gradient to the output of a row, in registers if it has kVectors vectors.
template <int kVectors, typename T, typename C>
class Upstream {
 public:
  TFO_INLINE Upstream(const T* from, int64_t channels, C* memory)
      : memory_(memory) {
    ForChannels<kVectors, T>(channels, [&](auto part, int64_t at, int v) {
      const Vector<C> d = part.Load(from + at, 0);
      if constexpr (kVectors == 0) {
        Store(d, memory_ + at);
      } else {
        vectors_[v] = d;
      }
    });
  }
  TFO_INLINE Vector<C> Get(int64_t at, int v) const {
    if constexpr (kVectors == 0) return Load(memory_ + at);
    return vectors_[v];
  }

 private:
  C* const memory_;
  Vector<C> vectors_[kVectors + 1];
};

// Writes the dot products of `upstream` with the four corners of point p.
template <int kVectors, typename T, typename C>
TFO_INLINE void DotCorners(const AttentionPoints<C>& points, int64_t p,
                           int64_t channels,
                           const Upstream<kVectors, T, C>& upstream,
                           const AttentionScratch<C>& scratch) {
  const T* rows[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = reinterpret_cast<const T*>(scratch.rows[i * points.padded + p]);
  }
  Vector<C> dots[4] = {};
  ForChannels<kVectors, T>(channels, [&](auto part, int64_t at, int v) {
    const Vector<C> d = upstream.Get(at, v);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      dots[i] = MulAdd(d, part.Load(rows[i] + at, 0), dots[i]);
    }
  });
  const auto sums = SumLanesOfFour<C>(dots);
  memcpy(scratch.numbers + kDots * points.padded + 4 * p, &sums, sizeof(sums));
}

// Adds the upstream gradient to the rows of point p's corners that are not
// null.
template <int kVectors, typename T, typename C>
TFO_INLINE void AddToCorners(const AttentionPoints<C>& points, int64_t p,
                             int64_t channels,
                             const Upstream<kVectors, T, C>& upstream,
                             const AttentionScratch<C>& scratch) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const int64_t corner = i * points.padded + p;
    C* const row = reinterpret_cast<C*>(scratch.added_rows[corner]);
    if (row == nullptr) continue;
    const Vector<C> scale = Splat(scratch.corners[corner]);
    ForChannels<kVectors, C>(channels, [&](auto part, int64_t at, int v) {
      part.Store(MulAdd(scale, upstream.Get(at, v), part.Load(row + at, 0)),
                 row + at);
    });
  }
}

// Makes the rows of the pixels outside [begin, end) null.
template <typename C>
TFO_INLINE void DropOtherPixels(const AttentionPoints<C>& points, int64_t begin,
                                int64_t end,
                                const AttentionScratch<C>& scratch) {
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t p = 0; p < points.count; ++p) {
      const int64_t corner = i * points.padded + p;
      const int64_t pixel =
          points.first_pixel[p] + scratch.added_pixels[corner];
      if (pixel < begin || pixel >= end) scratch.added_rows[corner] = 0;
    }
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
    const C* const dots = scratch.numbers + kDots * points.padded + 4 * at;
    const V a = Load(dots), b = Load(dots + kCount),
            c = Load(dots + 2 * kCount), d = Load(dots + 3 * kCount);
    const V even_low = EvenLanes(a, b), odd_low = OddLanes(a, b);
    const V even_high = EvenLanes(c, d), odd_high = OddLanes(c, d);
    const V d0 = EvenLanes(even_low, even_high),
            d1 = EvenLanes(odd_low, odd_high),
            d2 = OddLanes(even_low, even_high),
            d3 = OddLanes(odd_low, odd_high);
    const auto valid = number(kValid, at) != C(0);
    const V top = Mix(d0, d1, fx), bottom = Mix(d2, d3, fx);
    const V weight = LoadSome(weights + at, n);
    const V d_weight = valid ? Mix(top, bottom, fy) : V{};
    const V d_y =
        valid ? Load(points.height + at) * weight * (bottom - top) : V{};
    const V slope = Mix(d1 - d0, d3 - d2, fy);
    const V d_x = valid ? Load(points.width + at) * weight * slope : V{};
    StoreSome(d_weight, d_weights + at, n);
    C* const to = d_locations + 2 * at;
    StoreSome(InterleaveLow(d_x, d_y), to, 2 * n);
    StoreSome(InterleaveHigh(d_x, d_y), to + kCount, 2 * n - kCount);
  }
}

// AttendQueriesGrad for kVectors whole vectors of channels, or any number if
// kVectors is 0.
template <int kVectors, typename T, typename C>
TFO_INLINE void GradOfRows(const AttentionPoints<C>& points, AttentionRows rows,
                           int64_t channels, const T* d_output,
                           HeadView<const T> values, const C* locations,
                           const C* weights, HeadView<C> d_values,
                           int64_t begin, int64_t end, C* d_locations,
                           C* d_weights, const AttentionScratch<C>& scratch) {
  const auto prefetch = [&](RowPlace place) __attribute__((always_inline)) {
    const int64_t first = place.row * points.count;
    Prefetch<0>(locations + 2 * first, 2 * points.count);
    Prefetch<0>(weights + first, points.count);
    Prefetch<0>(d_output + place.row * channels, channels);
    if (d_locations == nullptr) return;
    Prefetch<1>(d_locations + 2 * first, 2 * points.count);
    Prefetch<1>(d_weights + first, points.count);
  };
  ForRows(rows, prefetch, [&](RowPlace place) {
    const int64_t first = place.row * points.count;
    const int64_t head = place.head * channels;
    FindCorners<true>(points, locations + 2 * first, weights + first, scratch);
    const Upstream<kVectors, T, C> upstream(d_output + place.row * channels,
                                            channels, scratch.upstream);
    if (d_locations != nullptr) {
      FindRows(points, scratch.pixels,
               HeadView<const T>{values.data + head, values.stride},
               static_cast<const T*>(scratch.zeros), scratch.rows);
    }
    if (d_values.data != nullptr) {
      FindRows(points, scratch.added_pixels,
               HeadView<C>{d_values.data + head, d_values.stride},
               scratch.discarded, scratch.added_rows);
      if (begin > 0 || end < INT64_MAX) {
        DropOtherPixels(points, begin, end, scratch);
      }
    }
    for (int64_t p = 0; p < points.count; ++p) {
      if (d_locations != nullptr) {
        DotCorners(points, p, channels, upstream, scratch);
      }
      if (d_values.data != nullptr) {
        AddToCorners(points, p, channels, upstream, scratch);
      }
    }
    if (d_locations != nullptr) {
      WritePointGrads(points, weights + first, scratch, d_locations + 2 * first,
                      d_weights + first);
    }
  });
}

}  // namespace

template <typename T, typename C>
void AttendQueriesGrad(const AttentionPoints<C>& points, AttentionRows rows,
                       int64_t channels, const T* d_output,
                       HeadView<const T> values, const C* locations,
                       const C* weights, HeadView<C> d_values, int64_t begin,
                       int64_t end, C* d_locations, C* d_weights,
                       const AttentionScratch<C>& scratch) {
  const auto run = [&](auto vectors) {
    GradOfRows<decltype(vectors)::kValue>(
        points, rows, channels, d_output, values, locations, weights, d_values,
        begin, end, d_locations, d_weights, scratch);
  };
  constexpr int kCount = Lanes<T>::kCount;
  if (channels == 2 * kCount) return run(Constant<2>());
  if (channels == 4 * kCount) return run(Constant<4>());
  run(Constant<0>());
}

#define TFO_INSTANTIATE(T)                                               \
  template void AttendQueriesGrad<T>(                                    \
      const AttentionPoints<Accumulator<T>>&, AttentionRows, int64_t,    \
      const T*, HeadView<const T>, const Accumulator<T>*,                \
      const Accumulator<T>*, HeadView<Accumulator<T>>, int64_t, int64_t, \
      Accumulator<T>*, Accumulator<T>*,                                  \
      const AttentionScratch<Accumulator<T>>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
