// The beam search of ctc_beams.h by the threads of a block: the same candidates
// in the same order. For .cu.cc files.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_BEAMS_GPU_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_BEAMS_GPU_H_

#include <cmath>
#include <cstdint>

#include "tensorflow_ops/core/cc/cuda/sort_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_prefix.h"

namespace tfo {

// Keeps the best of the items that a block's threads offer. Threads add items
// in any order; the result is the same, since no two items have equal ranks.
class BestRanks {
 public:
  // The number of items in memory: a power of two.
  static int64_t Capacity(int64_t keep, int threads) {
    int64_t capacity = 1;
    while (capacity < keep + threads) capacity *= 2;
    return capacity;
  }

  __device__ BestRanks(CtcRank* ranks, int* count, int64_t keep,
                       int64_t capacity)
      : ranks_(ranks), count_(count), keep_(keep), capacity_(capacity) {}

  __device__ static CtcRank None() { return {-INFINITY, INT64_MAX}; }

  // All threads of the block call this and the next two.
  __device__ void Clear() {
    __syncthreads();
    if (threadIdx.x == 0) *count_ = 0;
    bound_ = None();
    __syncthreads();
  }
  __device__ void Offer(const CtcRank& rank) {
    int64_t end = 0;
    if (Wants(rank)) {
      const int at = atomicAdd(count_, 1);
      ranks_[at] = rank;
      end = at + 1;
    }
    // The next call needs room for an item of each thread.
    if (__syncthreads_or(end + blockDim.x > capacity_)) Sort();
  }
  // Sorts the best, and returns how many there are.
  __device__ int64_t Sort() {
    const int64_t count = *count_;
    int64_t n = 1;
    while (n < count) n *= 2;
    for (int64_t i = count + threadIdx.x; i < n; i += blockDim.x) {
      ranks_[i] = None();
    }
    SortInBlock(ranks_, n, [](const CtcRank& a, const CtcRank& b) {
      return a.IsBefore(b);
    });
    const bool is_full = count >= keep_;
    const int64_t kept = is_full ? keep_ : count;
    if (threadIdx.x == 0) *count_ = static_cast<int>(kept);
    if (is_full && keep_ > 0) bound_ = ranks_[keep_ - 1];
    __syncthreads();
    return kept;
  }

  // Returns whether it is a candidate, and one of the best so far.
  __device__ bool Wants(const CtcRank& rank) const {
    return rank.score > -INFINITY && rank.IsBefore(bound_);
  }
  __device__ const CtcRank& operator[](int64_t i) const { return ranks_[i]; }

 private:
  CtcRank* ranks_;
  int* count_;
  int64_t keep_, capacity_;
  CtcRank bound_ = None();
};

// The layout of a block's beam in its memory.
struct CtcBeamLayout {
  int64_t width, capacity, slots;
  int64_t next, ranks, table, parents;  // in bytes; prefixes begin at 0
  int64_t bytes;

  CtcBeamLayout() = default;
  CtcBeamLayout(int64_t of_width, int threads) : width(of_width) {
    capacity = BestRanks::Capacity(width, threads);
    slots = 4;
    while (slots < 2 * width) slots *= 2;
    const int64_t of_prefixes = width * sizeof(CtcPrefix);
    next = of_prefixes;
    ranks = next + of_prefixes;
    table = ranks + capacity * sizeof(CtcRank);
    parents = table + slots * sizeof(int);
    bytes = RoundUp(parents + width * sizeof(int), 16);
  }
};
static_assert(sizeof(CtcPrefix) % 16 == 0);

// All threads of the block call the methods of a beam.
class CtcBlockBeams {
 public:
  __device__ CtcBlockBeams(const CtcBeamLayout& layout, char* memory,
                           int* shared_count)
      : width_(layout.width),
        mask_(layout.slots - 1),
        prefixes_(reinterpret_cast<CtcPrefix*>(memory)),
        next_(reinterpret_cast<CtcPrefix*>(memory + layout.next)),
        best_(reinterpret_cast<CtcRank*>(memory + layout.ranks), shared_count,
              layout.width, layout.capacity),
        table_(reinterpret_cast<int*>(memory + layout.table)),
        parents_(reinterpret_cast<int*>(memory + layout.parents)) {}

  // Best first. Whoever writes them sets their number, and synchronizes.
  __device__ CtcPrefix* prefixes() const { return prefixes_; }
  __device__ int64_t size() const { return size_; }
  __device__ void set_size(int64_t size) { size_ = size; }

