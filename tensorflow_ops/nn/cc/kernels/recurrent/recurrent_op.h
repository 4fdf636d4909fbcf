// The base of the recurrent layers' OpKernels: reads the attrs and sizes.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_OP_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_OP_H_

#include <utility>

#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent.h"

namespace tfo {

class RecurrentOpBase : public OpKernel {
 public:
  explicit RecurrentOpBase(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    for (const auto& [attr, value] :
         {std::pair("activation", &activation_),
          std::pair("recurrent_activation", &recurrent_activation_)}) {
      OP_REQUIRES_OK(ctx,
                     ReadEnum(ctx, attr,
                              {{"tanh", CellActivation::kTanh},
                               {"sigmoid", CellActivation::kSigmoid},
                               {"relu", CellActivation::kRelu},
                               {"linear", CellActivation::kLinear},
                               {"hard_sigmoid", CellActivation::kHardSigmoid}},
                              value));
    }
  }

 protected:
  // Input 0 is [batch, steps, gates, units].
  RecurrentSpec ReadSpec(::tensorflow::OpKernelContext* ctx) const {
    const ::tensorflow::Tensor& gates = ctx->input(0);
    return {gates.dim_size(0),     gates.dim_size(1),
            gates.dim_size(3),     activation_,
            recurrent_activation_, OptionalData<bool>(ctx, "mask")};
  }

 private:
  CellActivation activation_, recurrent_activation_;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_OP_H_
