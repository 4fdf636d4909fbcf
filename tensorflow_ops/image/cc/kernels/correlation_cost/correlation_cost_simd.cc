// Rows of both maps become planes of floats, a band at a time: then the costs
// of a displacement are products of vectors of pixels.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_rows_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Positions of a row to work on at a time, if all channels of a band are read
// at once: what they read of a, and the sums, stay in the level-1 cache.
constexpr int64_t kBlock = 16;

// A cache line for each channel, `step` bytes apart.
struct Prefetch {
  const void* first;
  int64_t step;
};

// Displacements at a time, for kRows rows of costs: their sums, kRows vectors
// of a and one of b fit the registers.
constexpr int Together(int rows) {
  return kManyRegisters ? 9 : rows == 3 ? 4 : rows == 2 ? 6 : 9;
}

// The vector, in a register from here on: GCC would load it from memory again
// for each use.
template <typename V>
TFO_INLINE V InRegister(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__AVX__)
  asm("" : "+x"(v));
#endif
  return v;
}

template <int kRows, int kCount, typename V>
TFO_INLINE void AddSomeDots(const PlaneRow<const V>* a,
                            const PlaneRow<const V>& b, const int64_t* offsets,
                            int64_t channels, int64_t width, int64_t first,
                            const Prefetch& prefetch, const PlaneRow<V>* sums) {
  constexpr int kLanes = Lanes<V>::kCount;
  const int64_t step = b.step, end = channels * step;
  V* to[kRows];
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) to[r] = sums[r].data + first * sums[r].step;
  for (int64_t x = 0; x < width; x += kLanes) {
    Vector<V> sum[kRows][kCount];
    const V* from_a[kRows];
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      from_a[r] = a[r].data + x;
#pragma GCC unroll 9
      for (int n = 0; n < kCount; ++n) {
        sum[r][n] = Load(to[r] + n * sums[r].step + x);
      }
    }
    const V* at[kCount];
#pragma GCC unroll 9
    for (int n = 0; n < kCount; ++n) at[n] = b.data + x + offsets[n];
    const char* ahead = static_cast<const char*>(prefetch.first);
    for (int64_t from = 0; from < end; from += step) {
      __builtin_prefetch(ahead, 0, 2);
      ahead += prefetch.step;
      Vector<V> value[kRows];
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) value[r] = Load(from_a[r] + from);
#pragma GCC unroll 9
      for (int n = 0; n < kCount; ++n) {
        Vector<V> other = Load(at[n] + from);
        if constexpr (kRows > 1) other = InRegister(other);
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r) {
          sum[r][n] = MulAdd(value[r], other, sum[r][n]);
        }
      }
    }
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 9
      for (int n = 0; n < kCount; ++n) {
        Store(sum[r][n], to[r] + n * sums[r].step + x);
      }
    }
  }
}

// For `rows` <= kDotRows rows r of a and of sums, and n in [0, count), x in [0,
// width): sums[r](n, x) += sum over c of a[r](c, x) * b(c, x + offsets[n]).
// Rows of a and b have one step. Meanwhile does `prefetch`.
template <typename V>
void AddDots(const PlaneRow<const V>* a, int64_t rows,
             const PlaneRow<const V>& b, const int64_t* offsets, int64_t count,
             int64_t channels, int64_t width, const Prefetch& prefetch,
             const PlaneRow<V>* sums) {
  static_assert(kDotRows == 3);
  WithCount<3>(rows, [&](auto of_rows) {
    constexpr int kRows = decltype(of_rows)::kValue;
    constexpr int kTogether = Together(kRows);
    // Groups of about one size.
    const int64_t groups = (count + kTogether - 1) / kTogether;
    for (int64_t g = 0, n = 0; g < groups; ++g) {
      const int64_t some = (count - n + groups - g - 1) / (groups - g);
      WithCount<kTogether>(some, [&](auto constant) {
        AddSomeDots<kRows, decltype(constant)::kValue, V>(
            a, b, offsets + n, channels, width, n, prefetch, sums);
      });
      n += some;
    }
  });
}

