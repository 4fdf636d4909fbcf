// The check of an op's shapes, which stands in its shape function only: runs it
// on the inputs of each call, and allocates the outputs that it returns.
#ifndef TENSORFLOW_OPS_CORE_CC_GLUE_SHAPE_CHECK_H_
#define TENSORFLOW_OPS_CORE_CC_GLUE_SHAPE_CHECK_H_

#include <functional>
#include <initializer_list>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/lib/core/refcount.h"

namespace tfo {

// Part of a CheckedKernel.
class ShapeCheck {
 public:
  explicit ShapeCheck(::tensorflow::OpKernelConstruction* ctx);

  // Calls `compute` if the shape function accepts the inputs. Turns
  // std::bad_alloc into an error; TensorFlow would let it end the process.
  absl::Status Run(::tensorflow::OpKernelContext* ctx,
                   const std::function<void()>& compute) const;

  // Inputs that the shape function has accepted, and the outputs' shapes.
  // Counted by TensorFlow: std::shared_ptr would require glibc 2.32.
  struct Accepted : public ::tensorflow::core::RefCounted {
    std::vector<::tensorflow::TensorShape> inputs;
    // Inputs whose values the shape function has read, such as output_size.
    std::vector<std::pair<int, ::tensorflow::Tensor>> values;
    std::vector<absl::StatusOr<::tensorflow::TensorShape>> outputs;

    bool Fits(::tensorflow::OpKernelContext* ctx) const;
  };

 private:
  absl::Status Infer(::tensorflow::OpKernelContext* ctx,
                     ::tensorflow::core::RefCountPtr<Accepted>* accepted) const;

  const ::tensorflow::OpRegistrationData* op_ = nullptr;
  bool on_cpu_ = false;
  // The last ones: calls of equal shapes need not run the shape function.
  mutable std::mutex mutex_;
  mutable std::vector<::tensorflow::core::RefCountPtr<Accepted>> last_;
  mutable size_t oldest_ = 0;
};

// During a CheckedKernel's Compute, on its thread: output i's shape, or null if
// it is unknown, because it depends on values, or has 2^63 elements or more.
const ::tensorflow::TensorShape* OutputShape(int i);

// Allocates output i with this shape, which must be known.
absl::Status AllocateOutput(::tensorflow::OpKernelContext* ctx, int i,
                            ::tensorflow::Tensor** output);
// Allocates the first outputs.
absl::Status AllocateOutputs(
    ::tensorflow::OpKernelContext* ctx,
    std::initializer_list<::tensorflow::Tensor**> outputs);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_GLUE_SHAPE_CHECK_H_
