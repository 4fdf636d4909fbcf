#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/image/cc/kernels/distance_transform/column_distances_simd.h"
#include "tensorflow_ops/image/cc/kernels/distance_transform/distance_transform.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// A squared distance that stands for infinity, at least as great as all others.
template <typename V>
constexpr V kFarSquare = V{1} << 30;
template <>
constexpr double kFarSquare<double> = __builtin_inf();

// The squared distances of a row's pixels [width * channels] to the zero pixels
// of their columns, with `reach` * channels values of kFarSquare on both sides.
template <typename V>
struct SquaresRow {
  const V* squares;
  int64_t elements, channels;
  // steps[d] is the square of d columns' distance, for d <= reach + 1; the last
  // is kFarSquare if reach is the width less 1.
  const V* steps;
  int64_t reach;
};

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

// squares[i] = (spacing * distances[i])^2; V is int32_t for spacing 1 only.
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

// Writes the squared distance of each pixel to the nearest zero pixel of its
// plane; returns false, with `nearest` undefined, if a zero pixel farther than
// reach columns may be nearer.
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

// distances[i] = sqrt(squares[i]), rounded once.
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

// A row looks for zero pixels in so many columns on each side before it
// computes the envelope of all parabolas, which takes as long as 100 columns.
constexpr int64_t kReach = 64;

// With these sides, squared distances are below kFarSquare<int32_t>.
constexpr int64_t kIntegerSide = 23170;

// The lower envelope of the parabolas h + x^2 of a row's columns, in units of
// columns.
struct Envelope {
  explicit Envelope(int64_t width)
      : columns(width), heights(width), starts(width) {}

  std::vector<int32_t> columns;
  std::vector<double> heights;  // h + column^2
  std::vector<double> starts;   // where the parabola is the lowest one
};

// Tables that all rows share.
template <typename V>
struct RowPlan {
  RowPlan(const Planes& planes, double row_spacing, double column_spacing)
      : width(planes.width),
        channels(planes.channels),
        reach(std::min(kReach, planes.width - 1)),
        row_spacing(row_spacing),
        column_spacing(column_spacing),
        steps(reach + 2),
        half_inverses(width) {
    for (int64_t d = 0; d < reach + 2; ++d) {
      const double distance = column_spacing * d;
      steps[d] = static_cast<V>(distance * distance);
    }
    if (reach == width - 1) steps.back() = kFarSquare<V>;
    for (int64_t d = 1; d < width; ++d) half_inverses[d] = 0.5 / d;
  }

  int64_t width, channels, reach;
  double row_spacing, column_spacing;
  std::vector<V> steps;
  std::vector<double> half_inverses;  // 1 / (2 d)
};

// Computes the distances of one row after another.
template <typename V, typename T>
class RowTransform {
 public:
  explicit RowTransform(const RowPlan<V>& plan)
      : plan_(plan),
        elements_(plan.width * plan.channels),
        padding_(plan.reach * plan.channels),
        distances_(elements_),
        padded_(elements_ + 2 * padding_, kFarSquare<V>),
        nearest_(elements_) {}

  // `distances` may share memory with `columns`.
  void Run(const char* columns, T* distances) {
    std::memcpy(distances_.data(), columns, elements_ * sizeof(int32_t));
    V* const squares = padded_.data() + padding_;
    ColumnSquares<V>(distances_.data(), elements_, plan_.row_spacing, squares);
    if (NearestWithinReach<V>({squares, elements_, plan_.channels,
                               plan_.steps.data(), plan_.reach},
                              nearest_.data())) {
      return Roots<V, T>(nearest_.data(), elements_, distances);
    }
    if (envelope_ == nullptr) {
      envelope_ = std::make_unique<Envelope>(plan_.width);
      lowest_.resize(elements_);
    }
    for (int64_t c = 0; c < plan_.channels; ++c) {
      WriteLowest(squares + c, FindEnvelope(squares + c), &lowest_[c]);
    }
    Roots<double, T>(lowest_.data(), elements_, distances);
  }

