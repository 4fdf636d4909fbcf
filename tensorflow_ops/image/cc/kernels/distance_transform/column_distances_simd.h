// The first pass of the distance transform: distances in columns.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_COLUMN_DISTANCES_SIMD_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_COLUMN_DISTANCES_SIMD_H_

#include <algorithm>
#include <cstring>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/image/cc/kernels/distance_transform/distance_transform.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Least distance in a column, in rows, of pixels whose column has no zero
// pixel.
constexpr int32_t kNoZeroInColumn = 1 << 30;

// Neighboring columns of an image. Distances are int32, in rows that are
// `distance_step` bytes apart.
template <typename Bits>
struct ColumnBlock {
  const Bits* pixels;
  Bits magnitude;  // a pixel is zero if pixel & magnitude is
  int64_t rows, columns, pixel_step;
  char* distances;
  int64_t distance_step;
};

template <typename Vector, typename V>
TFO_INLINE Vector LoadVector(const V* from) {
  Vector v;
  memcpy(&v, from, sizeof(v));
  return v;
}

template <typename Vector>
TFO_INLINE Vector Min(Vector a, Vector b) {
  return a < b ? a : b;
}
template <typename Vector>
TFO_INLINE Vector Max(Vector a, Vector b) {
  return a < b ? b : a;
}

// Calls body(at) for vectors of kCount values that cover [0, n), the last of
// which may overlap its predecessor. n is at least kCount.
template <int kCount, typename Body>
TFO_INLINE void ForOverlapping(int64_t n, const Body& body) {
  int64_t at = 0;
  for (; at + kCount <= n; at += kCount) body(at);
  if (at < n) body(n - kCount);
}

// All bits are set where the pixel is not zero.
template <typename Bits>
TFO_INLINE IntVector IsNonZero(const Bits* pixels, Bits magnitude) {
  constexpr int kBytes = kFloats * sizeof(Bits);
  if constexpr (kBytes > kVectorBytes) {
    typedef Bits Part __attribute__((vector_size(kVectorBytes)));
    typedef int32_t Half __attribute__((vector_size(kVectorBytes / 2)));
    Half halves[2];
    for (int i = 0; i < 2; ++i) {
      const Part part = LoadVector<Part>(pixels + i * (kFloats / 2));
      halves[i] = __builtin_convertvector((part & magnitude) != 0, Half);
    }
    return LoadVector<IntVector>(&halves[0]);
  } else {
    typedef Bits Vector __attribute__((vector_size(kBytes)));
    const Vector v = LoadVector<Vector>(pixels) & magnitude;
    return reinterpret_cast<IntVector>(__builtin_convertvector(v, Bits32)) != 0;
  }
}

TFO_INLINE int32_t LoadDistance(const char* from) {
  int32_t distance;
  memcpy(&distance, from, sizeof(distance));
  return distance;
}

// Writes the distance of each pixel to the nearest zero pixel of its column, in
// rows.
template <typename Bits>
void ColumnDistances(const ColumnBlock<Bits>& block) {
  const int64_t columns = block.columns;
  // Downward: the distance to the nearest zero pixel above.
  for (int64_t y = 0; y < block.rows; ++y) {
    const Bits* const pixels = block.pixels + y * block.pixel_step;
    char* const to = block.distances + y * block.distance_step;
    const char* const above = y > 0 ? to - block.distance_step : nullptr;
    if (columns >= kFloats) {
      ForOverlapping<kFloats>(columns, [&](int64_t at) {
        IntVector d = Broadcast<IntVector>(kNoZeroInColumn);
        if (above) d = LoadVector<IntVector>(above + 4 * at) + 1;
        d &= IsNonZero(pixels + at, block.magnitude);
        memcpy(to + 4 * at, &d, sizeof(d));
      });
      continue;
    }
    for (int64_t x = 0; x < columns; ++x) {
      int32_t d = above ? LoadDistance(above + 4 * x) + 1 : kNoZeroInColumn;
      if ((pixels[x] & block.magnitude) == 0) d = 0;
      memcpy(to + 4 * x, &d, sizeof(d));
    }
  }
  // Upward: the minimum of that and of the distance to the nearest one below.
  for (int64_t y = block.rows - 2; y >= 0; --y) {
    char* const to = block.distances + y * block.distance_step;
    const char* const below = to + block.distance_step;
    if (columns >= kFloats) {
      ForOverlapping<kFloats>(columns, [&](int64_t at) {
        const IntVector d = Min(LoadVector<IntVector>(to + 4 * at),
                                LoadVector<IntVector>(below + 4 * at) + 1);
        memcpy(to + 4 * at, &d, sizeof(d));
      });
      continue;
    }
    for (int64_t x = 0; x < columns; ++x) {
      const int32_t d = LoadDistance(below + 4 * x) + 1;
      if (d < LoadDistance(to + 4 * x)) memcpy(to + 4 * x, &d, sizeof(d));
    }
  }
}

// Distances in columns: int32, in rows of `step` bytes. They share memory with
// the output if its elements are large enough.
struct Columns {
  char* data;
  int64_t step;
};

template <typename T>
void FindColumnDistances(const Cpu& cpu, const DistanceTransformArgs<T>& args,
                         const Columns& columns) {
  const Planes& planes = args.planes;
  const int64_t elements = planes.RowElements();
  // Parts of rows, so that a single image occupies all threads.
  const int64_t parts =
      std::max<int64_t>(1, 4 * cpu.num_threads / planes.images);
  constexpr int64_t kMinPart = 64;
  const int64_t part =
      std::max(kMinPart, (elements + parts - 1) / parts + 15) / 16 * 16;
  const int64_t parts_of_row = (elements + part - 1) / part;
  WithPixelBits(args.type, [&](auto bits, auto magnitude) {
    using Bits = decltype(bits);
    const auto* const pixels = static_cast<const Bits*>(args.images);
    cpu.ParallelFor(
        planes.images * parts_of_row, 2.0 * planes.height * part,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t row = i / parts_of_row * planes.height;
            const int64_t first = i % parts_of_row * part;
            ColumnDistances<Bits>({pixels + row * elements + first, magnitude,
                                   planes.height,
                                   std::min(part, elements - first), elements,
                                   columns.data + row * columns.step +
                                       first * int64_t{sizeof(int32_t)},
                                   columns.step});
          }
        });
  });
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_COLUMN_DISTANCES_SIMD_H_
