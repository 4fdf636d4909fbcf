// The scratch memory of beam_search_step.h on a GPU.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_GPU_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_GPU_H_

#include "tensorflow_ops/nn/cc/kernels/rows/partition.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"

namespace tfo {

// Tokens that one block selects candidates from.
inline constexpr int kBeamPart = 4096;

// The layout of gpu.scratch: `values` of Value, then `tokens` of int32.
template <typename T>
struct BeamScratchLayout {
  int64_t parts;   // of each row
  int64_t keep;    // candidates of each part
  int64_t states;  // values that summing up rows needs
  int64_t values, tokens;

  explicit BeamScratchLayout(const BeamSearchStepArgs<T>& args) {
    const int64_t rows = args.batch * args.beams;
    parts = (args.vocabulary + kBeamPart - 1) / kBeamPart;
    keep = std::min<int64_t>({args.beam_width, args.vocabulary, kBeamPart});
    states = GpuStateValues(rows, args.vocabulary);
    tokens = rows * parts * keep;
    values = 2 * rows + states + tokens;
  }
  int64_t Bytes() const {
    return values * sizeof(Accumulator<T>) + tokens * sizeof(int32_t);
  }
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_GPU_H_
