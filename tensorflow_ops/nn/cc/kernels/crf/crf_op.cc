// The OpKernels of CrfLogLikelihood, its gradient, CrfMarginals and CrfDecode.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"

namespace tfo {
namespace {

// Reads logits [B, T, K], transitions [K, K] and lengths [B], inputs `first`
// and on, and checks the lengths.
template <typename T>
absl::Status ReadCrfScores(::tensorflow::OpKernelContext* ctx, int first,
                           bool check_values, CrfScores<T>* s) {
  const ::tensorflow::Tensor& logits = ctx->input(first);
  *s = {logits.dim_size(0),
        logits.dim_size(1),
        logits.dim_size(2),
        Data<T>(logits),
        Data<Accumulator<T>>(ctx->input(first + 1)),
        IntsOf(ctx->input(first + 2))};
  if (!check_values) return absl::OkStatus();
  return CheckLengths("lengths", s->lengths, s->batch, 0, s->frames,
                      "the frames of logits");
}

// Reads labels [B, T], the first input, and the scores after it.
template <typename T>
absl::Status ReadCrfLabels(::tensorflow::OpKernelContext* ctx,
                           bool check_values, CrfScores<T>* s,
                           IndexArray* labels) {
  TF_RETURN_IF_ERROR(ReadCrfScores(ctx, 1, check_values, s));
  *labels = IntsOf(ctx->input(0));
  for (int64_t i = 0; check_values && i < s->batch; ++i) {
    for (int64_t t = 0; t < s->lengths[i]; ++t) {
      const int64_t label = (*labels)[i * s->frames + t];
      const absl::Status status = CheckLabel(i, t, label, s->tags);
      if (status.ok()) continue;
      if (label >= 0) return status;
      return absl::InvalidArgumentError(absl::StrCat(
          status.message(),
          ", and padding only at the end: pad_sequences(padding='post')"));
    }
  }
  return absl::OkStatus();
}

template <typename Device, typename Args>
absl::Status RunCrfArgs(::tensorflow::OpKernelContext* ctx, const Args& args) {
  return RunWithScratch<Device>(
      ctx, [&](const Gpu&) { return CrfScratchBytes(args); },
      [&](const Device& device) { return RunCrf(device, args); });
}

template <typename Device, typename T>
class CrfOpBase : public OpKernel {
 public:
  using Value = Accumulator<T>;
  static constexpr bool kChecks = std::is_same_v<Device, Cpu>;

  explicit CrfOpBase(::tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
  }
};

template <typename Device, typename T>
class CrfLikelihoodOp : public CrfOpBase<Device, T> {
 public:
  using CrfOpBase<Device, T>::CrfOpBase;

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    CrfLikelihoodArgs<T> args;
    OP_REQUIRES_OK(
        ctx, ReadCrfLabels(ctx, this->kChecks, &args.scores, &args.labels));
    ::tensorflow::Tensor* result;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&result}));
    args.log_likelihood = Data<Accumulator<T>>(result);
    OP_REQUIRES_OK(ctx, RunCrfArgs<Device>(ctx, args));
  }
};

template <typename Device, typename T>
class CrfLikelihoodGradOp : public CrfOpBase<Device, T> {
 public:
  using CrfOpBase<Device, T>::CrfOpBase;

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    CrfLikelihoodGradArgs<T> args;
    OP_REQUIRES_OK(
        ctx, ReadCrfLabels(ctx, this->kChecks, &args.scores, &args.labels));
    ::tensorflow::Tensor *d_logits, *d_transitions;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&d_logits, &d_transitions}));
    args.d = Data<Accumulator<T>>(ctx->input(4));
    args.d_logits = Data<T>(d_logits);
    args.d_transitions = Data<Accumulator<T>>(d_transitions);
    OP_REQUIRES_OK(ctx, RunCrfArgs<Device>(ctx, args));
  }
};

template <typename Device, typename T>
class CrfMarginalsOp : public CrfOpBase<Device, T> {
 public:
  using CrfOpBase<Device, T>::CrfOpBase;

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    CrfMarginalsArgs<T> args;
    OP_REQUIRES_OK(ctx, ReadCrfScores(ctx, 0, this->kChecks, &args.scores));
    ::tensorflow::Tensor* marginals;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&marginals}));
    args.marginals = Data<Accumulator<T>>(marginals);
    OP_REQUIRES_OK(ctx, RunCrfArgs<Device>(ctx, args));
  }
};

template <typename Device, typename T>
class CrfDecodeOp : public CrfOpBase<Device, T> {
 public:
  using CrfOpBase<Device, T>::CrfOpBase;

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    CrfDecodeArgs<T> args;
    OP_REQUIRES_OK(ctx, ReadCrfScores(ctx, 0, this->kChecks, &args.scores));
    const auto& s = args.scores;
    OP_REQUIRES(ctx, s.tags < (int64_t{1} << 31),
                absl::InvalidArgumentError(absl::StrCat(
                    "logits have ", s.tags, " tags, expected below 2^31")));
    ::tensorflow::Tensor *labels, *best;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&labels, &best}));
    args.labels = Data<int32_t>(labels);
    args.best = Data<Accumulator<T>>(best);
    OP_REQUIRES_OK(ctx, RunCrfArgs<Device>(ctx, args));
  }
};

TFO_REGISTER_KERNELS("CrfLogLikelihood", CrfLikelihoodOp);
TFO_REGISTER_KERNELS("CrfLogLikelihoodGrad", CrfLikelihoodGradOp);
TFO_REGISTER_KERNELS("CrfMarginals", CrfMarginalsOp);
TFO_REGISTER_KERNELS("CrfDecode", CrfDecodeOp);

}  // namespace
}  // namespace tfo
