#include "tensorflow_ops/detection/cc/kernels/roi_pool_simd.h"

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Index = typename Lanes<T>::Index;

// One bin of kVectors vectors of channels, from pixel (rows.begin,
// columns.begin).
template <int kVectors, typename T>
inline __attribute__((always_inline)) void PoolBin(
    const T* image, int64_t width, int64_t channels, PixelRange rows,
    PixelRange columns, T* output, int32_t* argmax) {
  constexpr int kCount = Lanes<T>::kCount;
  Vector<T> best[kVectors];
  Index<T> at[kVectors];
  const int64_t first = rows.begin * width + columns.begin;
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    best[i] = Load(image + first * channels + i * kCount);
    at[i] = Index<T>{} + static_cast<typename Lanes<T>::Integer>(first);
  }
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    const T* pixel = image + (y * width + columns.begin) * channels;
    for (int64_t x = columns.begin; x < columns.end; ++x, pixel += channels) {
      const auto where = static_cast<typename Lanes<T>::Integer>(y * width + x);
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        TakeGreater(Load(pixel + i * kCount), where, best[i], at[i]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    Store(best[i], output + i * kCount);
    if (argmax != nullptr) StoreIndex(at[i], argmax + i * kCount);
  }
}

// The same for the last n channels, fewer than a vector.
template <typename T>
void PoolBinTail(const T* image, int64_t width, int64_t channels, int64_t n,
                 PixelRange rows, PixelRange columns, T* output,
                 int32_t* argmax) {
  const int64_t first = rows.begin * width + columns.begin;
  Vector<T> best = LoadFirst(image + first * channels, n);
  Index<T> at = Index<T>{} + static_cast<typename Lanes<T>::Integer>(first);
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    const T* pixel = image + (y * width + columns.begin) * channels;
    for (int64_t x = columns.begin; x < columns.end; ++x, pixel += channels) {
      TakeGreater(LoadFirst(pixel, n),
                  static_cast<typename Lanes<T>::Integer>(y * width + x), best,
                  at);
    }
  }
  StoreFirst(best, output, n);
  if (argmax != nullptr) {
    int32_t indices[Lanes<T>::kCount];
    StoreIndex(at, indices);
    for (int64_t i = 0; i < n; ++i) argmax[i] = indices[i];
  }
}

template <typename T>
void FillEmptyBin(int64_t channels, T* output, int32_t* argmax) {
  memset(output, 0, channels * sizeof(T));
  if (argmax != nullptr) memset(argmax, 0xFF, channels * sizeof(int32_t));
}

}  // namespace

template <typename T>
void PoolBinRow(const T* image, int64_t width, int64_t channels, int64_t count,
                PixelRange rows, const PixelRange* columns, int64_t bins,
                T* output, int32_t* argmax) {
  constexpr int kCount = Lanes<T>::kCount;
  // What the registers hold: a maximum and an index each.
  constexpr int kVectors = kVectorBytes == 64 ? 8 : 4;
  for (int64_t p = 0; p < bins; ++p) {
    T* const out = output + p * channels;
    int32_t* const at = argmax == nullptr ? nullptr : argmax + p * channels;
    const PixelRange bin = columns[p];
    if (rows.empty() || bin.empty()) {
      FillEmptyBin(count, out, at);
      continue;
    }
    int64_t c = 0;
    for (; c + kVectors * kCount <= count; c += kVectors * kCount) {
      PoolBin<kVectors>(image + c, width, channels, rows, bin, out + c,
                        at == nullptr ? nullptr : at + c);
    }
    for (; c + kCount <= count; c += kCount) {
      PoolBin<1>(image + c, width, channels, rows, bin, out + c,
                 at == nullptr ? nullptr : at + c);
    }
    if (c < count) {
      PoolBinTail(image + c, width, channels, count - c, rows, bin, out + c,
                  at == nullptr ? nullptr : at + c);
    }
  }
}

