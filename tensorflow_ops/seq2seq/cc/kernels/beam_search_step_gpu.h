// beam_search_step.h on a GPU.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_STEP_GPU_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_STEP_GPU_H_

#include "tensorflow_ops/core/cc/row_parts.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search_step.h"

namespace tfo {

// Tokens whose candidates a block chooses from.
inline constexpr int kBeamPart = 4096;

// How the scratch memory of a step is shared out.
struct BeamScratchSizes {
  int64_t parts;   // of each row
  int64_t keep;    // candidates of each
  int64_t values;  // in all, of the type that T is computed in
  int64_t tokens;  // in all, int32, behind the values

  BeamScratchSizes(int64_t batch, int64_t beams, int64_t vocabulary,
                   int64_t beam_width) {
    const int64_t rows = batch * beams;
    parts = (vocabulary + kBeamPart - 1) / kBeamPart;
    keep = std::min<int64_t>({beam_width, vocabulary, kBeamPart});
    tokens = rows * parts * keep;
    values = 2 * rows + RowScratch(rows, vocabulary) + tokens;
  }
  template <typename Value>
  int64_t Bytes() const {
    return values * sizeof(Value) + tokens * sizeof(int32_t);
  }
};

// All pointers of `args` but `scratch` are those of the CPU's function, in the
// GPU's memory; end tokens that are none of the vocabulary's end nothing.
// `scratch` has BeamScratchSizes' Bytes, aligned for Value. Only enqueues.
template <typename T>
Error BeamSearchStep(const Gpu& gpu, const BeamSearchStepArgs<T>& args,
                     void* scratch);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_STEP_GPU_H_
