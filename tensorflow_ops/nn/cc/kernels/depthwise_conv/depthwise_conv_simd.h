// Depthwise convolution on the CPU. A unit of work is a vector of channels of a
// band of an image's rows. It copies its pixels into a plane with zeros around
// them, so that the loops have no borders and aligned loads, and each output is
// a sum over taps of a pixel at a fixed offset. Sizes that planes do not fit
// are computed directly.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_SIMD_H_

#include <algorithm>
#include <cstdint>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/depthwise_conv/depthwise_conv.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace depthwise_conv {

// Columns that are summed at once.
inline constexpr int kColumns = 8;

// n channels, or a vector of them.
template <typename T>
TFO_INLINE typename Lanes<T>::Vector LoadChannels(const T* from, int64_t n) {
  return n >= Lanes<T>::kCount ? Load(from) : LoadFirst(from, n);
}
template <typename T>
TFO_INLINE void StoreChannels(typename Lanes<T>::Vector v, T* to, int64_t n) {
  n >= Lanes<T>::kCount ? Store(v, to) : StoreFirst(v, to, n);
}

// Half-open; rows or columns.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

inline int64_t FloorDivide(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -DivideUp(-a, b);
}

// The pixels that outputs read, padding included. Requires outputs.
inline Range PixelsOf(const ConvAxis& axis, Range outputs) {
  return {axis.PixelOf(outputs.begin, 0),
          axis.PixelOf(outputs.end - 1, axis.taps - 1) + 1};
}
// The outputs that may read pixels. Requires pixels.
inline Range OutputsOf(const ConvAxis& axis, Range pixels) {
  const int64_t reach = (axis.taps - 1) * axis.dilation;
  return {FloorDivide(pixels.begin + axis.before - reach, axis.stride),
          FloorDivide(pixels.end - 1 + axis.before, axis.stride) + 1};
}

// How the work is shared: by sizes only, so that sums are the same for any
// number of threads.
struct Pieces {
  int64_t vectors;  // of channels
  int64_t bands;    // of an image's rows
  int64_t count;    // of all images

  template <typename T>
  static Pieces Of(const DepthwiseConvShape& args, const T*) {
    constexpr int64_t kBytes = 256 << 10;  // of a band, all channels
    constexpr int64_t kMinRows = 8, kMinUnits = 64;
    Pieces p;
    p.vectors = DivideUp(args.channels, Lanes<T>::kCount);
    const int64_t image =
        args.y.size * args.x.size * args.channels * int64_t{sizeof(T)};
    const int64_t units = std::max<int64_t>(1, args.batch * p.vectors);
    p.bands = std::max(DivideUp(image, kBytes), DivideUp(kMinUnits, units));
    p.bands = std::clamp<int64_t>(args.y.outputs / kMinRows, 1, p.bands);
    p.count = args.batch * p.bands;
    return p;
  }
  Range Outputs(const ConvAxis& y, int64_t piece) const {
    const int64_t band = piece % bands;
    return {y.outputs * band / bands, y.outputs * (band + 1) / bands};
  }
  Range Pixels(const ConvAxis& y, int64_t piece) const {
    const int64_t band = piece % bands;
    return {y.size * band / bands, y.size * (band + 1) / bands};
  }
};

// Whether planes fit: not with padding or strides so great that they would
// mostly hold pixels that are not read.
inline bool FitPlanes(const DepthwiseConvShape& args) {
  const auto fits = [](const ConvAxis& axis) {
    const int64_t reach = (axis.taps - 1) * axis.dilation;
    return axis.size > 0 && axis.outputs > 0 && axis.stride <= 2 &&
           (axis.stride == 1 || axis.dilation == 1) &&
           reach <= axis.size + 64 && axis.before <= reach &&
           axis.outputs * axis.stride <= axis.size + reach + axis.stride;
  };
  return fits(args.y) && fits(args.x);
}

// A vector of channels of some rows and columns of an image.
template <typename T>
class Plane {
 public:
  using V = typename Lanes<T>::Vector;

