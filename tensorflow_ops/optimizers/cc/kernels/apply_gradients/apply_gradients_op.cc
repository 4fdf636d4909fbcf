// The OpKernel of ApplyGradients.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/optimizers/cc/kernels/apply_gradients/apply_gradients.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::Var;
using ::tensorflow::core::RefCountPtr;

template <typename Device, typename T>
class ApplyGradientsOp : public OpKernel {
 public:
  explicit ApplyGradientsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    int num_slots;
    std::string name;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer", &name));
    for (int i = 0; i < kNumOptimizers; ++i) {
      if (name == kOptimizers[i].name) optimizer_ = static_cast<Optimizer>(i);
    }
    OP_REQUIRES_OK(ctx, ctx->GetAttr("N", &num_variables_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("M", &num_slots));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("K", &num_of_rows_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("decays", &decays_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("lazy", &lazy_));
    OP_REQUIRES_OK(ctx,
                   CheckValueType(ctx, DataTypeOf<Accumulator<T>>::kValue));
    const int expected = num_variables_ * NumSlots(optimizer_);
    OP_REQUIRES(ctx, num_slots == expected,
                absl::InvalidArgumentError(absl::StrCat(
                    "slots are ", num_slots, ", expected ", expected)));
    OP_REQUIRES(
        ctx, static_cast<int64_t>(decays_.size()) == num_variables_,
        absl::InvalidArgumentError(absl::StrCat(
            "decays are ", decays_.size(), ", expected ", num_variables_)));
  }

  void Compute(OpKernelContext* ctx) override {
    const int held = num_variables_ * (1 + NumSlots(optimizer_));
    std::vector<RefCountPtr<Var>> variables(held);
    for (int i = 0; i < held; ++i) {
      OP_REQUIRES_OK(
          ctx, LookupResource(ctx, HandleFromInput(ctx, i), &variables[i]));
    }
    // In the order of addresses, as TensorFlow's ops, so that no two ops wait
    // for each other.
    std::vector<Var*> order;
    for (const auto& variable : variables) order.push_back(variable.get());
    std::sort(order.begin(), order.end());
    OP_REQUIRES(
        ctx, std::adjacent_find(order.begin(), order.end()) == order.end(),
        absl::InvalidArgumentError("variables and slots must be different"));
    std::vector<::tensorflow::mutex_lock> locks;
    locks.reserve(held);
    for (Var* variable : order) locks.emplace_back(*variable->mu());

    const int first_ids = held + num_variables_;
    const Tensor& scalars = ctx->input(first_ids + num_of_rows_);
    OP_REQUIRES(ctx, scalars.NumElements() == NumScalars(optimizer_),
                absl::InvalidArgumentError(
                    absl::StrCat("scalars must be [", NumScalars(optimizer_),
                                 "], got ", scalars.shape().DebugString())));
    for (int i = 0; i < num_variables_; ++i) {
      OP_REQUIRES_OK(ctx, CheckVariable(ctx, variables, i));
    }
    std::vector<VariableStep<T>> steps(num_variables_);
    // For variables whose buffer others read; assigned at the end, so that an
    // error changes nothing.
    std::vector<std::pair<Tensor*, Tensor>> fresh;
    for (int i = 0; i < num_variables_; ++i) {
      VariableStep<T>& step = steps[i];
      const Tensor& gradient = ctx->input(held + i);
      step.size = variables[i]->tensor()->NumElements();
      step.decays = decays_[i];
      step.gradient = Data<T>(gradient);
      if (i < num_of_rows_) {
        const Tensor& ids = ctx->input(first_ids + i);
        const int64_t rows = variables[i]->tensor()->dim_size(0);
        step.is_of_rows = true;
        step.ids = Data<int64_t>(ids);
        step.num_ids = ids.NumElements();
        step.width = rows == 0 ? 0 : step.size / rows;
      }
      for (int k = 0; k <= NumSlots(optimizer_); ++k) {
        Tensor* const tensor = variables[k * num_variables_ + i]->tensor();
        step.before[k] = Data<T>(*tensor);
        // Under copy_on_read_mode, too: those who read then hold the lock.
        if (tensor->RefCountIsOne()) {
          step.after[k] = Data<T>(tensor);
          continue;
        }
        ::tensorflow::AllocatorAttributes attributes;
        attributes.set_gpu_compatible(true);
        attributes.set_nic_compatible(true);
        Tensor* const after = &fresh.emplace_back(tensor, Tensor()).second;
        OP_REQUIRES_OK(ctx, ctx->allocate_temp(tensor->dtype(), tensor->shape(),
                                               after, attributes));
        step.after[k] = Data<T>(after);
      }
    }
    const ApplyGradientsArgs<T> args{optimizer_, lazy_, num_variables_,
                                     steps.data(),
                                     Data<Accumulator<T>>(scalars)};
    OP_REQUIRES_OK(
        ctx, RunWithScratch<Device>(
                 ctx, [&](const Gpu&) { return ApplyGradientsScratch(args); },
                 [&](const Device& device) {
                   return ApplyGradients(device, args);
                 }));
    for (const auto& [tensor, after] : fresh) *tensor = after;
  }

 private:
  // Checks the shapes of a variable, its slots and its gradient, and ids that
  // are on the host.
  absl::Status CheckVariable(OpKernelContext* ctx,
                             const std::vector<RefCountPtr<Var>>& variables,
                             int i) const {
    const int held = static_cast<int>(variables.size());
    const ::tensorflow::TensorShape& shape = variables[i]->tensor()->shape();
    for (int k = 0; k <= NumSlots(optimizer_); ++k) {
      const Tensor& tensor = *variables[k * num_variables_ + i]->tensor();
      const std::string name =
          k == 0 ? absl::StrCat("variable ", i)
                 : absl::StrCat("slot ", k - 1, " of variable ", i);
      if (!tensor.IsInitialized()) {
        return absl::FailedPreconditionError(
            absl::StrCat(name, " is not initialized"));
      }
      if (tensor.dtype() != DataTypeOf<T>::kValue) {
        return absl::InvalidArgumentError(absl::StrCat(
            name, " is ", ::tensorflow::DataTypeString(tensor.dtype()),
            ", expected ",
            ::tensorflow::DataTypeString(DataTypeOf<T>::kValue)));
      }
      if (tensor.shape() != shape) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, " has shape ", tensor.shape().DebugString(),
                         ", expected ", shape.DebugString()));
      }
    }
    ::tensorflow::TensorShape expected = shape;
    const bool is_of_rows = i < num_of_rows_;
    const Tensor* const ids =
        is_of_rows ? &ctx->input(held + num_variables_ + i) : nullptr;
    if (is_of_rows) {
      if (shape.dims() == 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "variable ", i, " has shape [], expected rows, since it has ids"));
      }
      expected.set_dim(0, ids->NumElements());
    }
    const Tensor& gradient = ctx->input(held + i);
    if (gradient.shape() != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "gradient ", i, " has shape ", gradient.shape().DebugString(),
          ", expected ", expected.DebugString()));
    }
    if (!is_of_rows || !std::is_same_v<Device, Cpu>) return absl::OkStatus();
    const int64_t* const values = Data<int64_t>(*ids);
    for (int64_t n = 0; n < ids->NumElements(); ++n) {
      if (values[n] >= 0 && values[n] < shape.dim_size(0)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("ids of variable ", i, " has ", values[n], " at ", n,
                       ", expected [0, ", shape.dim_size(0), ")"));
    }
    return absl::OkStatus();
  }

  Optimizer optimizer_ = Optimizer::kSgd;
  int num_variables_, num_of_rows_;
  std::vector<bool> decays_;
  bool lazy_;
};

TFO_REGISTER_KERNELS("ApplyGradients", ApplyGradientsOp,
                     .HostMemory("variables").HostMemory("slots"));

}  // namespace
}  // namespace tfo
