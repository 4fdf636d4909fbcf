// nms on the CPU.
#include <algorithm>
#include <memory>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_cells.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_kept_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// The candidates, best first.
template <typename T>
std::vector<int32_t> Order(const NmsArgs<T>& args) {
  using Item = Ranked<ScoreKey<T>>;
  const ScoreKey<T> limit = KeyOfScore(args.score_threshold);
  // Not cleared. One at a time: half is freed before `order` is allocated.
  std::unique_ptr<Item[]> items(new Item[args.num_boxes]);
  std::unique_ptr<Item[]> buffer(new Item[args.num_boxes]);
  int64_t n = 0;
  for (int64_t i = 0; i < args.num_boxes; ++i) {
    const ScoreKey<T> key = KeyOfScore(args.scores[i]);
    items[n] = {key, static_cast<int32_t>(i)};
    n += key < limit;
  }
  if (SortByKey(items.get(), buffer.get(), n) != items.get()) {
    items.swap(buffer);
  }
  buffer.reset();
  std::vector<int32_t> order(n);
  for (int64_t r = 0; r < n; ++r) order[r] = items[r].index;
  return order;
}

// Waking threads for a chunk that takes one thread less than this takes longer
// than it saves.
constexpr double kParallelCycles = 2e5;

// Smaller groups are not worth a task and room between them.
constexpr int64_t kSharedGroup = 64;

// Goes through the candidates in chunks: threads compare those of a chunk with
// the boxes kept before it; then one thread goes through what is left and
// compares it with the boxes kept since. Threads share many groups instead.
template <typename T, bool kRotated>
class Sweep {
 public:
  using Compared = ComparedBox<T, kRotated>;

  // Run replaces the candidates in `order`, best first, by the kept ones.
  Sweep(const Cpu& cpu, const NmsArgs<T>& args, std::vector<int32_t>* order)
      : most_(args.max_outputs < 0 ? order->size() : args.max_outputs),
        order_(*order),
        boxes_(Read(cpu, args, *order)),
        cells_(args.groups, args.iou_threshold, *order, boxes_),
        shares_groups_(cells_.are_groups() &&
                       cells_.num_groups() * kSharedGroup <=
                           static_cast<int64_t>(order->size())),
        kept_boxes_(args.iou_threshold, Capacities()) {}

  void Run(const Cpu& cpu) {
    const int64_t n = order_.size();
    if (shares_groups_ && cells_.num_groups() >= 2 * cpu.num_threads &&
        most_ >= n && RunGroups(cpu)) {
      return;
    }
    constexpr int64_t kChunk = 512;
    const int64_t chunk = cpu.num_threads > 1 ? std::max(kChunk, n / 16) : n;
    std::vector<char> gone;
    std::vector<int32_t> compared(kept_boxes_.counts().size());
    for (int64_t begin = 0; begin < n && count_ < most_; begin += chunk) {
      const int64_t end = std::min(n, begin + chunk);
      const double cycles = CyclesPerCandidate();
      // From the first such chunk on, all are.
      const bool in_parallel =
          cpu.num_threads > 1 && cycles * chunk >= kParallelCycles;
      if (in_parallel) {
        gone.resize(chunk);
        CompareChunk(cpu, cycles, begin, end, gone.data());
        // Not assigned: that would need a newer C++ library.
        const std::vector<int32_t>& counts = kept_boxes_.counts();
        std::copy(counts.begin(), counts.end(), compared.begin());
      }
      for (int64_t rank = begin; rank < end && count_ < most_; ++rank) {
        if (!in_parallel || !gone[rank - begin]) KeepOrDrop(rank, compared);
      }
    }
    order_.resize(count_);
  }

