// Labels the connected components of each plane.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_CONNECTED_COMPONENTS_CONNECTED_COMPONENTS_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_CONNECTED_COMPONENTS_CONNECTED_COMPONENTS_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/image/cc/kernels/masks/planes.h"

namespace tfo {

// A component is a maximal connected set of pixels of a plane with the same
// non-zero value. A pixel has 4 neighbors, or 8 with `diagonal`. labels[n, y,
// x, c] is 0 for a zero pixel; components are numbered from 1 in each plane, in
// the order of their first pixels, row by row. counts[n, c] is the number of
// components.
struct ConnectedComponentsArgs {
  Planes planes;
  int64_t pixel_bytes;  // 1, 2, 4 or 8; pixels are equal if their bits are
  bool diagonal;
  const void* images;
  int32_t* labels;  // of images' shape
  int32_t* counts;  // [images, channels]
};

Error ConnectedComponents(const Cpu& cpu, const ConnectedComponentsArgs& args);
// Needs ConnectedComponentsScratch of scratch memory.
Error ConnectedComponents(const Gpu& gpu, const ConnectedComponentsArgs& args);

// The scratch memory of the CUDA kernels: a parent for each pixel, followed by
// the number of roots in each chunk of a plane.
struct ConnectedComponentsScratch {
  static constexpr int64_t kChunk = 2048;  // pixels

  explicit ConnectedComponentsScratch(const Planes& planes,
                                      void* base = nullptr)
      : chunks(DivideUp(planes.Pixels(), kChunk)) {
    ScratchLayout layout(base);
    layout.Reserve(&parents, planes.Elements());
    layout.Reserve(&counts, planes.Count() * chunks);
    bytes = layout.bytes();
  }

  int64_t Bytes() const { return bytes; }

  int64_t chunks;  // of a plane
  int32_t *parents, *counts;
  int64_t bytes;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_CONNECTED_COMPONENTS_CONNECTED_COMPONENTS_H_
