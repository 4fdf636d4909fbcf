// multiclass_nms on the CPU. Suppression in classes and the choice of an
// image's best are one sweep over the scores of all classes, best first, which
// ends when the image has its boxes. So few scores are sorted.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/multiclass_nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms_kept.h"
#include "tensorflow_ops/detection/cc/kernels/nms_order.h"

namespace tfo {
namespace {

// Scores in bins of equal upper bits, counted to find the best without sorting.
constexpr int kBinBits = 14;

template <typename T>
class ImageSweep {
 public:
  using Key = ScoreKey<T>;

  ImageSweep(const MulticlassNmsArgs<T>& args,
             const MulticlassNmsResult& result)
      : args_(args),
        result_(result),
        limit_(KeyOfThreshold(args.score_threshold)) {}

  void Run(int64_t image) {
    boxes_ = args_.BoxesOf(image);
    scores_ = args_.scores + image * args_.num_boxes * args_.classes;
    first_output_ = image * args_.max_outputs;
    count_ = 0;
    SweepBest();
    result_.counts[image] = static_cast<int32_t>(count_);
    for (int64_t m = count_; m < args_.max_outputs; ++m) {
      result_.indices[first_output_ + m] = -1;
      result_.class_ids[first_output_ + m] = 0;
      result_.positions[first_output_ + m] = 0;
    }
  }

 private:
  static int64_t BinOf(Key key) { return key >> (8 * sizeof(Key) - kBinBits); }

  void SweepBest() {
    if (args_.MostPerClass() == 0) return;
    CountScores();
    KeptBoxes<T> kept(args_.format, args_.iou_threshold, capacities_);
    of_class_.assign(args_.classes, 0);
    constexpr int64_t kBins = int64_t{1} << kBinBits;
    // Most images have their boxes after the first portion.
    int64_t portion = std::max<int64_t>(256, 3 * args_.max_outputs);
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
    const int32_t most = static_cast<int32_t>(args_.MostPerClass());
    for (int32_t& capacity : capacities_) capacity = std::min(capacity, most);
  }

  // Goes through the n scores of the bins.
  void SweepBins(int64_t begin, int64_t end, int64_t n, KeptBoxes<T>* kept) {
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
    const Ranked<Key>* const best = SortByKey(items_.data(), buffer_.data(), n);
    const int64_t most = args_.MostPerClass();
    for (int64_t r = 0; r < n && count_ < args_.max_outputs; ++r) {
      const int32_t position = best[r].index;
      const int64_t c = position % args_.classes;
      if (of_class_[c] == most) continue;
      const Candidate<T> candidate =
          ReadCandidate(boxes_, args_.BoxOf(position), args_.format);
      if (candidate.can_overlap) {
        if (kept->Suppress(candidate, c, 0)) continue;
        kept->Add(candidate, c);
      }
      ++of_class_[c];
      const int64_t to = first_output_ + count_++;
      result_.indices[to] = static_cast<int32_t>(position / args_.classes);
      result_.class_ids[to] = static_cast<int32_t>(c);
      result_.positions[to] = position;
    }
  }

  const MulticlassNmsArgs<T>& args_;
  const MulticlassNmsResult& result_;
  const Key limit_;
  // Of the current image.
  const T *boxes_, *scores_;
  int64_t first_output_, count_;
  std::vector<int32_t> bins_, capacities_, of_class_;
  std::vector<Ranked<Key>> items_, buffer_;
};

}  // namespace

template <typename T>
Error MulticlassNms(const Cpu& cpu, const MulticlassNmsArgs<T>& args,
                    const MulticlassNmsResult& result) {
  const double cycles = 10000.0 + 8.0 * args.num_boxes * args.classes;
  cpu.ParallelFor(args.images, cycles, [&](int64_t begin, int64_t end) {
    ImageSweep<T> sweep(args, result);
    for (int64_t image = begin; image < end; ++image) sweep.Run(image);
  });
  return nullptr;
}

template Error MulticlassNms(const Cpu&, const MulticlassNmsArgs<float>&,
                             const MulticlassNmsResult&);
template Error MulticlassNms(const Cpu&, const MulticlassNmsArgs<double>&,
                             const MulticlassNmsResult&);

}  // namespace tfo
