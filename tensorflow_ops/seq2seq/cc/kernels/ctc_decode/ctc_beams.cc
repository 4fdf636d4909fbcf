#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_beams.h"

#include <algorithm>

namespace tfo {

void CtcBeams::FindParents() {
  const int64_t n = Size();
  uint64_t slots = 4;
  while (slots < 2 * static_cast<uint64_t>(n)) slots *= 2;
  table_.assign(slots, -1);
  const auto find = [&](const CtcPrefixId& id) -> int64_t& {
    uint64_t at = id.a;
    while (table_[at & (slots - 1)] >= 0 &&
           !(prefixes_[table_[at & (slots - 1)]].id == id)) {
      ++at;
    }
    return table_[at & (slots - 1)];
  };
  for (int64_t i = 0; i < n; ++i) find(prefixes_[i].id) = i;
  parents_.assign(n, -1);
  children_.assign(n, -1);
  siblings_.assign(n, -1);
  for (int64_t i = 0; i < n; ++i) {
    if (prefixes_[i].last < 0) continue;
    const int64_t parent = find(prefixes_[i].parent);
    if (parent < 0) continue;
    parents_[i] = parent;
    siblings_[i] = children_[parent];
    children_[parent] = i;
  }
}

bool CtcBeams::IsInBeam(int64_t i, int64_t label) const {
  int64_t child = children_[i];
  while (child >= 0 && prefixes_[child].last != label) child = siblings_[child];
  return child >= 0;
}

void CtcBeams::Start(const Frame& frame) {
  FindParents();
  const int64_t n = Size();
  stays_.resize(n);
  best_.clear();
  for (int64_t i = 0; i < n; ++i) {
    const CtcPrefix& prefix = prefixes_[i];
    stays_[i] =
        prefix.Stay(frame.blank, prefix.last >= 0 ? frame.last[i] : 0,
                    parents_[i] >= 0 ? &prefixes_[parents_[i]] : nullptr);
    const double score = stays_[i].total + prefix.bonus;
    if (!(score > -INFINITY)) continue;
    best_.push_back({{score, i}, 0, prefix.bonus, i, -1});
  }
  std::make_heap(best_.begin(), best_.end());
}

void CtcBeams::Keep(const Candidate& candidate) {
  if (static_cast<int64_t>(best_.size()) < width_) {
    best_.push_back(candidate);
  } else {
    std::pop_heap(best_.begin(), best_.end());
    best_.back() = candidate;
  }
  std::push_heap(best_.begin(), best_.end());
}

void CtcBeams::AdvanceByBest(const Frame& frame,
                             const std::vector<CtcLabel>& labels,
                             double label_bonus) {
  Start(frame);
  const int64_t count = labels.size();
  for (int64_t i = 0; i < Size(); ++i) {
    const double bonus = prefixes_[i].bonus + label_bonus;
    for (int64_t r = 0; r < count; ++r) {
      const Candidate candidate = Extension(i, r, count, labels[r], bonus);
      if (!IsKept(candidate)) {
        // Nor is any that follows, except after the repeated label.
        if (labels[r].label != prefixes_[i].last) break;
      } else if (!IsInBeam(i, labels[r].label)) {
        Keep(candidate);
      }
    }
  }
  Select();
}

void CtcBeams::Select() {
  std::sort_heap(best_.begin(), best_.end());
  next_.resize(best_.size());
  for (size_t k = 0; k < best_.size(); ++k) {
    const Candidate& best = best_[k];
    const CtcPrefix& from = prefixes_[best.prefix];
    next_[k] = best.added < 0 ? from.Stayed(best.prefix, stays_[best.prefix])
                              : from.Extended(best.prefix, best.added,
                                              best.log_prob, best.bonus);
  }
  prefixes_.swap(next_);
}

}  // namespace tfo
