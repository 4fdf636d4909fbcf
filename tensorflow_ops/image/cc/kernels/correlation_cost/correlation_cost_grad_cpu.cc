// The gradients of correlation_cost: sums of pixels times upstream gradients,
// from the tensors as they are, or else from planes as in the forward pass.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost_simd.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_rows.h"

namespace tfo {
namespace {

template <typename T>
class GradBand {
 public:
  using Sum = Accumulator<T>;

  GradBand(const CorrelationSpec& args, const Tile& tile, bool to_b)
      : args_(args),
        to_b_(to_b),
        margin_(Reach(args)),
        other_(args, RowsOfOther(args, tile.rows), tile.channels, Layout(args)),
        weight_step_(Layout(args).template Elements<Sum>()),
        weights_(args.Side() * weight_step_ + kRowSlack),
        step_(args.width + kRowSlack),
        row_step_(tile.channels * step_),
        sums_(tile.rows * row_step_ + kRowSlack),
        weight_offsets_(args.Side()),
        offsets_(args.Side()) {}

  static int64_t Reach(const CorrelationSpec& args) {
    return args.Radius() * args.stride_2;
  }
  static RowLayout Layout(const CorrelationSpec& args) {
    const int64_t margin = Reach(args);
    return {1, margin, args.width + 2 * args.padding + 2 * margin, kRowSlack};
  }
  static int64_t RowsOfOther(const CorrelationSpec& args, int64_t rows) {
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
       {gradient + y * steps.row + c, steps.pixel});
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
      const T* const from =
          d_costs + row * steps.row + (dy + radius) * args_.Side();
      if (args_.kernel_size == 1 && args_.stride_1 == 1) {
        // Positions outside of the windows are zero from the beginning.
        TFO_DISPATCH(PackRow<T>)
        ({from, steps.pixel}, args_.Side(), args_.OutputWidth(),
         margin_ + args_.Border(), 1, 0, {weights_.data(), weight_step_});
        ClearOutside();
        return true;
      }
      if (!any) std::fill(weights_.begin(), weights_.end(), Sum(0));
      any = true;
      for (int64_t x = 0; x < args_.OutputWidth(); ++x) {
        for (int64_t d = 0; d < args_.Side(); ++d) {
          const Sum value = Widen(from[x * steps.pixel + d]);
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

  const CorrelationSpec& args_;
  const bool to_b_;
  const int64_t margin_;
  PackedRows<T> other_;
  const int64_t weight_step_;
  std::vector<Sum> weights_;  // [displacements of a row, positions]
  const int64_t step_, row_step_;
  std::vector<Sum> sums_;  // [rows, channels, step]
  std::vector<int64_t> weight_offsets_, offsets_;
};

// Whether SumSteps computes the gradients, from the tensors as they are.
bool HasSteps(const CorrelationSpec& args) {
  return args.kernel_size == 1 && args.stride_1 == 1;
}

// The gradient to one of the maps for HasSteps. Row y of the gradient sums up
// the other map's rows at all displacements, in order.
template <typename V>
class StepGradient {
 public:
  StepGradient(const CorrelationSpec& args, bool to_b)
      : args_(args),
        to_b_(to_b),
        shift_(args.padding - args.max_displacement),
        begin_(args.width),
        end_(args.width) {
    const int64_t side = args.Side(), costs = args.Displacements();
    layout_ = {args.width,
               args.channels,
               costs,
               1 - (to_b ? args.stride_2 * costs : 0),
               (to_b ? -args.stride_2 : args.stride_2) * args.channels,
               begin_.data(),
               end_.data()};
    for (int64_t x = 0; x < args.width; ++x) {
      const auto counts = [&](int64_t k) {
        const int64_t from = Partner(x, k);
        const int64_t cost = (to_b ? from : x) + shift_;
        return from >= 0 && from < args.width && cost >= 0 &&
               cost < args.OutputWidth();
      };
      int64_t k = 0;
      while (k < side && !counts(k)) ++k;
      begin_[x] = k;
      while (k < side && counts(k)) ++k;
      end_[x] = k;
    }
  }

  // Row y of the gradient to an image. `rows` is scratch memory.
  void Run(const V* d_costs, const V* other, int64_t y,
           std::vector<StepRow>* rows, V* gradient) const {
    rows->clear();
    const int64_t side = args_.Side(), costs = args_.Displacements();
    for (int64_t k = 0; k < side; ++k) {
      const int64_t from = Partner(y, k);
      const int64_t row = (to_b_ ? from : y) + shift_;
      if (from < 0 || from >= args_.height || row < 0 ||
          row >= args_.OutputHeight()) {
        continue;
      }
      const int64_t first_cost =
          shift_ + (to_b_ ? args_.Radius() * args_.stride_2 : 0);
      rows->push_back(
          {(row * args_.OutputWidth() + first_cost) * costs + k * side,
           (from * args_.width + Partner(0, 0)) * args_.channels});
    }
    TFO_DISPATCH(SumSteps<V>)
    (rows->data(), static_cast<int64_t>(rows->size()), layout_, d_costs, other,
     V(1) / static_cast<V>(args_.Terms()),
     gradient + y * args_.width * args_.channels);
  }

 private:
  // The other map's row or column at step k of a displacement.
  int64_t Partner(int64_t at, int64_t k) const {
    const int64_t d = (k - args_.Radius()) * args_.stride_2;
    return to_b_ ? at - d : at + d;
  }

  const CorrelationSpec& args_;
  const bool to_b_;
  const int64_t shift_;  // from pixels to costs
  std::vector<int64_t> begin_, end_;
  StepLayout layout_;
};

}  // namespace

template <typename T>
Error CorrelationCostGrad(const Cpu& cpu,
                          const CorrelationCostGradArgs<T>& args) {
  const int64_t of_image = args.height * args.width * args.channels;
  const int64_t of_costs =
      args.OutputHeight() * args.OutputWidth() * args.Displacements();
  if constexpr (std::is_same_v<T, Accumulator<T>>) {
    if (HasSteps(args)) {
      const StepGradient<T> steps(args, args.to_b);
      cpu.ParallelFor(args.batch * args.height, CyclesPerRow(args),
                      [&](int64_t begin, int64_t end) {
                        std::vector<StepRow> rows;
                        rows.reserve(args.Side());
                        for (int64_t unit = begin; unit < end; ++unit) {
                          const int64_t image = unit / args.height;
                          steps.Run(args.d_costs + image * of_costs,
                                    args.other + image * of_image,
                                    unit % args.height, &rows,
                                    args.gradient + image * of_image);
                        }
                      });
      return nullptr;
    }
  }
  const int64_t row_sums = 8 * (args.width + kRowSlack);
  const Tile tile = TileOf(
      args.height, args.channels, row_sums, row_sums,
      GradBand<T>::Layout(args).template Elements<Accumulator<T>>(),
      [&](int64_t rows) {
        return std::min(GradBand<T>::RowsOfOther(args, rows), args.height);
      });
  const int64_t bands = DivideUp(args.height, tile.rows);
  const int64_t groups = DivideUp(args.channels, tile.channels);
  cpu.ParallelFor(args.batch * bands * groups,
                  CyclesPerRow(args) * tile.rows / static_cast<double>(groups),
                  [&](int64_t begin, int64_t end) {
                    GradBand<T> band(args, tile, args.to_b);
                    for (int64_t unit = begin; unit < end; ++unit) {
                      const int64_t c = unit % groups * tile.channels;
                      const int64_t y = unit / groups % bands * tile.rows;
                      const int64_t image = unit / groups / bands;
                      band.Run(args.d_costs + image * of_costs,
                               args.other + image * of_image, c,
                               std::min(tile.channels, args.channels - c), y,
                               std::min(y + tile.rows, args.height),
                               args.gradient + image * of_image);
                    }
                  });
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(CorrelationCostGrad, Cpu, CorrelationCostGradArgs);

}  // namespace tfo
