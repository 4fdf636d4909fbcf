// Handles the custom calls of a running program: wraps XLA's buffers as the
// tensors of an OpKernelContext, and calls the op's own OpKernel.
//
// Must run with glibc 2.27, as TensorFlow's wheel does: g++ 12's hash maps and
// deques would require 2.34.
//
// Uses XLA's C interface instead of xla/ffi/api/ffi.h, which contains
// std::shared_ptr, would therefore require glibc 2.32, and is missing in the
// wheels of TensorFlow 2.18 and 2.19.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/log/log.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/version.h"
#include "tensorflow_ops/core/cc/xla/xla_call.h"
#include "tensorflow_ops/core/cc/xla/xla_device.h"
#include "xla/ffi/api/c_api.h"
#include "xla/stream_executor/stream.h"

namespace xla::ffi {
// Exported by TensorFlow; its own header needs MLIR's, which the wheel lacks.
const XLA_FFI_Api* GetXlaFfiApi();
}  // namespace xla::ffi

namespace tfo {
namespace {

namespace se = ::stream_executor;
using ::tensorflow::AllocatorAttributes;
using ::tensorflow::DataType;
using ::tensorflow::HOST_MEMORY;
using ::tensorflow::NodeDef;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::TensorValue;

// ---- XLA's C interface

// Converts a status to XLA's error.
XLA_FFI_Error* ToXla(const XLA_FFI_Api* api, const absl::Status& status) {
  if (status.ok()) return nullptr;
  const std::string message(status.message());
  auto args =
      XlaArgs<XLA_FFI_Error_Create_Args>(XLA_FFI_Error_Create_Args_STRUCT_SIZE);
  args.message = message.c_str();
  args.errc = static_cast<XLA_FFI_Error_Code>(status.code());
  return api->XLA_FFI_Error_Create(&args);
}

absl::string_view Text(const XLA_FFI_ByteSpan& span) {
  return absl::string_view(span.ptr, span.len);
}

absl::StatusOr<absl::string_view> StringAttr(const XLA_FFI_Attrs& attrs,
                                             absl::string_view name) {
  for (int64_t i = 0; i < attrs.size; ++i) {
    if (Text(*attrs.names[i]) == name &&
        attrs.types[i] == XLA_FFI_AttrType_STRING) {
      return Text(*static_cast<const XLA_FFI_ByteSpan*>(attrs.attrs[i]));
    }
  }
  return absl::InternalError(
      absl::StrCat("tensorflow_ops: the call has no attribute ", name));
}

absl::Status ReadBuffer(const void* buffer, DataType type, XlaBuffer* read) {
  const auto* xla = static_cast<const XLA_FFI_Buffer*>(buffer);
  TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(
      absl::Span<const int64_t>(xla->dims, xla->rank), &read->shape));
  read->data = xla->data;
  read->bytes = read->shape.num_elements() * ::tensorflow::DataTypeSize(type);
  return absl::OkStatus();
}

// ---- A custom call

// A call's state, created when XLA loads the program.
struct State {
  std::unique_ptr<OpKernel> kernel;
  std::vector<std::optional<Tensor>> constants;  // by input; none: an operand
};
XLA_FFI_TypeId state_type = {};

absl::Status MakeState(const XLA_FFI_CallFrame& frame, const char* device_type,
                       State* state) {
  TF_ASSIGN_OR_RETURN(const absl::string_view encoded,
                      StringAttr(frame.attrs, kXlaNodeAttr));
  std::string serialized;
  NodeDef node;
  if (!absl::Base64Unescape(encoded, &serialized) ||
      !node.ParseFromString(serialized)) {
    return absl::InternalError("tensorflow_ops: the call has no NodeDef");
  }
  static auto& device = *new XlaDevice;  // used only for its allocator
  absl::Status status;
  state->kernel = ::tensorflow::CreateOpKernel(
      ::tensorflow::DeviceType(device_type), &device,
      ::tensorflow::cpu_allocator(), node, TF_GRAPH_DEF_VERSION, &status);
  TF_RETURN_IF_ERROR(status);
  state->constants.resize(state->kernel->num_inputs());
  for (size_t i = 0; i < state->constants.size(); ++i) {
    const auto value = node.attr().find(absl::StrCat(kXlaConstantPrefix, i));
    if (value == node.attr().end()) continue;
    if (!state->constants[i].emplace().FromProto(value->second.tensor())) {
      return absl::InternalError("tensorflow_ops: a constant cannot be read");
    }
  }
  return absl::OkStatus();
}

absl::Status Instantiate(const XLA_FFI_CallFrame& frame,
                         const char* device_type) {
  auto state = std::make_unique<State>();
  TF_RETURN_IF_ERROR(MakeState(frame, device_type, state.get()));
  auto args =
      XlaArgs<XLA_FFI_State_Set_Args>(XLA_FFI_State_Set_Args_STRUCT_SIZE);
  args.ctx = frame.ctx;
  args.type_id = &state_type;
  args.state = state.get();
  TF_RETURN_IF_ERROR(ToStatus(frame.api, frame.api->XLA_FFI_State_Set(&args)));
  state.release();
  return absl::OkStatus();
}

absl::Status ToHost(se::Stream* stream, const XlaBuffer& buffer, Tensor* host) {
  TF_RETURN_IF_ERROR(stream->Memcpy(
      host->data(), se::DeviceAddressBase(buffer.data, buffer.bytes),
      buffer.bytes));
  return stream->BlockHostUntilDone();
}

absl::Status FromHost(se::Stream* stream, const Tensor& host,
                      const XlaBuffer& buffer) {
  se::DeviceAddressBase device(buffer.data, buffer.bytes);
  TF_RETURN_IF_ERROR(stream->Memcpy(&device, host.data(), buffer.bytes));
  return stream->BlockHostUntilDone();
}

absl::Status Execute(const XLA_FFI_CallFrame& frame, bool gpu) {
  auto get =
      XlaArgs<XLA_FFI_State_Get_Args>(XLA_FFI_State_Get_Args_STRUCT_SIZE);
  get.ctx = frame.ctx;
  get.type_id = &state_type;
  TF_RETURN_IF_ERROR(ToStatus(frame.api, frame.api->XLA_FFI_State_Get(&get)));
  const State& state = *static_cast<const State*>(get.state);
  OpKernel* const kernel = state.kernel.get();
  const int inputs = kernel->num_inputs(), outputs = kernel->num_outputs();

  XlaDevice device;
  TF_RETURN_IF_ERROR(gpu ? device.UseGpu(frame) : device.UseHost(frame));
  se::Stream* const stream = gpu ? device.context()->stream() : nullptr;

  std::vector<Tensor> tensors(inputs);
  std::vector<TensorValue> values(inputs);
  for (int i = 0, operand = 0; i < inputs; ++i) {
    values[i] = TensorValue(&tensors[i]);
    if (state.constants[i].has_value()) {
      tensors[i] = *state.constants[i];
      continue;
    }
    if (operand >= frame.args.size) return absl::InternalError("no operand");
    XlaBuffer buffer;
    TF_RETURN_IF_ERROR(
        ReadBuffer(frame.args.args[operand++], kernel->input_type(i), &buffer));
    if (gpu && kernel->input_memory_types()[i] == HOST_MEMORY) {
      tensors[i] = Tensor(kernel->input_type(i), buffer.shape);
      TF_RETURN_IF_ERROR(ToHost(stream, buffer, &tensors[i]));
      continue;
    }
    auto* const memory = new XlaMemory(buffer);
    tensors[i] = Tensor(kernel->input_type(i), buffer.shape, memory);
    memory->Unref();
  }

  if (frame.rets.size != outputs) return absl::InternalError("no result");
  std::vector<XlaBuffer> results(outputs);
  std::vector<AllocatorAttributes> attributes(outputs);
  for (int i = 0; i < outputs; ++i) {
    TF_RETURN_IF_ERROR(
        ReadBuffer(frame.rets.rets[i], kernel->output_type(i), &results[i]));
    device.AddResult(i + 1, results[i]);
    if (gpu && kernel->output_memory_types()[i] == HOST_MEMORY) {
      attributes[i].set_on_host(true);
    } else {
      attributes[i].scope_id = i + 1;  // 0 is no scope
    }
  }

  // Not destroyed: the destructor would only release a null std::shared_ptr,
  // whose code requires glibc 2.32.
  union Undestroyed {
    Undestroyed() : params() {}
    ~Undestroyed() {}
    OpKernelContext::Params params;
  } undestroyed;
  OpKernelContext::Params& params = undestroyed.params;
  params.op_kernel = kernel;
  params.device = &device;
  params.op_device_context = device.context();
  params.inputs = values;
  params.output_attr_array = attributes.data();
  OpKernelContext ctx(&params, outputs);
  kernel->Compute(&ctx);
  TF_RETURN_IF_ERROR(ctx.status());

  for (int i = 0; i < outputs; ++i) {
    const Tensor* const output = ctx.mutable_output(i);
    if (output == nullptr || output->shape() != results[i].shape) {
      return absl::InternalError(absl::StrCat(
          kernel->type_string(), ": result ", i, " is ",
          output == nullptr ? "missing" : output->shape().DebugString(),
          ", expected ", results[i].shape.DebugString(),
          " as its shape function computes"));
    }
    if (output->data() == results[i].data || results[i].bytes == 0) continue;
    // The kernel forwarded an input, or computed a number in host memory.
    if (!gpu) {
      std::memcpy(results[i].data, output->data(), results[i].bytes);
    } else if (kernel->output_memory_types()[i] == HOST_MEMORY) {
      TF_RETURN_IF_ERROR(FromHost(stream, *output, results[i]));
    } else {
      return absl::UnimplementedError(absl::StrCat(
          kernel->type_string(), ": result ", i,
          " is a forwarded input, which XLA does not support on a GPU"));
    }
  }
  return absl::OkStatus();
}

// The handler of both stages. When it is registered, XLA asks for its version.
template <bool kGpu>
XLA_FFI_Error* Handle(XLA_FFI_CallFrame* frame) {
  const auto* extension = frame->extension_start;
  if (extension != nullptr && extension->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* const metadata =
        reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start)
            ->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = 0;
    if (frame->stage == XLA_FFI_ExecutionStage_INSTANTIATE) {
      metadata->state_type_id = state_type;
    }
    return nullptr;
  }
  if (frame->stage == XLA_FFI_ExecutionStage_INSTANTIATE) {
    return ToXla(frame->api,
                 Instantiate(*frame, kGpu ? ::tensorflow::DEVICE_GPU
                                          : ::tensorflow::DEVICE_CPU));
  }
  return ToXla(frame->api, Execute(*frame, kGpu));
}

