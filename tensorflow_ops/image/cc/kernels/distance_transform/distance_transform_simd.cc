#include "tensorflow_ops/image/cc/kernels/distance_transform/distance_transform_simd.h"

#include "tensorflow_ops/core/cc/math_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// The squares of a vector register.
template <typename V>
struct Squares {
  using Vector = IntVector;
  static constexpr int kCount = kFloats;
};
template <>
struct Squares<double> {
  using Vector = DoubleVector;
  static constexpr int kCount = Lanes<double>::kCount;
};

template <typename Vector, typename V>
TFO_INLINE Vector LoadVector(const V* from) {
  Vector v;
  memcpy(&v, from, sizeof(v));
  return v;
}

template <typename Vector>
TFO_INLINE Vector Min(Vector a, Vector b) {
  return a < b ? a : b;
}
template <typename Vector>
TFO_INLINE Vector Max(Vector a, Vector b) {
  return a < b ? b : a;
}

// Calls body(at) for vectors of kCount values that cover [0, n), the last of
// which may overlap its predecessor. n is at least kCount.
template <int kCount, typename Body>
TFO_INLINE void ForOverlapping(int64_t n, const Body& body) {
  int64_t at = 0;
  for (; at + kCount <= n; at += kCount) body(at);
  if (at < n) body(n - kCount);
}

// All bits are set where the pixel is not zero.
template <typename Bits>
TFO_INLINE IntVector IsNonZero(const Bits* pixels, Bits magnitude) {
  constexpr int kBytes = kFloats * sizeof(Bits);
  if constexpr (kBytes > kVectorBytes) {
    typedef Bits Part __attribute__((vector_size(kVectorBytes)));
    typedef int32_t Half __attribute__((vector_size(kVectorBytes / 2)));
    Half halves[2];
    for (int i = 0; i < 2; ++i) {
      const Part part = LoadVector<Part>(pixels + i * (kFloats / 2));
      halves[i] = __builtin_convertvector((part & magnitude) != 0, Half);
    }
    return LoadVector<IntVector>(&halves[0]);
  } else {
    typedef Bits Vector __attribute__((vector_size(kBytes)));
    const Vector v = LoadVector<Vector>(pixels) & magnitude;
    return reinterpret_cast<IntVector>(__builtin_convertvector(v, Bits32)) != 0;
  }
}

TFO_INLINE int32_t LoadDistance(const char* from) {
  int32_t distance;
  memcpy(&distance, from, sizeof(distance));
  return distance;
}

// Drops the bits that float32 does not have, and sets its last bit if any of
// them was set. The result, rounded to 16 bits, is what the double rounds to.
TFO_INLINE DoubleVector RoundToOddFloat(DoubleVector v) {
  using Index = Lanes<double>::Index;
  constexpr int64_t kLast = int64_t{1} << 29;
  const Index bits = reinterpret_cast<Index>(v);
  const Index dropped = bits & (kLast - 1);
  return reinterpret_cast<DoubleVector>((bits & ~(kLast - 1)) |
                                        ((dropped != 0) & kLast));
}

TFO_INLINE DoubleVector LoadSquares(const double* from) {
  return LoadVector<DoubleVector>(from);
}
TFO_INLINE DoubleVector LoadSquares(const int32_t* from) {
  typedef int32_t Half __attribute__((vector_size(kVectorBytes / 2)));
  const DoubleVector v =
      __builtin_convertvector(LoadVector<Half>(from), DoubleVector);
  return v >= double{kFarSquare<int32_t>}
             ? Broadcast<DoubleVector>(__builtin_inf())
             : v;
}

// The roots of kFloats squares.
template <typename V, typename T>
TFO_INLINE void RootsOfVector(const V* squares, T* distances) {
  constexpr int kHalf = Lanes<double>::kCount;
  if constexpr (sizeof(V) == 4 && sizeof(T) == 4) {
    const IntVector v = LoadVector<IntVector>(squares);
    constexpr int32_t kExactFloat = 1 << 24;
    if (!AnyLane(v > kExactFloat)) {
      return Store(SquareRoot(__builtin_convertvector(v, FloatVector)),
                   distances);
    }
  }
  if constexpr (sizeof(T) == 8) {
    for (int i = 0; i < 2; ++i) {
      Store(SquareRoot(LoadSquares(squares + i * kHalf)),
            distances + i * kHalf);
    }
  } else {
    typedef float HalfFloats __attribute__((vector_size(kVectorBytes / 2)));
    HalfFloats halves[2];
    for (int i = 0; i < 2; ++i) {
      DoubleVector root = SquareRoot(LoadSquares(squares + i * kHalf));
      if constexpr (sizeof(T) == 2) root = RoundToOddFloat(root);
      halves[i] = __builtin_convertvector(root, HalfFloats);
    }
    Store(LoadVector<FloatVector>(&halves[0]), distances);
  }
}

// Writes kVectors vectors of `nearest` from `at` on.
template <int kVectors, typename V>
TFO_INLINE bool NearestOfGroup(const SquaresRow<V>& row, int64_t at,
                               V* nearest) {
  using Vector = typename Squares<V>::Vector;
  constexpr int kCount = Squares<V>::kCount;
  Vector best[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    best[i] = LoadVector<Vector>(row.squares + at + i * kCount);
  }
  for (int64_t d = 1;; ++d) {
    // Zero pixels that are d columns away or farther are no nearer than this.
    const V step = row.steps[d];
    Vector worst = best[0];
    for (int i = 1; i < kVectors; ++i) worst = Max(worst, best[i]);
    if (!AnyLane(worst > step)) break;
    if (d > row.reach) return false;
    const V* const left = row.squares + at - d * row.channels;
    const V* const right = row.squares + at + d * row.channels;
    for (int i = 0; i < kVectors; ++i) {
      const Vector nearer = Min(LoadVector<Vector>(left + i * kCount),
                                LoadVector<Vector>(right + i * kCount));
      best[i] = Min(best[i], nearer + step);
    }
  }
  for (int i = 0; i < kVectors; ++i) {
    memcpy(nearest + at + i * kCount, &best[i], sizeof(Vector));
  }
  return true;
}

