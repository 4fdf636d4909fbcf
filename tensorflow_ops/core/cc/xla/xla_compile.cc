// Compiles each op of this library to a custom call. The only file that
// includes the headers of TensorFlow's bridge to XLA, which take a minute to
// compile.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/public/version.h"
#include "tensorflow_ops/core/cc/xla/xla_call.h"
#include "xla/layout_util.h"
#include "xla/shape_util.h"
#include "xla/tsl/lib/strings/proto_serialization.h"

namespace tfo {
namespace {

using ::tensorflow::KernelDef;
using ::tensorflow::KernelList;
using ::tensorflow::NodeDef;
using ::tensorflow::OpDef;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::PartialTensorShape;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::XlaOpKernelContext;
using ::tensorflow::shape_inference::InferenceContext;

constexpr char kCheckValues[] = "TensorflowOps>CheckValues";
constexpr char kRefuseGradient[] = "TensorflowOps>RefuseGradient";
constexpr char kUpdateCache[] = "TensorflowOps>UpdateCache";

// Where a computation's XlaCompiler keeps the result of the first check that is
// known to fail: as the token of a node of this name, which no node has.
constexpr char kFailedCheck[] = "tensorflow_ops: a check that fails";

std::string MustBeKnown(const std::string& arguments, const std::string& op,
                        const char* decided) {
  return absl::StrCat(arguments, " must be known when XLA compiles", op,
                      ", because it decides ", decided,
                      ": expected a constant, or a value computed from sizes, "
                      "arguments and variables");
}

class XlaCall : public ::tensorflow::XlaOpKernel {
 public:
  explicit XlaCall(OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    // Leaves out the node's name and what TensorFlow's passes have noted, so
    // that XLA merges equal calls and its caches find them.
    node_.set_name(def().op());
    node_.set_op(def().op());
    for (const auto& [name, value] : def().attr()) {
      if (!absl::StartsWith(name, "_")) (*node_.mutable_attr())[name] = value;
    }
    // A NodeDef is valid only with the op's number of inputs.
    for (int i = 0; i < num_inputs(); ++i) {
      node_.add_input(absl::StrCat("input_", i));
    }
  }

  void Compile(XlaOpKernelContext* ctx) override {
    const auto call = EmitCall(ctx, /*has_side_effect=*/false);
    OP_REQUIRES_OK(ctx, call.status());
    for (int i = 0; i < ctx->num_outputs(); ++i) {
      ctx->SetOutput(
          i, ctx->num_outputs() == 1 ? *call : xla::GetTupleElement(*call, i));
    }
  }

