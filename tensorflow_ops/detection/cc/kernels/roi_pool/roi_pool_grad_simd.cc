// The gradient of roi_pool on the CPU.
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_owned_sums.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool_boxes.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// A pixel and channel's sum is sums[(pixel - first) * pixel_step + channel], of
// `count` pixels from `first` on.
template <typename Sum>
struct PixelSums {
  Sum* sums;
  int64_t first, count, pixel_step;
};

// For each i in [0, n), adds d_output[i] to the sum of pixel argmax[i] and
// channel i, if there is one. Prefetches `ahead` elements further, where the
// caller continues.
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

}  // namespace

template <typename T>
Error RoiPoolGrad(const Cpu& cpu, const RoiPoolGradArgs<T>& args) {
  const FeatureShape& features = args.map;
  if (features.Size() == 0) return nullptr;
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  constexpr double kCyclesPerValue = 3;
  GradCost cost;
  cost.cycles_per_bin_row = kCyclesPerValue * pooled.width * pooled.channels;
  cost.tensor_bytes = features.Size() * sizeof(T) +
                      pooled.Size() * (sizeof(T) + sizeof(int32_t));
  SumByOwners(
      cpu, features, PooledBinRows(args, ReadPooledBoxes(args, args.boxes)),
      cost, args.d_features, [&] {
        return [&](const PartSums<Accumulator<T>>& to, const BinRowPart& part) {
          const int64_t k = part.whole->box, p = part.whole->p;
          const int64_t first = part.rows.begin * features.width;
          const int64_t count =
              (part.rows.end - part.rows.begin) * features.width;
          const int64_t c = to.first_channel;
          const int64_t ahead =
              pooled.Offset(part.next->box - k, part.next->p - p, 0, 0);
          for (int64_t q = 0; q < pooled.width; ++q) {
            const int64_t at = pooled.Offset(k, p, q, c);
            ScatterAdd<T>(args.d_output + at, args.argmax + at, to.channels,
                          ahead, {to.sums, first, count, to.pixel});
          }
        };
      });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(RoiPoolGrad, RoiPoolGradArgs);

}  // namespace tfo