  // Advances by a frame, which has
  //   kByBest            as CtcBeams::AdvanceByBest, not AdvanceByAll
  //   count, Label(r)    the labels
  //   blank, LogProb(c)  of any class
  //   Bonus(i, label)    what a label adds to the score of prefix i
  template <typename Frame>
  __device__ void Advance(const Frame& frame) {
    FindParents();
    best_.Clear();
    for (int64_t begin = 0; begin < size_; begin += blockDim.x) {
      const int64_t i = begin + threadIdx.x;
      CtcRank rank = BestRanks::None();
      if (i < size_) rank = {Stay(frame, i).total + prefixes_[i].bonus, i};
      best_.Offer(rank);
    }
    if constexpr (Frame::kByBest) {
      // The prefixes and the labels are both in descending order. Before the
      // candidate of prefix i and its label r come those of prefixes up to i
      // and labels up to r, except for a repeated label of each prefix: at
      // least (i + 1) * r - 1. `width` are enough. Extends rectangles of
      // prefixes and labels, each with twice as many prefixes as the last.
      for (int64_t first = 0; first < size_; first = 2 * first + 1) {
        const int64_t ranks = width_ / (first + 1) + 1;
        Extend(frame, first, min(first + 1, size_ - first),
               min(ranks, frame.count));
      }
    } else {
      Extend(frame, 0, size_, frame.count);
    }
    const int64_t kept = best_.Sort();
    for (int64_t k = threadIdx.x; k < kept; k += blockDim.x) {
      next_[k] = Next(frame, best_[k].order);
    }
    __syncthreads();
    CtcPrefix* const before = prefixes_;
    prefixes_ = next_;
    next_ = before;
    size_ = kept;
  }

 private:
  static constexpr int kEmpty = INT32_MAX;

  __device__ static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

  // Offers extensions of `count` prefixes by the first `labels` labels each.
  template <typename Frame>
  __device__ void Extend(const Frame& frame, int64_t first, int64_t count,
                         int64_t labels) {
    if (labels == 0) return;
    // The thread's candidate is label r of prefix i; labels are below 2^31.
    const unsigned of_each = static_cast<unsigned>(labels);
    const unsigned prefixes = blockDim.x / of_each, rest = blockDim.x % of_each;
    int64_t i = first + threadIdx.x / of_each, r = threadIdx.x % of_each;
    for (int64_t begin = 0; begin < count * labels; begin += blockDim.x) {
      CtcRank rank = BestRanks::None();
      if (i < first + count) {
        const CtcPrefix& prefix = prefixes_[i];
        const CtcLabel label = frame.Label(r);
        const double log_prob = prefix.Before(label.label) + label.log_prob;
        rank = {log_prob + (prefix.bonus + frame.Bonus(i, label.label)),
                size_ + i * frame.count + r};
        if (best_.Wants(rank) && Find(prefix.id.Then(label.label)) >= 0) {
          rank = BestRanks::None();
        }
      }
      best_.Offer(rank);
      i += prefixes;
      r += rest;
      if (r >= labels) {
        r -= labels;
        ++i;
      }
    }
  }

  template <typename Frame>
  __device__ CtcStay Stay(const Frame& frame, int64_t i) const {
    const CtcPrefix& prefix = prefixes_[i];
    return prefix.Stay(frame.LogProb(frame.blank),
                       prefix.last >= 0 ? frame.LogProb(prefix.last) : 0,
                       parents_[i] >= 0 ? &prefixes_[parents_[i]] : nullptr);
  }

  // The prefix of a candidate.
  template <typename Frame>
  __device__ CtcPrefix Next(const Frame& frame, int64_t order) const {
    if (order < size_)
      return prefixes_[order].Stayed(order, Stay(frame, order));
    const int64_t i = (order - size_) / frame.count;
    const CtcLabel label = frame.Label((order - size_) % frame.count);
    const CtcPrefix& prefix = prefixes_[i];
    return prefix.Extended(i, label.label,
                           prefix.Before(label.label) + label.log_prob,
                           prefix.bonus + frame.Bonus(i, label.label));
  }

  // Fills a hash table of prefixes. On a collision, the lowest prefix wins the
  // slot, so threads may fill the table in any order.
  __device__ void FindParents() {
    for (int64_t s = threadIdx.x; s <= mask_; s += blockDim.x) {
      table_[s] = kEmpty;
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < size_; i += blockDim.x) {
      int mine = static_cast<int>(i);
      for (uint64_t at = prefixes_[i].id.a; mine != kEmpty; ++at) {
        const int other = atomicMin(&table_[at & mask_], mine);
        if (other > mine) mine = other;
      }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < size_; i += blockDim.x) {
      const CtcPrefix& prefix = prefixes_[i];
      parents_[i] = prefix.last < 0 ? -1 : Find(prefix.parent);
    }
    __syncthreads();
  }
  // Returns the position of a prefix, or -1.
  __device__ int Find(const CtcPrefixId& id) const {
    for (uint64_t at = id.a;; ++at) {
      const int i = table_[at & mask_];
      if (i == kEmpty) return -1;
      if (prefixes_[i].id == id) return i;
    }
  }

  int64_t width_, mask_, size_ = 0;
  CtcPrefix *prefixes_, *next_;
  BestRanks best_;
  int *table_, *parents_;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_BEAMS_GPU_H_
