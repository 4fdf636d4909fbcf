// The OpKernels of CtcGreedyDecode, CtcBeamSearchDecode and CtcBeamSearchStep.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

namespace tfo {
namespace {

// Reads the blank of logits, whose last dim is the classes.
absl::Status ReadCtcBlank(const ::tensorflow::Tensor& logits,
                          int64_t blank_index, int64_t* blank) {
  const int64_t classes = logits.dim_size(logits.dims() - 1);
  if (classes < 1 || classes > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("logits must have [1, 2147483647] classes, got ",
                     logits.shape().DebugString()));
  }
  return ReadBlank(blank_index, classes, blank);
}

// Reads inputs logits [B, T, V] and logit_lengths [B].
template <typename T>
absl::Status ReadCtcLogits(::tensorflow::OpKernelContext* ctx,
                           int64_t blank_index, bool check_values,
                           CtcLogits<T>* input) {
  const ::tensorflow::Tensor &logits = ctx->input(0), &lengths = ctx->input(1);
  TF_RETURN_IF_ERROR(CheckShape("logits", logits.shape(), {-1, -1, -1},
                                "[batch, frames, classes]"));
  int64_t blank;
  TF_RETURN_IF_ERROR(ReadCtcBlank(logits, blank_index, &blank));
  const int64_t batch = logits.dim_size(0);
  TF_RETURN_IF_ERROR(CheckShape("logit_lengths", lengths.shape(), {batch},
                                absl::StrCat("[", batch, "]").c_str()));
  *input = {batch, logits.dim_size(1), logits.dim_size(2),
            blank, Data<T>(logits),    IntsOf(lengths)};
  if (!check_values) return absl::OkStatus();
  return CheckLengths("logit_lengths", input->lengths, batch, 0, input->frames,
                      "the frames of logits");
}

// Reads a finite scalar.
absl::Status ReadCtcNumber(const char* name, const ::tensorflow::Tensor& tensor,
                           double* number) {
  TF_RETURN_IF_ERROR(CheckShape(name, tensor.shape(), {}, "a scalar"));
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
    ::tensorflow::Tensor *labels, *lengths, *log_probs;
    const int64_t batch = args.input.batch;
    OP_REQUIRES_OK(
        ctx, ctx->allocate_output(0, {batch, args.input.frames}, &labels));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {batch}, &lengths));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, {batch}, &log_probs));
    args.merge_repeated = merge_repeated_;
    args.pad_id = pad_id_;
    args.labels = Data<int32_t>(labels);
    args.lengths = Data<int32_t>(lengths);
    args.log_probs = Data<Value>(log_probs);
    OP_REQUIRES_OK(
        ctx, RunWithScratch<Device>(
                 ctx, [&] { return CtcDecodeScratchBytes(args); },
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
    // Constructors end the process if shapes overflow.
    ::tensorflow::TensorShape paths, labels;
    for (const int64_t size : {args.input.batch, top_paths_}) {
      OP_REQUIRES_OK(ctx, paths.AddDimWithStatus(size));
    }
    labels = paths;
    OP_REQUIRES_OK(ctx, labels.AddDimWithStatus(args.input.frames));
    ::tensorflow::Tensor* results[4];
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, labels, &results[0]));
    for (int i = 1; i < 4; ++i) {
      OP_REQUIRES_OK(ctx, ctx->allocate_output(i, paths, &results[i]));
    }
    args.beam_width = beam_width_;
    args.top_paths = top_paths_;
    args.pad_id = pad_id_;
    args.labels = Data<int32_t>(results[0]);
    args.lengths = Data<int32_t>(results[1]);
    args.scores = Data<Value>(results[2]);
    args.log_probs = Data<Value>(results[3]);
    OP_REQUIRES_OK(
        ctx, RunWithScratch<Device>(
                 ctx, [&] { return CtcDecodeScratchBytes(args); },
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
    const ::tensorflow::TensorShape beam({args.batch, args.beam_width});
    ::tensorflow::Tensor* results[4];
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(0, ctx->input(2).shape(), &results[0]));
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(1, ctx->input(3).shape(), &results[1]));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, beam, &results[2]));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(3, beam, &results[3]));
    args.next_weights = Data<double>(results[0]);
    args.next_prefixes = Data<int64_t>(results[1]);
    args.parents = Data<int32_t>(results[2]);
    args.labels = Data<int32_t>(results[3]);
    OP_REQUIRES_OK(
        ctx, RunWithScratch<Device>(
                 ctx, [&] { return CtcDecodeScratchBytes(args); },
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
    TF_RETURN_IF_ERROR(
        CheckShape("logits", logits.shape(), {-1, -1}, "[batch, classes]"));
    TF_RETURN_IF_ERROR(ReadCtcBlank(logits, blank_, &args->blank));
    const int64_t batch = logits.dim_size(0), classes = logits.dim_size(1);
    TF_RETURN_IF_ERROR(CheckShape("is_frame", is_frame.shape(), {batch},
                                  absl::StrCat("[", batch, "]").c_str()));
    TF_RETURN_IF_ERROR(
        CheckShape("weights", weights.shape(), {batch, -1, kCtcWeights},
                   absl::StrCat("[", batch, ", beam_width, 3]").c_str()));
    const int64_t width = weights.dim_size(1);
    if (width < 1) return absl::InvalidArgumentError("beam_width is 0");
    TF_RETURN_IF_ERROR(
        CheckShape("prefixes", prefixes.shape(), {batch, width, kCtcPrefixIds},
                   absl::StrCat("[", batch, ", ", width, ", 5]").c_str()));
    TF_RETURN_IF_ERROR(CheckShape(
        "label_scores", label_scores.shape(), {batch, width, classes},
        absl::StrCat("[", batch, ", ", width, ", ", classes, "]").c_str()));
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
