// Rows of both maps become planes of floats, a band at a time: then the costs
// of a displacement, and the gradients, are products of vectors of pixels.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/sampling/cc/kernels/correlation_cost.h"
#include "tensorflow_ops/sampling/cc/kernels/correlation_cost_simd.h"

namespace tfo {
namespace {

// Elements of a thread's packed rows, and of its sums: together they fit into
// a level-2 cache.
constexpr int64_t kPackedElements = 160 << 10, kSumElements = 96 << 10;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Positions of a row modulo its phases: neighboring windows read neighbors of a
// phase.
int64_t PhasesOf(const CorrelationArgs& args) {
  return args.OutputWidth() == 1 ? 1 : args.stride_1;
}

// Some channels of some rows of a map, padded with zeros, as planes of
// positions. Position x of the padded row is at Index(x): neighboring windows
// are neighbors there, `phases` pixels apart.
template <typename T>
class PackedRows {
 public:
  using Sum = Accumulator<T>;

  // Holds `rows` rows of `channels` channels, with positions from -margin on:
  // those of the rows that are in the image.
  PackedRows(const CorrelationArgs& args, int64_t rows, int64_t channels,
             int64_t phases, int64_t margin)
      : args_(args),
        phases_(phases),
        margin_(margin),
        phase_step_(
            DivideUp(args.width + 2 * args.padding + 2 * margin, phases)),
        step_(RowElements(args, phases, margin)),
        row_step_(channels * step_),
        // Slack behind the last row, too.
        values_(std::min(rows, args.height) * row_step_ + kRowSlack) {}

  static int64_t RowElements(const CorrelationArgs& args, int64_t phases,
                             int64_t margin) {
    const int64_t positions = args.width + 2 * args.padding + 2 * margin;
    return DivideUp(positions, phases) * phases + kRowSlack;
  }

  // Reads channels [c, c + count) of rows [first, end) of an image; those
  // outside are not read.
  void Read(const T* image, int64_t c, int64_t count, int64_t first,
            int64_t end) {
    const ImageSteps steps = FeatureSteps(args_);
    first_ = std::max<int64_t>(first, 0);
    for (int64_t y = first_; y < std::min(end, args_.height); ++y) {
      TFO_DISPATCH(PackRow<T>)
      ({image + y * steps.row + c * steps.channel, steps.channel, steps.pixel},
       count, args_.width, margin_ + args_.padding, phases_, phase_step_,
       {&values_[(y - first_) * row_step_], step_});
    }
  }

  int64_t Index(int64_t position) const {
    const int64_t x = margin_ + position;
    return x % phases_ * phase_step_ + x / phases_;
  }

  // Row y of the image, from `position` on.
  PlaneRow<const Sum> Row(int64_t y, int64_t position) const {
    return {&values_[(y - first_) * row_step_ + Index(position)], step_};
  }
  PlaneRow<const Sum> Row(int64_t y) const {
    return {&values_[(y - first_) * row_step_], step_};
  }

 private:
  const CorrelationArgs& args_;
  const int64_t phases_, margin_, phase_step_, step_, row_step_;
  int64_t first_ = 0;
  std::vector<Sum> values_;
};

// How many rows and channels to work on at once. Depends on sizes only, because
// it decides the order of sums.
struct Tile {
  int64_t rows, channels;
};

// `rows_of(n)`: the rows that n rows of the result read.
template <typename RowsOf>
Tile TileOf(int64_t rows, int64_t channels, int64_t row_sums,
            int64_t row_elements, const RowsOf& rows_of) {
  Tile tile;
  tile.rows = std::clamp<int64_t>(kSumElements / std::max<int64_t>(row_sums, 1),
                                  1, std::min<int64_t>(rows, 8));
  tile.channels = std::clamp<int64_t>(
      kPackedElements / std::max<int64_t>(rows_of(tile.rows) * row_elements, 1),
      std::min<int64_t>(channels, 8), channels);
  return tile;
}

template <typename T>
class CostBand {
 public:
  using Sum = Accumulator<T>;

