// Checks of labels and lengths, which the kernels of sequence losses share.
// Checks values on the CPU only: on a GPU they are not known without waiting.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_INPUTS_OP_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_INPUTS_OP_H_

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

namespace tfo {

// Errors read "label_lengths[2] is 9, expected [0, 4]".
inline absl::Status CheckLengths(const char* name, const IndexArray& lengths,
                                 int64_t batch, int64_t least, int64_t most,
                                 const char* meaning) {
  for (int64_t i = 0; i < batch; ++i) {
    if (lengths[i] >= least && lengths[i] <= most) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, "[", i, "] is ", lengths[i], ", expected [", least,
                     ", ", most, "]: ", meaning));
  }
  return absl::OkStatus();
}

// Errors read "labels[0, 1] is 9, expected [0, 4)".
inline absl::Status CheckLabel(int64_t example, int64_t i, int64_t label,
                               int64_t classes) {
  if (label >= 0 && label < classes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("labels[", example, ", ", i, "] is ", label,
                   ", expected [0, ", classes, ")"));
}

// Checks the values of an op's labels and lengths.
template <typename Loss>
absl::Status CheckSequences(const LabelSequences& s) {
  TF_RETURN_IF_ERROR(CheckLengths("label_lengths", s.label_lengths, s.batch, 0,
                                  s.max_labels, "the width of labels"));
  TF_RETURN_IF_ERROR(CheckLengths("logit_lengths", s.logit_lengths, s.batch,
                                  Loss::kLeastFrames, s.frames,
                                  "the frames of logits"));
  for (int64_t i = 0; i < s.batch; ++i) {
    for (int64_t u = 0; u < s.label_lengths[i]; ++u) {
      const int64_t label = s.Label(i, u);
      TF_RETURN_IF_ERROR(CheckLabel(i, u, label, s.classes));
      if (label != s.blank) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "labels[", i, ", ", u, "] is ", label,
          ", expected a class other than blank_index: for labels from 0, pass "
          "blank_index=-1, which is the last class"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_INPUTS_OP_H_
