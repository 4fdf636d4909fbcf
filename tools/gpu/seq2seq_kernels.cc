// Beam search.
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step_gpu.h"
#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree/gather_tree.h"
#include "tools/gpu/kernel_call.h"

namespace tfo::gpu {

// logits, log_probs, finished, lengths, eos_ids, forbidden, next_log_probs,
// token_ids, parent_ids, next_finished, next_lengths
TFO_GPU_KERNEL(beam_search_step, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const BeamSearchStepArgs<T> args = {
        call.Int("batch"),
        call.Int("beams"),
        call.Int("vocabulary"),
        call.Int("beam_width"),
        call.Number("length_penalty"),
        {EosRule::kAny, call.Int("num_eos"), call[4]},
        call[0],
        call[1],
        call[2],
        call[3],
        call[5],
        call[6],
        call[7],
        call[8],
        call[9],
        call[10]};
    return BeamSearchStep(call.Gpu(BeamScratchLayout<T>(args).Bytes()), args);
  });
}

// token_ids, parent_ids, lengths, output
TFO_GPU_KERNEL(gather_tree, call) {
  const auto run = [&](auto id) {
    using Id = decltype(id);
    return GatherTree(
        call.Gpu(),
        GatherTreeArgs<Id>{call.Int("time"), call.Int("batch"),
                           call.Int("beams"), call[0], call[1], call[2],
                           static_cast<Id>(call.Int("pad_id")), call[3]});
  };
  return call.Text("ids") == "int64" ? run(int64_t()) : run(int32_t());
}

}  // namespace tfo::gpu
