// Shapes as texts: a shape function declares those of an op's inputs and
// outputs, and errors quote them.
#ifndef TENSORFLOW_OPS_CORE_CC_GLUE_NAMED_DIMS_H_
#define TENSORFLOW_OPS_CORE_CC_GLUE_NAMED_DIMS_H_

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/describe.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"

namespace tfo {

// describe.h says what a text is.
class NamedDims {
 public:
  using Context = ::tensorflow::shape_inference::InferenceContext;
  using Dim = ::tensorflow::shape_inference::DimensionHandle;
  using Shape = ::tensorflow::shape_inference::ShapeHandle;

  explicit NamedDims(Context* c) : c_(c) {}

  // A shape must be that of the text, as in "labels must be [batch, labels]".
  // The text begins the error.
  absl::Status Read(const std::string& text, Shape shape);
  // The shape of a text.
  absl::Status Make(const std::string& text, Shape* shape);

  // The inputs from `first` on must have the shapes of the texts.
  absl::Status Read(int first, std::initializer_list<std::string> texts);

  // A text's first word names an input list, which must be empty or have one
  // tensor of the text's shape.
  absl::Status ReadOptional(std::initializer_list<std::string> texts);

  // Sets the shapes of all outputs.
  absl::Status Write(std::initializer_list<std::string> texts);

  // The size that a name stands for, as far as it is known.
  Dim& operator[](const std::string& name);

 private:
  absl::Status Merge(const std::string& dim, Dim found);

  Context* const c_;
  Shape rows_ = c_->UnknownShape();  // of `...`
  std::vector<std::pair<std::string, Dim>> sizes_;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_GLUE_NAMED_DIMS_H_