  Plane(int64_t max_rows, Range columns)
      : columns_(columns), data_(max_rows * columns.size()) {}

  // Copies rows of an image [size_y, size_x, channels] from the channel
  // `image` on, n channels.
  void Fill(const T* image, int64_t size_y, int64_t size_x, int64_t channels,
            int64_t n, Range rows) {
    first_row_ = rows.begin;
    const int64_t begin = std::max<int64_t>(0, columns_.begin);
    const int64_t end = std::min(size_x, columns_.end);
    V* to = data_.data();
    for (int64_t row = rows.begin; row < rows.end; ++row, to += width()) {
      if (row < 0 || row >= size_y || begin >= end) {
        std::fill_n(to, width(), V{});
        continue;
      }
      std::fill_n(to, begin - columns_.begin, V{});
      const T* from = image + (row * size_x + begin) * channels;
      V* const at = to + begin - columns_.begin;
      if (n >= Lanes<T>::kCount) {
        // Pixels of a vector are too far from each other for the processor to
        // foresee them.
        const int64_t ahead = kRowsAhead * size_x * channels;
        for (int64_t i = 0; i < end - begin; ++i) {
          __builtin_prefetch(from + i * channels + ahead, 0, 2);
          at[i] = Load(from + i * channels);
        }
      } else {
        for (int64_t i = 0; i < end - begin; ++i) {
          at[i] = LoadFirst(from + i * channels, n);
        }
      }
      std::fill_n(at + end - begin, columns_.end - end, V{});
    }
  }
  const V* At(int64_t row, int64_t column) const {
    return data_.data() + (row - first_row_) * width() + column -
           columns_.begin;
  }
  int64_t width() const { return columns_.size(); }

 private:
  static constexpr int64_t kRowsAhead = 16;

  const Range columns_;
  int64_t first_row_ = 0;
  const Buffer<V> data_;
};

// Taps of a filter, in memory after each other, and where each finds its pixel.
template <typename V>
struct Taps {
  int64_t count;
  const V* weights;
  const int64_t* offsets;
};

// Calls store(row, k, sum) for kRows x kW sums; `down` lies between rows.
template <int kStride, int kW, int kRows, typename V, typename S>
TFO_INLINE void SumBlock(const V* x, int64_t down, const Taps<V>& taps,
                         const S& store) {
  V sums[kRows][kW] = {};
  for (int64_t t = 0; t < taps.count; ++t) {
    const V weight = taps.weights[t];
    const V* const from = x + taps.offsets[t];
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int k = 0; k < kW; ++k) {
        sums[r][k] = MulAdd(from[r * down + k * kStride], weight, sums[r][k]);
      }
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int k = 0; k < kW; ++k) store(r, k, sums[r][k]);
  }
}

// Calls store(row, column, sum) for all sums. Reads, but does not use, up to
// kColumns - 1 columns more. `down` lies between rows.
template <int kStride, typename V, typename S>
TFO_INLINE void Convolve(const V* x, int64_t down, int64_t rows,
                         int64_t columns, const Taps<V>& taps, const S& store) {
  int64_t whole = RoundUp(columns, kColumns);
  if (whole - columns >= kColumns / 2) whole -= kColumns;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < whole; j += kColumns) {
      SumBlock<kStride, kColumns, 1>(x + i * down + j * kStride, 0, taps,
                                     [&](int, int k, V sum) {
                                       if (j + k < columns)
                                         store(i, j + k, sum);
                                     });
    }
  }
  if (whole >= columns) return;
  for (int64_t i = 0; i < rows; i += 2) {
    const bool has_second = i + 1 < rows;
    SumBlock<kStride, kColumns / 2, 2>(
        x + i * down + whole * kStride, has_second ? down : 0, taps,
        [&](int r, int k, V sum) {
          if ((r == 0 || has_second) && whole + k < columns) {
            store(i + r, whole + k, sum);
          }
        });
  }
}

}  // namespace depthwise_conv
}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_SIMD_H_
