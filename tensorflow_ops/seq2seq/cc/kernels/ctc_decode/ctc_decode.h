// Decoders of connectionist temporal classification (Graves et al. 2006): they
// find the most probable label sequences of frames.
//
// A NaN logit counts as -inf, which forbids its class; +inf as the largest
// finite number. A frame without an allowed class makes its example impossible.
// Frames beyond an example's length do not matter.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/nn/cc/kernels/rows/index_array.h"

namespace tfo {

// T is float, double, Half or BFloat16. Lengths are in [0, frames], blank in
// [0, classes), classes below 2^31.
template <typename T>
struct CtcLogits {
  int64_t batch, frames, classes, blank;
  const T* logits;     // [batch, frames, classes]
  IndexArray lengths;  // [batch]

  TFO_HOST_DEVICE const T* Row(int64_t example, int64_t frame) const {
    return logits + (example * frames + frame) * classes;
  }
  TFO_HOST_DEVICE bool HasValidLength(int64_t example) const {
    return lengths[example] >= 0 && lengths[example] <= frames;
  }
};

// The most probable path: each frame's greatest logit, of equal ones the first
// (class 0 of an impossible frame). With merge_repeated, equal classes of
// frames in a row count as one; blanks are dropped.
template <typename T>
struct CtcGreedyArgs {
  CtcLogits<T> input;
  bool merge_repeated;
  int32_t pad_id;
  int32_t* labels;            // [batch, frames], pad_id after the last
  int32_t* lengths;           // [batch]
  Accumulator<T>* log_probs;  // [batch], of the paths; 0 without frames
};

// The most probable label sequences that prefix beam search finds
// (ctc_beams.h), best first.
template <typename T>
struct CtcBeamSearchArgs {
  CtcLogits<T> input;
  int64_t beam_width, top_paths;  // positive, top_paths <= beam_width
  double label_bonus;             // a score adds it for each label
  int32_t pad_id;
  // [batch, top_paths, frames] and [batch, top_paths]. Missing sequences have
  // length 0, score and log probability -inf.
  int32_t* labels;
  int32_t* lengths;
  Accumulator<T>*scores, *log_probs;
};

// One frame of the same search, with label scores for each prefix. The beam is
// [batch, beam_width] prefixes, best first, followed by missing ones with log
// probabilities of -inf.
inline constexpr int64_t kCtcWeights = 3;    // log probabilities of paths that
                                             // end with blank and with the last
                                             // label; the score's bonus
inline constexpr int64_t kCtcPrefixIds = 5;  // the last label, or -1; the id of
                                             // the prefix and of its parent
template <typename T>
struct CtcBeamSearchStepArgs {
  using Value = Accumulator<T>;
  int64_t batch, beam_width, classes, blank;
  const T* logits;          // [batch, classes]
  const bool* is_frame;     // [batch]; false: the example's beam stays
  const double* weights;    // [batch, beam_width, kCtcWeights]
  const int64_t* prefixes;  // [batch, beam_width, kCtcPrefixIds]
  const Value*
      label_scores;  // [batch, beam_width, classes]; -inf and NaN forbid
  double lm_weight, label_bonus;  // a new label adds lm_weight * its score +
                                  // label_bonus to the prefix's score
  double* next_weights;
  int64_t* next_prefixes;
  // [batch, beam_width]: the place of a prefix, or of its parent, in the beam
  // before, and the label that the frame added, or -1.
  int32_t *parents, *labels;
};

template <typename T>
Error CtcGreedyDecode(const Cpu& cpu, const CtcGreedyArgs<T>& args);
template <typename T>
Error CtcBeamSearch(const Cpu& cpu, const CtcBeamSearchArgs<T>& args);
template <typename T>
Error CtcBeamSearchStep(const Cpu& cpu, const CtcBeamSearchStepArgs<T>& args);

// The same on a GPU, with sums in another order. Lengths may be out of range:
// the example then has no labels, and its scores and log probabilities are NaN.
// They only enqueue; gpu.scratch has CtcDecodeScratchBytes(args).
template <typename T>
Error CtcGreedyDecode(const Gpu& gpu, const CtcGreedyArgs<T>& args);
template <typename T>
Error CtcBeamSearch(const Gpu& gpu, const CtcBeamSearchArgs<T>& args);
template <typename T>
Error CtcBeamSearchStep(const Gpu& gpu, const CtcBeamSearchStepArgs<T>& args);

template <typename T>
int64_t CtcDecodeScratchBytes(const CtcGreedyArgs<T>& args);
template <typename T>
int64_t CtcDecodeScratchBytes(const CtcBeamSearchArgs<T>& args);
template <typename T>
int64_t CtcDecodeScratchBytes(const CtcBeamSearchStepArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_H_
