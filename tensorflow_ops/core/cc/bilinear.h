// Bilinear taps: the four pixels around a place, their weights, and how the
// weights change with the place. For host and device, float and double.
#ifndef TENSORFLOW_OPS_CORE_CC_BILINEAR_H_
#define TENSORFLOW_OPS_CORE_CC_BILINEAR_H_

#include <cmath>
#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// A place on an axis: `fraction` of the way from pixel `low` to the next.
template <typename C, typename Index>
struct BetweenPixels {
  Index low;
  C fraction;
};

// A place in [0, last + 1], held at the last pixel: there, fraction is 0.
template <typename C, typename Index>
TFO_HOST_DEVICE static inline BetweenPixels<C, Index> HeldBetweenPixels(
    C place, Index last) {
  const Index low = static_cast<Index>(place);
  if (low >= last) return {last, 0};
  return {low, place - static_cast<C>(low)};
}

// The four pixels around a place (y, x), of a plane whose pixels outside are
// zero. Corner i of the cell is the pixel (y + i / 2, x + i % 2).
template <typename C>
struct BilinearCell {
  int64_t y, x;              // from -1 to the plane's last row and column
  C y_fraction, x_fraction;  // in [0, 1)
};

template <typename C>
TFO_HOST_DEVICE static inline bool HasCorner(const BilinearCell<C>& cell, int i,
                                             int64_t height, int64_t width) {
  const int64_t y = cell.y + i / 2, x = cell.x + i % 2;
  return y >= 0 && y < height && x >= 0 && x < width;
}
// The index of a corner in its plane, if HasCorner.
template <typename C>
TFO_HOST_DEVICE static inline int64_t CornerPixel(const BilinearCell<C>& cell,
                                                  int i, int64_t width) {
  return (cell.y + i / 2) * width + cell.x + i % 2;
}
// The weight of a corner. A pixel of weight 0 must not be read: it may be NaN.
template <typename C>
TFO_HOST_DEVICE static inline C CornerWeight(const BilinearCell<C>& cell,
                                             int i) {
  return (i / 2 ? cell.y_fraction : 1 - cell.y_fraction) *
         (i % 2 ? cell.x_fraction : 1 - cell.x_fraction);
}
// The weight's derivatives. On a whole pixel they are those of the cell below
// and to the right, so that pixels of weight 0 have slopes.
template <typename C>
TFO_HOST_DEVICE static inline C CornerSlopeY(const BilinearCell<C>& cell,
                                             int i) {
  const C weight = i % 2 ? cell.x_fraction : 1 - cell.x_fraction;
  return i / 2 ? weight : -weight;
}
template <typename C>
TFO_HOST_DEVICE static inline C CornerSlopeX(const BilinearCell<C>& cell,
                                             int i) {
  const C weight = i / 2 ? cell.y_fraction : 1 - cell.y_fraction;
  return i % 2 ? weight : -weight;
}

// Finds the cell of a place, in pixels: 0 is the centre of the first. Returns
// false if no pixel counts there: outside of [-1, height) x [-1, width), where
// infinite places are, and for NaN, which callers test before. At -1 exactly,
// no pixel has a weight, but pixel 0 has a slope.
template <typename C>
TFO_HOST_DEVICE static inline bool FindCell(C y, C x, int64_t height,
                                            int64_t width,
                                            BilinearCell<C>* cell) {
  if (!(y >= -1 && y < static_cast<C>(height) && x >= -1 &&
        x < static_cast<C>(width))) {
    return false;
  }
  const C low_y = floor(y), low_x = floor(x);
  cell->y = static_cast<int64_t>(low_y);
  cell->x = static_cast<int64_t>(low_x);
  cell->y_fraction = y - low_y;
  cell->x_fraction = x - low_x;
  return true;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_BILINEAR_H_
