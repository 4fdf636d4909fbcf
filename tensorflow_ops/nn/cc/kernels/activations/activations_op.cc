// The OpKernels of BiasActivation and its gradient.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/activations/activations.h"

namespace tfo {
namespace {

TFO_OP_KERNELS("BiasActivation", BiasActivationArgs,
               BiasActivation(device, args));
TFO_OP_KERNELS(
    "BiasActivationGrad", BiasActivationGradArgs,
    RunWithScratch<Device>(
        ctx, [&](const Gpu&) { return BiasActivationGradScratchBytes(args); },
        [&](const Device& on) { return BiasActivationGrad(on, args); }));

}  // namespace
}  // namespace tfo
