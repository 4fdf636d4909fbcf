// The distance from each pixel to the nearest zero pixel of its plane.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_DISTANCE_TRANSFORM_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_DISTANCE_TRANSFORM_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/image/cc/kernels/masks/planes.h"

namespace tfo {

// distances[n, y, x, c] = min over zero pixels (v, u) of plane (n, c) of
// sqrt((row_spacing (y - v))^2 + (column_spacing (x - u))^2); +infinity if the
// plane has none. Spacings lie in [1e-38, 1e38]. Squares are computed in double
// or in integers; with spacing 1 they are exact below 2^53. The root is rounded
// once.
template <typename T>
struct DistanceTransformArgs {
  Planes planes;
  PixelType type;
  double row_spacing, column_spacing;
  const void* images;
  T* distances;  // of images' shape
};

template <typename T>
Error DistanceTransform(const Cpu& cpu, const DistanceTransformArgs<T>& args);
// Needs DistanceTransformScratchBytes of scratch memory.
template <typename T>
Error DistanceTransform(const Gpu& gpu, const DistanceTransformArgs<T>& args);

// The scratch memory of the CUDA kernel: distances in columns if the output's
// elements are too small to hold them, followed by the parabolas of the rows in
// progress if those of a row do not fit into shared memory.
struct DistanceScratch {
  static constexpr int64_t kSharedWidth = 4096;
  static constexpr int64_t kMaxBlocks = 2048;

  // Of a row's parabolas: 12 bytes a column, aligned.
  TFO_HOST_DEVICE static constexpr int64_t RowBytes(int64_t width) {
    return (12 * width + 15) / 16 * 16;
  }

  DistanceScratch(const Planes& planes, int64_t output_bytes)
      : blocks(planes.Count() * planes.height) {
    if (planes.width > kSharedWidth) {
      // At most as much memory as float32 distances.
      const int64_t most = blocks / 3 > 1 ? blocks / 3 : 1;
      blocks = most < kMaxBlocks ? most : kMaxBlocks;
      rows_bytes = blocks * RowBytes(planes.width);
    }
    if (output_bytes < 4) columns_bytes = 4 * planes.Elements();
    columns_bytes = (columns_bytes + 15) / 16 * 16;
  }

  int64_t Bytes() const { return columns_bytes + rows_bytes; }

  int64_t blocks;
  int64_t columns_bytes = 0, rows_bytes = 0;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_DISTANCE_TRANSFORM_H_
