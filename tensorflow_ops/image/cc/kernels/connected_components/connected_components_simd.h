// The inner loops of connected components, compiled once per CPU level. A row
// is a bit mask: bit i of word w belongs to pixel 64 w + i.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_CONNECTED_COMPONENTS_CONNECTED_COMPONENTS_SIMD_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_CONNECTED_COMPONENTS_CONNECTED_COMPONENTS_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"

namespace tfo {

// The runs of a row: maximal ranges of pixels of one non-zero value.
struct RunMasks {
  uint64_t* nonzero;  // [words]
  uint64_t* starts;   // [words], the first pixel of each run
};

// The pixels at which a run meets one of the row above, through the pixel
// above, above left, above right. Every two runs that meet are linked; most of
// them once.
struct LinkMasks {
  uint64_t *above, *above_left, *above_right;  // [words]
};

TFO_PER_CPU_LEVEL(
    // Reads 64 * words pixels of two rows, zero beyond the width, and one
    // before and after them. Links of 4-connectivity are `above` only; the
    // others are written if `diagonal`.
    template <typename Bits>
    void FindRuns(const Bits* row, const Bits* row_above, int64_t words,
                  bool diagonal, RunMasks runs, LinkMasks links);

    // Writes `labels` [runs] to the pixels of a row's runs, and 0 to others.
    // Reads one label before them, and 8 after, without using them.
    void PaintRuns(RunMasks runs, const int32_t* labels, int64_t width,
                   int32_t* to);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_CONNECTED_COMPONENTS_CONNECTED_COMPONENTS_SIMD_H_
