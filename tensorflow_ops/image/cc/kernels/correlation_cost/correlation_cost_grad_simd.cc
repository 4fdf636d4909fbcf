// The gradients of correlation_cost: sums of pixels times upstream gradients,
// from the tensors as they are, or else from planes as in the forward pass.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_rows_simd.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_steps_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Vectors of positions, and channels at a time: their sums, and what is read
// once for all, fit the registers.
constexpr int kWide = kVectorBytes == 64 ? 2 : 1;
constexpr int kChannels = kVectorBytes == 64 ? 12 : 10;

template <int kCount, typename V>
TFO_INLINE void AddToChannels(const PlaneRow<const V>& weights,
                              const int64_t* weight_offsets,
                              const PlaneRow<const V>& b,
                              const int64_t* offsets, int64_t count,
                              int64_t width, const PlaneRow<V>& sums) {
  constexpr int kLanes = Lanes<V>::kCount;
  for (int64_t x = 0; x < width; x += kWide * kLanes) {
    Vector<V> sum[kCount][kWide];
#pragma GCC unroll 12
    for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) {
        sum[c][w] = Load(sums.data + c * sums.step + x + w * kLanes);
      }
    }
    for (int64_t n = 0; n < count; ++n) {
      const V* const from =
          weights.data + n * weights.step + weight_offsets[n] + x;
      const V* const from_b = b.data + offsets[n] + x;
      Vector<V> weight[kWide];
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) weight[w] = Load(from + w * kLanes);
#pragma GCC unroll 12
      for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 2
        for (int w = 0; w < kWide; ++w) {
          sum[c][w] = MulAdd(weight[w], Load(from_b + c * b.step + w * kLanes),
                             sum[c][w]);
        }
      }
    }
#pragma GCC unroll 12
    for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) {
        Store(sum[c][w], sums.data + c * sums.step + x + w * kLanes);
      }
    }
  }
}

// sums(c, x) += sum over n of weights(n, x + weight_offsets[n]) * b(c, x +
// offsets[n]), for c in [0, channels) and x in [0, width).
template <typename V>
void AddWeighted(const PlaneRow<const V>& weights,
                 const int64_t* weight_offsets, const PlaneRow<const V>& b,
                 const int64_t* offsets, int64_t count, int64_t channels,
                 int64_t width, const PlaneRow<V>& sums) {
  const int64_t groups = (channels + kChannels - 1) / kChannels;
  for (int64_t g = 0, c = 0; g < groups; ++g) {
    const int64_t some = (channels - c + groups - g - 1) / (groups - g);
    WithCount<kChannels>(some, [&](auto constant) {
      AddToChannels<decltype(constant)::kValue, V>(
          weights, weight_offsets, {b.data + c * b.step, b.step}, offsets,
          count, width, {sums.data + c * sums.step, sums.step});
    });
    c += some;
  }
}

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
        AddWeighted<Sum>({weights_.data(), weight_step_},
                         weight_offsets_.data(), other_.Row(y2),
                         offsets_.data(), args_.Side(), count, args_.width,
                         {&sums_[(y - y0) * row_step_], step_});
      }
    }
    const ImageSteps steps = FeatureSteps(args_);
    for (int64_t y = y0; y < y1; ++y) {
      UnpackRow<T>({&sums_[(y - y0) * row_step_], step_}, count, args_.width,
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
        PackRow<T>({from, steps.pixel}, args_.Side(), args_.OutputWidth(),
                   margin_ + args_.Border(), 1, 0,
                   {weights_.data(), weight_step_});
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

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(CorrelationCostGrad,
                                    CorrelationCostGradArgs);

}  // namespace tfo