template <typename T>
void PoolPlane(const T* plane, int64_t readable, int64_t width,
               const PixelRange* rows, int64_t bins_y,
               const PixelRange* columns, int64_t bins_x, Accumulator<T>* best,
               int32_t* best_row, T* output, int32_t* argmax) {
  constexpr int kCount = Lanes<T>::kCount;
  int64_t x_begin = width, x_end = 0;
  for (int64_t p = 0; p < bins_x; ++p) {
    if (columns[p].empty()) continue;
    x_begin = columns[p].begin < x_begin ? columns[p].begin : x_begin;
    x_end = columns[p].end > x_end ? columns[p].end : x_end;
  }
  for (int64_t q = 0; q < bins_y; ++q) {
    T* const out = output + q * bins_x;
    int32_t* const at = argmax == nullptr ? nullptr : argmax + q * bins_x;
    if (rows[q].empty() || x_begin >= x_end) {
      FillEmptyBin(bins_x, out, at);
      continue;
    }
    // Each column's maximum over the bin's rows, a vector of columns at a time
    // ...
    for (int64_t x = x_begin; x < x_end; x += kCount) {
      const int64_t n = x_end - x < kCount ? x_end - x : kCount;
      const auto load = [&](int64_t y) {
        const int64_t i = y * width + x;
        return i + kCount <= readable ? Load(plane + i)
                                      : LoadFirst(plane + i, n);
      };
      Vector<T> top = load(rows[q].begin);
      Index<T> row = Index<T>{} + rows[q].begin;
      for (int32_t y = rows[q].begin + 1; y < rows[q].end; ++y) {
        TakeGreater(load(y), static_cast<typename Lanes<T>::Integer>(y), top,
                    row);
      }
      Store(top, best + x);
      StoreIndex(row, best_row + x);
    }
    // ... then each bin's over its columns. Of equals the upper row is first.
    for (int64_t p = 0; p < bins_x; ++p) {
      if (columns[p].empty()) {
        FillEmptyBin(1, out + p, at == nullptr ? nullptr : at + p);
        continue;
      }
      int64_t first = columns[p].begin;
      for (int64_t x = first + 1; x < columns[p].end; ++x) {
        const auto value = best[x], top = best[first];
        const bool equal = value == top || (value != value && top != top);
        if (equal ? best_row[x] < best_row[first]
                  : !(value <= top) && top == top) {
          first = x;
        }
      }
      out[p] = Narrow<T>(best[first]);
      if (at != nullptr) {
        at[p] = static_cast<int32_t>(best_row[first] * width + first);
      }
    }
  }
}

template <typename T>
void ScatterAdd(const T* d_output, const int32_t* argmax, int64_t n,
                int64_t first, int64_t count, int64_t stride, int64_t step,
                int64_t ahead, Accumulator<T>* sums) {
  const auto add = [=](int64_t i, Accumulator<T> value) {
    const uint64_t pixel = static_cast<uint64_t>(argmax[i] - first);
    if (pixel < static_cast<uint64_t>(count)) {
      sums[pixel * stride + i * step] += value;
    }
  };
  constexpr int kCount = 64 / sizeof(int32_t);  // of a cache line of argmax
  constexpr int kLanes = Lanes<T>::kCount;
  int64_t i = 0;
  for (; i + kCount <= n; i += kCount) {
    __builtin_prefetch(argmax + i + ahead);
    __builtin_prefetch(d_output + i + ahead);
    if (sizeof(T) == 8) __builtin_prefetch(d_output + i + ahead + kCount / 2);
    if constexpr (sizeof(T) == 2) {  // widened a vector at a time
      float values[kCount];
      for (int j = 0; j < kCount; j += kLanes) {
        Store(Load(d_output + i + j), values + j);
      }
      for (int j = 0; j < kCount; ++j) add(i + j, values[j]);
    } else {
      for (int j = 0; j < kCount; ++j) add(i + j, d_output[i + j]);
    }
  }
  for (; i < n; ++i) add(i, Widen(d_output[i]));
}

#define TFO_INSTANTIATE(T)                                                     \
  template void PoolBinRow<T>(const T*, int64_t, int64_t, int64_t, PixelRange, \
                              const PixelRange*, int64_t, T*, int32_t*);       \
  template void PoolPlane<T>(const T*, int64_t, int64_t, const PixelRange*,    \
                             int64_t, const PixelRange*, int64_t,              \
                             Accumulator<T>*, int32_t*, T*, int32_t*);         \
  template void ScatterAdd<T>(const T*, const int32_t*, int64_t, int64_t,      \
                              int64_t, int64_t, int64_t, int64_t,              \
                              Accumulator<T>*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
