// The OpKernels of Attention, of its gradients and of DecodeAttention.
#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// Keys of depth 0 take no memory but take time, so their number is bounded.
constexpr int64_t kMaxEmptyKeys = int64_t{1} << 24;

AttentionStrides StridesOf(const Tensor& tensor) {
  int64_t strides[4], size = 1;
  for (int i = 3; i >= 0; --i) {
    strides[i] = tensor.dim_size(i) == 1 ? 0 : size;
    size *= tensor.dim_size(i);
  }
  return {strides[0], strides[1], strides[2], strides[3]};
}

// Ok if splits rise from 0 to `rows`, by at most `longest` each.
absl::Status CheckSplits(const char* name, const Tensor& splits, int64_t rows,
                         int64_t longest) {
  const auto flat = splits.flat<int64_t>();
  const int64_t last = flat.size() - 1;
  bool valid = flat(0) == 0 && flat(last) == rows;
  for (int64_t i = 0; i < last; ++i) {
    valid &= flat(i) <= flat(i + 1) && flat(i + 1) - flat(i) <= longest;
  }
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " do not rise from 0 to the number of rows, ", rows,
                   ", with at most ", longest, " in an example"));
}

absl::Status CheckLengths(const char* name, const Tensor& lengths,
                          int64_t max) {
  const auto flat = lengths.flat<int32_t>();
  for (int64_t i = 0; i < flat.size(); ++i) {
    if (0 <= flat(i) && flat(i) <= max) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, "[", i, "] is ", flat(i), ", expected [0, ", max, "]"));
  }
  return absl::OkStatus();
}

absl::Status ReadBound(OpKernelConstruction* ctx, const char* attr,
                       int64_t* bound) {
  TF_RETURN_IF_ERROR(ctx->GetAttr(attr, bound));
  *bound = *bound < 0 ? kUnboundedWindow
                      : std::min<int64_t>(*bound, kUnboundedWindow);
  return absl::OkStatus();
}

bool IsSoftcap(double softcap) {
  return softcap == 0 || (0x1p-100 <= softcap && softcap <= 0x1p100);
}

// Reads what tensors of all layouts have.
template <typename T>
void ReadTensors(const Tensor& query, const Tensor& key, const Tensor& value,
                 bool has_scale, AttentionOperands<T>* args) {
  const int last = query.dims() - 1;
  args->query = Data<T>(query);
  args->key = Data<T>(key);
  args->value = Data<T>(value);
  args->heads = query.dim_size(last - 1);
  args->key_heads = key.dim_size(last - 1);
  args->depth = query.dim_size(last);
  args->value_depth = value.dim_size(last);
  if (!has_scale) {
    args->scale = 1 / std::sqrt(std::max<double>(args->depth, 1));
  }
}

// Reads the sizes of tensors that are not ragged.
template <typename T>
void ReadSizes(const Tensor& query, const Tensor& key,
               AttentionOperands<T>* args) {
  args->batch = query.dim_size(0);
  args->queries = query.dim_size(1);
  args->keys = key.dim_size(1);
  args->query_rows = args->batch * args->queries;
  args->key_rows = args->batch * args->keys;
}

absl::Status CheckEmptyKeys(const AttentionSpec& spec) {
  if (spec.depth > 0 || spec.value_depth > 0 || spec.keys <= kMaxEmptyKeys) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("key and value have ", spec.keys,
                   " keys of depth 0, expected at most ", kMaxEmptyKeys));
}

// Theads is the type of computation.
template <typename T>
absl::Status CheckOfHeads(const char* name, const Tensor& tensor) {
  constexpr auto kExpected = DataTypeOf<Accumulator<T>>::kValue;
  if (tensor.dtype() == kExpected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " are ", DataTypeString(tensor.dtype()), ", expected ",
                   DataTypeString(kExpected)));
}

template <typename T>
absl::Status ReadOfHeads(OpKernelContext* ctx, AttentionOperands<T>* args) {
  using C = Accumulator<T>;
  if (const Tensor* slopes = OptionalInput(ctx, "alibi_slopes")) {
    TF_RETURN_IF_ERROR(CheckOfHeads<T>("alibi_slopes", *slopes));
    args->alibi_slopes = Data<C>(*slopes);
    args->alibi_batch_stride = slopes->dim_size(0) == 1 ? 0 : args->heads;
  }
  if (const Tensor* sinks = OptionalInput(ctx, "sinks")) {
    TF_RETURN_IF_ERROR(CheckOfHeads<T>("sinks", *sinks));
    args->sinks = Data<C>(*sinks);
  }
  return absl::OkStatus();
}

