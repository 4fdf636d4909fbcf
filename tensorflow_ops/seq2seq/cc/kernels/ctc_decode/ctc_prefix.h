// A prefix in CTC's beam search (ctc_beams.h), and how a frame changes it. The
// CPU and CUDA share it, so they order candidates the same way.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_PREFIX_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_PREFIX_H_

#include <cmath>
#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Identifies a label sequence by a hash of its labels. Its place in the beam
// does not: a prefix may leave the beam and return while its extensions stay.
// The chance that any two of a billion sequences have the same 128 bits is
// 1e-21.
struct CtcPrefixId {
  uint64_t a = 0, b = 0;

  TFO_HOST_DEVICE bool operator==(const CtcPrefixId& other) const {
    return a == other.a && b == other.b;
  }
  TFO_HOST_DEVICE CtcPrefixId Then(int64_t label) const {
    const uint64_t x = static_cast<uint64_t>(label) + 1;
    return {Mix(a + x * 0x9E3779B97F4A7C15u),
            Mix((b ^ ~x) * 0xD6E8FEB86659FD93u)};
  }

 private:
  // A bijection (splitmix64's).
  TFO_HOST_DEVICE static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
};

// log(e^a + e^b).
TFO_HOST_DEVICE static inline double CtcLogAdd(double a, double b) {
  const double greater = a < b ? b : a, below = (b < a ? b : a) - greater;
  // NaN where both are -inf. Below e^-40 of it nothing changes.
  if (!(below > -40)) return greater;
  // expm1: exp of doubles needs glibc 2.29, which TensorFlow's own wheels do
  // not.
  return greater + log1p(1 + expm1(below));
}

struct CtcLabel {
  double log_prob;
  int64_t label;
};

// Log probabilities of a prefix: of paths that end with blank, with the last
// label, and of both.
struct CtcStay {
  double blank, label, total;
};

struct CtcPrefix {
  double blank = 0;          // log probability of paths that end with blank
  double label = -INFINITY;  // ... with the last label
  double total = 0;          // of both
  double bonus = 0;          // what the score adds to `total`
  int64_t last = -1;         // the last label; -1: no label
  CtcPrefixId id, parent;    // parent: without the last label
  int64_t from = 0;          // its place, or its parent's, a frame before
  int64_t added = -1;        // the label of this frame; -1: it stayed
  int64_t node = -1;         // the caller's; inherited

  TFO_HOST_DEVICE double Score() const { return total + bonus; }

  // The log probability of all paths that a label may extend. A repeated label
  // merges with the first unless a blank is between them.
  TFO_HOST_DEVICE double Before(int64_t next) const {
    return next == last ? blank : total;
  }

  // After a frame in which it stays. `of_last` is the last label's log
  // probability, `of_parent` the prefix that it extends, or null if that is not
  // in the beam.
  TFO_HOST_DEVICE CtcStay Stay(double of_blank, double of_last,
                               const CtcPrefix* of_parent) const {
    CtcStay stay = {total + of_blank, -INFINITY, 0};
    if (last >= 0) {
      stay.label = label + of_last;
      if (of_parent != nullptr) {
        stay.label = CtcLogAdd(stay.label, of_parent->Before(last) + of_last);
      }
    }
    stay.total = CtcLogAdd(stay.blank, stay.label);
    return stay;
  }

  // The prefix that stayed, at place i before.
  TFO_HOST_DEVICE CtcPrefix Stayed(int64_t i, const CtcStay& stay) const {
    CtcPrefix to = *this;
    to.blank = stay.blank;
    to.label = stay.label;
    to.total = stay.total;
    to.from = i;
    to.added = -1;
    return to;
  }

  // The prefix at place i, extended.
  TFO_HOST_DEVICE CtcPrefix Extended(int64_t i, int64_t by, double log_prob,
                                     double of_bonus) const {
    CtcPrefix to = *this;
    to.blank = -INFINITY;
    to.label = to.total = log_prob;
    to.bonus = of_bonus;
    to.last = by;
    to.id = id.Then(by);
    to.parent = id;
    to.from = i;
    to.added = by;
    return to;
  }
};

// The order of candidates.
struct CtcRank {
  double score;
  int64_t order;  // of equal scores

  TFO_HOST_DEVICE bool IsBefore(const CtcRank& other) const {
    return score > other.score || (score == other.score && order < other.order);
  }
};

// Returns how much a language model's score of a label adds to a prefix's. -inf
// and NaN forbid the label even with weight 0.
TFO_HOST_DEVICE static inline double CtcModelBonus(double counted_score,
                                                   double lm_weight,
                                                   double label_bonus) {
  if (!(counted_score > -INFINITY)) return -INFINITY;
#ifdef __CUDA_ARCH__
  // nvcc would fuse them.
  return __dadd_rn(__dmul_rn(lm_weight, counted_score), label_bonus);
#else
  return lm_weight * counted_score + label_bonus;
#endif
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_PREFIX_H_