template <typename T>
class CostBand {
 public:
  using Sum = Accumulator<T>;

  CostBand(const CorrelationSpec& args, const Tile& tile)
      : args_(args),
        tile_(tile),
        a_(args, RowsOfA(args, tile.rows), tile.channels, Layout(args)),
        b_(args, RowsOfB(args, tile.rows), tile.channels, Layout(args)),
        all_channels_(tile.channels >= args.channels),
        block_(all_channels_ ? kBlock : RoundUp(args.OutputWidth(), kBlock)),
        sums_(tile.rows * args.Displacements() * block_),
        offsets_(args.Side()) {}

  // Aligns the first window's centre.
  static RowLayout Layout(const CorrelationSpec& args) {
    const auto behind = [](int64_t n) { return RoundUp(n, kBlock) - n; };
    const int64_t margin = behind(args.Border());
    return {PhasesOf(args), margin, margin + args.width + 2 * args.padding,
            std::max(behind(args.width), behind(args.OutputWidth()))};
  }

  static int64_t RowsOfA(const CorrelationSpec& args, int64_t rows) {
    return (rows - 1) * args.stride_1 + args.kernel_size;
  }
  static int64_t RowsOfB(const CorrelationSpec& args, int64_t rows) {
    return RowsOfA(args, rows) + 2 * args.Radius() * args.stride_2;
  }

  // Rows [y0, y1) of the costs of an image.
  void Run(const T* a, const T* b, int64_t y0, int64_t y1, T* costs) {
    if (!all_channels_) sums_.Clear();
    const int64_t first =
        y0 * args_.stride_1 + args_.max_displacement - args_.padding;
    const int64_t reach = args_.Radius() * args_.stride_2;
    for (int64_t c = 0; c < args_.channels; c += tile_.channels) {
      const int64_t count = std::min(tile_.channels, args_.channels - c);
      a_.Read(a, c, count, first, first + RowsOfA(args_, y1 - y0));
      b_.Read(b, c, count, first - reach,
              first - reach + RowsOfB(args_, y1 - y0));
      // Rows read the same rows of b if a step down of the costs is some steps
      // of displacements.
      const int64_t rows_per_pass =
          args_.stride_1 % args_.stride_2 == 0 ? kDotRows : 1;
      for (int64_t y = y0; y < y1; y += rows_per_pass) {
        const int64_t rows = std::min(rows_per_pass, y1 - y);
        for (int64_t x0 = 0; x0 < args_.OutputWidth(); x0 += block_) {
          if (all_channels_) {
            sums_.Clear();
            PlanPrefetches(a, b, y, rows, y1 - y0, x0, costs);
          }
          AddRows(y - y0, y, rows, x0, count);
          if (c + count < args_.channels) continue;
          for (int64_t r = 0; r < rows; ++r) {
            WriteCosts(a, b, y - y0 + r, y + r, x0, costs);
          }
        }
      }
    }
  }

 private:
  // The sums of a row's current block.
  Sum* SumsOf(int64_t row) {
    return sums_.data() + row * args_.Displacements() * block_;
  }

  // Columns of the block from x0 on.
  int64_t WidthOf(int64_t x0) const {
    return std::min(block_, args_.OutputWidth() - x0);
  }

  void WriteCosts(const T* a, const T* b, int64_t row, int64_t y, int64_t x0,
                  T* costs) {
    const ImageSteps steps = CostSteps(args_);
    Sum* const sums = SumsOf(row);
    FixOutside(a, b, y, x0, sums);
    UnpackRow<T>({sums, block_}, args_.Displacements(), WidthOf(x0),
                 Sum(1) / static_cast<Sum>(args_.Terms()),
                 {costs + y * steps.row + x0 * steps.pixel, steps.pixel});
  }

