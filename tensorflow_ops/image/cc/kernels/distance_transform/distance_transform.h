// The distance from each pixel to the nearest zero pixel of its plane.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_DISTANCE_TRANSFORM_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_DISTANCE_TRANSFORM_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
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
    return RoundUp(12 * width, 16);
  }

  DistanceScratch(const Planes& planes, int64_t output_bytes,
                  void* base = nullptr)
      : blocks(planes.Count() * planes.height) {
    int64_t rows_bytes = 0;
    if (planes.width > kSharedWidth) {
      // At most as much memory as float32 distances.
      const int64_t most = blocks / 3 > 1 ? blocks / 3 : 1;
      blocks = most < kMaxBlocks ? most : kMaxBlocks;
      rows_bytes = blocks * RowBytes(planes.width);
    }
    ScratchLayout layout(base);
    layout.Reserve(&columns, output_bytes < 4 ? planes.Elements() : 0);
    layout.Reserve(&rows, rows_bytes);
    bytes = layout.bytes();
  }

  int64_t Bytes() const { return bytes; }

  int64_t blocks;
  int32_t* columns;  // or null
  char* rows;        // or null
  int64_t bytes;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_DISTANCE_TRANSFORM_H_
