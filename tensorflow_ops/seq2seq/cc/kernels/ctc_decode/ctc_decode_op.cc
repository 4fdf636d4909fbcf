// The OpKernels of CtcGreedyDecode, CtcBeamSearchDecode and CtcBeamSearchStep.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

namespace tfo {
namespace {

absl::Status CheckFinite(const char* name, double number) {
  if (std::isfinite(number)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be finite, got ", number));
}

template <typename T>
absl::Status CheckCtcLengths(const CtcLogits<T>& c) {
  return CheckLengths("logit_lengths", c.lengths, c.batch, 0, c.frames,
                      "the frames of logits");
}

template <typename T>
absl::Status CheckPrefixes(const CtcBeamSearchStepArgs<T>& a) {
  for (int64_t i = 0; i < a.batch * a.beam_width; ++i) {
    const int64_t last = a.prefixes[i * kCtcPrefixIds];
    if (last >= -1 && last < a.classes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("prefixes[", i / a.beam_width, ", ", i % a.beam_width,
                     ", 0] is ", last, ", expected [-1, ", a.classes, ")"));
  }
  return absl::OkStatus();
}

// On a GPU, checks only scalars: to read others would stop the stream.
template <typename Device, typename T>
absl::Status CheckValues(const CtcGreedyArgs<T>& a) {
  if (!std::is_same_v<Device, Cpu>) return absl::OkStatus();
  return CheckCtcLengths(a.input);
}
template <typename Device, typename T>
absl::Status CheckValues(const CtcBeamSearchArgs<T>& a) {
  TF_RETURN_IF_ERROR(CheckFinite("label_bonus", a.label_bonus));
  if (!std::is_same_v<Device, Cpu>) return absl::OkStatus();
  return CheckCtcLengths(a.input);
}
template <typename Device, typename T>
absl::Status CheckValues(const CtcBeamSearchStepArgs<T>& a) {
  TF_RETURN_IF_ERROR(CheckFinite("lm_weight", a.lm_weight));
  TF_RETURN_IF_ERROR(CheckFinite("label_bonus", a.label_bonus));
  if (!std::is_same_v<Device, Cpu>) return absl::OkStatus();
  return CheckPrefixes(a);
}

template <typename Device, typename Args>
absl::Status Decode(::tensorflow::OpKernelContext* ctx, const Args& args,
                    Error (*run)(const Device&, const Args&)) {
  TF_RETURN_IF_ERROR(CheckValues<Device>(args));
  return RunWithScratch<Device>(
      ctx, [&](const Gpu&) { return CtcDecodeScratchBytes(args); },
      [&](const Device& device) { return run(device, args); });
}

TFO_OP_KERNELS("CtcGreedyDecode", CtcGreedyArgs,
               Decode<Device>(ctx, args, CtcGreedyDecode));
TFO_OP_KERNELS("CtcBeamSearchDecode", CtcBeamSearchArgs,
               Decode<Device>(ctx, args, CtcBeamSearch));
TFO_OP_KERNELS("CtcBeamSearchStep", CtcBeamSearchStepArgs,
               Decode<Device>(ctx, args, CtcBeamSearchStep));

}  // namespace
}  // namespace tfo
