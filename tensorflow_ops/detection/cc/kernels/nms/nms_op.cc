// The OpKernels of Nms and BatchedNms.
#include <vector>

#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_inputs_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename T>
absl::Status ReadNmsArgs(OpKernelContext* ctx, BoxFormat format,
                         NmsArgs<T>* args) {
  args->format = format;
  TF_RETURN_IF_ERROR(ReadBoxesAndScores<T>(ctx, args));
  if (ctx->op_kernel().type_string() == "TensorflowOps>BatchedNms") {
    const Tensor& ids = ctx->input(2);
    if (ids.dtype() == ::tensorflow::DT_INT64) {
      args->groups.ids64 = Data<int64_t>(ids);
    } else {
      args->groups.ids32 = Data<int32_t>(ids);
    }
  }
  TF_RETURN_IF_ERROR(ReadIouThreshold(ctx, &args->iou_threshold));
  TF_RETURN_IF_ERROR(
      ReadScalar(ctx, "score_threshold", &args->score_threshold));
  return ReadLimit(ctx, "max_outputs", -1, &args->max_outputs);
}

template <typename Device, typename T>
class NmsOp;

template <typename T>
class NmsOp<Cpu, T> : public OpKernel {
 public:
  explicit NmsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &format_));
  }

  void Compute(OpKernelContext* ctx) override {
    NmsArgs<T> args;
    OP_REQUIRES_OK(ctx, ReadNmsArgs(ctx, format_, &args));
    const std::vector<int32_t> kept = Nms(GetDevice<Cpu>(ctx), args);
    OP_REQUIRES_OK(ctx, OutputValues(ctx, 0, kept.data(), kept.size()));
  }

 private:
  BoxFormat format_;
};

#ifdef TFO_CUDA
template <typename T>
class NmsOp<Gpu, T> : public CountedGpuKernel {
 public:
  explicit NmsOp(OpKernelConstruction* ctx) : CountedGpuKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &format_));
  }

 protected:
  absl::Status Enqueue(OpKernelContext* ctx, Results* results) override {
    using ::tensorflow::DT_INT32;
    NmsArgs<T> args;
    TF_RETURN_IF_ERROR(ReadNmsArgs(ctx, format_, &args));
    results->outputs.resize(1);
    TF_RETURN_IF_ERROR(ctx->allocate_temp(
        DT_INT32, ::tensorflow::TensorShape({args.num_boxes}),
        &results->outputs[0]));
    TF_RETURN_IF_ERROR(ctx->allocate_temp(
        DT_INT32, ::tensorflow::TensorShape({1}), &results->count));
    Gpu gpu = GetDevice<Gpu>(ctx);
    Tensor scratch;
    TF_RETURN_IF_ERROR(
        AllocateScratch(ctx, NmsScratchBytes(args), &scratch, &gpu));
    return ToStatus(Nms(gpu, args, Data<int32_t>(&results->outputs[0]),
                        Data<int32_t>(&results->count)));
  }

 private:
  BoxFormat format_;
};
#endif

// clang-format off
TFO_REGISTER_WIDE_KERNELS("Nms", NmsOp,
                         .HostMemory("iou_threshold")
                         .HostMemory("score_threshold")
                         .HostMemory("max_outputs"));
TFO_REGISTER_WIDE_KERNELS("BatchedNms", NmsOp,
                         .HostMemory("iou_threshold")
                         .HostMemory("score_threshold")
                         .HostMemory("max_outputs"));
// clang-format on

}  // namespace
}  // namespace tfo
