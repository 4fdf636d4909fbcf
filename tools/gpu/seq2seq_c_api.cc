// The C interface (c_api.h) of tfo.seq2seq.
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search_step_gpu.h"
#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree.h"
#include "tools/gpu/c_api.h"

namespace tfo {
namespace {

// Sizes and options of beam_search_step.h.
struct BeamArgs {
  int64_t batch, beams, vocabulary, beam_width, num_eos;
  double length_penalty;
  int32_t eos_rule;

  template <typename T>
  int64_t ScratchBytes() const {
    BeamSearchStepArgs<T> step{};
    step.batch = batch;
    step.beams = beams;
    step.vocabulary = vocabulary;
    step.beam_width = beam_width;
    return BeamScratchLayout<T>(step).Bytes();
  }
};

template <typename Id>
Error Gather(const Cpu& cpu, const GatherTreeArgs<Id>& args, BadBeam* bad) {
  BadBeam unasked;
  return GatherTree(cpu, args, bad == nullptr ? &unasked : bad);
}
template <typename Id>
Error Gather(const Gpu& gpu, const GatherTreeArgs<Id>& args, BadBeam* /*no*/) {
  return GatherTree(gpu, args);
}

// Sizes and options of gather_tree.h.
struct TreeArgs {
  int64_t time, batch, beams, pad_id;
  bool wide;  // int64 tokens and parents
};

}  // namespace

TFO_C_API int64_t tfo_size_of_beam_args() { return sizeof(BeamArgs); }
TFO_C_API int64_t tfo_size_of_tree_args() { return sizeof(TreeArgs); }

// How many bytes the scratch memory of beam_search_step has on a GPU.
TFO_C_API int64_t tfo_beam_scratch(const BeamArgs* args, bool is_double) {
  return is_double ? args->ScratchBytes<double>() : args->ScratchBytes<float>();
}

TFO_C_API Error tfo_beam_search_step(const Place* place, int32_t dtype,
                                     const BeamArgs* args, Pointer logits,
                                     Pointer log_probs, Pointer finished,
                                     Pointer lengths, Pointer eos_ids,
                                     Pointer forbidden, Pointer next_log_probs,
                                     Pointer token_ids, Pointer parent_ids,
                                     Pointer next_finished,
                                     Pointer next_lengths, Pointer scratch) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return BeamSearchStep(WithScratch(device, scratch),
                          BeamSearchStepArgs<decltype(t)>{
                              args->batch,
                              args->beams,
                              args->vocabulary,
                              args->beam_width,
                              args->length_penalty,
                              {EosRule{args->eos_rule}, args->num_eos, eos_ids},
                              logits,
                              log_probs,
                              finished,
                              lengths,
                              forbidden,
                              next_log_probs,
                              token_ids,
                              parent_ids,
                              next_finished,
                              next_lengths});
  });
}

// `bad` gets what BadBeam has, from the processor alone; it may be null.
static_assert(sizeof(BadBeam) == 4 * sizeof(int64_t));
TFO_C_API Error tfo_gather_tree(const Place* place, int32_t /*any*/,
                                const TreeArgs* args, Pointer token_ids,
                                Pointer parent_ids, Pointer lengths,
                                Pointer output, Pointer bad) {
  return OnPlace<float>(*place, [&](auto device, auto) {
    const auto run = [&](auto id) {
      using Id = decltype(id);
      return Gather(
          device,
          GatherTreeArgs<Id>{args->time, args->batch, args->beams, token_ids,
                             parent_ids, lengths, Id(args->pad_id), output},
          bad);
    };
    return args->wide ? run(int64_t{}) : run(int32_t{});
  });
}

}  // namespace tfo
