// The gradient of roi_pool.
#include "tensorflow_ops/detection/cc/kernels/roi_owned_sums.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_bin_rows.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_simd.h"

namespace tfo {

template <typename T>
Error RoiPoolGrad(const Cpu& cpu, const RoiArgs& args, const T* d_output,
                  const int32_t* argmax, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* d_features) {
  if (args.batch * args.height * args.width * args.channels == 0)
    return nullptr;
  const auto scatter_add = TFO_DISPATCH(ScatterAdd<T>);
  const int64_t height = args.pooled_height, width = args.pooled_width;
  // From a bin row's values to the next one's.
  const int64_t row_step = width * (args.channels_first ? 1 : args.channels);
  const int64_t box_step = height * width * args.channels;
  constexpr double kCyclesPerValue = 3;
  const int64_t tensor_bytes =
      args.batch * args.height * args.width * args.channels * sizeof(T) +
      args.num_boxes * box_step * (sizeof(T) + sizeof(int32_t));
  SumByOwners(
      cpu, args, BinRowsDownward(args, ReadBoxes(args, boxes, box_indices)),
      kCyclesPerValue, tensor_bytes, d_features, [&] {
        return [&](const PartSums<Accumulator<T>>& to, const BinRowPart& part) {
          const int64_t k = part.whole->box, p = part.whole->p;
          const int64_t first = part.rows.begin * args.width;
          const int64_t count = (part.rows.end - part.rows.begin) * args.width;
          const int64_t ahead =
              (part.next->box - k) * box_step + (part.next->p - p) * row_step;
          if (args.channels_first) {
            for (int64_t c = 0; c < to.channels; ++c) {
              const int64_t at =
                  ((k * args.channels + to.first_channel + c) * height + p) *
                  width;
              scatter_add(d_output + at, argmax + at, width, first, count,
                          to.pixel, 0, ahead, to.sums + c * to.channel);
            }
          } else {
            for (int64_t q = 0; q < width; ++q) {
              const int64_t at =
                  ((k * height + p) * width + q) * args.channels +
                  to.first_channel;
              scatter_add(d_output + at, argmax + at, to.channels, first, count,
                          to.pixel, to.channel, ahead, to.sums);
            }
          }
        };
      });
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                            \
  template Error RoiPoolGrad<T>(const Cpu&, const RoiArgs&, const T*, \
                                const int32_t*, const Coordinate<T>*, \
                                const int32_t*, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
