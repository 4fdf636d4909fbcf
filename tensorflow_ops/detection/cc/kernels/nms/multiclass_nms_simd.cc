// multiclass_nms on the CPU. Suppression in classes and the choice of an
// image's best are one sweep over the scores of all classes, best first, which
// ends when the image has its boxes. So few scores are sorted: first the best
// that one pass over the scores finds; if these are too few, more and more,
// from bins in which all scores are counted.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/nms/multiclass_nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_kept_simd.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_order.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Scores in bins of equal upper bits, counted to find the best without sorting.
constexpr int kBinBits = 14;

// Scores that are searched at a time.
constexpr int64_t kBlock = 1024;

// Bit i is set where lane i of a comparison is true.
template <typename Mask>
TFO_INLINE uint32_t LaneBits(Mask mask) {
#ifdef __AVX512F__
  const __m512i m = reinterpret_cast<__m512i>(mask);
  if constexpr (sizeof(mask[0]) == 4) return _mm512_test_epi32_mask(m, m);
  return _mm512_test_epi64_mask(m, m);
#elif defined(__aarch64__)
  uint32_t bits = 0;
  for (size_t i = 0; i < sizeof(mask) / sizeof(mask[0]); ++i) {
    bits |= static_cast<uint32_t>(mask[i] & 1) << i;
  }
  return bits;
#else
  if constexpr (sizeof(mask[0]) == 4) {
    return _mm256_movemask_ps(reinterpret_cast<__m256>(mask));
  }
  return _mm256_movemask_pd(reinterpret_cast<__m256d>(mask));
#endif
}

// Writes the places of the n scores above the threshold; returns how many
// there are. `places` has room for n.
template <typename T>
int64_t FindAbove(const T* scores, int64_t n, T threshold, int32_t* places) {
  using Integer = typename Lanes<T>::Integer;
  using Index = typename Lanes<T>::Index;
  constexpr int kCount = Lanes<T>::kCount;
  // Comparisons of the scores themselves would take subnormal ones for zeros on
  // threads that flush them.
  Integer limit;
  memcpy(&limit, &threshold, sizeof(limit));
  limit = OrderOf<Integer>(limit);
  int64_t found = 0, at = 0;
  for (; at + kCount <= n; at += kCount) {
    Index bits;
    memcpy(&bits, scores + at, sizeof(bits));
    uint32_t above = LaneBits(OrderOf<Integer>(bits) > limit);
    for (; above != 0; above &= above - 1) {
      places[found++] = static_cast<int32_t>(at + __builtin_ctz(above));
    }
  }
  for (; at < n; ++at) {
    Integer bits;
    memcpy(&bits, scores + at, sizeof(bits));
    if (OrderOf<Integer>(bits) > limit) {
      places[found++] = static_cast<int32_t>(at);
    }
  }
  return found;
}

template <typename T, bool kRotated>
class ImageSweep {
 public:
  using Key = ScoreKey<T>;
  using Item = Ranked<Key>;
  using Kept = KeptBoxes<T, kRotated>;

  explicit ImageSweep(const MulticlassNmsArgs<T>& args)
      : args_(args), limit_(KeyOfScore(args.score_threshold)) {}

  void Run(int64_t image) {
    boxes_ = args_.BoxesOf(image);
    scores_ = args_.scores + image * args_.num_boxes * args_.classes;
    first_output_ = image * args_.max_outputs;
    count_ = 0;
    if (!SweepTop()) SweepAll();
    args_.counts[image] = static_cast<int32_t>(count_);
    for (int64_t m = count_; m < args_.max_outputs; ++m) {
      args_.indices[first_output_ + m] = -1;
      args_.class_ids[first_output_ + m] = 0;
      args_.positions[first_output_ + m] = 0;
    }
  }

 private:
  static int64_t BinOf(Key key) { return key >> (8 * sizeof(Key) - kBinBits); }

  // Enough candidates for most images.
  int64_t Portion() const {
    return std::max<int64_t>(256, 3 * args_.max_outputs);
  }

  // Sweeps over some of the best scores. Returns whether these were enough.
  bool SweepTop() {
    const int64_t portion = Portion();
    const bool has_threshold = args_.score_threshold == args_.score_threshold;
    if (args_.MostPerClass() == 0) return true;
    if (!has_threshold || portion > args_.num_boxes * args_.classes) {
      return false;
    }
    const bool are_all = FindTop(portion);
    capacities_.assign(args_.classes, 0);
    for (const Item& item : items_) ++capacities_[item.index % args_.classes];
    Kept kept = StartSweep();
    Item* const begin = items_.data();
    Item* const end = begin + items_.size();
    Item* const rest = begin + std::min<int64_t>(portion, items_.size());
    std::sort(begin, rest, IsBetter);
    SweepItems(begin, rest - begin, &kept);
    if (count_ < args_.max_outputs) {
      std::sort(rest, end, IsBetter);
      SweepItems(rest, end - rest, &kept);
    }
    return are_all || count_ == args_.max_outputs;
  }

  static bool IsBetter(const Item& a, const Item& b) {
    return a.key != b.key ? a.key < b.key : a.index < b.index;
  }