template <typename Device, typename T>
class AttentionOpBase : public OpKernel {
 public:
  explicit AttentionOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx,
                   CheckValueType(ctx, DataTypeOf<Accumulator<T>>::kValue));
    OP_REQUIRES_OK(ctx, ReadNumber(ctx, "scale", &spec_.scale));
    OP_REQUIRES_OK(ctx, ReadNumber(ctx, "softcap", &spec_.softcap));
    OP_REQUIRES_OK(ctx, ReadNumber(ctx, "dropout", &spec_.dropout));
    std::vector<float> scale;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("scale", &scale));
    has_scale_ = !scale.empty();
    OP_REQUIRES_OK(ctx, ReadBound(ctx, "left", &spec_.left));
    OP_REQUIRES_OK(ctx, ReadBound(ctx, "right", &spec_.right));
    int seeds;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("has_dropout", &seeds));
    OP_REQUIRES(
        ctx,
        IsSoftcap(spec_.softcap) && 0 <= spec_.dropout &&
            spec_.dropout < 1 - 0x1p-17 && (seeds > 0) == (spec_.dropout > 0),
        absl::InvalidArgumentError(absl::StrCat(
            "softcap is ", spec_.softcap, " and dropout ", spec_.dropout,
            ", expected a softcap of 0 or in [2^-100, 2^100] "
            "and dropout in [0, 1 - 2^-17), with a seed if not 0")));
  }

 protected:
  absl::Status Read(OpKernelContext* ctx, AttentionOperands<T>* args) const {
    static_cast<AttentionSpec&>(*args) = spec_;
    const Tensor &query = ctx->input(0), &key = ctx->input(1),
                 &value = ctx->input(2);
    ReadTensors(query, key, value, has_scale_, args);
    const Tensor* const query_splits = OptionalInput(ctx, "query_splits");
    if (query_splits != nullptr) {
      const Tensor& key_splits = *OptionalInput(ctx, "key_splits");
      args->batch = query_splits->dim_size(0) - 1;
      args->query_rows = query.dim_size(0);
      args->key_rows = key.dim_size(0);
      const int64_t* const longest = OptionalData<int64_t>(ctx, "longest");
      args->queries = longest[0];
      args->keys = longest[1];
      if (args->queries < 0 || args->queries > args->query_rows ||
          args->keys < 0 || args->keys > args->key_rows) {
        return absl::InvalidArgumentError(
            absl::StrCat("longest is [", args->queries, ", ", args->keys,
                         "], expected at most the rows, [", args->query_rows,
                         ", ", args->key_rows, "]"));
      }
      // A GPU's kernels clamp splits and lengths, which are not on the host.
      if (std::is_same_v<Device, Cpu>) {
        TF_RETURN_IF_ERROR(CheckSplits("query_splits", *query_splits,
                                       args->query_rows, args->queries));
        TF_RETURN_IF_ERROR(
            CheckSplits("key_splits", key_splits, args->key_rows, args->keys));
      }
      args->query_splits = Data<int64_t>(*query_splits);
      args->key_splits = Data<int64_t>(key_splits);
    } else {
      ReadSizes(query, key, args);
    }
    TF_RETURN_IF_ERROR(CheckEmptyKeys(*args));
    TF_RETURN_IF_ERROR(
        ReadLengths(ctx, "lengths", args->queries, &args->lengths));
    TF_RETURN_IF_ERROR(
        ReadLengths(ctx, "key_lengths", args->keys, &args->key_lengths));
    if (args->query_splits != nullptr &&
        (args->lengths != nullptr || args->key_lengths != nullptr)) {
      return absl::InvalidArgumentError(
          "is_ragged with lengths, expected one of them");
    }
    args->query_offset = OptionalData<int32_t>(ctx, "query_offset");
    TF_RETURN_IF_ERROR(
        ReadBroadcast(ctx, "mask", *args, &args->mask, &args->mask_strides));
    TF_RETURN_IF_ERROR(
        ReadBroadcast(ctx, "bias", *args, &args->bias, &args->bias_strides));
    TF_RETURN_IF_ERROR(ReadOfHeads(ctx, args));
    args->seed =
        reinterpret_cast<const uint32_t*>(OptionalData<int32_t>(ctx, "seed"));
    return absl::OkStatus();
  }

 private:
  static absl::Status ReadLengths(OpKernelContext* ctx, const char* name,
                                  int64_t max, const int32_t** data) {
    const Tensor* const lengths = OptionalInput(ctx, name);
    if (lengths == nullptr) return absl::OkStatus();
    *data = Data<int32_t>(*lengths);
    return std::is_same_v<Device, Cpu> ? CheckLengths(name, *lengths, max)
                                       : absl::OkStatus();
  }

  // Reads the mask or the bias.
  template <typename Value>
  static absl::Status ReadBroadcast(OpKernelContext* ctx, const char* name,
                                    const AttentionSpec& spec,
                                    const Value** data,
                                    AttentionStrides* strides) {
    const Tensor* const tensor = OptionalInput(ctx, name);
    if (tensor == nullptr) return absl::OkStatus();
    *data = Data<Value>(*tensor);
    *strides = StridesOf(*tensor);
    return CheckCovers(name, *tensor, spec);
  }

  // Ok if the two last dims, where not 1, reach to the longest example. Those
  // of dense operands do: the shape function compares them.
  static absl::Status CheckCovers(const char* name, const Tensor& tensor,
                                  const AttentionSpec& spec) {
    const int64_t sizes[] = {spec.queries, spec.keys};
    for (int i = 0; i < 2; ++i) {
      const int64_t size = tensor.dim_size(2 + i);
      if (size == 1 || size >= sizes[i]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", tensor.shape().DebugString(),
                       ", expected at least [", spec.queries, ", ", spec.keys,
                       "] for the longest query and key, or 1"));
    }
    return absl::OkStatus();
  }

  AttentionSpec spec_ = {};
  bool has_scale_;
};

