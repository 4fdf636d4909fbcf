// The gradient to boxes.
#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Sum = Accumulator<T>;

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

}  // namespace

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

TFO_INSTANTIATE_FUNCTION(AddBoxGradOfBinRow);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
