// The OpKernels of CtcLoss, RnntLoss and their gradients.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

namespace tfo {
namespace {

template <typename Loss, typename Device, typename Args, typename Run>
absl::Status RunOnSequences(::tensorflow::OpKernelContext* ctx,
                            const Args& args, const Run& run) {
  if (std::is_same_v<Device, Cpu>) {
    TF_RETURN_IF_ERROR(CheckSequences<Loss>(args.sequences));
  }
  return RunWithScratch<Device>(
      ctx, [&](const Gpu&) { return SequenceLossScratchBytes(args); }, run);
}

template <typename Device, typename Loss, typename T>
absl::Status RunLoss(::tensorflow::OpKernelContext* ctx,
                     const SequenceLossArgs<Loss, T>& args) {
  return RunOnSequences<Loss, Device>(
      ctx, args, [&](const Device& d) { return SequenceLoss(d, args); });
}
template <typename Device, typename Loss, typename T>
absl::Status RunLoss(::tensorflow::OpKernelContext* ctx,
                     const SequenceLossGradArgs<Loss, T>& args) {
  return RunOnSequences<Loss, Device>(
      ctx, args, [&](const Device& d) { return SequenceLossGrad(d, args); });
}

TFO_OP_KERNELS("CtcLoss", CtcLossArgs, RunLoss<Device>(ctx, args));
TFO_OP_KERNELS("CtcLossGrad", CtcLossGradArgs, RunLoss<Device>(ctx, args));
TFO_OP_KERNELS("RnntLoss", RnntLossArgs, RunLoss<Device>(ctx, args));
TFO_OP_KERNELS("RnntLossGrad", RnntLossGradArgs, RunLoss<Device>(ctx, args));

}  // namespace
}  // namespace tfo
