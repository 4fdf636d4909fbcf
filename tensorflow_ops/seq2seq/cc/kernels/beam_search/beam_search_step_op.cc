// The OpKernel of BeamSearchStep.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step_gpu.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

template <typename Device, typename T>
class BeamSearchStepOp : public OpKernel {
 public:
  explicit BeamSearchStepOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
  }

  void Compute(OpKernelContext* ctx) override {
    BeamSearchStepArgs<T> args{};
    OP_REQUIRES_OK(ctx, Read(ctx, &args));
    OP_REQUIRES_OK(ctx, CheckValues(args));
    const TensorShape shape({args.batch, args.beam_width});
    Tensor* results[5];
    for (int i = 0; i < 5; ++i) {
      OP_REQUIRES_OK(ctx, ctx->allocate_output(i, shape, &results[i]));
    }
    args.next_log_probs = Data<Value>(results[0]);
    args.token_ids = Data<int32_t>(results[1]);
    args.parent_ids = Data<int32_t>(results[2]);
    args.next_finished = Data<bool>(results[3]);
    args.next_lengths = Data<int32_t>(results[4]);
    OP_REQUIRES_OK(ctx, Run(ctx, args));
  }

 private:
  using Value = Accumulator<T>;

  static absl::Status Run(OpKernelContext* ctx,
                          const BeamSearchStepArgs<T>& args) {
    Device device = GetDevice<Device>(ctx);
    Tensor scratch;
    if constexpr (std::is_same_v<Device, Gpu>) {
      TF_RETURN_IF_ERROR(AllocateScratch(
          ctx, BeamScratchLayout<T>(args).Bytes(), &scratch, &device));
    }
    return ToStatus(BeamSearchStep(device, args));
  }

  // All but the results. Checks shapes and scalars.
  static absl::Status Read(OpKernelContext* ctx, BeamSearchStepArgs<T>* args) {
    const Tensor &logits = ctx->input(0), &log_probs = ctx->input(1),
                 &finished = ctx->input(2), &lengths = ctx->input(3),
                 &eos_ids = ctx->input(4), &length_penalty = ctx->input(5),
                 &eos_rule = ctx->input(6), &beam_width = ctx->input(7);
    TF_RETURN_IF_ERROR(CheckShape("logits", logits.shape(), {-1, -1, -1},
                                  "[batch, beams, vocabulary]"));
    args->batch = logits.dim_size(0);
    args->beams = logits.dim_size(1);
    args->vocabulary = logits.dim_size(2);
    if (args->beams == 0 || args->vocabulary == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("logits must have at least one beam and one token, got ",
                       logits.shape().DebugString()));
    }
    if (args->vocabulary > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("logits must have at most 2147483647 tokens, got ",
                       logits.shape().DebugString()));
    }
    const std::string of_beams =
        absl::StrCat("[batch, beams] = [", args->batch, ",", args->beams, "]");
    const auto check = [&](const char* name, const Tensor& tensor) {
      return CheckShape(name, tensor.shape(), {args->batch, args->beams},
                        of_beams.c_str());
    };
    TF_RETURN_IF_ERROR(check("log_probs", log_probs));
    TF_RETURN_IF_ERROR(check("finished", finished));
    TF_RETURN_IF_ERROR(check("lengths", lengths));
    TF_RETURN_IF_ERROR(
        CheckShape("eos_ids", eos_ids.shape(), {-1}, "a vector"));
    TF_RETURN_IF_ERROR(
        CheckShape("length_penalty", length_penalty.shape(), {}, "a scalar"));
    TF_RETURN_IF_ERROR(
        CheckShape("eos_rule", eos_rule.shape(), {}, "a scalar"));
    TF_RETURN_IF_ERROR(
        CheckShape("beam_width", beam_width.shape(), {}, "a scalar"));
    args->length_penalty = length_penalty.scalar<double>()();
    if (!std::isfinite(args->length_penalty)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "length_penalty must be finite, got ", args->length_penalty));
    }
    const int32_t rule = eos_rule.scalar<int32_t>()();
    if (rule < 0 || rule > 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("eos_rule must be 0, 1 or 2, got ", rule));
    }
    args->beam_width = beam_width.scalar<int32_t>()();
    if (args->beam_width < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "beam_width must be at least 1, got ", args->beam_width));
    }
    args->tokens = {static_cast<EosRule>(rule), eos_ids.NumElements(),
                    Data<int32_t>(eos_ids)};
    args->logits = Data<T>(logits);
    args->log_probs = Data<Value>(log_probs);
    args->finished = Data<bool>(finished);
    args->lengths = Data<int32_t>(lengths);
    if (ctx->num_inputs() > 8) {
      const Tensor& forbidden = ctx->input(8);
      TF_RETURN_IF_ERROR(CheckShape(
          "forbidden", forbidden.shape(),
          {args->batch, args->beams, args->vocabulary},
          absl::StrCat("of logits' shape ", logits.shape().DebugString())
              .c_str()));
      args->forbidden = Data<bool>(forbidden);
    }
    return absl::OkStatus();
  }

  static absl::Status CheckValues(const BeamSearchStepArgs<T>& args) {
    if constexpr (std::is_same_v<Device, Cpu>) {
      for (int64_t i = 0; i < args.tokens.num_eos; ++i) {
        const int32_t id = args.tokens.eos_ids[i];
        if (id < 0 || id >= args.vocabulary) {
          return absl::InvalidArgumentError(absl::StrCat("eos_ids[", i, "] is ",
                                                         id, ", expected [0, ",
                                                         args.vocabulary, ")"));
        }
      }
      for (int64_t i = 0; i < args.batch * args.beams; ++i) {
        const int32_t length = args.lengths[i];
        if (length < 0 || length == std::numeric_limits<int32_t>::max()) {
          return absl::InvalidArgumentError(
              absl::StrCat("lengths[", i / args.beams, ", ", i % args.beams,
                           "] is ", length, ", expected [0, 2147483647)"));
        }
      }
    }
    return absl::OkStatus();
  }
};

TFO_REGISTER_KERNELS("BeamSearchStep", BeamSearchStepOp,
                     .HostMemory("length_penalty")
                         .HostMemory("eos_rule")
                         .HostMemory("beam_width"));

}  // namespace
}  // namespace tfo
