// The gradient to boxes.
#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_plane_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Adds to d_box (y1, x1, y2, x2) `scale` times the sum over a bin's pixels of
// product_of(y, x), a number or a vector of summands, times the slopes of the
// pixel's weight.
template <typename Product, typename Tap, typename ProductOf>
TFO_INLINE void AddSlopes(TapSpan<Tap> rows, TapSpan<Tap> columns,
                          const ProductOf& product_of, double scale,
                          double* d_box) {
  Product sums[4] = {};
  for (auto y = rows.begin; y < rows.end; ++y) {
    Product sum = {}, low = {}, high = {};  // over columns
    for (auto x = columns.begin; x < columns.end; ++x) {
      const Product product = product_of(y, x);
      sum = MulAdd(Product{} + x->weight, product, sum);
      low = MulAdd(Product{} + x->low, product, low);
      high = MulAdd(Product{} + x->high, product, high);
    }
    sums[0] = MulAdd(Product{} + y->low, sum, sums[0]);
    sums[1] = MulAdd(Product{} + y->weight, low, sums[1]);
    sums[2] = MulAdd(Product{} + y->high, sum, sums[2]);
    sums[3] = MulAdd(Product{} + y->weight, high, sums[3]);
  }
  for (int i = 0; i < 4; ++i) d_box[i] += scale * SumLanes(sums[i]);
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
          1, d_box);
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
        1, d_box);
  }
}

template <typename T>
void AddBoxGradOfPlane(const T* d_output, const PlaneView<const T>& plane,
                       const BinTaps<SlopedTap<Sum<T>>>& rows,
                       const BinTaps<SlopedTap<Sum<T>>>& columns,
                       Sum<T>* scratch, double* d_box) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t width = plane.width, bins_x = columns.count;
  if (IsFewPixels(rows, columns)) {
    const auto bin_rows = TapsOf(rows, 0), bin = TapsOf(columns, 0);
    // A bin without pixels passes no gradient on, not even NaN.
    if (bin_rows.begin == bin_rows.end || bin.begin == bin.end) return;
    AddSlopes<Sum<T>>(
        bin_rows, bin,
        [&](const auto* y, const auto* x) {
          return LoadOne(plane.data + y->pixel * width + x->pixel);
        },
        LoadOne(d_output), d_box);
    return;
  }
  const ColumnRange used = ColumnsOf(columns);
  Sum<T>* const averages = scratch;
  Sum<T>* const lows = averages + width + 16;
  Sum<T>* const highs = lows + width + 16;
  for (int64_t p = 0; p < rows.count; ++p) {
    const auto bin_rows = TapsOf(rows, p);
    if (bin_rows.begin == bin_rows.end) continue;
    for (int64_t x = used.begin; x < used.end; x += kCount) {
      Vector<T> average = {}, low = {}, high = {};
      for (auto y = bin_rows.begin; y < bin_rows.end; ++y) {
        const Vector<T> value = LoadRow(plane, y->pixel * width + x);
        average = MulAdd(Vector<T>{} + y->weight, value, average);
        low = MulAdd(Vector<T>{} + y->low, value, low);
        high = MulAdd(Vector<T>{} + y->high, value, high);
      }
      Store(average, averages + x);
      Store(low, lows + x);
      Store(high, highs + x);
    }
    for (int64_t q = 0; q < bins_x; ++q) {
      const auto bin = TapsOf(columns, q);
      // A bin without pixels passes no gradient on, not even NaN.
      if (bin.begin == bin.end) continue;
      Sum<T> sums[4] = {};
      for (auto x = bin.begin; x < bin.end; ++x) {
        sums[0] = MulAdd(x->weight, lows[x->pixel], sums[0]);
        sums[1] = MulAdd(x->low, averages[x->pixel], sums[1]);
        sums[2] = MulAdd(x->weight, highs[x->pixel], sums[2]);
        sums[3] = MulAdd(x->high, averages[x->pixel], sums[3]);
      }
      const double gradient = LoadOne(d_output + p * bins_x + q);
      for (int i = 0; i < 4; ++i) d_box[i] += gradient * sums[i];
    }
  }
}

#define TFO_INSTANTIATE(T)                                                     \
  template void AddBoxGradOfBinRow<T>(                                         \
      RowView<const T>, const ImageView<const T>&, TapSpan<SlopedTap<Sum<T>>>, \
      const BinTaps<SlopedTap<Sum<T>>>&, const BinChannels&, double*);         \
  template void AddBoxGradOfPlane<T>(                                          \
      const T*, const PlaneView<const T>&, const BinTaps<SlopedTap<Sum<T>>>&,  \
      const BinTaps<SlopedTap<Sum<T>>>&, Sum<T>*, double*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
