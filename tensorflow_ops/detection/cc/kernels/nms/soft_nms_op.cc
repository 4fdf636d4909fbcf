// The OpKernel of SoftNms.
#include <algorithm>
#include <memory>

#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_inputs_op.h"
#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

struct SoftNmsAttrs {
  BoxFormat format;
  SoftNmsMethod method;
};

absl::Status ReadSoftNmsAttrs(OpKernelConstruction* ctx, SoftNmsAttrs* attrs) {
  TF_RETURN_IF_ERROR(ReadEnum(ctx, "method",
                              {{"linear", SoftNmsMethod::kLinear},
                               {"gaussian", SoftNmsMethod::kGaussian}},
                              &attrs->method));
  return ReadBoxFormat(ctx, &attrs->format);
}

template <typename T>
absl::Status ReadSoftNmsArgs(OpKernelContext* ctx, const SoftNmsAttrs& attrs,
                             SoftNmsArgs<T>* args) {
  args->format = attrs.format;
  args->method = attrs.method;
  TF_RETURN_IF_ERROR(ReadBoxesAndScores<T>(ctx, args));
  TF_RETURN_IF_ERROR(ReadScalar(ctx, "sigma", &args->sigma));
  if (!(args->sigma > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sigma is ", args->sigma, ", expected above 0"));
  }
  TF_RETURN_IF_ERROR(ReadIouThreshold(ctx, &args->iou_threshold));
  TF_RETURN_IF_ERROR(
      ReadScalar(ctx, "score_threshold", &args->score_threshold));
  return ReadLimit(ctx, "max_outputs", -1, &args->max_outputs);
}

template <typename Device, typename T>
class SoftNmsOp;

template <typename T>
class SoftNmsOp<Cpu, T> : public OpKernel {
 public:
  explicit SoftNmsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadSoftNmsAttrs(ctx, &attrs_));
  }

  void Compute(OpKernelContext* ctx) override {
    SoftNmsArgs<T> args;
    OP_REQUIRES_OK(ctx, ReadSoftNmsArgs(ctx, attrs_, &args));
    const std::unique_ptr<int32_t[]> indices(new int32_t[args.num_boxes]);
    const std::unique_ptr<T[]> scores(new T[args.num_boxes]);
    int32_t count;
    OP_REQUIRES_OK(ctx,
                   ToStatus(SoftNms(GetDevice<Cpu>(ctx), args,
                                    {indices.get(), scores.get()}, &count)));
    OP_REQUIRES_OK(ctx, OutputValues(ctx, 0, indices.get(), count));
    OP_REQUIRES_OK(ctx, OutputValues(ctx, 1, scores.get(), count));
  }

 private:
  SoftNmsAttrs attrs_;
};

#ifdef TFO_CUDA
template <typename T>
class SoftNmsOp<Gpu, T> : public CountedGpuKernel {
 public:
  explicit SoftNmsOp(OpKernelConstruction* ctx) : CountedGpuKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadSoftNmsAttrs(ctx, &attrs_));
  }

 protected:
  absl::Status Enqueue(OpKernelContext* ctx, Results* results) override {
    using ::tensorflow::DT_INT32;
    SoftNmsArgs<T> args;
    TF_RETURN_IF_ERROR(ReadSoftNmsArgs(ctx, attrs_, &args));
    const ::tensorflow::TensorShape shape({args.num_boxes});
    results->outputs.resize(2);
    Tensor &indices = results->outputs[0], &scores = results->outputs[1];
    TF_RETURN_IF_ERROR(ctx->allocate_temp(DT_INT32, shape, &indices));
    TF_RETURN_IF_ERROR(
        ctx->allocate_temp(DataTypeOf<T>::kValue, shape, &scores));
    TF_RETURN_IF_ERROR(ctx->allocate_temp(
        DT_INT32, ::tensorflow::TensorShape({1}), &results->count));
    Gpu gpu = GetDevice<Gpu>(ctx);
    Tensor scratch;
    TF_RETURN_IF_ERROR(
        AllocateScratch(ctx, SoftNmsScratchBytes(args), &scratch, &gpu));
    return ToStatus(SoftNms(gpu, args,
                            {Data<int32_t>(&indices), Data<T>(&scores)},
                            Data<int32_t>(&results->count)));
  }

 private:
  SoftNmsAttrs attrs_;
};
#endif

// clang-format off
TFO_REGISTER_WIDE_KERNELS("SoftNms", SoftNmsOp,
                         .HostMemory("sigma")
                         .HostMemory("iou_threshold")
                         .HostMemory("score_threshold")
                         .HostMemory("max_outputs"));
// clang-format on

}  // namespace
}  // namespace tfo
