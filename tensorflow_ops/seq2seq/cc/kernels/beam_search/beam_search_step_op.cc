// The OpKernel of BeamSearchStep.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step_gpu.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

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
    OP_REQUIRES_OK(ctx,
                   AllocateOutputs(ctx, &args.next_log_probs, &args.token_ids,
                                   &args.parent_ids, &args.next_finished,
                                   &args.next_lengths));
    OP_REQUIRES_OK(ctx, Run(ctx, args));
  }

 private:
  using Value = Accumulator<T>;

  static absl::Status Run(OpKernelContext* ctx,
                          const BeamSearchStepArgs<T>& args) {
    return RunWithScratch<Device>(
        ctx, [&](const Gpu&) { return BeamScratchLayout<T>(args).Bytes(); },
        [&](const Device& device) { return BeamSearchStep(device, args); });
  }

  // All but the results. Checks scalars.
  static absl::Status Read(OpKernelContext* ctx, BeamSearchStepArgs<T>* args) {
    const Tensor &logits = ctx->input(0), &log_probs = ctx->input(1),
                 &finished = ctx->input(2), &lengths = ctx->input(3),
                 &eos_ids = ctx->input(4), &length_penalty = ctx->input(5),
                 &eos_rule = ctx->input(6), &beam_width = ctx->input(7);
    args->batch = logits.dim_size(0);
    args->beams = logits.dim_size(1);
    args->vocabulary = logits.dim_size(2);
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
    args->forbidden = OptionalData<bool>(ctx, "forbidden");
    return absl::OkStatus();
  }

  static absl::Status CheckValues(const BeamSearchStepArgs<T>& args) {
    if constexpr (std::is_same_v<Device, Cpu>) {
      for (int64_t i = 0; i < args.batch * args.beams; ++i) {
        const int32_t length = args.lengths[i];
        if (length < 0 || length == std::numeric_limits<int32_t>::max()) {
          return absl::InvalidArgumentError(
              absl::StrCat("lengths[", i / args.beams, ", ", i % args.beams,
                           "] is ", length, ", expected [0, 2147483647)"));
        }
      }
      for (int64_t i = 0; i < args.tokens.num_eos; ++i) {
        const int32_t id = args.tokens.eos_ids[i];
        if (id < 0 || id >= args.vocabulary) {
          return absl::InvalidArgumentError(absl::StrCat("eos_ids[", i, "] is ",
                                                         id, ", expected [0, ",
                                                         args.vocabulary, ")"));
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