template <typename Device, typename T>
class AttentionOp : public AttentionOpBase<Device, T> {
 public:
  using AttentionOpBase<Device, T>::AttentionOpBase;

  void Compute(OpKernelContext* ctx) override {
    Tensor *output, *log_sum_exp;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&output, &log_sum_exp}));
    AttentionArgs<T> args{};
    OP_REQUIRES_OK(ctx, this->Read(ctx, &args));
    if (log_sum_exp->NumElements() == 0) return;
    args.output = Data<T>(output);
    args.log_sum_exp = Data<Accumulator<T>>(log_sum_exp);
    OP_REQUIRES_OK(
        ctx,
        RunWithScratch<Device>(
            ctx, [&](const Gpu&) { return AttentionScratchBytes<T>(args); },
            [&](const Device& device) { return Attention(device, args); }));
  }
};

absl::Status CheckAncestors(const Tensor& ancestors) {
  const auto flat = ancestors.flat<int32_t>();
  const int64_t beams = ancestors.dim_size(1);
  for (int64_t i = 0; i < flat.size(); ++i) {
    if (0 <= flat(i) && flat(i) < beams) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("ancestors", PlaceText(ancestors, i), " is ", flat(i),
                     ", expected [0, ", beams - 1, "]"));
  }
  return absl::OkStatus();
}

template <typename Device, typename T>
class DecodeAttentionOp : public OpKernel {
 public:
  explicit DecodeAttentionOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadNumber(ctx, "scale", &spec_.scale));
    OP_REQUIRES_OK(ctx, ReadNumber(ctx, "softcap", &spec_.softcap));
    OP_REQUIRES_OK(ctx, ReadBound(ctx, "left", &spec_.left));
    std::vector<float> scale;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("scale", &scale));
    has_scale_ = !scale.empty();
    OP_REQUIRES(ctx, IsSoftcap(spec_.softcap),
                absl::InvalidArgumentError(absl::StrCat(
                    "softcap is ", spec_.softcap,
                    ", expected 0 or a number in [2^-100, 2^100]")));
  }

  void Compute(OpKernelContext* ctx) override {
    AttentionArgs<T> args{};
    static_cast<AttentionSpec&>(args) = spec_;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.output));
    const Tensor &query = ctx->input(0), &keys = ctx->input(1),
                 &lengths = ctx->input(3);
    ReadTensors(query, keys, ctx->input(2), has_scale_, &args);
    ReadSizes(query, keys, &args);
    OP_REQUIRES_OK(ctx, CheckEmptyKeys(args));
    OP_REQUIRES_OK(ctx, ReadOfHeads(ctx, &args));
    args.key_lengths = Data<int32_t>(lengths);
    const Tensor* const ancestors = OptionalInput(ctx, "ancestors");
    if (ancestors != nullptr) {
      args.ancestors = Data<int32_t>(*ancestors);
      args.beams = ancestors->dim_size(1);
    }
    // A GPU's kernels clamp them.
    if constexpr (std::is_same_v<Device, Cpu>) {
      OP_REQUIRES_OK(ctx, CheckLengths("lengths", lengths, args.keys));
      if (ancestors != nullptr) {
        OP_REQUIRES_OK(ctx, CheckAncestors(*ancestors));
      }
    }
    if (args.query_rows * args.heads * args.value_depth == 0) return;
    OP_REQUIRES_OK(
        ctx,
        RunWithScratch<Device>(
            ctx, [&](const Gpu&) { return AttentionScratchBytes<T>(args); },
            [&](const Device& device) { return Attention(device, args); }));
  }

 private:
  AttentionSpec spec_ = {};  // right = 0: causal
  bool has_scale_;
};