template <typename V>
TFO_INLINE bool NearestOfOne(const SquaresRow<V>& row, int64_t at, V* nearest) {
  V best = row.squares[at];
  for (int64_t d = 1; best > row.steps[d]; ++d) {
    if (d > row.reach) return false;
    const V left = row.squares[at - d * row.channels];
    const V right = row.squares[at + d * row.channels];
    const V candidate = (left < right ? left : right) + row.steps[d];
    best = candidate < best ? candidate : best;
  }
  nearest[at] = best;
  return true;
}

}  // namespace

template <typename Bits>
void ColumnDistances(const ColumnBlock<Bits>& block) {
  const int64_t columns = block.columns;
  // Downward: the distance to the nearest zero pixel above.
  for (int64_t y = 0; y < block.rows; ++y) {
    const Bits* const pixels = block.pixels + y * block.pixel_step;
    char* const to = block.distances + y * block.distance_step;
    const char* const above = y > 0 ? to - block.distance_step : nullptr;
    if (columns >= kFloats) {
      ForOverlapping<kFloats>(columns, [&](int64_t at) {
        IntVector d = Broadcast<IntVector>(kNoZeroInColumn);
        if (above) d = LoadVector<IntVector>(above + 4 * at) + 1;
        d &= IsNonZero(pixels + at, block.magnitude);
        memcpy(to + 4 * at, &d, sizeof(d));
      });
      continue;
    }
    for (int64_t x = 0; x < columns; ++x) {
      int32_t d = above ? LoadDistance(above + 4 * x) + 1 : kNoZeroInColumn;
      if ((pixels[x] & block.magnitude) == 0) d = 0;
      memcpy(to + 4 * x, &d, sizeof(d));
    }
  }
  // Upward: the minimum of that and of the distance to the nearest one below.
  for (int64_t y = block.rows - 2; y >= 0; --y) {
    char* const to = block.distances + y * block.distance_step;
    const char* const below = to + block.distance_step;
    if (columns >= kFloats) {
      ForOverlapping<kFloats>(columns, [&](int64_t at) {
        const IntVector d = Min(LoadVector<IntVector>(to + 4 * at),
                                LoadVector<IntVector>(below + 4 * at) + 1);
        memcpy(to + 4 * at, &d, sizeof(d));
      });
      continue;
    }
    for (int64_t x = 0; x < columns; ++x) {
      const int32_t d = LoadDistance(below + 4 * x) + 1;
      if (d < LoadDistance(to + 4 * x)) memcpy(to + 4 * x, &d, sizeof(d));
    }
  }
}

template <typename V>
void ColumnSquares(const int32_t* distances, int64_t n, double spacing,
                   V* squares) {
  for (int64_t i = 0; i < n; ++i) {
    const bool is_far = distances[i] >= kNoZeroInColumn;
    if constexpr (sizeof(V) == 4) {
      const int32_t d = is_far ? 1 << 15 : distances[i];
      squares[i] = d * d;
    } else {
      const double d = spacing * distances[i];
      squares[i] = is_far ? kFarSquare<V> : d * d;
    }
  }
}

template <typename V>
bool NearestWithinReach(const SquaresRow<V>& row, V* nearest) {
  constexpr int kCount = Squares<V>::kCount;
  constexpr int kVectors = 4;
  bool found = true;
  if (row.elements >= kVectors * kCount) {
    ForOverlapping<kVectors * kCount>(row.elements, [&](int64_t at) {
      found = found && NearestOfGroup<kVectors>(row, at, nearest);
    });
  } else if (row.elements >= kCount) {
    ForOverlapping<kCount>(row.elements, [&](int64_t at) {
      found = found && NearestOfGroup<1>(row, at, nearest);
    });
  } else {
    for (int64_t at = 0; at < row.elements && found; ++at) {
      found = NearestOfOne(row, at, nearest);
    }
  }
  return found;
}

template <typename V, typename T>
void Roots(const V* squares, int64_t n, T* distances) {
  int64_t at = 0;
  for (; at + kFloats <= n; at += kFloats) {
    RootsOfVector(squares + at, distances + at);
  }
  if (at == n) return;
  V rest[kFloats] = {};
  T roots[kFloats];
  memcpy(rest, squares + at, (n - at) * sizeof(V));
  RootsOfVector(rest, roots);
  memcpy(distances + at, roots, (n - at) * sizeof(T));
}

#define TFO_INSTANTIATE(Bits) \
  template void ColumnDistances(const ColumnBlock<Bits>&)
TFO_INSTANTIATE(uint8_t);
TFO_INSTANTIATE(uint16_t);
TFO_INSTANTIATE(uint32_t);
TFO_INSTANTIATE(uint64_t);
#undef TFO_INSTANTIATE

#define TFO_INSTANTIATE(V)                                          \
  template void ColumnSquares(const int32_t*, int64_t, double, V*); \
  template bool NearestWithinReach(const SquaresRow<V>&, V*);       \
  template void Roots(const V*, int64_t, float*);                   \
  template void Roots(const V*, int64_t, double*);                  \
  template void Roots(const V*, int64_t, Half*);                    \
  template void Roots(const V*, int64_t, BFloat16*)
TFO_INSTANTIATE(int32_t);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
