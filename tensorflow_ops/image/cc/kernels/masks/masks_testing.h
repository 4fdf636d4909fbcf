// Images for the tests and benchmarks of mask ops.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_MASKS_TESTING_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_MASKS_TESTING_H_

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"
#include "tensorflow_ops/image/cc/kernels/masks/planes.h"

namespace tfo::testing {

// The value of pixel (y, x) of a plane.
using Pattern = std::function<int(int64_t y, int64_t x)>;

// Patterns with values in [0, 4).
inline std::vector<std::pair<std::string, Pattern>> Patterns() {
  const auto hash = [](int64_t y, int64_t x) {
    uint64_t h = static_cast<uint64_t>(y) * 0x9E3779B97F4A7C15 +
                 static_cast<uint64_t>(x) * 0xC2B2AE3D27D4EB4F + 1;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9;
    return static_cast<int>(h >> 40);
  };
  return {
      {"zeros", [](int64_t, int64_t) { return 0; }},
      {"ones", [](int64_t, int64_t) { return 1; }},
      {"one zero pixel",
       [](int64_t y, int64_t x) { return y == 1 && x == 2 ? 0 : 1; }},
      {"one pixel", [](int64_t y, int64_t x) { return y == 0 && x == 1; }},
      {"checkerboard",
       [](int64_t y, int64_t x) { return static_cast<int>((y + x) % 2); }},
      {"noise", [=](int64_t y, int64_t x) { return hash(y, x) % 2; }},
      {"values", [=](int64_t y, int64_t x) { return hash(y, x) % 4; }},
      {"sparse zeros",
       [=](int64_t y, int64_t x) { return hash(y, x) % 97 == 0 ? 0 : 2; }},
      {"sparse ones",
       [=](int64_t y, int64_t x) { return hash(y, x) % 11 == 0 ? 3 : 0; }},
      {"blobs", [=](int64_t y, int64_t x) { return hash(y / 5, x / 9) % 3; }},
      // Teeth that only the last row joins, and only the first one.
      {"comb", [](int64_t y, int64_t x) { return x % 2 == 0 || y == 12; }},
      {"comb upwards",
       [](int64_t y, int64_t x) { return x % 3 != 1 || y == 0; }},
      // Diagonal stairs, which have one component with 8 neighbors.
      {"stairs", [](int64_t y, int64_t x) { return (y + x) % 5 == 0; }},
      {"stairs down",
       [](int64_t y, int64_t x) { return (y - x + 700) % 4 == 0; }},
      // Square rings about (16, 16) with a gap each: a spiral's corridors.
      {"spiral",
       [](int64_t y, int64_t x) {
         const int64_t dy = y > 16 ? y - 16 : 16 - y;
         const int64_t dx = x > 16 ? x - 16 : 16 - x;
         const int64_t ring = dy > dx ? dy : dx;
         const bool is_gate = x == 16 + ring && y == 16 + ring - 1;
         return ring % 2 == 0 ? !is_gate : x == 16 + ring && y == 15 + ring;
       }},
  };
}

// Images [N, H, W, C] of a pattern; each plane shows another part of it.
inline std::vector<int> Draw(const Planes& planes, const Pattern& pattern) {
  std::vector<int> values(planes.Elements());
  int64_t at = 0;
  for (int64_t n = 0; n < planes.images; ++n) {
    for (int64_t y = 0; y < planes.height; ++y) {
      for (int64_t x = 0; x < planes.width; ++x) {
        for (int64_t c = 0; c < planes.channels; ++c) {
          values[at++] = pattern(y, x + 3 * n + c);
        }
      }
    }
  }
  return values;
}

inline std::vector<Planes> MaskSizes() {
  return {{1, 1, 1, 1},   {1, 1, 33, 1},   {1, 33, 1, 1},  {2, 13, 33, 1},
          {1, 40, 64, 1}, {1, 29, 129, 1}, {3, 9, 7, 5},   {1, 17, 65, 2},
          {1, 70, 3, 1},  {2, 5, 300, 1},  {1, 3, 150, 3}, {1, 1, 1, 40}};
}

// Blobs of about 15 pixels.
inline GpuVector<uint8_t> BenchmarkMasks(const Planes& planes) {
  GpuVector<uint8_t> masks(planes.Elements());
  for (int64_t i = 0; i < planes.Elements(); ++i) {
    const int64_t x = i % planes.width, y = i / planes.width;
    masks[i] = std::sin(0.21 * x + 0.05 * y) + std::sin(0.17 * y) > 0;
  }
  return masks;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_MASKS_TESTING_H_