// Both gradient ops.
template <typename Device, typename T>
class AttentionGradOpBase : public AttentionOpBase<Device, T> {
 public:
  using AttentionOpBase<Device, T>::AttentionOpBase;

 protected:
  absl::Status Run(OpKernelContext* ctx, AttentionGradArgs<T>* args) {
    using C = Accumulator<T>;
    TF_RETURN_IF_ERROR(this->Read(ctx, args));
    const int first = ctx->num_inputs() - 4;
    args->output = Data<T>(ctx->input(first));
    args->log_sum_exp = Data<C>(ctx->input(first + 1));
    args->d_output = Data<T>(ctx->input(first + 2));
    args->d_log_sum_exp = Data<C>(ctx->input(first + 3));
    return RunWithScratch<Device>(
        ctx,
        [&](const Gpu& gpu) {
          return AttentionGradScratchBytes(*args, gpu.deterministic);
        },
        [&](const Device& d) { return AttentionGrad(d, *args); });
  }
  // Without queries all gradients are 0, and key_heads, a divisor, may be 0.
  static bool HasQueries(OpKernelContext* ctx) {
    return ctx->input(ctx->num_inputs() - 1).NumElements() > 0;
  }
  static absl::Status Clear(OpKernelContext* ctx,
                            std::initializer_list<Tensor*> gradients) {
    const Device device = GetDevice<Device>(ctx);
    for (Tensor* gradient : gradients) {
      if (gradient != nullptr) TF_RETURN_IF_ERROR(SetZero(device, gradient));
    }
    return absl::OkStatus();
  }
};

template <typename Device, typename T>
class AttentionGradOp : public AttentionGradOpBase<Device, T> {
 public:
  using AttentionGradOpBase<Device, T>::AttentionGradOpBase;

  void Compute(OpKernelContext* ctx) override {
    Tensor *d_query, *d_key, *d_value, *d_sinks = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&d_query, &d_key, &d_value}));
    if (ctx->num_outputs() > 3) {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 3, &d_sinks));
    }
    if (!this->HasQueries(ctx)) {
      OP_REQUIRES_OK(ctx, this->Clear(ctx, {d_key, d_value, d_sinks}));
      return;
    }
    AttentionGradArgs<T> args{};
    args.d_query = Data<T>(d_query);
    args.d_key = Data<T>(d_key);
    args.d_value = Data<T>(d_value);
    if (d_sinks != nullptr) args.d_sinks = Data<Accumulator<T>>(d_sinks);
    OP_REQUIRES_OK(ctx, this->Run(ctx, &args));
  }
};

template <typename Device, typename T>
class AttentionBiasGradOp : public AttentionGradOpBase<Device, T> {
 public:
  using AttentionGradOpBase<Device, T>::AttentionGradOpBase;

  void Compute(OpKernelContext* ctx) override {
    Tensor* d_bias;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&d_bias}));
    // The bias of ragged operands may be larger than the longest example.
    OP_REQUIRES_OK(ctx, this->Clear(ctx, {d_bias}));
    if (!this->HasQueries(ctx)) return;
    AttentionGradArgs<T> args{};
    args.d_bias = Data<T>(d_bias);
    OP_REQUIRES_OK(ctx, this->Run(ctx, &args));
  }
};

TFO_REGISTER_KERNELS("Attention", AttentionOp, .HostMemory("longest"));
TFO_REGISTER_KERNELS("DecodeAttention", DecodeAttentionOp);
TFO_REGISTER_KERNELS("AttentionGrad", AttentionGradOp, .HostMemory("longest"));
TFO_REGISTER_KERNELS("AttentionBiasGrad", AttentionBiasGradOp,
                     .HostMemory("longest"));

}  // namespace
}  // namespace tfo