XLA_FFI_Error* RegisterState(const XLA_FFI_Api* api) {
  static XLA_FFI_TypeInfo info = {
      XLA_FFI_TypeInfo_STRUCT_SIZE, nullptr,
      [](void* state) { delete static_cast<State*>(state); }};
  auto args = XlaArgs<XLA_FFI_Type_Register_Args>(
      XLA_FFI_Type_Register_Args_STRUCT_SIZE);
  args.name = {kXlaCallTarget, sizeof(kXlaCallTarget) - 1};
  args.type_id = &state_type;
  args.type_info = &info;
  return api->XLA_FFI_Type_Register(&args);
}

XLA_FFI_Error* RegisterHandler(const XLA_FFI_Api* api,
                               absl::string_view platform,
                               XLA_FFI_Handler* handler) {
  auto args = XlaArgs<XLA_FFI_Handler_Register_Args>(
      XLA_FFI_Handler_Register_Args_STRUCT_SIZE);
  args.name = {kXlaCallTarget, sizeof(kXlaCallTarget) - 1};
  args.platform = {platform.data(), platform.size()};
  args.bundle = {/*instantiate=*/handler, nullptr, nullptr,
                 /*execute=*/handler};
  return api->XLA_FFI_Handler_Register(&args);
}

[[maybe_unused]] const bool handler_is_registered = [] {
  const XLA_FFI_Api* const api = ::xla::ffi::GetXlaFfiApi();
  for (XLA_FFI_Error* error :
       {RegisterState(api), RegisterHandler(api, "Host", Handle<false>),
        RegisterHandler(api, "CUDA", Handle<true>)}) {
    const absl::Status status = ToStatus(api, error);
    if (!status.ok()) LOG(ERROR) << "tensorflow_ops has no XLA: " << status;
  }
  return true;
}();

}  // namespace
}  // namespace tfo
