// The scratch memory of beam_search_step.h on a GPU.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_GPU_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_GPU_H_

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/rows/partition.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"

namespace tfo {

// Tokens that one block selects candidates from.
inline constexpr int kBeamPart = 4096;

// Arrays in gpu.scratch.
template <typename T>
struct BeamScratchLayout {
  using Value = Accumulator<T>;
  int64_t parts;  // of each row
  int64_t keep;   // candidates of each part
  Value *largest, *rest, *scores;
  Value* states;  // that summing up rows needs
  int32_t* tokens;
  int64_t bytes;

  explicit BeamScratchLayout(const BeamSearchStepArgs<T>& args,
                             void* base = nullptr) {
    const int64_t rows = args.batch * args.beams;
    parts = DivideUp(args.vocabulary, kBeamPart);
    keep = std::min<int64_t>({args.beam_width, args.vocabulary, kBeamPart});
    ScratchLayout layout(base);
    layout.Reserve(&largest, rows);
    layout.Reserve(&rest, rows);
    layout.Reserve(&states, GpuStateValues(rows, args.vocabulary));
    layout.Reserve(&scores, rows * parts * keep);
    layout.Reserve(&tokens, rows * parts * keep);
    bytes = layout.bytes();
  }
  int64_t Bytes() const { return bytes; }
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_SEARCH_STEP_GPU_H_
