// Decoders of connectionist temporal classification (Graves et al. 2006): they
// find the most probable label sequences of frames.
//
// A NaN logit counts as -inf, which forbids its class; +inf as the largest
// finite number. A frame without an allowed class makes its example impossible.
// Frames beyond an example's length do not matter.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

namespace tfo {

// T is float, double, Half or BFloat16. Lengths are in [0, frames], blank in
// [0, classes), classes below 2^31.
template <typename T>
struct CtcLogits {
  int64_t batch, frames, classes, blank;
  const T* logits;
  IndexArray lengths;

  TFO_HOST_DEVICE const T* Row(int64_t example, int64_t frame) const {
    return logits + (example * frames + frame) * classes;
  }
  TFO_HOST_DEVICE bool HasValidLength(int64_t example) const {
    return lengths[example] >= 0 && lengths[example] <= frames;
  }
};

template <typename V>
void DescribeCtcBlank(int64_t* classes, int64_t* blank, V& v) {
  v.Types("T", "Tvalue");
  v.Required("blank_index", blank, ">= -1");
  v.Size("classes", classes);
  v.Check(*classes <= INT32_MAX, "logits have ", *classes,
          " classes, expected at most 2147483647");
  CheckBlank(*classes, blank, v);
}

template <typename T, typename V>
void DescribeCtcLogits(CtcLogits<T>& c, V& v) {
  v.In("logits", "[batch, frames, classes]", &c.logits);
  v.In("logit_lengths", "[batch]", &c.lengths, "Tlengths");
  v.Size("batch", &c.batch);
  v.Size("frames", &c.frames);
  DescribeCtcBlank(&c.classes, &c.blank, v);
  v.Types("Tlengths");
}

// The most probable path: each frame's greatest logit, of equal ones the first
// (class 0 of an impossible frame). With merge_repeated, equal classes of
// frames in a row count as one; blanks are dropped.
template <typename T>
struct CtcGreedyArgs {
  CtcLogits<T> input;
  bool merge_repeated;
  int32_t pad_id;
  int32_t *labels, *lengths;
  Accumulator<T>* log_probs;
};

template <typename T, typename V>
void Describe(CtcGreedyArgs<T>& a, V& v) {
  DescribeCtcLogits(a.input, v);
  v.Required("merge_repeated", &a.merge_repeated);
  v.Required("pad_id", &a.pad_id);
  // pad_id after the last.
  v.Out("labels", "[batch, frames]", &a.labels);
  v.Out("lengths", "[batch]", &a.lengths);
  // Of the paths; 0 without frames.
  v.Out("log_probs", "[batch]", &a.log_probs);
}

// The most probable label sequences that prefix beam search finds
// (ctc_beams.h), best first. Missing sequences have length 0, score and log
// probability -inf.
template <typename T>
struct CtcBeamSearchArgs {
  CtcLogits<T> input;
  int64_t beam_width, top_paths;
  double label_bonus;  // a score adds it for each label
  int32_t pad_id;
  int32_t *labels, *lengths;
  Accumulator<T>*scores, *log_probs;
};

template <typename T, typename V>
void Describe(CtcBeamSearchArgs<T>& a, V& v) {
  DescribeCtcLogits(a.input, v);
  v.Scalar("label_bonus", &a.label_bonus);
  v.Required("beam_width", &a.beam_width, ">= 1");
  v.Required("top_paths", &a.top_paths, ">= 1");
  v.Required("pad_id", &a.pad_id);
  v.Check(a.beam_width <= INT32_MAX, "beam_width is ", a.beam_width,
          ", expected [1, 2147483647]");
  v.Check(a.top_paths <= a.beam_width, "top_paths is ", a.top_paths,
          ", expected [1, ", a.beam_width, "]: beam_width");
  v.Out("labels", "[batch, top_paths, frames]", &a.labels);
  v.Out("lengths", "[batch, top_paths]", &a.lengths);
  v.Out("scores", "[batch, top_paths]", &a.scores);
  v.Out("log_probs", "[batch, top_paths]", &a.log_probs);
}

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
  const T* logits;
  const bool* is_frame;  // false: the example's beam stays
  const double* weights;
  const int64_t* prefixes;
  const Value* label_scores;      // -inf and NaN forbid
  double lm_weight, label_bonus;  // a new label adds lm_weight * its score +
                                  // label_bonus to the prefix's score
  double* next_weights;
  int64_t* next_prefixes;
  int32_t *parents, *labels;
};

template <typename T, typename V>
void Describe(CtcBeamSearchStepArgs<T>& a, V& v) {
  static_assert(kCtcWeights == 3 && kCtcPrefixIds == 5);
  v.In("logits", "[batch, classes]", &a.logits);
  v.In("is_frame", "[batch]", &a.is_frame);
  v.In("weights", "[batch, beam_width, 3]", &a.weights);
  v.In("prefixes", "[batch, beam_width, 5]", &a.prefixes);
  v.In("label_scores", "[batch, beam_width, classes]", &a.label_scores);
  v.Scalar("lm_weight", &a.lm_weight);
  v.Scalar("label_bonus", &a.label_bonus);
  v.Size("batch", &a.batch);
  v.Size("beam_width", &a.beam_width);
  DescribeCtcBlank(&a.classes, &a.blank, v);
  v.Check(a.beam_width != 0, "beam_width is 0, expected at least 1");
  v.Out("next_weights", "[batch, beam_width, 3]", &a.next_weights);
  v.Out("next_prefixes", "[batch, beam_width, 5]", &a.next_prefixes);
  // The place of a prefix, or of its parent, in the beam before, and the label
  // that the frame added, or -1.
  v.Out("parents", "[batch, beam_width]", &a.parents);
  v.Out("labels", "[batch, beam_width]", &a.labels);
}

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