 protected:
  // Returns the result, or a tuple of several. XLA keeps a call with a side
  // effect even if its results are unused. Without one it would remove a call
  // whose results have no elements, and the kernel's checks with it.
  absl::StatusOr<xla::XlaOp> EmitCall(XlaOpKernelContext* ctx,
                                      bool has_side_effect) {
    const ::tensorflow::OpRegistrationData* op;
    TF_RETURN_IF_ERROR(
        ::tensorflow::OpRegistry::Global()->LookUp(node_.op(), &op));
    std::vector<int> host_inputs;
    TF_RETURN_IF_ERROR(::tensorflow::XlaOpRegistry::CompileTimeConstantInputs(
        *this, &host_inputs));

    const int inputs = ctx->num_inputs();
    NodeDef node = node_;
    std::vector<PartialTensorShape> shapes(inputs);
    std::vector<Tensor> values(inputs);
    std::vector<const Tensor*> constants(inputs);
    std::vector<xla::XlaOp> operands;
    std::vector<xla::Shape> operand_shapes;
    for (int i = 0; i < inputs; ++i) {
      TF_ASSIGN_OR_RETURN(xla::Shape shape, ctx->InputXlaShape(i));
      if (shape.is_dynamic()) {
        return absl::UnimplementedError(absl::StrCat(
            InputName(i, op->op_def), " has shape ", shape.ToString(),
            ", where <= marks sizes that are known only when the program "
            "runs. ",
            node_.op(), " needs all sizes when XLA compiles"));
      }
      if (std::count(host_inputs.begin(), host_inputs.end(), i) > 0) {
        absl::StatusOr<Tensor> value = ctx->ConstantInputTensor(i);
        if (value.ok()) {
          values[i] = *std::move(value);
          constants[i] = &values[i];
          shapes[i] = PartialTensorShape(values[i].shape().dim_sizes());
          values[i].AsProtoTensorContent(
              (*node.mutable_attr())[absl::StrCat(kXlaConstantPrefix, i)]
                  .mutable_tensor());
          continue;
        }
      }
      TensorShape tensor_shape;
      TF_RETURN_IF_ERROR(
          ::tensorflow::XLAShapeToTensorShape(shape, &tensor_shape));
      shapes[i] = PartialTensorShape(tensor_shape.dim_sizes());
      xla::LayoutUtil::SetToDefaultLayout(&shape);
      operands.push_back(ctx->Input(i));
      operand_shapes.push_back(std::move(shape));
    }

    InferenceContext inference(TF_GRAPH_DEF_VERSION,
                               ::tensorflow::AttrSlice(node_), op->op_def,
                               shapes, constants, {}, {});
    TF_RETURN_IF_ERROR(inference.construction_status());
    TF_RETURN_IF_ERROR(inference.Run(op->shape_inference_fn));
    std::vector<xla::Shape> results;
    for (int i = 0; i < ctx->num_outputs(); ++i) {
      ::tensorflow::TensorShapeProto proto;
      inference.ShapeHandleToProto(inference.output(i), &proto);
      TensorShape shape;
      if (!PartialTensorShape(proto).AsTensorShape(&shape)) {
        return UnknownShape(inference, constants, op->op_def);
      }
      TF_ASSIGN_OR_RETURN(results.emplace_back(),
                          ::tensorflow::TensorShapeToXLAShape(
                              ctx->expected_output_dtype(i), shape));
    }

    // What comes after a check that will fail waits for it.
    const absl::StatusOr<xla::XlaOp> failed =
        ctx->compiler()->GetNodeToken(kFailedCheck);
    if (failed.ok()) {
      operands.push_back(*failed);
      TF_ASSIGN_OR_RETURN(operand_shapes.emplace_back(),
                          ctx->builder()->GetShape(*failed));
    }

    // Nothing may use `passed` of a check.
    const auto end =
        node_.op() == kCheckValues ? results.begin() + 1 : results.end();
    has_side_effect |= node_.op() != kRefuseGradient &&
                       std::all_of(results.begin(), end, [](const auto& s) {
                         return xla::ShapeUtil::IsZeroElementArray(s);
                       });

    // The same text in every process, because caches compare it.
    std::string serialized;
    if (!tsl::SerializeToStringDeterministic(node, &serialized)) {
      return absl::InternalError(
          absl::StrCat(node_.op(), ": the NodeDef cannot be serialized"));
    }
    const xla::Shape result = xla::ShapeUtil::MakeMaybeTupleShape(results);
    // The result takes the cache's place: XLA copies it before if others read
    // it. No vector or list, whose memory would need a newer libstdc++.
    const std::pair<xla::ShapeIndex, std::pair<int64_t, xla::ShapeIndex>>
        first_operand{};
    return xla::CustomCallWithLayout(
        ctx->builder(), kXlaCallTarget, operands, result, operand_shapes,
        // `op` is for those who read XLA's programs.
        absl::StrCat("{op = \"", node_.op(), "\", ", kXlaNodeAttr, " = \"",
                     absl::Base64Escape(serialized), "\"}"),
        has_side_effect,
        /*output_operand_aliasing=*/
        absl::MakeConstSpan(&first_operand, node_.op() == kUpdateCache ? 1 : 0),
        /*literal=*/nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
        xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
  }

 private:
  // Returns the argument's name, with a number if it is a list: `features[1]`.
  std::string InputName(int input, const OpDef& op) const {
    ::tensorflow::NameRangeMap ranges;
    if (!::tensorflow::NameRangesForNode(node_, op, &ranges, nullptr).ok()) {
      return absl::StrCat("input ", input);
    }
    for (const OpDef::ArgDef& arg : op.input_arg()) {
      const auto [begin, end] = ranges[arg.name()];
      if (input < begin || input >= end) continue;
      const bool list =
          !arg.number_attr().empty() || !arg.type_list_attr().empty();
      return list ? absl::StrCat(arg.name(), "[", input - begin, "]")
                  : arg.name();
    }
    return absl::StrCat("input ", input);
  }

  absl::Status UnknownShape(const InferenceContext& inference,
                            const std::vector<const Tensor*>& constants,
                            const OpDef& op) const {
    std::vector<std::string> deciding;
    for (size_t i = 0; i < constants.size(); ++i) {
      if (constants[i] == nullptr && inference.requested_input_tensor(i)) {
        deciding.push_back(InputName(i, op));
      }
    }
    if (deciding.empty()) {
      return absl::UnimplementedError(
          absl::StrCat(node_.op(),
                       " cannot be compiled by XLA: the values of its inputs "
                       "decide the shape of its result"));
    }
    return absl::InvalidArgumentError(MustBeKnown(absl::StrJoin(deciding, ", "),
                                                  absl::StrCat(" ", node_.op()),
                                                  "the shape of the result"));
  }

  NodeDef node_;
};

// If XLA knows when it compiles that all values are valid, returns them
// unchanged, so that they can still decide sizes, unlike a call's result.
// Otherwise a call checks them, or, if they decide a shape, an error names
// them: XLA's own would name the call.
class XlaCheck : public XlaCall {
 public:
  explicit XlaCheck(OpKernelConstruction* ctx) : XlaCall(ctx) {
    bool on_gpu;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("on_gpu", &on_gpu));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("decides_shape", &decides_shape_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("argument", &argument_));
    skip_ = !on_gpu && ctx->device_type().type_string() ==
                           ::tensorflow::DEVICE_GPU_XLA_JIT;
  }

