#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/detection/cc/kernels/assignment/assignment_search.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

using Index = Lanes<double>::Index;
constexpr int kLanes = Lanes<double>::kCount;
static_assert(kSinkMultiple % kLanes == 0);

// Updates `nearest` and `from` where the way through the source is shorter.
// Returns the nearest sink: of equal ones, the first without an owner, else
// the first; -1 if none is reached. Sets *low to its distance.
int64_t RelaxSinks(const SinkScan& of, double* low) {
  const SinkScan scan = of;  // what the loop stores cannot change it
  const DoubleVector base = Broadcast<DoubleVector>(scan.base);
  const Index source = Broadcast<Index>(scan.source);
  const auto unreached = Broadcast<DoubleVector>(__builtin_inf());
  DoubleVector least = unreached;
  for (int64_t t = 0; t < scan.sinks; t += kLanes) {
    // +infinity for closed sinks, whose potential is -infinity.
    const DoubleVector through =
        base + Load(scan.costs + t) - Load(scan.potentials + t);
    const DoubleVector before =
        scan.is_first ? unreached : Load(scan.nearest + t);
    const Index is_shorter = through < before;
    const DoubleVector now = is_shorter ? through : before;
    Store(now, scan.nearest + t);
    Index from;
    memcpy(&from, scan.from + t, sizeof(from));
    from = is_shorter ? source : from;
    memcpy(scan.from + t, &from, sizeof(from));
    least = now < least ? now : least;
  }
  double nearest = least[0];
  for (int i = 1; i < kLanes; ++i) {
    nearest = least[i] < nearest ? least[i] : nearest;
  }
  *low = nearest;
  if (nearest == __builtin_inf()) return -1;

  int64_t first = -1;
  const DoubleVector wanted = Broadcast<DoubleVector>(nearest);
  for (int64_t t = 0; t < scan.sinks; t += kLanes) {
    const Index is_nearest = Load(scan.nearest + t) == wanted;
    if (!AnyLane(is_nearest)) continue;
    for (int i = 0; i < kLanes; ++i) {
      if (is_nearest[i] == 0) continue;
      if (scan.owners[t + i] < 0) return t + i;
      if (first < 0) first = t + i;
    }
  }
  return first;
}

struct OneThread {
  template <typename Body>
  void ForEach(int64_t n, const Body& body) const {
    for (int64_t i = 0; i < n; ++i) body(i);
  }
  template <typename IsOne>
  bool Any(int64_t n, const IsOne& is_one) const {
    bool any = false;
    for (int64_t i = 0; i < n; ++i) any |= is_one(i);
    return any;
  }
  template <typename Body>
  void Alone(const Body& body) const {
    body();
  }
  int64_t Relax(const SinkScan& scan, double* low) const {
    return RelaxSinks(scan, low);
  }
};

}  // namespace

template <typename T>
Error LinearSumAssignment(const Cpu& cpu, const AssignmentArgs<T>& args) {
  const AssignmentMemory sizes(args.rows, args.columns, 1, nullptr);
  // Most searches reach few sinks.
  const double cycles =
      args.rows * args.columns * (2 + sizes.most_sources / 32.0);
  cpu.ParallelFor(args.batch, cycles, [&](int64_t begin, int64_t end) {
    const Buffer<char> buffer(sizes.bytes);
    const AssignmentMemory memory(args.rows, args.columns, 1, buffer.data());
    for (int64_t i = begin; i < end; ++i) {
      AssignExample(OneThread(), args, i, memory);
    }
  });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(LinearSumAssignment, AssignmentArgs);

}  // namespace tfo
