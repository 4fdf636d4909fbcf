// The op behind tfo.show_versions(): facts that only the C++ side has.
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/cuda/cuda_driver.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"

namespace tfo {

REGISTER_OP("TensorflowOps>BuildInfo")
    .Output("facts: string")
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(5));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Facts of this build and this machine.

facts: the compiler's version, the widest CPU level of this processor, the CPU
  level in use, the CPU levels of this build separated by spaces, the newest CUDA
  that the driver runs (12040 for 12.4; 0: no driver, or no GPU kernels).
)doc");

#ifdef __clang__
constexpr char kCompiler[] = __VERSION__;  // "Clang ..."
#else
constexpr char kCompiler[] = "g++ " __VERSION__;
#endif

class BuildInfoOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(::tensorflow::OpKernelContext* ctx) override {
    ::tensorflow::Tensor* facts = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {5}, &facts));
    auto flat = facts->flat<::tensorflow::tstring>();
    flat(0) = kCompiler;
    flat(1) = CpuLevelName(ProcessorCpuLevel());
    flat(2) = CpuLevelName(ActiveCpuLevel());
    flat(3) = BuiltCpuLevels();
#ifdef TFO_CUDA
    flat(4) = absl::StrCat(CudaOfDriver());
#else
    flat(4) = "0";
#endif
  }
};

REGISTER_KERNEL_BUILDER(
    Name("TensorflowOps>BuildInfo").Device(::tensorflow::DEVICE_CPU),
    CheckedKernel<BuildInfoOp>);

}  // namespace tfo