  void Compile(XlaOpKernelContext* ctx) override {
    OP_REQUIRES(
        ctx, !decides_shape_ || ctx->ConstantInputTensor(0).ok(),
        absl::InvalidArgumentError(MustBeKnown(argument_, "", "a shape")));
    bool is_valid = skip_;
    if (!skip_) {
      const absl::StatusOr<Tensor> known = ctx->ConstantInputTensor(1);
      if (!known.ok()) return XlaCall::Compile(ctx);
      const auto valid = known->flat<bool>();
      is_valid = std::all_of(valid.data(), valid.data() + valid.size(),
                             [](bool is_valid) { return is_valid; });
    }
    if (!is_valid) {
      const auto call = EmitCall(ctx, /*has_side_effect=*/true);
      OP_REQUIRES_OK(ctx, call.status());
      // An error if there is one already, which is the first to fail.
      ctx->compiler()
          ->SetNodeToken(kFailedCheck, ctx->num_outputs() == 1
                                           ? *call
                                           : xla::GetTupleElement(*call, 1))
          .IgnoreError();
    }
    ctx->SetOutput(0, ctx->Input(0));
    for (int i = 1; i < ctx->num_outputs(); ++i) {
      ctx->SetOutput(i, ctx->Input(i + 1));
    }
  }

 private:
  bool skip_, decides_shape_;
  std::string argument_;
};

OpKernel* MakeXlaCall(OpKernelConstruction* ctx) {
  if (ctx->def().op() == kCheckValues) return new XlaCheck(ctx);
  return new XlaCall(ctx);
}

// XLA takes the kernels that exist when it compiles for the first time in a
// process, and no later ones.
bool XlaHasItsKernels() {
  const KernelList kernels = ::tensorflow::GetRegisteredKernelsForOp("AddV2");
  return std::any_of(kernels.kernel().begin(), kernels.kernel().end(),
                     [](const KernelDef& kernel) {
                       return kernel.device_type() ==
                              ::tensorflow::DEVICE_CPU_XLA_JIT;
                     });
}

// Registers an op for the devices that it has kernels for. Inputs that its
// kernels read on the host become constants of the program if XLA can tell
// their values, except those of CheckValues and RefuseGradient, for which XLA
// would otherwise compile again for each value.
void Register(const OpDef& op, bool xla_has_its_kernels) {
  auto registration = ::tensorflow::XlaOpRegistrationBuilder::Name(op.name());
  const KernelList kernels = ::tensorflow::GetRegisteredKernelsForOp(op.name());
  for (const auto& [device, jit_device] :
       {std::pair(::tensorflow::DEVICE_CPU, ::tensorflow::DEVICE_CPU_XLA_JIT),
        std::pair(::tensorflow::DEVICE_GPU,
                  ::tensorflow::DEVICE_GPU_XLA_JIT)}) {
    const auto kernel =
        std::find_if(kernels.kernel().begin(), kernels.kernel().end(),
                     [device = device](const KernelDef& kernel) {
                       return kernel.device_type() == device;
                     });
    if (kernel == kernels.kernel().end()) continue;
    registration.Device(jit_device);
    for (const std::string& name : kernel->host_memory_arg()) {
      for (const OpDef::ArgDef& arg : op.input_arg()) {
        if (arg.name() == name && op.name() != kCheckValues &&
            op.name() != kRefuseGradient) {
          registration.CompileTimeConstantInput(name);
        }
      }
    }
    if (xla_has_its_kernels) {
      auto* late = new KernelDef;  // the registrar owns it
      late->set_op(op.name());
      late->set_device_type(jit_device);
      ::tensorflow::kernel_factory::OpKernelRegistrar(late, "XlaCall",
                                                      &MakeXlaCall);
    }
  }
  ::tensorflow::XlaOpRegistrar(registration.Build(&MakeXlaCall));
}

[[maybe_unused]] const bool ops_are_registered = [] {
  const bool xla_has_its_kernels = XlaHasItsKernels();
  std::vector<OpDef> ops;
  ::tensorflow::OpRegistry::Global()->GetRegisteredOps(&ops);
  for (const OpDef& op : ops) {
    const auto& inputs = op.input_arg();
    const bool has_resources = std::any_of(
        inputs.begin(), inputs.end(), [](const OpDef::ArgDef& input) {
          return input.type() == ::tensorflow::DT_RESOURCE;
        });
    if (absl::StartsWith(op.name(), "TensorflowOps>") && !has_resources) {
      Register(op, xla_has_its_kernels);
    }
  }
  return true;
}();

}  // namespace
}  // namespace tfo
