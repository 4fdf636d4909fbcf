// A batch of label sequences and of logits: what ctc_loss and rnnt_loss have in
// common.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_LABEL_SEQUENCES_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_LABEL_SEQUENCES_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/int_values.h"

namespace tfo {

// Padding, beyond a sequence's lengths, is not read.
struct LabelSequences {
  int64_t batch, frames, max_labels, classes;
  int64_t blank;            // in [0, classes)
  IntValues labels;         // [batch, max_labels]
  IntValues label_lengths;  // [batch]
  IntValues logit_lengths;  // [batch]

  TFO_HOST_DEVICE int64_t Label(int64_t example, int64_t i) const {
    return labels[example * max_labels + i];
  }
  TFO_HOST_DEVICE bool IsLabel(int64_t label) const {
    return label >= 0 && label < classes && label != blank;
  }
  // Are the example's lengths in their ranges? logit_lengths in [least,
  // frames].
  TFO_HOST_DEVICE bool HasValidLengths(int64_t example, int64_t least) const {
    return label_lengths[example] >= 0 &&
           label_lengths[example] <= max_labels &&
           logit_lengths[example] >= least && logit_lengths[example] <= frames;
  }
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_LABEL_SEQUENCES_H_
