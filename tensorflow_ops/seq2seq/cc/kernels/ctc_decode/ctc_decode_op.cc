// The OpKernels of CtcGreedyDecode, CtcBeamSearchDecode and CtcBeamSearchStep.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

namespace tfo {
namespace {

// Reads inputs logits [B, T, V] and logit_lengths [B].
template <typename T>
absl::Status ReadCtcLogits(::tensorflow::OpKernelContext* ctx,
                           int64_t blank_index, bool check_values,
                           CtcLogits<T>* input) {
  const ::tensorflow::Tensor &logits = ctx->input(0), &lengths = ctx->input(1);
  const int64_t batch = logits.dim_size(0), classes = logits.dim_size(2);
  int64_t blank;
  TF_RETURN_IF_ERROR(ReadBlank(blank_index, classes, &blank));
  *input = {batch, logits.dim_size(1), classes,
            blank, Data<T>(logits),    IntsOf(lengths)};
  if (!check_values) return absl::OkStatus();
  return CheckLengths("logit_lengths", input->lengths, batch, 0, input->frames,
                      "the frames of logits");
}

// Reads a finite scalar.
absl::Status ReadCtcNumber(const char* name, const ::tensorflow::Tensor& tensor,
                           double* number) {
  *number = tensor.scalar<double>()();
  if (std::isfinite(*number)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be finite, got ", *number));
}

template <typename Device, typename T>
class CtcGreedyDecodeOp : public OpKernel {
 public:
  using Value = Accumulator<T>;

  explicit CtcGreedyDecodeOp(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("blank_index", &blank_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("merge_repeated", &merge_repeated_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("pad_id", &pad_id_));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    CtcGreedyArgs<T> args;
    OP_REQUIRES_OK(ctx, ReadCtcLogits(ctx, blank_, std::is_same_v<Device, Cpu>,
                                      &args.input));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.labels, &args.lengths,
                                        &args.log_probs));
    args.merge_repeated = merge_repeated_;
    args.pad_id = pad_id_;
    OP_REQUIRES_OK(
        ctx, RunWithScratch<Device>(
                 ctx, [&](const Gpu&) { return CtcDecodeScratchBytes(args); },
                 [&](const Device& d) { return CtcGreedyDecode(d, args); }));
  }

 private:
  int64_t blank_;
  bool merge_repeated_;
  int32_t pad_id_;
};

template <typename Device, typename T>
class CtcBeamSearchDecodeOp : public OpKernel {
 public:
  using Value = Accumulator<T>;

  explicit CtcBeamSearchDecodeOp(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("blank_index", &blank_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("beam_width", &beam_width_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("top_paths", &top_paths_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("pad_id", &pad_id_));
    constexpr int64_t kMaxWidth = std::numeric_limits<int32_t>::max();
    OP_REQUIRES(
        ctx, beam_width_ <= kMaxWidth,
        absl::InvalidArgumentError(absl::StrCat(
            "beam_width is ", beam_width_, ", expected [1, ", kMaxWidth, "]")));
    OP_REQUIRES(ctx, top_paths_ <= beam_width_,
                absl::InvalidArgumentError(
                    absl::StrCat("top_paths is ", top_paths_, ", expected [1, ",
                                 beam_width_, "]: beam_width")));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    CtcBeamSearchArgs<T> args;
    OP_REQUIRES_OK(ctx, ReadCtcLogits(ctx, blank_, std::is_same_v<Device, Cpu>,
                                      &args.input));
    OP_REQUIRES_OK(
        ctx, ReadCtcNumber("label_bonus", ctx->input(2), &args.label_bonus));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.labels, &args.lengths,
                                        &args.scores, &args.log_probs));
    args.beam_width = beam_width_;
    args.top_paths = top_paths_;
    args.pad_id = pad_id_;
    OP_REQUIRES_OK(
        ctx, RunWithScratch<Device>(
                 ctx, [&](const Gpu&) { return CtcDecodeScratchBytes(args); },
                 [&](const Device& d) { return CtcBeamSearch(d, args); }));
  }

 private:
  int64_t blank_, beam_width_, top_paths_;
  int32_t pad_id_;
};

template <typename Device, typename T>
class CtcBeamSearchStepOp : public OpKernel {
 public:
  using Value = Accumulator<T>;

  explicit CtcBeamSearchStepOp(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("blank_index", &blank_));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    CtcBeamSearchStepArgs<T> args;
    OP_REQUIRES_OK(ctx, Read(ctx, &args));
    OP_REQUIRES_OK(ctx,
                   AllocateOutputs(ctx, &args.next_weights, &args.next_prefixes,
                                   &args.parents, &args.labels));
    OP_REQUIRES_OK(
        ctx, RunWithScratch<Device>(
                 ctx, [&](const Gpu&) { return CtcDecodeScratchBytes(args); },
                 [&](const Device& d) { return CtcBeamSearchStep(d, args); }));
  }

 private:
  absl::Status Read(::tensorflow::OpKernelContext* ctx,
                    CtcBeamSearchStepArgs<T>* args) const {
    const ::tensorflow::Tensor &logits = ctx->input(0),
                               &is_frame = ctx->input(1),
                               &weights = ctx->input(2),
                               &prefixes = ctx->input(3),
                               &label_scores = ctx->input(4);
    const int64_t batch = logits.dim_size(0), classes = logits.dim_size(1),
                  width = weights.dim_size(1);
    TF_RETURN_IF_ERROR(ReadBlank(blank_, classes, &args->blank));
    args->batch = batch;
    args->beam_width = width;
    args->classes = classes;
    args->logits = Data<T>(logits);
    args->is_frame = Data<bool>(is_frame);
    args->weights = Data<double>(weights);
    args->prefixes = Data<int64_t>(prefixes);
    args->label_scores = Data<Value>(label_scores);
    TF_RETURN_IF_ERROR(
        ReadCtcNumber("lm_weight", ctx->input(5), &args->lm_weight));
    TF_RETURN_IF_ERROR(
        ReadCtcNumber("label_bonus", ctx->input(6), &args->label_bonus));
    if constexpr (std::is_same_v<Device, Gpu>) return absl::OkStatus();
    for (int64_t i = 0; i < batch * width; ++i) {
      const int64_t last = args->prefixes[i * kCtcPrefixIds];
      if (last >= -1 && last < classes) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("prefixes[", i / width, ", ", i % width, ", 0] is ",
                       last, ", expected [-1, ", classes, ")"));
    }
    return absl::OkStatus();
  }

  int64_t blank_;
};

TFO_REGISTER_KERNELS("CtcGreedyDecode", CtcGreedyDecodeOp);
TFO_REGISTER_KERNELS("CtcBeamSearchDecode", CtcBeamSearchDecodeOp,
                     .HostMemory("label_bonus"));
TFO_REGISTER_KERNELS("CtcBeamSearchStep", CtcBeamSearchStepOp,
                     .HostMemory("lm_weight").HostMemory("label_bonus"));

}  // namespace
}  // namespace tfo
