#include "tensorflow_ops/core/cc/glue/op_spec.h"

#include <algorithm>
#include <optional>

namespace tfo {

using ::tensorflow::Tensor;
using ::tensorflow::shape_inference::ShapeHandle;

void ShapeVisitor::ReadInput(const char* name, const char* shape) {
  if (!status().ok()) return;
  Ok(dims_.Read(absl::StrCat(name, " must be ", shape),
                ctx_->input(inputs_++)));
}

bool ShapeVisitor::HasOptional(const char* name) {
  std::optional<ShapeHandle> input;
  return status().ok() && Ok(OptionalInput(ctx_, name, &input)) &&
         input.has_value();
}

void ShapeVisitor::ReadOptional(const char* name, const char* shape) {
  if (HasOptional(name)) ReadInput(name, shape);
}

absl::Status ShapeVisitor::SetOutputs() {
  for (size_t i = 0; status().ok() && i < outputs_.size(); ++i) {
    ShapeHandle shape;
    if (Ok(dims_.Make(outputs_[i], &shape))) ctx_->set_output(i, shape);
  }
  return status();
}

void OptionsVisitor::AddInput(const char* name, const char* shape) {
  int begin = 0, end;
  Ok(kernel_->InputRange(name, &begin, &end));
  inputs_.emplace_back(begin, DimsOf(shape));
}

void OptionsVisitor::Size(const std::string& name, int64_t*) {
  for (const auto& [input, dims] : inputs_) {
    const auto found = std::find(dims.begin(), dims.end(), name);
    if (found == dims.end()) continue;
    sizes_.push_back(
        {input, static_cast<int>(found - dims.end()), name == "..."});
    return;
  }
  Ok(absl::InternalError(absl::StrCat("No input has a dim ", name)));
}

void TensorsVisitor::Size(const char*, int64_t* size) {
  const auto [input, dim, is_product] = *size_++;
  const auto& shape = ctx_->input(input).shape();
  const int rank = shape.dims();
  if (!is_product) {
    *size = shape.dim_size(rank + dim);
    return;
  }
  *size = 1;
  for (int i = 0; i <= rank + dim; ++i) *size *= shape.dim_size(i);
}

bool TensorsVisitor::Allocate(const char* from, Tensor** tensor) {
  const int output = output_++;
  if (!status().ok()) return false;
  if (from == nullptr) return Ok(AllocateOutput(ctx_, output, tensor));
  int begin = 0, end;
  return Ok(ctx_->op_kernel().InputRange(from, &begin, &end)) &&
         Ok(ctx_->forward_input_or_allocate_output(
             {begin}, output, ctx_->input(begin).shape(), tensor));
}

}  // namespace tfo
