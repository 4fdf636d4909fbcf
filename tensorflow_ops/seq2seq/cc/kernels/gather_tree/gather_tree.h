// Reconstructs beams' sequences from the tokens and parents of every step.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_GATHER_TREE_GATHER_TREE_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_GATHER_TREE_GATHER_TREE_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

// output[t, b, k] is the token at time t of the sequence that beam k of entry b
// ends after lengths[b, k] tokens: token_ids[t, b, p], where p is k at the last
// time and parent_ids[t + 1, b, p'] before. From the length on it is pad_id.
// Parents at time 0 are not read.
//
// A beam with a length outside of [0, time] is all pad_id. A beam that reaches
// a parent outside of [0, beams) is pad_id before that parent.
template <typename Id>
struct GatherTreeArgs {
  int64_t time, batch, beams;
  const Id *token_ids, *parent_ids;
  const int32_t* lengths;
  Id pad_id;
  Id* output;
};

template <typename Id, typename V>
void Describe(GatherTreeArgs<Id>& a, V& v) {
  v.In("token_ids", "[time, batch, beams]", &a.token_ids);
  v.In("parent_ids", "[time, batch, beams]", &a.parent_ids);
  v.In("lengths", "[batch, beams]", &a.lengths);
  v.Scalar("pad_id", &a.pad_id);
  v.Out("sequences", "[time, batch, beams]", &a.output);
  v.Types("T");
  v.Size("time", &a.time);
  v.Size("batch", &a.batch);
  v.Size("beams", &a.beams);
}

// The first bad beam; beam is -1 if there is none.
struct BadBeam {
  int64_t batch = -1, beam = -1;
  int64_t time = -1;  // of the bad parent; -1 if the length is bad
  int64_t value = 0;
};

template <typename Id>
Error GatherTree(const Cpu& cpu, const GatherTreeArgs<Id>& args, BadBeam* bad);
// Only enqueues: bad beams are padded and not reported.
template <typename Id>
Error GatherTree(const Gpu& gpu, const GatherTreeArgs<Id>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_GATHER_TREE_GATHER_TREE_H_
