#include <algorithm>
#include <atomic>
#include <vector>

#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree/gather_tree.h"

namespace tfo {
namespace {

constexpr int64_t kNoBeam = -1;  // padded from here on

// Beams [begin, end) in flat order; returns the first bad one, or `end`.
template <typename Id>
int64_t GatherBeams(const GatherTreeArgs<Id>& args, int64_t begin,
                    int64_t end) {
  const int64_t all = args.batch * args.beams;
  // The flat index of each sequence's beam at time t.
  std::vector<int64_t> at(end - begin, kNoBeam);
  int64_t first_bad = end;
  // Time by time: in memory order.
  for (int64_t t = args.time - 1; t >= 0; --t) {
    const Id* const tokens = args.token_ids + t * all;
    const Id* const parents = args.parent_ids + t * all;
    for (int64_t i = begin; i < end; ++i) {
      int64_t& here = at[i - begin];
      if (args.lengths[i] == t + 1) here = i;
      args.output[t * all + i] = here == kNoBeam ? args.pad_id : tokens[here];
      if (here == kNoBeam || t == 0) continue;
      const Id parent = parents[here];
      if (parent >= 0 && parent < args.beams) {
        here = here - here % args.beams + parent;
      } else {
        here = kNoBeam;
        first_bad = std::min(first_bad, i);
      }
    }
  }
  for (int64_t i = begin; i < first_bad; ++i) {
    if (args.lengths[i] < 0 || args.lengths[i] > args.time) return i;
  }
  return first_bad;
}

template <typename Id>
BadBeam Describe(const GatherTreeArgs<Id>& args, int64_t flat) {
  const int64_t all = args.batch * args.beams;
  BadBeam bad{flat / args.beams, flat % args.beams, -1, args.lengths[flat]};
  if (bad.value < 0 || bad.value > args.time) return bad;
  bad.time = bad.value;
  bad.value = bad.beam;
  while (bad.value >= 0 && bad.value < args.beams) {
    --bad.time;
    bad.value =
        args.parent_ids[bad.time * all + bad.batch * args.beams + bad.value];
  }
  return bad;
}

}  // namespace

template <typename Id>
Error GatherTree(const Cpu& cpu, const GatherTreeArgs<Id>& args, BadBeam* bad) {
  const int64_t all = args.batch * args.beams;
  std::atomic<int64_t> first_bad{all};
  cpu.ParallelFor(all, 5. * args.time + 10, [&](int64_t begin, int64_t end) {
    const int64_t found = GatherBeams(args, begin, end);
    if (found == end) return;
    int64_t first = first_bad.load();
    while (found < first && !first_bad.compare_exchange_weak(first, found)) {
    }
  });
  *bad = first_bad.load() < all ? Describe(args, first_bad.load()) : BadBeam();
  return nullptr;
}

template Error GatherTree(const Cpu&, const GatherTreeArgs<int32_t>&, BadBeam*);
template Error GatherTree(const Cpu&, const GatherTreeArgs<int64_t>&, BadBeam*);

}  // namespace tfo