  // The block from x0 on of rows [y, y + rows) of the costs, whose sums begin
  // with row `row`.
  void AddRows(int64_t row, int64_t y, int64_t rows, int64_t x0,
               int64_t channels) {
    const int64_t kernel = args_.KernelRadius();
    for (int64_t j = -kernel; j <= kernel; ++j) {
      const int64_t y1 =
          y * args_.stride_1 - args_.padding + args_.Border() + j;
      const int64_t row_step = rows > 1 ? args_.stride_1 / args_.stride_2 : 1;
      const int64_t radius = args_.Radius();
      for (int64_t step = -radius; step <= radius + (rows - 1) * row_step;
           ++step) {
        const int64_t y2 = y1 + step * args_.stride_2;
        if (y2 < 0 || y2 >= args_.height) continue;
        // The rows that reach y2 and are in the image.
        int64_t first = 0, end = rows;
        while (first < end && (step - first * row_step > radius ||
                               y1 + first * args_.stride_1 < 0)) {
          ++first;
        }
        while (first < end &&
               (step - (end - 1) * row_step < -radius ||
                y1 + (end - 1) * args_.stride_1 >= args_.height)) {
          --end;
        }
        if (first == end) continue;
        AddRowsTo(row, first, end, y1, y2, step, row_step, x0, channels);
      }
    }
  }

  void AddRowsTo(int64_t row, int64_t first, int64_t end, int64_t y1,
                 int64_t y2, int64_t step, int64_t row_step, int64_t x0,
                 int64_t channels) {
    const int64_t radius = args_.Radius(), kernel = args_.KernelRadius();
    PlaneRow<const Sum> from[kDotRows];
    PlaneRow<Sum> to[kDotRows];
    PlaneRow<const Sum> from_b = b_.Row(y2);
    from_b.data += x0;
    for (int64_t i = -kernel; i <= kernel; ++i) {
      const int64_t x = args_.Border() + i;
      for (int64_t dx = -radius; dx <= radius; ++dx) {
        offsets_[dx + radius] = b_.Index(x + dx * args_.stride_2);
      }
      for (int64_t r = first; r < end; ++r) {
        const int64_t dy = step - r * row_step;
        from[r - first] = a_.Row(y1 + r * args_.stride_1, x);
        from[r - first].data += x0;
        to[r - first] = {
            SumsOf(row + r) + (dy + radius) * args_.Side() * block_, block_};
      }
      AddDots<Sum>(from, end - first, from_b, offsets_.data(), args_.Side(),
                   channels, WidthOf(x0), TakePrefetch(), to);
    }
  }

  // Plans prefetches for the products of a block of rows [y, y + rows) in a
  // band of `band` rows: the costs of the block and, at its positions, some of
  // the rows that the next band reads first from the maps.
  void PlanPrefetches(const T* a, const T* b, int64_t y, int64_t rows,
                      int64_t band, int64_t x0, const T* costs) {
    prefetches_.clear();
    const auto plan = [&](const T* image, const ImageSteps& steps,
                          int64_t row) {
      prefetches_.push_back({image + row * steps.row + x0 * steps.pixel, 64});
    };
    const auto plan_rows = [&](const T* map, int64_t first) {
      const int64_t end = first + rows * args_.stride_1;
      for (int64_t row = std::max<int64_t>(first, 0);
           row < std::min(end, args_.height); ++row) {
        plan(map, FeatureSteps(args_), row);
      }
    };
    const int64_t first = (y + band - 1) * args_.stride_1 + args_.kernel_size +
                          args_.max_displacement - args_.padding;
    plan_rows(a, first);
    plan_rows(b, first + args_.Radius() * args_.stride_2);
    for (int64_t r = 0; r < rows; ++r) plan(costs, CostSteps(args_), y + r);
  }

  // The last that is planned, if any.
  Prefetch TakePrefetch() {
    if (prefetches_.empty()) return {sums_.data(), 0};
    const Prefetch prefetch = prefetches_.back();
    prefetches_.pop_back();
    return prefetch;
  }

