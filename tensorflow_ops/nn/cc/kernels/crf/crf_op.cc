// The OpKernels of CrfLogLikelihood, its gradient, CrfMarginals and CrfDecode.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"

namespace tfo {
namespace {

template <typename T>
absl::Status CheckTags(const CrfScores<T>& s, const IndexArray& labels) {
  for (int64_t i = 0; i < s.batch; ++i) {
    for (int64_t t = 0; t < s.lengths[i]; ++t) {
      const int64_t label = labels[i * s.frames + t];
      const absl::Status status = CheckLabel(i, t, label, s.tags);
      if (status.ok()) continue;
      if (label >= 0) return status;
      return absl::InvalidArgumentError(absl::StrCat(
          status.message(),
          ", and padding only at the end: pad_sequences(padding='post')"));
    }
  }
  return absl::OkStatus();
}

template <typename Device, bool kLabeled = false, typename Args>
absl::Status RunCrfOp(::tensorflow::OpKernelContext* ctx, const Args& args) {
  if constexpr (std::is_same_v<Device, Cpu>) {
    const auto& s = args.scores;
    TF_RETURN_IF_ERROR(CheckLengths("lengths", s.lengths, s.batch, 0, s.frames,
                                    "the frames of logits"));
    if constexpr (kLabeled) TF_RETURN_IF_ERROR(CheckTags(s, args.labels));
  }
  return RunWithScratch<Device>(
      ctx, [&](const Gpu&) { return CrfScratchBytes(args); },
      [&](const Device& device) { return RunCrf(device, args); });
}

TFO_OP_KERNELS("CrfLogLikelihood", CrfLikelihoodArgs,
               RunCrfOp<Device, true>(ctx, args));
TFO_OP_KERNELS("CrfLogLikelihoodGrad", CrfLikelihoodGradArgs,
               RunCrfOp<Device, true>(ctx, args));
TFO_OP_KERNELS("CrfMarginals", CrfMarginalsArgs, RunCrfOp<Device>(ctx, args));
TFO_OP_KERNELS("CrfDecode", CrfDecodeArgs, RunCrfOp<Device>(ctx, args));

}  // namespace
}  // namespace tfo