  CostBand(const CorrelationArgs& args, const Tile& tile)
      : args_(args),
        tile_(tile),
        a_(args, RowsOfA(args, tile.rows), tile.channels, PhasesOf(args), 0),
        b_(args, RowsOfB(args, tile.rows), tile.channels, PhasesOf(args), 0),
        step_(args.OutputWidth() + kRowSlack),
        sums_(tile.rows * args.Displacements() * step_ + kRowSlack),
        offsets_(args.Side()) {}

  static int64_t RowsOfA(const CorrelationArgs& args, int64_t rows) {
    return (rows - 1) * args.stride_1 + args.kernel_size;
  }
  static int64_t RowsOfB(const CorrelationArgs& args, int64_t rows) {
    return RowsOfA(args, rows) + 2 * args.Radius() * args.stride_2;
  }

  // Rows [y0, y1) of the costs of an image.
  void Run(const T* a, const T* b, int64_t y0, int64_t y1, T* costs) {
    std::fill(sums_.begin(), sums_.end(), Sum(0));
    const int64_t first =
        y0 * args_.stride_1 + args_.max_displacement - args_.padding;
    const int64_t reach = args_.Radius() * args_.stride_2;
    for (int64_t c = 0; c < args_.channels; c += tile_.channels) {
      const int64_t count = std::min(tile_.channels, args_.channels - c);
      a_.Read(a, c, count, first, first + RowsOfA(args_, y1 - y0));
      b_.Read(b, c, count, first - reach,
              first - reach + RowsOfB(args_, y1 - y0));
      for (int64_t y = y0; y < y1; ++y) AddRow(y - y0, y, count);
    }
    const ImageSteps steps = CostSteps(args_);
    for (int64_t y = y0; y < y1; ++y) {
      Sum* const row = RowSums(y - y0);
      MendOutside(a, b, y, row);
      TFO_DISPATCH(UnpackRow<T>)
      ({row, step_}, args_.Displacements(), args_.OutputWidth(),
       Sum(1) / static_cast<Sum>(args_.Terms()),
       {costs + y * steps.row, steps.channel, steps.pixel});
    }
  }

 private:
  Sum* RowSums(int64_t row) {
    return &sums_[row * args_.Displacements() * step_];
  }

  void AddRow(int64_t row, int64_t y, int64_t channels) {
    const int64_t radius = args_.Radius(), kernel = args_.KernelRadius();
    for (int64_t j = -kernel; j <= kernel; ++j) {
      const int64_t y1 =
          y * args_.stride_1 - args_.padding + args_.Border() + j;
      if (y1 < 0 || y1 >= args_.height) continue;
      for (int64_t dy = -radius; dy <= radius; ++dy) {
        const int64_t y2 = y1 + dy * args_.stride_2;
        if (y2 < 0 || y2 >= args_.height) continue;
        for (int64_t i = -kernel; i <= kernel; ++i) {
          const int64_t x = args_.Border() + i;
          for (int64_t dx = -radius; dx <= radius; ++dx) {
            offsets_[dx + radius] = b_.Index(x + dx * args_.stride_2);
          }
          TFO_DISPATCH(AddDots<Sum>)
          (a_.Row(y1, x), b_.Row(y2), offsets_.data(), args_.Side(), channels,
           args_.OutputWidth(),
           {RowSums(row) + (dy + radius) * args_.Side() * step_, step_});
        }
      }
    }
  }

