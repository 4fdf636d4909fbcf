#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool_simd.h"

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
TFO_INLINE void PoolBin(const ImageView<const T>& view, PixelRange rows,
                        PixelRange columns, T* output, int32_t* argmax) {
  constexpr int kCount = Lanes<T>::kCount;
  const T* const image = view.data;
  const int64_t width = view.width, channels = view.channels;
  Vector<T> best[kVectors];
  Index<T> at[kVectors];
  const int64_t first = rows.begin * width + columns.begin;
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    best[i] = Load(image + first * channels + i * kCount);
    at[i] = Broadcast<Index<T>>(static_cast<typename Lanes<T>::Integer>(first));
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
void PoolBinTail(const ImageView<const T>& view, int64_t n, PixelRange rows,
                 PixelRange columns, T* output, int32_t* argmax) {
  const T* const image = view.data;
  const int64_t width = view.width, channels = view.channels;
  const int64_t first = rows.begin * width + columns.begin;
  Vector<T> best = LoadFirst(image + first * channels, n);
  Index<T> at =
      Broadcast<Index<T>>(static_cast<typename Lanes<T>::Integer>(first));
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
void PoolBinRow(const ImageView<const T>& image, int64_t count, PixelRange rows,
                BinRanges columns, PooledView<T> pooled) {
  constexpr int kCount = Lanes<T>::kCount;
  // The registers hold a maximum and an index for each.
  constexpr int kVectors = kVectorBytes == 64 ? 8 : 4;
  for (int64_t q = 0; q < columns.count; ++q) {
    T* const out = pooled.output + q * image.channels;
    int32_t* const at =
        pooled.argmax == nullptr ? nullptr : pooled.argmax + q * image.channels;
    const PixelRange bin = columns.bins[q];
    if (rows.empty() || bin.empty()) {
      FillEmptyBin(count, out, at);
      continue;
    }
    const auto from = [&](int64_t c) -> ImageView<const T> {
      return {image.data + c, image.width, image.channels};
    };
    int64_t c = 0;
    for (; c + kVectors * kCount <= count; c += kVectors * kCount) {
      PoolBin<kVectors>(from(c), rows, bin, out + c,
                        at == nullptr ? nullptr : at + c);
    }
    for (; c + kCount <= count; c += kCount) {
      PoolBin<1>(from(c), rows, bin, out + c, at == nullptr ? nullptr : at + c);
    }
    if (c < count) {
      PoolBinTail(from(c), count - c, rows, bin, out + c,
                  at == nullptr ? nullptr : at + c);
    }
  }
}

template <typename T>
void ScatterAdd(const T* d_output, const int32_t* argmax, int64_t n,
                int64_t ahead, const PixelSums<Accumulator<T>>& to) {
  // Copied, since the compiler cannot know that the sums are not in `to`.
  Accumulator<T>* const sums = to.sums;
  const int64_t first = to.first, count = to.count;
  const int64_t pixel_step = to.pixel_step;
  const auto add = [=](int64_t i, Accumulator<T> value) {
    const uint64_t pixel = static_cast<uint64_t>(argmax[i] - first);
    if (pixel < static_cast<uint64_t>(count)) {
      sums[pixel * pixel_step + i] += value;
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

TFO_INSTANTIATE_FUNCTION(PoolBinRow);
TFO_INSTANTIATE_FUNCTION(ScatterAdd);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
