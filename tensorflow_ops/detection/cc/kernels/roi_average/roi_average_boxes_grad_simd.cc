// The gradient to boxes on the CPU: each unit of work sums its own part, and
// the parts are added in one order.
#include "tensorflow_ops/detection/cc/kernels/roi/roi_box_sums.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Adds to d_box (y1, x1, y2, x2) the sum over a bin's pixels of
// product_of(y, x), a number or a vector of summands, times the slopes of the
// pixel's weight.
template <typename Product, typename Tap, typename ProductOf>
TFO_INLINE void AddSlopes(TapSpan<Tap> rows, TapSpan<Tap> columns,
                          const ProductOf& product_of, double* d_box) {
  Product sums[4] = {};
  for (auto y = rows.begin; y < rows.end; ++y) {
    Product sum = {}, low = {}, high = {};  // over columns
    for (auto x = columns.begin; x < columns.end; ++x) {
      const Product product = product_of(y, x);
      sum = MulAdd(Broadcast<Product>(x->weight), product, sum);
      low = MulAdd(Broadcast<Product>(x->low), product, low);
      high = MulAdd(Broadcast<Product>(x->high), product, high);
    }
    sums[0] = MulAdd(Broadcast<Product>(y->low), sum, sums[0]);
    sums[1] = MulAdd(Broadcast<Product>(y->weight), low, sums[1]);
    sums[2] = MulAdd(Broadcast<Product>(y->high), sum, sums[2]);
    sums[3] = MulAdd(Broadcast<Product>(y->weight), high, sums[3]);
  }
  for (int i = 0; i < 4; ++i) d_box[i] += SumLanes(sums[i]);
}

// Adds to d_box (y1, x1, y2, x2) the derivative of sum(d_output * averages)
// of a row of bins, as AverageBinRow.
template <typename T>
void AddBoxGradOfBinRow(RowView<const T> d_output,
                        const ImageView<const T>& image,
                        TapSpan<SlopedTap<Sum<T>>> rows,
                        const BinTaps<SlopedTap<Sum<T>>>& columns,
                        const BinChannels& of, double* d_box) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t count = of.count, step = of.step;
  const int64_t channels = image.channels, row = image.width * channels;
  for (int64_t q = 0; q < columns.count; ++q) {
    const T* const gradient = d_output.data + q * d_output.channels;
    const T* const first = image.data + q * of.next_bin;
    const auto bin = TapsOf(columns, q);
    const auto pixel = [&](const auto* y, const auto* x) {
      return first + y->pixel * row + x->pixel * channels;
    };
    if (step != 1) {
      AddSlopes<Sum<T>>(
          rows, bin,
          [&](const auto* y, const auto* x) {
            const T* const from = pixel(y, x);
            Sum<T> product = 0;
            for (int64_t c = 0; c < count; ++c) {
              product = MulAdd(LoadOne(gradient + c), LoadOne(from + c * step),
                               product);
            }
            return product;
          },
          d_box);
      continue;
    }
    // Each lane sums some channels' products; lanes are summed at the end.
    AddSlopes<Vector<T>>(
        rows, bin,
        [&](const auto* y, const auto* x) {
          const T* const from = pixel(y, x);
          Vector<T> products[4] = {};
          ForVectorGroups<4, kCount>(
              count, 0,
              [&](auto vectors, int64_t c) {
#pragma GCC unroll 4
                for (int i = 0; i < decltype(vectors)::kValue; ++i) {
                  products[i] =
                      MulAdd(Load(gradient + c + i * kCount),
                             Load(from + c + i * kCount), products[i]);
                }
              },
              [&](int64_t c, int64_t n) {
                products[0] = MulAdd(LoadFirst(gradient + c, n),
                                     LoadFirst(from + c, n), products[0]);
              });
          return (products[0] + products[1]) + (products[2] + products[3]);
        },
        d_box);
  }
}

}  // namespace

template <typename T>
Error RoiAverageBoxesGrad(const Cpu& cpu,
                          const RoiAverageBoxesGradArgs<T>& args) {
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  if (pooled.Size() == 0) {
    std::fill_n(args.d_boxes, 4 * args.boxes.count, 0);
    return nullptr;
  }
  const auto maps = MapsOf(args, args.features);
  const SlopedBoxTaps<T> taps(cpu, args, args.boxes);
  // A unit is a row of bins.
  const BinChannels of = args.ChannelsOfBins();
  const std::vector<int64_t> bin_rows = BinRowsByBand(pooled, taps, maps);
  std::vector<double> parts(4 * bin_rows.size(), 0.0);
  cpu.ParallelFor(bin_rows.size(),
                  2 * Cycles(pooled, taps, args.channels) / bin_rows.size(),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t k = bin_rows[i] / pooled.height;
                      const int64_t p = bin_rows[i] % pooled.height;
                      if (taps.Map(k) < 0) continue;
                      const auto& map = maps[taps.Map(k)];
                      AddBoxGradOfBinRow<T>(
                          {args.d_output + pooled.Offset(k, p, 0, 0), of.count},
                          {map.data + p * pooled.width * of.next_bin, map.width,
                           args.channels},
                          TapsOf(taps.Rows(k), p), taps.Columns(k), of,
                          &parts[4 * bin_rows[i]]);
                    }
                  });
  SumBoxParts(args.boxes, parts, {pooled.height, pooled.height, 1},
              args.d_boxes);
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(RoiAverageBoxesGrad,
                                    RoiAverageBoxesGradArgs);

}  // namespace tfo
