#include "tensorflow_ops/core/cc/simd/convert_simd.h"
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

// Adds to d_values, unless its data is null, for the pixels [begin, end) of an
// image; writes the gradients to locations and weights if `of_points`. For
// kVectors whole vectors of channels, or any number if kVectors is 0.
template <int kVectors, typename T, typename C>
TFO_INLINE void GradOfRows(const DeformableAttentionGradArgs<T>& args,
                           const AttentionPoints<C>& points, AttentionRows rows,
                           HeadView<const T> values, HeadView<C> d_values,
                           int64_t begin, int64_t end, bool of_points,
                           const AttentionScratch<C>& scratch) {
  const int64_t channels = args.channels;
  const auto prefetch = [&](RowPlace place) __attribute__((always_inline)) {
    const int64_t first = place.row * points.count;
    Prefetch<0>(args.locations + 2 * first, 2 * points.count);
    Prefetch<0>(args.weights + first, points.count);
    Prefetch<0>(args.d_output + place.row * channels, channels);
    if (!of_points) return;
    Prefetch<1>(args.d_locations + 2 * first, 2 * points.count);
    Prefetch<1>(args.d_weights + first, points.count);
  };
  ForRows(rows, prefetch, [&](RowPlace place) {
    const int64_t first = place.row * points.count;
    const int64_t head = place.head * channels;
    FindCorners<true>(points, args.locations + 2 * first, args.weights + first,
                      scratch);
    const Upstream<kVectors, T, C> upstream(
        args.d_output + place.row * channels, channels, scratch.upstream);
    if (of_points) {
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
      if (of_points) {
        DotCorners(points, p, channels, upstream, scratch);
      }
      if (d_values.data != nullptr) {
        AddToCorners(points, p, channels, upstream, scratch);
      }
    }
    if (of_points) {
      WritePointGrads(points, args.weights + first, scratch,
                      args.d_locations + 2 * first, args.d_weights + first);
    }
  });
}

template <typename T, typename C>
void AttendQueriesGrad(const DeformableAttentionGradArgs<T>& args,
                       const AttentionPoints<C>& points, AttentionRows rows,
                       HeadView<const T> values, HeadView<C> d_values,
                       int64_t begin, int64_t end, bool of_points,
                       const AttentionScratch<C>& scratch) {
  const auto run = [&](auto vectors) {
    GradOfRows<decltype(vectors)::kValue>(args, points, rows, values, d_values,
                                          begin, end, of_points, scratch);
  };
  constexpr int kCount = Lanes<T>::kCount;
  if (args.channels == 2 * kCount) return run(Constant<2>());
  if (args.channels == 4 * kCount) return run(Constant<4>());
  run(Constant<0>());
}

// Gradients to values: sums of an owner, in d_values itself, or apart if they
// are of another type or often added to (ReadsOften).
template <typename T>
class OwnedValues {
 public:
  using C = Accumulator<T>;

  static bool AreInPlace(const AttentionShape& args) {
    return sizeof(C) == sizeof(T) && !ReadsOften(args);
  }

  explicit OwnedValues(const AttentionShape& args) : args_(args) {}

  // Sums of the pixels [begin, end), which are zero; pixel 0 is at the view's
  // data. Sums in place are zero already.
  HeadView<C> Start(HeadView<T> d_values, int64_t begin, int64_t end) {
    d_values_ = d_values;
    begin_ = begin;
    end_ = end;
    if constexpr (sizeof(C) == sizeof(T)) {
      if (AreInPlace(args_)) return d_values;
    }
    const int64_t count = (end - begin) * args_.channels;
    C* const sums = sums_.Resize(count);
    std::fill_n(sums, count, C{0});
    return {sums - begin * args_.channels, args_.channels};
  }
  void Finish() {
    if (AreInPlace(args_)) return;
    for (int64_t i = begin_; i < end_; ++i) {
      NarrowArray<T>(sums_.data() + (i - begin_) * args_.channels,
                     d_values_.data + i * d_values_.stride, args_.channels);
    }
  }

 private:
  const AttentionShape& args_;
  AlignedNumbers<C> sums_;
  HeadView<T> d_values_;
  int64_t begin_, end_;
};

}  // namespace

template <typename T>
Error DeformableAttentionGrad(const Cpu& cpu,
                              const DeformableAttentionGradArgs<T>& args) {
  using C = Accumulator<T>;
  const AttentionPoints<C> points(args);
  // An owner of an image and some heads computes everything. Too few of them
  // for all threads: owners of bands of pixels, after the other gradients.
  const bool at_once = args.batch * args.heads >= cpu.num_threads;
  if (!at_once) {
    ForQueries<T>(cpu, args, points, 2 * CyclesPerQuery(args),
                  [&](int64_t image, int64_t head, const AttentionRows& rows,
                      ThreadMemory<T>& memory) {
                    AttendQueriesGrad(args, points, rows,
                                      memory.Values(args.values, image, head),
                                      HeadView<C>{nullptr, 0}, 0, 0,
                                      /*of_points=*/true, memory.Scratch());
                  });
  }
  const bool in_place = OwnedValues<T>::AreInPlace(args);
  if (in_place) {
    const int64_t row = args.heads * args.channels;
    cpu.ParallelFor(args.batch * args.pixels, 0.1 * row,
                    [&](int64_t begin, int64_t end) {
                      std::fill(args.d_values + begin * row,
                                args.d_values + end * row, T{});
                    });
  }
  // Groups of heads, if the sums of several are side by side.
  const int64_t groups =
      in_place
          ? std::min(args.heads, DivideUp(2 * int64_t{cpu.num_threads},
                                          std::max<int64_t>(args.batch, 1)))
          : args.heads;
  const int64_t owners = args.batch * groups;
  const int64_t bands =
      at_once ? 1 : DivideUp(cpu.num_threads, std::max<int64_t>(owners, 1));
  cpu.ParallelFor(
      owners * bands,
      (2 * CyclesPerQuery(args) * args.queries +
       0.5 * args.pixels * args.channels) *
          args.heads / std::max<int64_t>(groups * bands, 1),
      [&](int64_t begin, int64_t end) {
        ThreadMemory<T> memory(args, points);
        OwnedValues<T> owned(args);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t image = unit / bands / groups;
          const int64_t group = unit / bands % groups;
          const int64_t head = args.heads * group / groups;
          const int64_t my_heads = args.heads * (group + 1) / groups - head;
          const int64_t first = args.pixels * (unit % bands) / bands;
          const int64_t last = args.pixels * (unit % bands + 1) / bands;
          const HeadView<C> sums = owned.Start(
              ViewOf(args, args.d_values, image, head), first, last);
          AttendQueriesGrad(
              args, points,
              {image * args.queries, args.queries, args.heads, head, my_heads},
              at_once ? memory.Values(args.values, image, head)
                      : ViewOf(args, args.values, image, head),
              sums, first, bands == 1 ? INT64_MAX : last, at_once,
              memory.Scratch());
          owned.Finish();
        }
      });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(DeformableAttentionGrad,
                                    DeformableAttentionGradArgs);

}  // namespace tfo
