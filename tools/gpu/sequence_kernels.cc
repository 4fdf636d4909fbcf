// Losses and decoders of label sequences, and conditional random fields.
#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/ctc_loss.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/rnnt_loss.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"
#include "tools/gpu/kernel_call.h"

namespace tfo::gpu {
namespace {

// int32, or what option `labels` names: int64.
IndexArray Ints(const KernelCall& call, int i) {
  if (call.Text("labels") == "int64") {
    return IndexArray(static_cast<const int64_t*>(call[i].address));
  }
  return IndexArray(static_cast<const int32_t*>(call[i].address));
}

// Buffers 1 to 3: labels, their lengths, the logits' lengths.
LabelSequences ReadSequences(const KernelCall& call) {
  return {call.Int("batch"),   call.Int("frames"), call.Int("max_labels"),
          call.Int("classes"), call.Int("blank"),  Ints(call, 1),
          Ints(call, 2),       Ints(call, 3)};
}

// Buffers 0 and 1: logits, lengths.
template <typename T>
CtcLogits<T> ReadLogits(const KernelCall& call) {
  return {call.Int("batch"),
          call.Int("frames"),
          call.Int("classes"),
          call.Int("blank"),
          call[0],
          Ints(call, 1)};
}

// Buffers 0 to 2: logits, transitions, lengths.
template <typename T>
CrfScores<T> ReadScores(const KernelCall& call) {
  return {call.Int("batch"), call.Int("frames"), call.Int("tags"), call[0],
          call[1],           Ints(call, 2)};
}

template <template <typename> class Args, typename T>
Error RunCrfOn(const KernelCall& call, const Args<T>& args) {
  return RunCrf<Args, T>(call.Gpu(CrfScratchBytes<Args, T>(args)), args);
}

}  // namespace

// logits, labels, their lengths, the logits' lengths, loss, largest, rest
TFO_GPU_KERNEL(ctc_loss, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const CtcArgs<T> args = {ReadSequences(call),
                             call.Int("zero_infinity") != 0,
                             call[0],
                             call[4],
                             call[5],
                             call[6]};
    return CtcLoss<T>(call.Gpu(CtcScratchBytes<T>(args)), args);
  });
}

// logits, labels, their lengths, the logits' lengths, d_loss, largest, rest,
// d_logits
TFO_GPU_KERNEL(ctc_loss_grad, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const CtcGradArgs<T> args = {
        ReadSequences(call), call[0], call[4], call[5], call[6], call[7]};
    return CtcLossGrad<T>(call.Gpu(CtcScratchBytes<T>(args)), args);
  });
}

// logits, labels, their lengths, the logits' lengths, loss, largest, rest
TFO_GPU_KERNEL(rnnt_loss, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const RnntArgs<T> args = {ReadSequences(call), call[0], call[4], call[5],
                              call[6]};
    return RnntLoss<T>(call.Gpu(RnntScratchBytes<T>(args)), args);
  });
}

// logits, labels, their lengths, the logits' lengths, d_loss, largest, rest,
// d_logits
TFO_GPU_KERNEL(rnnt_loss_grad, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const RnntGradArgs<T> args = {
        ReadSequences(call), call[0], call[4], call[5], call[6], call[7]};
    return RnntLossGrad<T>(call.Gpu(RnntScratchBytes<T>(args)), args);
  });
}

// logits, transitions, lengths, labels, log_likelihood
TFO_GPU_KERNEL(crf_log_likelihood, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    return RunCrfOn(call, CrfLikelihoodArgs<T>{ReadScores<T>(call),
                                               Ints(call, 3), call[4]});
  });
}

// logits, transitions, lengths, labels, d, d_logits, d_transitions
TFO_GPU_KERNEL(crf_log_likelihood_grad, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    return RunCrfOn(call,
                    CrfLikelihoodGradArgs<T>{ReadScores<T>(call), Ints(call, 3),
                                             call[4], call[5], call[6]});
  });
}

// logits, transitions, lengths, marginals
TFO_GPU_KERNEL(crf_marginals, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    return RunCrfOn(call, CrfMarginalsArgs<T>{ReadScores<T>(call), call[3]});
  });
}

// logits, transitions, lengths, labels, best scores
TFO_GPU_KERNEL(crf_decode, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    return RunCrfOn(call,
                    CrfDecodeArgs<T>{ReadScores<T>(call), call[3], call[4]});
  });
}

// logits, lengths, labels, their lengths, log_probs
TFO_GPU_KERNEL(ctc_greedy_decode, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const CtcGreedyArgs<T> args = {ReadLogits<T>(call),
                                   call.Int("merge_repeated") != 0,
                                   static_cast<int32_t>(call.Int("pad_id")),
                                   call[2],
                                   call[3],
                                   call[4]};
    return CtcGreedyDecode(call.Gpu(CtcDecodeScratchBytes(args)), args);
  });
}

// logits, lengths, labels, their lengths, scores, log_probs
TFO_GPU_KERNEL(ctc_beam_search, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const CtcBeamSearchArgs<T> args = {ReadLogits<T>(call),
                                       call.Int("beam_width"),
                                       call.Int("top_paths"),
                                       call.Number("label_bonus"),
                                       static_cast<int32_t>(call.Int("pad_id")),
                                       call[2],
                                       call[3],
                                       call[4],
                                       call[5]};
    return CtcBeamSearch(call.Gpu(CtcDecodeScratchBytes(args)), args);
  });
}

// logits, is_frame, weights, prefixes, label_scores, next_weights,
// next_prefixes, parents, labels
TFO_GPU_KERNEL(ctc_beam_search_step, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const CtcBeamSearchStepArgs<T> args = {call.Int("batch"),
                                           call.Int("beam_width"),
                                           call.Int("classes"),
                                           call.Int("blank"),
                                           call[0],
                                           call[1],
                                           call[2],
                                           call[3],
                                           call[4],
                                           call.Number("lm_weight"),
                                           call.Number("label_bonus"),
                                           call[5],
                                           call[6],
                                           call[7],
                                           call[8]};
    return CtcBeamSearchStep(call.Gpu(CtcDecodeScratchBytes(args)), args);
  });
}

}  // namespace tfo::gpu