  // Pixels beside the image were multiplied as zeros, but infinity times zero
  // is NaN: sums such products again.
  void FixOutside(const T* a, const T* b, int64_t y, int64_t x0,
                  Sum* sums) const {
    const int64_t reach =
        args_.Radius() * args_.stride_2 + args_.KernelRadius();
    for (int64_t x = x0; x < x0 + WidthOf(x0); ++x) {
      const int64_t x1 = x * args_.stride_1 - args_.padding + args_.Border();
      if (x1 - reach >= 0 && x1 + reach < args_.width) continue;
      for (int64_t d = 0; d < args_.Displacements(); ++d) {
        Sum& sum = sums[d * block_ + x - x0];
        if (sum != sum) sum = SumInside(a, b, y, x, d);
      }
    }
  }

  // A sum of the products of pixels inside.
  Sum SumInside(const T* a, const T* b, int64_t y, int64_t x,
                int64_t displacement) const {
    const ImageSteps steps = FeatureSteps(args_);
    const int64_t radius = args_.Radius(), kernel = args_.KernelRadius();
    const int64_t dy = (displacement / args_.Side() - radius) * args_.stride_2;
    const int64_t dx = (displacement % args_.Side() - radius) * args_.stride_2;
    const int64_t y1 = y * args_.stride_1 - args_.padding + args_.Border();
    const int64_t x1 = x * args_.stride_1 - args_.padding + args_.Border();
    // The window's pixels that are inside, with partners inside.
    const auto first = [&](int64_t at, int64_t d) {
      return std::max({at - kernel, int64_t{0}, -d});
    };
    const auto end = [&](int64_t at, int64_t d, int64_t size) {
      return std::min({at + kernel + 1, size, size - d});
    };
    Sum sum = 0;
    for (int64_t v = first(y1, dy); v < end(y1, dy, args_.height); ++v) {
      for (int64_t u = first(x1, dx); u < end(x1, dx, args_.width); ++u) {
        const T* const from_a = a + v * steps.row + u * steps.pixel;
        const T* const from_b =
            b + (v + dy) * steps.row + (u + dx) * steps.pixel;
        for (int64_t c = 0; c < args_.channels; ++c) {
          sum += Widen(from_a[c]) * Widen(from_b[c]);
        }
      }
    }
    return sum;
  }

  const CorrelationSpec& args_;
  const Tile tile_;
  PackedRows<T> a_, b_;
  const bool all_channels_;  // all channels, not a tile of them after the other
  const int64_t block_;
  AlignedValues<Sum> sums_;  // [rows, displacements, block]
  std::vector<Prefetch> prefetches_;
  std::vector<int64_t> offsets_;
};

}  // namespace

template <typename T>
Error CorrelationCost(const Cpu& cpu, const CorrelationCostArgs<T>& args) {
  const int64_t height = args.OutputHeight();
  const Tile tile =
      TileOf(height, args.channels,
             args.Displacements() * RoundUp(args.OutputWidth(), kBlock),
             args.Displacements() * kBlock,
             CostBand<T>::Layout(args).template Elements<Accumulator<T>>(),
             [&](int64_t rows) {
               return std::min(CostBand<T>::RowsOfA(args, rows), args.height) +
                      std::min(CostBand<T>::RowsOfB(args, rows), args.height);
             });
  const int64_t bands = DivideUp(height, tile.rows);
  const int64_t of_image = args.height * args.width * args.channels;
  const int64_t of_costs = height * args.OutputWidth() * args.Displacements();
  if (args.channels == 0) {
    std::fill_n(args.costs, args.batch * of_costs,
                Narrow<T>(Accumulator<T>(0)));
    return nullptr;
  }
  cpu.ParallelFor(
      args.batch * bands, CyclesPerRow(args) * tile.rows,
      [&](int64_t begin, int64_t end) {
        CostBand<T> band(args, tile);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t image = unit / bands, y = unit % bands * tile.rows;
          band.Run(args.a + image * of_image, args.b + image * of_image, y,
                   std::min(y + tile.rows, height),
                   args.costs + image * of_costs);
        }
      });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(CorrelationCost, CorrelationCostArgs);

}  // namespace tfo
