// Prefix beam search of connectionist temporal classification, one frame at a
// time (Graves, "Supervised Sequence Labelling with Recurrent Neural Networks",
// 2012; Hannun et al., arXiv:1408.2873).
//
// A prefix is a label sequence. It has two log probabilities: that of all paths
// so far that give it and end with blank, and that of those that end with its
// last label. In a frame a prefix stays (blank, or its last label again) or is
// extended by a label. An extension that equals another prefix of the beam is
// added to that one.
//
// Everything is computed in double. The candidates of a frame are ordered by
// score, greatest first; of equal scores those that stay come before
// extensions, lower prefixes of the last frame before higher ones, and then the
// labels in the order in which the caller gives them.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_BEAMS_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_BEAMS_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_prefix.h"

namespace tfo {

class CtcBeams {
 public:
  // Starts with the empty prefix.
  explicit CtcBeams(int64_t width) : width_(width), prefixes_(1) {}

  // Best first; at most `width`. The caller may change them between frames.
  std::vector<CtcPrefix>& prefixes() { return prefixes_; }

  // A prefix needs two log probabilities of a frame: that of blank, and that of
  // the prefix's last label (last[i]; not read without one).
  struct Frame {
    double blank;
    const std::vector<double>& last;
  };

  // Advances by a frame in which all prefixes may be extended by the same
  // labels, which are in descending order: the best width + 1 that are not
  // blank, or all. More cannot matter. Take a label with at least width + 1
  // before it: of these at most one repeats the prefix's last label. Each other
  // one gives a candidate of at least the same score, the extended prefix or
  // the one that it equals and is added to, which comes before in the order. So
  // `width` candidates come before. (The prefix's last label has a lower
  // probability than this argument assumes, since only paths that end with
  // blank extend by it.)
  void AdvanceByBest(const Frame& frame, const std::vector<CtcLabel>& labels,
                     double label_bonus);

  // Advances by a frame in which extending prefix i by labels[r] adds
  // bonus(i, r) to the score; -inf or NaN forbids it. The labels are all that
  // are not blank.
  template <typename Bonus>
  void AdvanceByAll(const Frame& frame, const std::vector<CtcLabel>& labels,
                    const Bonus& bonus) {
    Start(frame);
    const int64_t count = labels.size();
    for (int64_t i = 0; i < Size(); ++i) {
      for (int64_t r = 0; r < count; ++r) {
        const Candidate candidate =
            Extension(i, r, count, labels[r], prefixes_[i].bonus + bonus(i, r));
        if (IsKept(candidate) && !IsInBeam(i, labels[r].label)) Keep(candidate);
      }
    }
    Select();
  }

 private:
  struct Candidate {
    CtcRank rank;
    double log_prob, bonus;  // log_prob: of the extension
    int64_t prefix, added;

    bool operator<(const Candidate& other) const {  // is it better?
      return rank.IsBefore(other.rank);
    }
  };

  int64_t Size() const { return prefixes_.size(); }

  // Links prefixes with their extensions, and adds the candidates that stay.
  void Start(const Frame& frame);
  void FindParents();
  // Extends prefix i by a label, the r-th of `count`.
  Candidate Extension(int64_t i, int64_t r, int64_t count,
                      const CtcLabel& label, double bonus) const {
    const double log_prob = prefixes_[i].Before(label.label) + label.log_prob;
    return {{log_prob + bonus, Size() + i * count + r},
            log_prob,
            bonus,
            i,
            label.label};
  }
  bool IsKept(const Candidate& candidate) const {
    return candidate.rank.score > -INFINITY &&
           (static_cast<int64_t>(best_.size()) < width_ ||
            candidate < best_.front());
  }
  void Keep(const Candidate& candidate);
  // Returns whether the beam already has the extension of prefix i by the
  // label.
  bool IsInBeam(int64_t i, int64_t label) const;
  void Select();

  int64_t width_;
  std::vector<CtcPrefix> prefixes_, next_;
  std::vector<Candidate> best_;  // a heap, whose root is the worst
  std::vector<CtcStay> stays_;
  std::vector<int64_t> table_;  // prefixes by hash; -1: none
  // For each prefix the prefix that it extends, a prefix that extends it, and
  // the next one that extends the same; -1: none.
  std::vector<int64_t> parents_, children_, siblings_;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_BEAMS_H_