  // Pixels beside the image were multiplied as zeros, but infinity times zero
  // is NaN: sums such products again.
  void MendOutside(const T* a, const T* b, int64_t y, Sum* row) const {
    const int64_t reach =
        args_.Radius() * args_.stride_2 + args_.KernelRadius();
    for (int64_t x = 0; x < args_.OutputWidth(); ++x) {
      const int64_t x1 = x * args_.stride_1 - args_.padding + args_.Border();
      if (x1 - reach >= 0 && x1 + reach < args_.width) continue;
      for (int64_t d = 0; d < args_.Displacements(); ++d) {
        Sum& sum = row[d * step_ + x];
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
  const int64_t step_;
  std::vector<Sum> sums_;  // [rows, displacements, step]
  std::vector<int64_t> offsets_;
};

template <typename T>
class GradBand {
 public:
  using Sum = Accumulator<T>;

  GradBand(const CorrelationArgs& args, const Tile& tile, bool to_b)
      : args_(args),
        to_b_(to_b),
        margin_(Reach(args)),
        other_(args, RowsOfOther(args, tile.rows), tile.channels, 1, margin_),
        weight_step_(PackedRows<T>::RowElements(args, 1, margin_)),
        weights_(args.Side() * weight_step_ + kRowSlack),
        step_(args.width + kRowSlack),
        row_step_(tile.channels * step_),
        sums_(tile.rows * row_step_ + kRowSlack),
        weight_offsets_(args.Side()),
        offsets_(args.Side()) {}

  static int64_t Reach(const CorrelationArgs& args) {
    return args.Radius() * args.stride_2;
  }
  static int64_t RowsOfOther(const CorrelationArgs& args, int64_t rows) {
    return rows + 2 * Reach(args);
  }

  // Channels [c, c + count) of rows [y0, y1) of the gradient of an image.
  void Run(const T* d_costs, const T* other, int64_t c, int64_t count,
           int64_t y0, int64_t y1, T* gradient) {
    std::fill(sums_.begin(), sums_.end(), Sum(0));
    other_.Read(other, c, count, y0 - margin_, y1 + margin_);
    const int64_t radius = args_.Radius();
    for (int64_t dy = -radius; dy <= radius; ++dy) {
      for (int64_t y = y0; y < y1; ++y) {
        const int64_t shift = dy * args_.stride_2;
        const int64_t y2 = to_b_ ? y - shift : y + shift;
        if (y2 < 0 || y2 >= args_.height) continue;
        if (!ReadWeights(d_costs, to_b_ ? y2 : y, dy)) continue;
        for (int64_t dx = -radius; dx <= radius; ++dx) {
          const int64_t step = dx * args_.stride_2;
          const int64_t x = margin_ + args_.padding;
          weight_offsets_[dx + radius] = to_b_ ? x - step : x;
          offsets_[dx + radius] = to_b_ ? x - step : x + step;
        }
        TFO_DISPATCH(AddWeighted<Sum>)
        ({weights_.data(), weight_step_}, weight_offsets_.data(),
         other_.Row(y2), offsets_.data(), args_.Side(), count, args_.width,
         {&sums_[(y - y0) * row_step_], step_});
      }
    }
    const ImageSteps steps = FeatureSteps(args_);
    for (int64_t y = y0; y < y1; ++y) {
      TFO_DISPATCH(UnpackRow<T>)
      ({&sums_[(y - y0) * row_step_], step_}, count, args_.width,
       Sum(1) / static_cast<Sum>(args_.Terms()),
       {gradient + y * steps.row + c * steps.channel, steps.channel,
        steps.pixel});
    }
  }

 private:
  // For each pixel of row y of a, and each displacement of row dy: the sum of
  // the upstream gradients of the windows that it is in. Returns false if it is
  // in none.
  bool ReadWeights(const T* d_costs, int64_t y, int64_t dy) {
    const ImageSteps steps = CostSteps(args_);
    const int64_t radius = args_.Radius(), kernel = args_.KernelRadius();
    bool any = false;
    for (int64_t j = -kernel; j <= kernel; ++j) {
      const int64_t at = y + args_.padding - args_.Border() - j;
      if (at < 0 || at % args_.stride_1 != 0) continue;
      const int64_t row = at / args_.stride_1;
      if (row >= args_.OutputHeight()) continue;
      const T* const from = d_costs + row * steps.row +
                            (dy + radius) * args_.Side() * steps.channel;
      if (args_.kernel_size == 1 && args_.stride_1 == 1) {
        // Positions outside of the windows are zero from the beginning.
        TFO_DISPATCH(PackRow<T>)
        ({from, steps.channel, steps.pixel}, args_.Side(), args_.OutputWidth(),
         margin_ + args_.Border(), 1, 0, {weights_.data(), weight_step_});
        ClearOutside();
        return true;
      }
      if (!any) std::fill(weights_.begin(), weights_.end(), Sum(0));
      any = true;
      for (int64_t x = 0; x < args_.OutputWidth(); ++x) {
        for (int64_t d = 0; d < args_.Side(); ++d) {
          const Sum value = Widen(from[x * steps.pixel + d * steps.channel]);
          Sum* const to = &weights_[d * weight_step_ + margin_ +
                                    x * args_.stride_1 + args_.Border()];
          for (int64_t i = -kernel; i <= kernel; ++i) to[i] += value;
        }
      }
    }
    if (any) ClearOutside();
    return any;
  }

  // Clears the weights of products with a pixel beside the image: infinity
  // times its zero is NaN.
  void ClearOutside() {
    const int64_t origin = margin_ + args_.padding;
    const int64_t begin = margin_ + args_.max_displacement;
    const int64_t end =
        begin + (args_.OutputWidth() - 1) * args_.stride_1 + args_.kernel_size;
    for (int64_t d = 0; d < args_.Side(); ++d) {
      const int64_t step = (d - args_.Radius()) * args_.stride_2;
      Sum* const row = &weights_[d * weight_step_];
      const int64_t first =
          std::clamp(origin + std::max<int64_t>(0, -step), begin, end);
      const int64_t last = std::clamp(
          origin + std::min(args_.width, args_.width - step), first, end);
      std::fill(row + begin, row + first, Sum(0));
      std::fill(row + last, row + end, Sum(0));
    }
  }

  const CorrelationArgs& args_;
  const bool to_b_;
  const int64_t margin_;
  PackedRows<T> other_;
  const int64_t weight_step_;
  std::vector<Sum> weights_;  // [displacements of a row, positions]
  const int64_t step_, row_step_;
  std::vector<Sum> sums_;  // [rows, channels, step]
  std::vector<int64_t> weight_offsets_, offsets_;
};

// Estimates the cycles of a row of costs of an image.
double CyclesPerRow(const CorrelationArgs& args) {
  return 0.1 * args.OutputWidth() * args.Displacements() * args.Terms();
}

}  // namespace

template <typename T>
Error CorrelationCost(const Cpu& cpu, const CorrelationArgs& args, const T* a,
                      const T* b, T* costs) {
  const int64_t height = args.OutputHeight();
  const Tile tile = TileOf(
      height, args.channels,
      args.Displacements() * (args.OutputWidth() + kRowSlack),
      PackedRows<T>::RowElements(args, PhasesOf(args), 0), [&](int64_t rows) {
        return std::min(CostBand<T>::RowsOfA(args, rows), args.height) +
               std::min(CostBand<T>::RowsOfB(args, rows), args.height);
      });
  const int64_t bands = DivideUp(height, tile.rows);
  const int64_t of_image = args.height * args.width * args.channels;
  const int64_t of_costs = height * args.OutputWidth() * args.Displacements();
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

template <typename T>
Error CorrelationCostGrad(const Cpu& cpu, const CorrelationArgs& args,
                          const T* d_costs, const T* other, bool to_b,
                          T* gradient) {
  const Tile tile = TileOf(
      args.height, args.channels, 8 * (args.width + kRowSlack),
      PackedRows<T>::RowElements(args, 1, GradBand<T>::Reach(args)),
      [&](int64_t rows) {
        return std::min(GradBand<T>::RowsOfOther(args, rows), args.height);
      });
  const int64_t bands = DivideUp(args.height, tile.rows);
  const int64_t groups = DivideUp(args.channels, tile.channels);
  const int64_t of_image = args.height * args.width * args.channels;
  const int64_t of_costs =
      args.OutputHeight() * args.OutputWidth() * args.Displacements();
  cpu.ParallelFor(args.batch * bands * groups,
                  CyclesPerRow(args) * tile.rows / static_cast<double>(groups),
                  [&](int64_t begin, int64_t end) {
                    GradBand<T> band(args, tile, to_b);
                    for (int64_t unit = begin; unit < end; ++unit) {
                      const int64_t c = unit % groups * tile.channels;
                      const int64_t y = unit / groups % bands * tile.rows;
                      const int64_t image = unit / groups / bands;
                      band.Run(d_costs + image * of_costs,
                               other + image * of_image, c,
                               std::min(tile.channels, args.channels - c), y,
                               std::min(y + tile.rows, args.height),
                               gradient + image * of_image);
                    }
                  });
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                                  \
  template Error CorrelationCost<T>(const Cpu&, const CorrelationArgs&,     \
                                    const T*, const T*, T*);                \
  template Error CorrelationCostGrad<T>(const Cpu&, const CorrelationArgs&, \
                                        const T*, const T*, bool, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
