// A batch of label sequences and of logits, for ctc_loss and rnnt_loss.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_LABEL_SEQUENCES_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_LABEL_SEQUENCES_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/index_array.h"

namespace tfo {

// Padding, beyond a sequence's lengths, is not read.
struct LabelSequences {
  int64_t batch, frames, max_labels, classes;
  int64_t blank;             // in [0, classes)
  IndexArray labels;         // [batch, max_labels]
  IndexArray label_lengths;  // [batch]
  IndexArray logit_lengths;  // [batch]

  TFO_HOST_DEVICE int64_t Label(int64_t example, int64_t i) const {
    return labels[example * max_labels + i];
  }
  TFO_HOST_DEVICE bool IsLabel(int64_t label) const {
    return label >= 0 && label < classes && label != blank;
  }
  // Returns whether the example's lengths are in range: logit_lengths in
  // [least, frames].
  TFO_HOST_DEVICE bool HasValidLengths(int64_t example, int64_t least) const {
    return label_lengths[example] >= 0 &&
           label_lengths[example] <= max_labels &&
           logit_lengths[example] >= least && logit_lengths[example] <= frames;
  }
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_LABEL_SEQUENCES_H_
