// The sequences at the leaves of a tree of beams, from the tokens and parents
// of every step.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_GATHER_TREE_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_GATHER_TREE_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

// output[t, b, k] is the token at time t of the sequence that beam k of entry b
// ends after lengths[b, k] tokens: token_ids[t, b, p], where p is k at the last
// time and parent_ids[t + 1, b, p'] before. From the length on it is pad_id.
// The parents at time 0 are not read.
//
// A beam with a length outside of [0, time] or that meets a parent outside of
// [0, beams) is pad_id: all of it, or before that parent.
template <typename Id>
struct GatherTreeArgs {
  int64_t time, batch, beams;
  const Id *token_ids, *parent_ids;  // [time, batch, beams]
  const int32_t* lengths;            // [batch, beams]
  Id pad_id;
  Id* output;  // [time, batch, beams]
};

// What is wrong with the first bad beam; beam is -1 if none is.
struct BadBeam {
  int64_t batch = -1, beam = -1;
  int64_t time = -1;  // of its parent, or -1: its length is bad
  int64_t value = 0;
};

template <typename Id>
Error GatherTree(const Cpu& cpu, const GatherTreeArgs<Id>& args, BadBeam* bad);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_GATHER_TREE_H_
