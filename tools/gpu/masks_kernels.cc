// Distances and connected components of masks.
#include "tensorflow_ops/image/cc/kernels/connected_components/connected_components.h"
#include "tensorflow_ops/image/cc/kernels/distance_transform/distance_transform.h"
#include "tools/gpu/kernel_call.h"

namespace tfo::gpu {
namespace {

Planes ReadPlanes(const KernelCall& call) {
  return {call.Int("batch"), call.Int("height"), call.Int("width"),
          call.Int("channels")};
}

}  // namespace

// images of `bytes` a pixel, distances
TFO_GPU_KERNEL(distance_transform, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const DistanceTransformArgs<T> args = {
        ReadPlanes(call),
        {call.Int("bytes"), call.Int("is_float") != 0},
        call.Number("row_spacing"),
        call.Number("column_spacing"),
        call[0],
        call[1]};
    return DistanceTransform(
        call.Gpu(DistanceScratch(args.planes, sizeof(T)).Bytes()), args);
  });
}

// images of `bytes` a pixel, labels, counts
TFO_GPU_KERNEL(connected_components, call) {
  const ConnectedComponentsArgs args = {
      ReadPlanes(call), call.Int("bytes"), call.Int("connectivity") == 8,
      call[0],          call[1],           call[2]};
  return ConnectedComponents(
      call.Gpu(ConnectedComponentsScratch(args.planes).Bytes()), args);
}

}  // namespace tfo::gpu
