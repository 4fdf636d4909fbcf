// The OpKernels of HingeLoss and HingeLossGrad: check values, call the
// algorithm.
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss.h"

namespace tfo {
namespace {

// Ok, or "labels[3] is 7, expected [0, 5) or ignore_index -1". On a GPU, to
// read the labels would stop the stream.
template <typename Device, typename Args>
absl::Status CheckHingeLossLabels(const Args& args) {
  if constexpr (!std::is_same_v<Device, Cpu>) return absl::OkStatus();
  for (int64_t row = 0; row < args.rows; ++row) {
    const int64_t label = args.labels[row];
    if (HasHingeLoss(args, row) || label == args.ignore_index) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("labels[", row, "] is ", label, ", expected [0, ",
                     args.classes, ") or ignore_index ", args.ignore_index));
  }
  return absl::OkStatus();
}

template <typename Device, typename Args>
absl::Status RunHingeLoss(const Device& device, const Args& args,
                          Error (*run)(const Device&, const Args&)) {
  TF_RETURN_IF_ERROR(CheckHingeLossLabels<Device>(args));
  return ToStatus(run(device, args));
}

TFO_OP_KERNELS("HingeLoss", HingeLossArgs,
               RunHingeLoss(device, args, HingeLoss));
TFO_OP_KERNELS("HingeLossGrad", HingeLossGradArgs,
               RunHingeLoss(device, args, HingeLossGrad));

}  // namespace
}  // namespace tfo
