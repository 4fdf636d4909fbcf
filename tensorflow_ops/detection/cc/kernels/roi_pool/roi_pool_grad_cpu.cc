// The gradient of roi_pool on the CPU.
#include "tensorflow_ops/detection/cc/kernels/roi/roi_owned_sums.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool_boxes.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool_simd.h"

namespace tfo {

template <typename T>
Error RoiPoolGrad(const Cpu& cpu, const RoiPoolGradArgs<T>& args) {
  const FeatureShape& features = args.map;
  if (features.Size() == 0) return nullptr;
  const auto scatter_add = TFO_DISPATCH(ScatterAdd<T>);
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
            scatter_add(args.d_output + at, args.argmax + at, to.channels,
                        ahead, {to.sums, first, count, to.pixel});
          }
        };
      });
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(RoiPoolGrad, Cpu, RoiPoolGradArgs);

}  // namespace tfo