 private:
  static std::vector<Compared> Read(const Cpu& cpu, const NmsArgs<T>& args,
                                    const std::vector<int32_t>& order) {
    std::vector<Compared> boxes(order.size());
    cpu.ParallelFor(
        order.size(), kRotated ? 200 : 10, [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            boxes[r] =
                ReadCompared<T, kRotated>(args.boxes, order[r], args.format);
          }
        });
    return boxes;
  }

  std::vector<int32_t> Capacities() const {
    std::vector<int32_t> capacities = cells_.Capacities(boxes_, most_);
    if (shares_groups_) {
      // A vector's load may pass the end of a group, where another thread must
      // not write.
      for (int32_t& capacity : capacities)
        capacity += KeptBoxes<T, kRotated>::kPadding;
    }
    return capacities;
  }

  // Goes through one group after another. Threads share these. Returns false
  // if one group is most of the work.
  bool RunGroups(const Cpu& cpu) {
    const int64_t n = order_.size(), groups = cells_.num_groups();
    // The ranks of each group, in order.
    std::vector<int32_t> ends(groups + 1), ranks(n);
    for (int64_t r = 0; r < n; ++r) ++ends[cells_.Group(r) + 1];
    const int64_t largest = *std::max_element(ends.begin(), ends.end());
    if (largest * cpu.num_threads > 2 * n) return false;
    for (int64_t g = 0; g < groups; ++g) ends[g + 1] += ends[g];
    for (int64_t r = 0; r < n; ++r) ranks[ends[cells_.Group(r)]++] = r;
    const double of_group = static_cast<double>(n) / groups;
    cpu.ParallelFor(groups, of_group * (50 + 0.25 * of_group),
                    [&](int64_t begin, int64_t end) {
                      int64_t i = begin == 0 ? 0 : ends[begin - 1];
                      for (int64_t g = begin; g < end; ++g) {
                        for (; i < ends[g]; ++i) {
                          if (!KeepInGroup(ranks[i], g)) ranks[i] = -1;
                        }
                      }
                    });
    std::vector<char> is_kept(n);
    for (int32_t rank : ranks) {
      if (rank >= 0) is_kept[rank] = true;
    }
    for (int64_t rank = 0; rank < n; ++rank) {
      order_[count_] = order_[rank];
      count_ += is_kept[rank];
    }
    order_.resize(count_);
    return true;
  }

  bool KeepInGroup(int64_t rank, int64_t group) {
    const Compared& box = boxes_[rank];
    if (!CanOverlap(box)) return true;
    if (kept_boxes_.Suppress(box, group, 0)) return false;
    kept_boxes_.Add(box, group);
    return true;
  }

  double CyclesPerCandidate() const {
    const double cycles = 50 + cells_.cycles_per_kept() * count_;
    return kRotated ? 4 * cycles : cycles;
  }

  // Compares with the boxes of each cell from the given one on.
  bool IsSuppressed(int64_t rank, const std::vector<int32_t>& from) const {
    const Compared& box = boxes_[rank];
    return CanOverlap(box) &&
           cells_.AnyCell(rank, Around(box).corners, [&](int64_t cell) {
             return kept_boxes_.Suppress(box, cell, from[cell]);
           });
  }

  void CompareChunk(const Cpu& cpu, double cycles, int64_t begin, int64_t end,
                    char* gone) {
    cpu.ParallelFor(end - begin, cycles, [&](int64_t from, int64_t to) {
      const std::vector<int32_t> none(kept_boxes_.counts().size());
      for (int64_t i = from; i < to; ++i) {
        gone[i] = IsSuppressed(begin + i, none);
      }
    });
  }

  void KeepOrDrop(int64_t rank, const std::vector<int32_t>& compared) {
    if (IsSuppressed(rank, compared)) return;
    // No more boxes are kept than ranks are read.
    order_[count_++] = order_[rank];
    const Compared& box = boxes_[rank];
    if (CanOverlap(box)) {
      kept_boxes_.Add(box, cells_.CellOf(rank, Around(box).corners));
    }
  }

  const int64_t most_;
  std::vector<int32_t>& order_;
  const std::vector<Compared> boxes_;  // of the ranks
  const NmsCells<T, kRotated> cells_;
  // Whether groups have the average size that pays for room between them.
  const bool shares_groups_;
  KeptBoxes<T, kRotated> kept_boxes_;
  int64_t count_ = 0;
};

}  // namespace

template <typename T>
Error Nms(const Cpu& cpu, const NmsArgs<T>& args) {
  *args.count = 0;
  if (args.max_outputs == 0) return nullptr;
  std::vector<int32_t> order = Order(args);
  if (args.format == BoxFormat::kRotated) {
    Sweep<T, true>(cpu, args, &order).Run(cpu);
  } else {
    Sweep<T, false>(cpu, args, &order).Run(cpu);
  }
  std::copy(order.begin(), order.end(), args.kept);
  *args.count = static_cast<int32_t>(order.size());
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(Nms, NmsArgs);

}  // namespace tfo
