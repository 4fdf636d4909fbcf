#include "tensorflow_ops/detection/cc/kernels/assignment/assignment_simd.h"

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

using Index = Lanes<double>::Index;
constexpr int kLanes = Lanes<double>::kCount;
static_assert(kSinkMultiple % kLanes == 0);

}  // namespace

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

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
