// The taps of all boxes, on the host, and the orders in which they are gone
// through.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_TAPS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_TAPS_H_

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average_simd.h"

namespace tfo {

// Tap is Tap<C>, or SlopedTap<C>.
template <typename C, typename Tap>
class TapTable {
 public:
  TapTable(const Cpu& cpu, const RoiAverageArgs& args, const C* boxes,
           const int32_t* box_indices)
      : args_(args),
        places_(args.roi.num_boxes),
        parts_((args.roi.num_boxes + kPart - 1) / kPart) {
    const double cycles =
        200.0 * (args.roi.pooled_height + args.roi.pooled_width);
    cpu.ParallelFor(parts_.size(), kPart * cycles,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i)
                        Fill(i, boxes, box_indices);
                    });
  }

  // The box's level and image as one index; -1 for an invalid box, which has no
  // taps.
  int64_t Map(int64_t k) const { return places_[k]; }

  BinTaps<Tap> Rows(int64_t k) const {
    const Part& part = parts_[k / kPart];
    const int64_t bins = args_.roi.pooled_height + args_.roi.pooled_width;
    return {part.taps.data(), &part.begin[k % kPart * bins]};
  }
  BinTaps<Tap> Columns(int64_t k) const {
    const BinTaps<Tap> rows = Rows(k);
    return {rows.taps, rows.begin + args_.roi.pooled_height};
  }
  // Of all boxes.
  int64_t size() const {
    int64_t size = 0;
    for (const Part& part : parts_) size += part.taps.size();
    return size;
  }

 private:
  static constexpr int64_t kPart = 32;  // boxes
  struct Part {
    std::vector<Tap> taps;
    std::vector<int64_t> begin;  // of each bin: a box's rows, then its columns
  };

  void Fill(int64_t i, const C* boxes, const int32_t* box_indices) {
    constexpr bool kSlopes = !std::is_same_v<Tap, ::tfo::Tap<C>>;
    Part& part = parts_[i];
    const int64_t last = std::min((i + 1) * kPart, args_.roi.num_boxes);
    part.begin.reserve((last - i * kPart) *
                           (args_.roi.pooled_height + args_.roi.pooled_width) +
                       1);
    const auto add = [&](bool valid, const RoiAxis<C>& axis, int64_t bins) {
      for (int64_t p = 0; p < bins; ++p) {
        part.begin.push_back(part.taps.size());
        if (!valid) continue;
        VisitTaps<kSlopes>(
            axis, p, [&](int32_t pixel, C weight, BoxSlopes<C> slopes) {
              if constexpr (kSlopes) {
                part.taps.push_back({pixel, weight, slopes.low, slopes.high});
              } else {
                part.taps.push_back({pixel, weight});
              }
            });
      }
    };
    for (int64_t k = i * kPart; k < last; ++k) {
      const RoiOnLevel<C> roi = ReadRoi(args_, boxes, box_indices, k);
      places_[k] = roi.valid ? roi.level * args_.roi.batch + roi.image : -1;
      add(roi.valid, roi.y, args_.roi.pooled_height);
      add(roi.valid, roi.x, args_.roi.pooled_width);
    }
    part.begin.push_back(part.taps.size());
    part.taps.shrink_to_fit();
  }

  const RoiAverageArgs& args_;
  std::vector<int64_t> places_;
  std::vector<Part> parts_;
};

// Items sorted into buckets, in order within each.
class Buckets {
 public:
  // for_each(add) calls add(bucket, item) for each item, with a bucket in
  // [0, count). It is called twice.
  template <typename ForEach>
  Buckets(int64_t count, const ForEach& for_each) : begin_(count + 1) {
    for_each([&](int64_t bucket, int64_t) { ++begin_[bucket + 1]; });
    for (int64_t b = 0; b < count; ++b) begin_[b + 1] += begin_[b];
    items_.resize(begin_[count]);
    for_each(
        [&](int64_t bucket, int64_t item) { items_[begin_[bucket]++] = item; });
    // Each bucket now begins where its items end.
    for (int64_t b = count; b > 0; --b) begin_[b] = begin_[b - 1];
    begin_[0] = 0;
  }

  const int64_t* begin(int64_t bucket) const {
    return items_.data() + begin_[bucket];
  }
  const int64_t* end(int64_t bucket) const { return begin(bucket + 1); }
  int64_t size() const { return items_.size(); }
  // All of them, bucket by bucket.
  std::vector<int64_t> TakeItems() && { return std::move(items_); }

 private:
  std::vector<int64_t> begin_, items_;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_TAPS_H_
