// The inner loops of the distance transform, compiled once per CPU level.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_DISTANCE_TRANSFORM_SIMD_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_DISTANCE_TRANSFORM_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"

namespace tfo {

// Least distance in a column, in rows, of pixels whose column has no zero
// pixel.
inline constexpr int32_t kNoZeroInColumn = 1 << 30;

// A squared distance that stands for infinity, at least as great as all others.
template <typename V>
inline constexpr V kFarSquare = V{1} << 30;
template <>
inline constexpr double kFarSquare<double> = __builtin_inf();

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

// The squared distances of a row's pixels [width * channels] to the zero pixels
// of their columns, with `reach` * channels values of kFarSquare on both sides.
template <typename V>
struct SquaresRow {
  const V* squares;
  int64_t elements, channels;
  // steps[d] is the square of d columns' distance, for d <= reach + 1; the last
  // is kFarSquare if reach is the width less 1.
  const V* steps;
  int64_t reach;
};

TFO_PER_CPU_LEVEL(
    // Writes the distance of each pixel to the nearest zero pixel of its
    // column, in rows.
    template <typename Bits>
    void ColumnDistances(const ColumnBlock<Bits>& block);

    // squares[i] = (spacing * distances[i])^2; V is int32_t for spacing 1 only.
    template <typename V>
    void ColumnSquares(const int32_t* distances, int64_t n, double spacing,
                       V* squares);

    // Writes the squared distance of each pixel to the nearest zero pixel of
    // its plane; returns false, with `nearest` undefined, if a zero pixel
    // farther than reach columns may be nearer.
    template <typename V>
    bool NearestWithinReach(const SquaresRow<V>& row, V* nearest);

    // distances[i] = sqrt(squares[i]), rounded once.
    template <typename V, typename T>
    void Roots(const V* squares, int64_t n, T* distances);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_DISTANCE_TRANSFORM_DISTANCE_TRANSFORM_SIMD_H_
