#include "tensorflow_ops/detection/cc/kernels/nms/nms_cells.h"

#include <cmath>
#include <limits>

#include "tensorflow_ops/detection/cc/kernels/nms/nms_order.h"

namespace tfo {
namespace {

// Smaller groups are faster to compare without bins.
constexpr int64_t kBoxesForBins = 4096;

// Numbers the groups of the candidates from 0; returns how many there are.
int64_t NumberGroups(const GroupIds& ids, const std::vector<int32_t>& order,
                     std::vector<int32_t>* groups) {
  const int64_t n = order.size();
  groups->resize(n);
  if (n == 0) return 1;
  int64_t least = ids[order[0]], greatest = least;
  for (int32_t i : order) {
    least = std::min(least, ids[i]);
    greatest = std::max(greatest, ids[i]);
  }
  // Modulo 2^64, because the difference may exceed int64.
  const uint64_t base = static_cast<uint64_t>(least);
  const uint64_t range = static_cast<uint64_t>(greatest) - base;
  if (range < static_cast<uint64_t>(2 * n)) {
    for (int64_t r = 0; r < n; ++r) {
      (*groups)[r] =
          static_cast<int32_t>(static_cast<uint64_t>(ids[order[r]]) - base);
    }
    return range + 1;
  }
  std::vector<Ranked<uint64_t>> items(n), buffer(n);
  for (int64_t r = 0; r < n; ++r) {
    items[r] = {static_cast<uint64_t>(ids[order[r]]) - base,
                static_cast<int32_t>(r)};
  }
  const Ranked<uint64_t>* const sorted =
      SortByKey(items.data(), buffer.data(), n);
  int32_t group = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0 && sorted[i].key != sorted[i - 1].key) ++group;
    (*groups)[sorted[i].index] = group;
  }
  return group + 1;
}

// Where boxes are on an axis.
struct Extent {
  double from = std::numeric_limits<double>::infinity(), to = -from;
  double lengths = 0;  // of all boxes

  void Add(double low, double high) {
    from = std::min(from, low);
    to = std::max(to, high);
    lengths += high - low;
  }
  // The share of the boxes that a line across the axis meets.
  double Crowding() const { return lengths / (to - from); }
};

// Whether bins on y tell boxes apart better than bins on x, by some of them.
template <typename T>
bool SpreadsAlongY(const NmsArgs<T>& args, const std::vector<int32_t>& order) {
  constexpr int64_t kSome = 256;
  Extent x, y;
  const int64_t n = order.size(), step = std::max<int64_t>(1, n / kSome);
  for (int64_t r = 0; r < n; r += step) {
    const Candidate<T> box = ReadCandidate(args.boxes, order[r], args.format);
    if (!box.can_overlap) continue;
    x.Add(box.row.x1, box.row.x2);
    y.Add(box.row.y1, box.row.y2);
  }
  return y.Crowding() < x.Crowding();
}

template <typename T>
AxisBins MakeBins(const NmsArgs<T>& args, const std::vector<int32_t>& order) {
  const bool along_y = SpreadsAlongY(args, order);
  double from = std::numeric_limits<double>::infinity(), to = -from;
  T smallest = std::numeric_limits<T>::infinity();
  for (int32_t i : order) {
    const Candidate<T> box = ReadCandidate(args.boxes, i, args.format);
    if (!box.can_overlap) continue;
    from = std::min<double>(from, along_y ? box.row.y1 : box.row.x1);
    to = std::max<double>(to, along_y ? box.row.y2 : box.row.x2);
    smallest = std::min(smallest, box.row.area);
  }
  if (!(std::isfinite(from) && std::isfinite(to) && from < to &&
        std::isfinite(to - from))) {
    return AxisBins();
  }
  // Below, products have large roundings; rows of rotated boxes are squares
  // around them.
  const bool exact =
      args.format != BoxFormat::kRotated && smallest > static_cast<T>(1e-30);
  return AxisBins(along_y, from, to,
                  exact ? static_cast<double>(args.iou_threshold) : 0);
}

}  // namespace

AxisBins::AxisBins(bool along_y, double from, double to, double iou_threshold)
    // 1% below, for roundings.
    : along_y_(along_y),
      from_(from),
      threshold_(0.99 * iou_threshold),
      size_(0) {
  constexpr int64_t kMostBins = 256;
  double narrowest = 0;
  for (int64_t bins = kMostBins; bins >= 1; bins /= 2) {
    const double width = (to - from) / bins;
    // Narrower than a bin, so that roundings do not reach beyond the next.
    const double widest = bins == 1 ? 2 * width : width / 1.01;
    levels_.push_back(
        {size_, bins, 1 / width, narrowest, widest, 1e-3 * width});
    narrowest = widest;
    size_ += bins;
  }
}

template <typename T>
NmsCells<T>::NmsCells(const NmsArgs<T>& args,
                      const std::vector<int32_t>& order) {
  if (args.groups.exist()) {
    num_groups_ = NumberGroups(args.groups, order, &groups_);
  }
  if (static_cast<int64_t>(order.size()) >= kBoxesForBins * num_groups_) {
    bins_ = MakeBins(args, order);
  }
}

template <typename T>
std::vector<int32_t> NmsCells<T>::Capacities(
    const NmsArgs<T>& args, const std::vector<int32_t>& order) const {
  std::vector<int32_t> capacities(num_groups_ * bins_.size());
  const int64_t n = order.size();
  const int64_t most = args.max_outputs < 0 ? n : args.max_outputs;
  if (capacities.size() == 1) {
    capacities[0] = static_cast<int32_t>(std::min(n, most));
    return capacities;
  }
  for (int64_t r = 0; r < n; ++r) {
    int64_t cell = Group(r);
    if (!are_groups()) {
      const Candidate<T> box = ReadCandidate(args.boxes, order[r], args.format);
      if (!box.can_overlap) continue;
      cell = CellOf(r, box.row);
    }
    if (capacities[cell] < most) ++capacities[cell];
  }
  return capacities;
}

template class NmsCells<float>;
template class NmsCells<double>;

}  // namespace tfo