 private:
  // Felzenszwalb and Huttenlocher, doi.org/10.4086/toc.2012.v008a019. Returns
  // the number of parabolas.
  int64_t FindEnvelope(const V* squares) {
    Envelope& e = *envelope_;
    const double scale = 1 / (plan_.column_spacing * plan_.column_spacing);
    int64_t count = 0;
    for (int64_t x = 0; x < plan_.width; ++x) {
      const V square = squares[x * plan_.channels];
      if (square >= kFarSquare<V>) continue;
      const double height = square * scale + static_cast<double>(x) * x;
      double start = -std::numeric_limits<double>::infinity();
      while (count > 0) {
        start = (height - e.heights[count - 1]) *
                plan_.half_inverses[x - e.columns[count - 1]];
        if (start > e.starts[count - 1]) break;
        --count;
      }
      e.columns[count] = static_cast<int32_t>(x);
      e.heights[count] = height;
      e.starts[count] = start;
      ++count;
    }
    return count;
  }

  void WriteLowest(const V* squares, int64_t count, double* lowest) const {
    const Envelope& e = *envelope_;
    const int64_t width = plan_.width, step = plan_.channels;
    int64_t x = 0;
    for (int64_t k = 0; k < count; ++k) {
      int64_t end = width;
      if (k + 1 < count && e.starts[k + 1] < width) {
        end =
            e.starts[k + 1] < 0 ? 0 : static_cast<int64_t>(e.starts[k + 1]) + 1;
      }
      const int64_t column = e.columns[k];
      const double square = squares[column * step];
      for (; x < end; ++x) {
        const double across = plan_.column_spacing * (x - column);
        lowest[x * step] = across * across + square;
      }
    }
    for (; x < width; ++x) lowest[x * step] = kFarSquare<double>;
  }

  const RowPlan<V>& plan_;
  const int64_t elements_, padding_;
  std::vector<int32_t> distances_;
  std::vector<V> padded_, nearest_;
  std::unique_ptr<Envelope> envelope_;
  std::vector<double> lowest_;
};

template <typename V, typename T>
void TransformRows(const Cpu& cpu, const DistanceTransformArgs<T>& args,
                   const Columns& columns) {
  const RowPlan<V> plan(args.planes, args.row_spacing, args.column_spacing);
  const int64_t elements = args.planes.RowElements();
  cpu.ParallelFor(args.planes.images * args.planes.height, 10.0 * elements,
                  [&](int64_t begin, int64_t end) {
                    RowTransform<V, T> transform(plan);
                    for (int64_t row = begin; row < end; ++row) {
                      transform.Run(columns.data + row * columns.step,
                                    args.distances + row * elements);
                    }
                  });
}

}  // namespace

template <typename T>
Error DistanceTransform(const Cpu& cpu, const DistanceTransformArgs<T>& args) {
  const Planes& planes = args.planes;
  if (planes.Elements() == 0) return nullptr;
  std::unique_ptr<int32_t[]> memory;
  Columns columns = {reinterpret_cast<char*>(args.distances),
                     planes.RowElements() * int64_t{sizeof(T)}};
  if (sizeof(T) < sizeof(int32_t)) {
    memory.reset(new int32_t[planes.Elements()]);
    columns = {reinterpret_cast<char*>(memory.get()),
               planes.RowElements() * int64_t{sizeof(int32_t)}};
  }
  FindColumnDistances(cpu, args, columns);
  if (args.row_spacing == 1 && args.column_spacing == 1 &&
      std::max(planes.height, planes.width) <= kIntegerSide) {
    TransformRows<int32_t>(cpu, args, columns);
  } else {
    TransformRows<double>(cpu, args, columns);
  }
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(DistanceTransform, DistanceTransformArgs);

}  // namespace tfo
