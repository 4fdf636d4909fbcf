// The OpKernels of Normalization and NormalizationGrad.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/normalization/normalization.h"

namespace tfo {
namespace {

TFO_OP_KERNELS("Normalization", NormalizationArgs, Normalization(device, args));
TFO_OP_KERNELS("NormalizationGrad", NormalizationGradArgs,
               RunWithScratch<Device>(
                   ctx,
                   [&](const Gpu&) { return NormalizationGradScratch(args); },
                   [&](const Device& with_scratch) {
                     return NormalizationGrad(with_scratch, args);
                   }));

}  // namespace
}  // namespace tfo
