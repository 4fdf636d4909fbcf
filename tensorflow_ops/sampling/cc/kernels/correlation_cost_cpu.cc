// Rows of both maps become planes of floats, a band at a time: then the costs
// of a displacement are products of vectors of pixels.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/sampling/cc/kernels/correlation_cost.h"
#include "tensorflow_ops/sampling/cc/kernels/correlation_cost_simd.h"
#include "tensorflow_ops/sampling/cc/kernels/correlation_rows.h"

namespace tfo {
namespace {

// Positions of a row to work on at a time: what they read of a, and the sums,
// stay in the level-1 cache.
constexpr int64_t kBlock = 16;

template <typename T>
class CostBand {
 public:
  using Sum = Accumulator<T>;

  CostBand(const CorrelationArgs& args, const Tile& tile)
      : args_(args),
        tile_(tile),
        a_(args, RowsOfA(args, tile.rows), tile.channels, Layout(args)),
        b_(args, RowsOfB(args, tile.rows), tile.channels, Layout(args)),
        blocks_(DivideUp(args.OutputWidth(), kBlock)),
        keeps_(tile.channels < args.channels),
        kept_blocks_(keeps_ ? blocks_ : 1),
        block_sums_(args.Displacements() * kBlock),
        sums_(kept_blocks_ * tile.rows * block_sums_),
        offsets_(args.Side()) {}

  // Aligns the first window's centre.
  static RowLayout Layout(const CorrelationArgs& args) {
    const auto behind = [](int64_t n) { return RoundUp(n, kBlock) - n; };
    const int64_t margin = behind(args.Border());
    return {PhasesOf(args), margin, margin + args.width + 2 * args.padding,
            std::max(behind(args.width), behind(args.OutputWidth()))};
  }

  static int64_t RowsOfA(const CorrelationArgs& args, int64_t rows) {
    return (rows - 1) * args.stride_1 + args.kernel_size;
  }
  static int64_t RowsOfB(const CorrelationArgs& args, int64_t rows) {
    return RowsOfA(args, rows) + 2 * args.Radius() * args.stride_2;
  }

  // Rows [y0, y1) of the costs of an image.
  void Run(const T* a, const T* b, int64_t y0, int64_t y1, T* costs) {
    if (keeps_) sums_.Clear();
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
      const int64_t together =
          args_.stride_1 % args_.stride_2 == 0 ? kDotRows : 1;
      for (int64_t y = y0; y < y1; y += together) {
        const int64_t rows = std::min(together, y1 - y);
        for (int64_t block = 0; block < blocks_; ++block) {
          if (!keeps_) {
            sums_.Clear();
            PlanPrefetches(a, b, y, y + rows, block, costs);
          }
          AddRows(y - y0, y, rows, block, count);
          if (c + count < args_.channels) continue;
          for (int64_t r = 0; r < rows; ++r) {
            WriteCosts(a, b, y - y0 + r, y + r, block, costs);
          }
        }
      }
    }
  }

 private:
  Sum* SumsOf(int64_t row, int64_t block) {
    return sums_.data() +
           (row * kept_blocks_ + block % kept_blocks_) * block_sums_;
  }

  void WriteCosts(const T* a, const T* b, int64_t row, int64_t y, int64_t block,
                  T* costs) {
    const ImageSteps steps = CostSteps(args_);
    const int64_t x = block * kBlock;
    const int64_t width = std::min(kBlock, args_.OutputWidth() - x);
    Sum* const sums = SumsOf(row, block);
    MendOutside(a, b, y, x, width, sums);
    TFO_DISPATCH(UnpackRow<T>)
    ({sums, kBlock}, args_.Displacements(), width,
     Sum(1) / static_cast<Sum>(args_.Terms()),
     {costs + y * steps.row + x * steps.pixel, steps.channel, steps.pixel});
  }

  // Rows [y, y + rows) of the costs, whose sums begin with row `row`.
  void AddRows(int64_t row, int64_t y, int64_t rows, int64_t block,
               int64_t channels) {
    const int64_t kernel = args_.KernelRadius();
    for (int64_t j = -kernel; j <= kernel; ++j) {
      const int64_t y1 =
          y * args_.stride_1 - args_.padding + args_.Border() + j;
      const int64_t apart = rows > 1 ? args_.stride_1 / args_.stride_2 : 1;
      const int64_t radius = args_.Radius();
      for (int64_t step = -radius; step <= radius + (rows - 1) * apart;
           ++step) {
        const int64_t y2 = y1 + step * args_.stride_2;
        if (y2 < 0 || y2 >= args_.height) continue;
        // The rows that reach y2 and are in the image.
        int64_t first = 0, end = rows;
        while (first < end && (step - first * apart > radius ||
                               y1 + first * args_.stride_1 < 0)) {
          ++first;
        }
        while (first < end &&
               (step - (end - 1) * apart < -radius ||
                y1 + (end - 1) * args_.stride_1 >= args_.height)) {
          --end;
        }
        if (first == end) continue;
        AddRowsTo(row, first, end, y1, y2, step, apart, block, channels);
      }
    }
  }

