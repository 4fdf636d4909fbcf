#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/image/cc/kernels/distance_transform/distance_transform.h"
#include "tensorflow_ops/image/cc/kernels/distance_transform/distance_transform_simd.h"

namespace tfo {
namespace {

// A row looks for zero pixels in so many columns on each side before it
// computes the envelope of all parabolas, which takes as long as 100 columns.
constexpr int64_t kReach = 64;

// With these sides, squared distances are below kFarSquare<int32_t>.
constexpr int64_t kIntegerSide = 23170;

// Distances in columns: int32, in rows of `step` bytes. They share memory with
// the output if its elements are large enough.
struct Columns {
  char* data;
  int64_t step;
};

template <typename T>
void FindColumnDistances(const Cpu& cpu, const DistanceTransformArgs<T>& args,
                         const Columns& columns) {
  const Planes& planes = args.planes;
  const int64_t elements = planes.RowElements();
  // Parts of rows, so that a single image occupies all threads.
  const int64_t parts =
      std::max<int64_t>(1, 4 * cpu.num_threads / planes.images);
  constexpr int64_t kMinPart = 64;
  const int64_t part =
      std::max(kMinPart, (elements + parts - 1) / parts + 15) / 16 * 16;
  const int64_t parts_of_row = (elements + part - 1) / part;
  WithPixelBits(args.type, [&](auto bits, auto magnitude) {
    using Bits = decltype(bits);
    const auto* const pixels = static_cast<const Bits*>(args.images);
    const auto column_distances = TFO_DISPATCH(ColumnDistances<Bits>);
    cpu.ParallelFor(
        planes.images * parts_of_row, 2.0 * planes.height * part,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t row = i / parts_of_row * planes.height;
            const int64_t first = i % parts_of_row * part;
            column_distances({pixels + row * elements + first, magnitude,
                              planes.height, std::min(part, elements - first),
                              elements,
                              columns.data + row * columns.step +
                                  first * int64_t{sizeof(int32_t)},
                              columns.step});
          }
        });
  });
}

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
    TFO_DISPATCH(ColumnSquares<V>)
    (distances_.data(), elements_, plan_.row_spacing, squares);
    if (TFO_DISPATCH(NearestWithinReach<V>)({squares, elements_, plan_.channels,
                                             plan_.steps.data(), plan_.reach},
                                            nearest_.data())) {
      return TFO_DISPATCH(Roots<V, T>)(nearest_.data(), elements_, distances);
    }
    if (envelope_ == nullptr) {
      envelope_ = std::make_unique<Envelope>(plan_.width);
      lowest_.resize(elements_);
    }
    for (int64_t c = 0; c < plan_.channels; ++c) {
      WriteLowest(squares + c, FindEnvelope(squares + c), &lowest_[c]);
    }
    TFO_DISPATCH(Roots<double, T>)(lowest_.data(), elements_, distances);
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

TFO_INSTANTIATE_ALGORITHM(DistanceTransform, Cpu, DistanceTransformArgs);

}  // namespace tfo
