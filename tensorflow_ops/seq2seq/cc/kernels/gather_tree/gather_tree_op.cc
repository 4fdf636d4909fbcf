// The OpKernel of GatherTree.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree/gather_tree.h"

namespace tfo {
namespace {

template <typename Id>
absl::Status Gather(const Gpu& gpu, const GatherTreeArgs<Id>& args) {
  return ToStatus(GatherTree(gpu, args));
}

template <typename Id>
absl::Status Gather(const Cpu& cpu, const GatherTreeArgs<Id>& args) {
  BadBeam bad;
  TF_RETURN_IF_ERROR(ToStatus(GatherTree(cpu, args, &bad)));
  if (bad.beam < 0) return absl::OkStatus();
  if (bad.time < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("lengths[", bad.batch, ", ", bad.beam, "] is ", bad.value,
                     ", expected [0, ", args.time, "]"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the sequence of beam ", bad.beam, " of batch entry ", bad.batch,
      " reaches parent ", bad.value, " in parent_ids[", bad.time, ", ",
      bad.batch, "], expected [0, ", args.beams, ")"));
}

TFO_INDEX_OP_KERNELS("GatherTree", GatherTreeArgs, Gather(device, args));

}  // namespace
}  // namespace tfo