  void AddRowsTo(int64_t row, int64_t first, int64_t end, int64_t y1,
                 int64_t y2, int64_t step, int64_t apart, int64_t block,
                 int64_t channels) {
    const int64_t radius = args_.Radius(), kernel = args_.KernelRadius();
    const int64_t x0 = block * kBlock;
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
        const int64_t dy = step - r * apart;
        from[r - first] = a_.Row(y1 + r * args_.stride_1, x);
        from[r - first].data += x0;
        to[r - first] = {
            SumsOf(row + r, block) + (dy + radius) * args_.Side() * kBlock,
            kBlock};
      }
      TFO_DISPATCH(AddDots<Sum>)
      (from, end - first, from_b, offsets_.data(), args_.Side(), channels,
       std::min(kBlock, args_.OutputWidth() - x0), TakePrefetch(), to);
    }
  }

  // What to prefetch during the products of a block of rows [y0, y1): its costs
  // and, at its positions, the rows of the maps that the next band reads first.
  void PlanPrefetches(const T* a, const T* b, int64_t y0, int64_t y1,
                      int64_t block, const T* costs) {
    prefetches_.clear();
    const auto plan = [&](const T* image, const ImageSteps& steps, int64_t y) {
      const int64_t plane = steps.channel * static_cast<int64_t>(sizeof(T));
      prefetches_.push_back(
          {image + y * steps.row + block * kBlock * steps.pixel,
           args_.channels_first ? plane : int64_t{64}});
    };
    const ImageSteps steps = FeatureSteps(args_);
    const int64_t first = (y1 - 1) * args_.stride_1 + args_.kernel_size +
                          args_.max_displacement - args_.padding;
    for (int64_t y = first; y < first + (y1 - y0) * args_.stride_1; ++y) {
      const int64_t of_b = y + args_.Radius() * args_.stride_2;
      if (y >= 0 && y < args_.height) plan(a, steps, y);
      if (of_b >= 0 && of_b < args_.height) plan(b, steps, of_b);
    }
    for (int64_t y = y0; y < y1; ++y) plan(costs, CostSteps(args_), y);
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
  void MendOutside(const T* a, const T* b, int64_t y, int64_t x0, int64_t width,
                   Sum* sums) const {
    const int64_t reach =
        args_.Radius() * args_.stride_2 + args_.KernelRadius();
    for (int64_t x = x0; x < x0 + width; ++x) {
      const int64_t x1 = x * args_.stride_1 - args_.padding + args_.Border();
      if (x1 - reach >= 0 && x1 + reach < args_.width) continue;
      for (int64_t d = 0; d < args_.Displacements(); ++d) {
        Sum& sum = sums[d * kBlock + x - x0];
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
    // The window's pixels that are inside, and whose partners are.
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
          sum += Widen(from_a[c * steps.channel]) *
                 Widen(from_b[c * steps.channel]);
        }
      }
    }
    return sum;
  }

  const CorrelationArgs& args_;
  const Tile tile_;
  PackedRows<T> a_, b_;
  const int64_t blocks_;
  const bool keeps_;  // sums of all blocks, while there are more channels
  const int64_t kept_blocks_, block_sums_;
  AlignedValues<Sum> sums_;  // [rows, kept blocks, displacements, kBlock]
  std::vector<Prefetch> prefetches_;
  std::vector<int64_t> offsets_;
};

}  // namespace

template <typename T>
Error CorrelationCost(const Cpu& cpu, const CorrelationArgs& args, const T* a,
                      const T* b, T* costs) {
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
    std::fill_n(costs, args.batch * of_costs, Narrow<T>(Accumulator<T>(0)));
    return nullptr;
  }
  cpu.ParallelFor(
      args.batch * bands, CyclesPerRow(args) * tile.rows,
      [&](int64_t begin, int64_t end) {
        CostBand<T> band(args, tile);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t image = unit / bands, y = unit % bands * tile.rows;
          band.Run(a + image * of_image, b + image * of_image, y,
                   std::min(y + tile.rows, height), costs + image * of_costs);
        }
      });
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                              \
  template Error CorrelationCost<T>(const Cpu&, const CorrelationArgs&, \
                                    const T*, const T*, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