  // Collects the best items in items_, and moves the best `portion` to the
  // front. Returns whether items_ has all items.
  bool FindTop(int64_t portion) {
    const int64_t size = args_.num_boxes * args_.classes;
    T threshold = args_.score_threshold;
    bool are_all = true;
    items_.clear();
    items_.reserve(4 * portion + kBlock);
    for (int64_t begin = 0; begin < size; begin += kBlock) {
      int32_t places[kBlock];
      const int64_t count = FindAbove(
          scores_ + begin, std::min(kBlock, size - begin), threshold, places);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t p = begin + places[i];
        items_.push_back({KeyOfScore(scores_[p]), static_cast<int32_t>(p)});
      }
      if (static_cast<int64_t>(items_.size()) <= 4 * portion) continue;
      BestFirst(portion);
      items_.resize(portion);
      // An equal score that comes later is no better.
      threshold = scores_[items_.back().index];
      are_all = false;
    }
    BestFirst(portion);
    return are_all;
  }

  // The last of the best is the worst of them.
  void BestFirst(int64_t portion) {
    if (static_cast<int64_t>(items_.size()) <= portion) return;
    std::nth_element(items_.begin(), items_.begin() + (portion - 1),
                     items_.end(), IsBetter);
  }

  // An empty sweep over scores of capacities_[c] boxes of class c.
  Kept StartSweep() {
    const int32_t most = static_cast<int32_t>(args_.MostPerClass());
    for (int32_t& capacity : capacities_) capacity = std::min(capacity, most);
    of_class_.assign(args_.classes, 0);
    count_ = 0;
    return Kept(args_.iou_threshold, capacities_);
  }

  // Sweeps over all scores.
  void SweepAll() {
    if (args_.MostPerClass() == 0) return;
    CountScores();
    Kept kept = StartSweep();
    constexpr int64_t kBins = int64_t{1} << kBinBits;
    int64_t portion = Portion();
    for (int64_t begin = 0; begin < kBins && count_ < args_.max_outputs;) {
      int64_t end = begin, n = 0;
      while (end < kBins && n < portion) n += bins_[end++];
      if (n > 0) SweepBins(begin, end, n, &kept);
      begin = end;
      portion *= 8;
    }
  }

  // The scores above the threshold, by bin and by class.
  void CountScores() {
    bins_.assign(size_t{1} << kBinBits, 0);
    capacities_.assign(args_.classes, 0);
    const T* score = scores_;
    for (int64_t k = 0; k < args_.num_boxes; ++k) {
      for (int64_t c = 0; c < args_.classes; ++c) {
        // Without a branch, which would often be predicted wrongly.
        const Key key = KeyOfScore(*score++);
        const int32_t takes_part = key < limit_;
        bins_[BinOf(key)] += takes_part;
        capacities_[c] += takes_part;
      }
    }
  }

  // Goes through the n scores of the bins.
  void SweepBins(int64_t begin, int64_t end, int64_t n, Kept* kept) {
    items_.clear();
    items_.reserve(n);
    const int64_t size = args_.num_boxes * args_.classes;
    // The keys of the bins that take part: [least, least + width).
    constexpr int kShift = 8 * sizeof(Key) - kBinBits;
    const Key least = static_cast<Key>(begin) << kShift;
    const Key last =
        (static_cast<Key>(end - 1) << kShift) + ((Key{1} << kShift) - 1);
    const Key width = std::min<Key>(last, limit_ - 1) - least + 1;
    for (int64_t p = 0; p < size; ++p) {
      const Key key = KeyOfScore(scores_[p]);
      if (key - least >= width) continue;
      items_.push_back({key, static_cast<int32_t>(p)});
    }
    buffer_.resize(n);
    SweepItems(SortByKey(items_.data(), buffer_.data(), n), n, kept);
  }

  // Goes through n scores, best first.
  void SweepItems(const Item* best, int64_t n, Kept* kept) {
    const int64_t most = args_.MostPerClass();
    for (int64_t r = 0; r < n && count_ < args_.max_outputs; ++r) {
      const int32_t position = best[r].index;
      const int64_t c = position % args_.classes;
      if (of_class_[c] == most) continue;
      const auto box = ReadCompared<T, kRotated>(boxes_, args_.BoxOf(position),
                                                 args_.format);
      if (CanOverlap(box)) {
        if (kept->Suppress(box, c, 0)) continue;
        kept->Add(box, c);
      }
      ++of_class_[c];
      const int64_t to = first_output_ + count_++;
      args_.indices[to] = static_cast<int32_t>(position / args_.classes);
      args_.class_ids[to] = static_cast<int32_t>(c);
      args_.positions[to] = position;
    }
  }

  const MulticlassNmsArgs<T>& args_;

  const Key limit_;
  // Of the current image.
  const T *boxes_, *scores_;
  int64_t first_output_, count_;
  std::vector<int32_t> bins_, capacities_, of_class_;
  std::vector<Item> items_, buffer_;
};

template <bool kRotated, typename T>
void SweepImages(const Cpu& cpu, const MulticlassNmsArgs<T>& args) {
  const double cycles = 50000.0 + 1.0 * args.num_boxes * args.classes;
  cpu.ParallelFor(args.images, cycles, [&](int64_t begin, int64_t end) {
    ImageSweep<T, kRotated> sweep(args);
    for (int64_t image = begin; image < end; ++image) sweep.Run(image);
  });
}

}  // namespace

template <typename T>
Error MulticlassNms(const Cpu& cpu, const MulticlassNmsArgs<T>& args) {
  if (args.format == BoxFormat::kRotated) {
    SweepImages<true>(cpu, args);
  } else {
    SweepImages<false>(cpu, args);
  }
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(MulticlassNms, MulticlassNmsArgs);

}  // namespace tfo
