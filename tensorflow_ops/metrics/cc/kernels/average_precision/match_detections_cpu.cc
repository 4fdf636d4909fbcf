#include <algorithm>
#include <cmath>
#include <vector>

#include "tensorflow_ops/metrics/cc/kernels/average_precision/falling_scores.h"
#include "tensorflow_ops/metrics/cc/kernels/average_precision/match_detections.h"

namespace tfo {
namespace {

// The operations and their order are those of pycocotools, so that overlaps
// are equal to a threshold in the same cases. A crowd is not part of the union.
double Overlap(const double* box, const double* object, bool is_crowd) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += box[i] + object[i];
  if (!std::isfinite(sum)) return 0;
  const double width = std::fmin(box[2] + box[0], object[2] + object[0]) -
                       std::fmax(box[0], object[0]);
  const double height = std::fmin(box[3] + box[1], object[3] + object[1]) -
                        std::fmax(box[1], object[1]);
  if (!(width > 0) || !(height > 0)) return 0;
  const double shared = width * height, area = box[2] * box[3];
  const double all = is_crowd ? area : area + object[2] * object[3] - shared;
  const double overlap = shared / all;
  return std::isnan(overlap) ? 0 : overlap;
}

bool IsInRange(double area, const double* range) {
  return !(area < range[0]) && !(area > range[1]);
}

// The detections and objects of one image; reuses its memory.
class Image {
 public:
  explicit Image(const MatchDetectionsArgs& args) : args_(args) {}

  void Match(int64_t image) {
    image_ = image;
    const int64_t first = image * args_.detections;
    const int64_t first_object = image * args_.objects;
    std::fill_n(args_.outcomes + first * Settings(),
                args_.detections * Settings(), uint8_t{kIgnored});
    std::fill_n(args_.ranks + first, args_.detections, -1);
    SortByClass(args_.classes + first, args_.detections, &detections_);
    SortByClass(args_.true_classes + first_object, args_.objects, &objects_);
    const double* const scores = args_.scores + first;
    auto object = objects_.begin();
    for (auto begin = detections_.begin(), end = begin;
         begin != detections_.end(); begin = end) {
      const int64_t label = Class(*begin);
      while (end != detections_.end() && Class(*end) == label) ++end;
      std::stable_sort(begin, end, [&](int64_t a, int64_t b) {
        return IsBefore(scores[a], scores[b]);
      });
      while (object != objects_.end() && TrueClass(*object) < label) ++object;
      auto last = object;
      while (last != objects_.end() && TrueClass(*last) == label) ++last;
      ranked_.assign(begin,
                     begin + std::min(args_.max_detections, end - begin));
      of_class_.assign(object, last);
      MatchClass();
      object = last;
    }
    for (int64_t i = 0; i < args_.objects; ++i) {
      for (int64_t a = 0; a < args_.areas; ++a) {
        args_.counts[(first_object + i) * args_.areas + a] =
            TrueClass(i) >= 0 && !IsIgnored(i, a);
      }
    }
  }

 private:
  int64_t Settings() const { return args_.areas * args_.thresholds; }
  int64_t Class(int64_t detection) const {
    return args_.classes[image_ * args_.detections + detection];
  }
  int64_t TrueClass(int64_t object) const {
    return args_.true_classes[image_ * args_.objects + object];
  }
  bool IsCrowd(int64_t object) const {
    return args_.is_crowd[image_ * args_.objects + object];
  }
  const double* AreaRange(int64_t range) const {
    return args_.area_ranges + 2 * range;
  }
  bool IsIgnored(int64_t object, int64_t range) const {
    const double area = args_.true_areas[image_ * args_.objects + object];
    return IsCrowd(object) || !IsInRange(area, AreaRange(range));
  }

  static void SortByClass(const int64_t* classes, int64_t count,
                          std::vector<int64_t>* indices) {
    indices->clear();
    for (int64_t i = 0; i < count; ++i) {
      if (classes[i] >= 0) indices->push_back(i);
    }
    std::stable_sort(
        indices->begin(), indices->end(),
        [&](int64_t a, int64_t b) { return classes[a] < classes[b]; });
  }

  // Matches ranked_ with of_class_.
  void MatchClass() {
    const int64_t count = of_class_.size();
    overlaps_.resize(ranked_.size() * count);
    for (size_t r = 0; r < ranked_.size(); ++r) {
      const int64_t detection = image_ * args_.detections + ranked_[r];
      args_.ranks[detection] = static_cast<int32_t>(r);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t object = image_ * args_.objects + of_class_[i];
        overlaps_[r * count + i] =
            Overlap(args_.boxes + 4 * detection, args_.true_boxes + 4 * object,
                    args_.is_crowd[object]);
      }
    }
    for (int64_t range = 0; range < args_.areas; ++range) {
      // Objects that count are taken first.
      order_.clear();
      for (const bool ignored : {false, true}) {
        for (int64_t i = 0; i < count; ++i) {
          if (IsIgnored(of_class_[i], range) == ignored) order_.push_back(i);
        }
        if (!ignored) num_counted_ = order_.size();
      }
      for (int64_t t = 0; t < args_.thresholds; ++t) MatchAt(range, t);
    }
  }

  void MatchAt(int64_t range, int64_t threshold) {
    const int64_t count = of_class_.size();
    const double least = std::min(args_.iou_thresholds[threshold], 1 - 1e-10);
    is_taken_.assign(count, 0);
    for (size_t r = 0; r < ranked_.size(); ++r) {
      const double* const overlaps = overlaps_.data() + r * count;
      double best = least;
      int64_t match = -1;
      for (int64_t g = 0; g < count; ++g) {
        if (g == num_counted_ && match >= 0) break;
        const int64_t i = order_[g];
        if (is_taken_[i] && !IsCrowd(of_class_[i])) continue;
        // Of equal overlaps, the last.
        if (overlaps[i] < best) continue;
        best = overlaps[i];
        match = g;
      }
      const int64_t detection = image_ * args_.detections + ranked_[r];
      const double* const box = args_.boxes + 4 * detection;
      const bool is_ignored =
          match >= 0 ? match >= num_counted_
                     : !IsInRange(box[2] * box[3], AreaRange(range));
      if (match >= 0) is_taken_[order_[match]] = 1;
      args_.outcomes[(detection * args_.areas + range) * args_.thresholds +
                     threshold] = is_ignored   ? kIgnored
                                  : match >= 0 ? kRight
                                               : kWrong;
    }
  }

  const MatchDetectionsArgs& args_;
  int64_t image_ = 0;
  // Indices in the image, by class.
  std::vector<int64_t> detections_, objects_;
  // Those of one class: detections by rank; objects.
  std::vector<int64_t> ranked_, of_class_;
  std::vector<double> overlaps_;  // [ranked_, of_class_]
  // Positions in of_class_: first num_counted_ objects that count, then others.
  std::vector<int64_t> order_;
  int64_t num_counted_ = 0;
  std::vector<char> is_taken_;  // of of_class_
};

}  // namespace

Error MatchDetections(const Cpu& cpu, const MatchDetectionsArgs& args) {
  // Without tensors, no memory limits the number of images.
  if (args.detections == 0 && args.objects == 0) return nullptr;
  const double of_pair = 2. * args.areas * args.thresholds + 20;
  const double cycles =
      args.detections * (100 + of_pair * (1 + args.objects / 4.));
  cpu.ParallelFor(args.images, cycles, [&](int64_t begin, int64_t end) {
    Image image(args);
    for (int64_t i = begin; i < end; ++i) image.Match(i);
  });
  return nullptr;
}

}  // namespace tfo
